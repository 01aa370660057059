"""One container, as the engine's API sees it: its commands, its state, its end. Every 404 and 409 becomes SandboxGone here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import anyio
import structlog

from harness.errors import EngineError, SandboxGone
from harness.sandbox.docker.client import ApiError, EngineClient
from harness.sandbox.docker.hijack import Hijacked
from harness.sandbox.docker.json import Json, member, number, text

START_EXEC_S = 30.0
"""For the engine to answer that a command is being started."""
REMOVE_S = 60.0

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Container:
    """A container that commands run in.

    user, workdir: for commands that name none. env: every process's, from the image and the sandbox's specification.
    shell: program and arguments of the shell for the harness's own scripts.
    """

    client: EngineClient
    id: str
    user: str
    workdir: str
    env: Mapping[str, str]
    shell: Sequence[str]

    @property
    def short_id(self) -> str:
        return self.id[:12]

    async def create_exec(
        self, argv: Sequence[str], *, user: str, cwd: str, env: Mapping[str, str], stdin: bool = False
    ) -> str:
        """Prepare a command and give its id. Raises SandboxGone when the container doesn't run."""
        body: dict[str, Json] = {
            "Cmd": list(argv),
            "User": user,
            "WorkingDir": cwd,
            "Env": [f"{name}={value}" for name, value in env.items()],
            "AttachStdin": stdin,
            "AttachStdout": True,
            "AttachStderr": True,
        }
        try:
            return text(await self.client.call("POST", f"/containers/{self.id}/exec", body=body), "Id")
        except ApiError as error:
            await self._refused(error)
            raise

    async def start_exec(self, exec_id: str) -> Hijacked:
        """Start a prepared command. Raises SandboxGone when the container doesn't run."""
        try:
            with anyio.fail_after(START_EXEC_S):
                return await self.client.hijack(f"/exec/{exec_id}/start", body={"Detach": False, "Tty": False})
        except TimeoutError as error:
            raise EngineError(f"the engine didn't start a command within {START_EXEC_S:g} s") from error
        except ApiError as error:
            await self._refused(error)
            raise

    async def inspect_exec(self, exec_id: str) -> Json:
        """What the engine knows of a command. Raises SandboxGone when it knows nothing, for its container is gone."""
        try:
            return await self.client.call("GET", f"/exec/{exec_id}/json")
        except ApiError as error:
            if error.status == 404:
                raise self._gone(error) from error
            raise

    async def inspect(self) -> Json:
        """What the engine knows of the container. Raises SandboxGone when it doesn't exist."""
        try:
            return await self.client.call("GET", f"/containers/{self.id}/json")
        except ApiError as error:
            if error.status == 404:
                raise self._gone(error) from error
            raise

    async def require_running(self, *, settle_s: float = 0.0) -> None:
        """Raises SandboxGone when the container doesn't run, or stops within ``settle_s``."""
        try:
            with anyio.move_on_after(settle_s):  # with 0 nothing is sent
                await self.client.call("POST", f"/containers/{self.id}/wait", params={"condition": "not-running"})
        except ApiError as error:
            if error.status != 404:
                raise
        state = await self.inspect()
        if member(state, "State", "Running") is not True:
            status = number(state, "State", "ExitCode")
            raise SandboxGone(f"the sandbox {self.short_id} no longer runs (exit status {status})")

    async def kill(self) -> None:
        """End every process at once; fine when that has happened already. Raises SandboxGone when the container doesn't exist."""
        try:
            await self.client.call("POST", f"/containers/{self.id}/kill", params={"signal": "KILL"})
            await self.client.call("POST", f"/containers/{self.id}/wait", params={"condition": "not-running"})
        except ApiError as error:
            if error.status == 404:
                raise self._gone(error) from error
            if error.status != 409:
                raise

    async def _refused(self, error: ApiError) -> None:
        if error.status in (404, 409):
            raise SandboxGone(f"the sandbox {self.short_id} doesn't run: {error}") from error
        await self.require_running()

    def _gone(self, error: ApiError) -> SandboxGone:
        return SandboxGone(f"the sandbox {self.short_id} is gone: {error}")


async def remove_container(client: EngineClient, name: str) -> None:
    """Remove a container with its anonymous volumes, running or not, even when cancelled. What fails is left to the next sweep."""
    with anyio.CancelScope(shield=True):
        try:
            await client.call("DELETE", f"/containers/{name}", params={"force": "1", "v": "1"}, timeout_s=REMOVE_S)
        except EngineError as error:
            never_made_or_going = isinstance(error, ApiError) and error.status in (404, 409)
            if not never_made_or_going:
                _log.warning("container_not_removed", container=name, error=str(error))
