"""How a command's processes are known inside of a sandbox, and ended.

The engine tells the number of a command's first process on its own machine, not the number that it has in the sandbox. So a command
is started through a shell that says its number and then becomes the command (`exec`). A process that the engine starts leads a
session of its own: the number names the session too.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence

from harness.sandbox.docker.container import Container
from harness.sandbox.docker.json import number

_ANNOUNCE = 'echo "$1 $$"; shift; exec "$@"'
_NUMBER = re.compile(rb"(\d{1,10})\n")
_MAX_LINE_BYTES = 64
_SHELL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# Only the shell's own commands: the session may have used up the sandbox's processes. A name in /proc/*/stat may hold anything.
_END = r"""
round=0
while [ "$round" -lt 100 ]; do
  round=$((round + 1)); found=
  for process in /proc/[0-9]*; do
    line=
    { while IFS= read -r part || [ -n "$part" ]; do line="$line $part"; done <"$process/stat"; } 2>/dev/null || continue
    set -- "$1" ${line##*") "}
    [ "$2" != Z ] && [ "$2" != X ] || continue
    if [ "$4" = "$1" ] || [ "$5" = "$1" ]; then kill -9 "${process#/proc/}" 2>/dev/null; found=1; fi
  done
  [ -n "$found" ] || exit 0
done
exit 1
"""


class Announcement:
    """The line that a command's shell writes before it becomes the command: first on its standard output."""

    def __init__(self, token: str = "") -> None:
        self._expected = f"{token} ".encode() if token else b""
        self._line = b""
        self.pid: int | None = None

    @property
    def pending(self) -> bool:
        """Whether the line can still come."""
        return bool(self._expected)

    def strip(self, piece: bytes) -> bytes:
        """The next piece of standard output, without what belongs to the line."""
        if not self._expected:
            return piece
        line = self._line = self._line + piece
        if line.startswith(self._expected):
            if found := _NUMBER.match(line, len(self._expected)):
                self.pid = int(found.group(1))
                line = line[found.end() :]
            elif len(line) < _MAX_LINE_BYTES:
                return b""
        elif self._expected.startswith(line):
            return b""
        self._expected = b""
        return line


def announced(container: Container, argv: Sequence[str], env: Mapping[str, str]) -> tuple[list[str], Announcement]:
    """The command line that announces itself and becomes ``argv``."""
    # A shell drops variables whose names it can't say; `env` sets them again behind it.
    odd = [f"{name}={value}" for name, value in {**container.env, **env}.items() if not _SHELL_NAME.fullmatch(name)]
    token = secrets.token_hex(8)
    behind = ["env", *odd] if odd else []
    return [*container.shell, "-c", _ANNOUNCE, "sh", token, *behind, *argv], Announcement(token)


async def end_session(container: Container, pid: int) -> bool:
    """Kill every process of the session. False when that didn't succeed; what the sandbox's shell says is no proof that it did."""
    argv = [*container.shell, "-c", _END, "sh", str(pid)]
    exec_id = await container.create_exec(argv, user="0:0", cwd="/", env={})
    async with await container.start_exec(exec_id) as connection:
        while await connection.receive():
            pass
    return number(await container.inspect_exec(exec_id), "ExitCode") == 0
