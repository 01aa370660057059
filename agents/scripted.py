"""The scripted agent runs the commands of a file, one after the other: for tests, demos and attacks that must repeat."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.errors import ConfigError
from harness.ports import AgentContext, Command

MAX_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ScriptedAgent:
    """Runs each command with ``/bin/sh -c`` in the working directory, as the agent's user, whatever the one before did.

    In the file a command is a line; a line that ends with a backslash goes on in the next; empty lines and lines that
    begin with ``#`` are passed over.
    """

    commands: tuple[str, ...]
    name: str = "scripted"
    uses_policy: bool = False

    @classmethod
    def from_file(cls, path: Path) -> ScriptedAgent:
        """Raises ConfigError when the file can't be read or holds no command."""
        try:
            if path.exists() and not path.is_file():
                raise ConfigError(
                    f"scripted agent: {path} is not a regular file. Name a text file with a command a line"
                )
            with path.open("rb") as file:
                data = file.read(MAX_BYTES + 1)
            text = data.decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it isn't UTF-8 text"
            raise ConfigError(
                f"scripted agent: can't read {path}: {reason}. Name a text file with a command a line"
            ) from error
        if len(data) > MAX_BYTES:
            raise ConfigError(f"scripted agent: {path} is larger than {MAX_BYTES:,} bytes. Name a shorter one")
        joined = text.replace("\\\n", "")
        commands = tuple(
            line.strip() for line in joined.splitlines() if line.strip() and not line.lstrip().startswith("#")
        )
        if not commands:
            raise ConfigError(f"scripted agent: {path} holds no command. Write one command a line")
        return cls(commands)

    async def setup(self, context: AgentContext) -> None:
        """Nothing to install."""

    async def run(self, context: AgentContext) -> None:
        """Run every command; a failing one doesn't stop the next."""
        for command in self.commands:
            await context.log(f"$ {command}\n".encode())
            result = await context.sandbox.exec(
                Command(
                    argv=["/bin/sh", "-c", command],
                    user=context.user,
                    cwd=context.workdir,
                    keep_bytes=0,
                ),
                context.log,
            )
            await context.log(f"[harness] exit status {result.exit_status}\n".encode())
