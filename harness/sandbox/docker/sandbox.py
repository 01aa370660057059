"""A sandbox that is a Docker container."""

from __future__ import annotations

import tarfile
from collections.abc import AsyncIterable, AsyncIterator, Mapping, Set
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from io import BytesIO
from pathlib import PurePosixPath

import anyio

from harness.errors import EngineError, SandboxGone, StartFailed, TransferFailed
from harness.ports import TOOLBOX, ArchiveCaps, Command, ExecResult, OutputSink
from harness.sandbox.docker import first
from harness.sandbox.docker.archive import get_archive, put_archive
from harness.sandbox.docker.client import ApiError
from harness.sandbox.docker.container import Container
from harness.sandbox.docker.execution import Execution
from harness.sandbox.docker.frames import Frames
from harness.sandbox.docker.json import items, number, text
from harness.sandbox.kept import Kept

BOOT_S = 120.0
"""For the engine to start the first process, and that to say so."""
READY_S = 30.0
"""For the first process to say that it runs."""
HOSTS_PATH = "/etc/hosts"
OWN_PATHS = frozenset({TOOLBOX, TOOLBOX.rpartition("/")[0], "/sbin/docker-init", "/usr/sbin/docker-init"})
"""Mount points that the harness and the engine make in every sandbox."""
ALREADY_STARTED = 304
MAX_CHANGES_BYTES = 16 * 1024 * 1024
"""Of the engine's list of paths that differ, which is as long as the agent likes."""
MODIFIED = 0
"""What the engine says of a path that was there before."""
_SMALL = ArchiveCaps(max_bytes=64 * 1024, max_members=1)


@dataclass(frozen=True, slots=True)
class DockerSandbox:
    """One container of one attempt; `DockerEngine.sandbox` makes and removes it.

    warnings: what was asked for but isn't enforced by this engine, such as a disk limit, and what the engine warned of.
    disk_enforced: whether the engine itself holds the sandbox to its disk limit.
    """

    container: Container
    warnings: tuple[str, ...] = ()
    disk_enforced: bool = False

    @property
    def id(self) -> str:
        return self.container.id

    async def exec(self, command: Command, sink: OutputSink | None = None) -> ExecResult:
        return await Execution(self.container, command, sink).run()

    async def put(self, path: str, archive: AsyncIterable[bytes]) -> None:
        await put_archive(self.container, path, archive)

    def get(self, path: str, caps: ArchiveCaps = ArchiveCaps()) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return get_archive(self.container, path, caps)

    async def stop(self) -> None:
        await self.container.kill()

    async def start(self) -> None:
        """Start it, again or for the first time. Raises StartFailed or SandboxGone."""
        container = self.container
        try:
            with anyio.fail_after(BOOT_S):
                await _boot(container)
        except TimeoutError as error:
            raise StartFailed(
                f"the engine didn't start the sandbox {container.short_id} within {BOOT_S:g} s"
            ) from error
        except ApiError as error:
            if error.status == 404 and not await _exists(container):
                raise SandboxGone(f"the sandbox {container.short_id} is gone: {error}") from error
            raise StartFailed(f"the sandbox {container.short_id} can't be started: {error}") from error

    async def changes(self) -> tuple[str, ...]:
        try:
            answer = await self.container.client.call(
                "GET", f"/containers/{self.id}/changes", max_bytes=MAX_CHANGES_BYTES
            )
        except ApiError as error:
            if error.status == 404:
                raise SandboxGone(f"the sandbox {self.container.short_id} is gone: {error}") from error
            raise
        found = {text(item, "Path"): number(item, "Kind") for item in items(answer)}
        own = OWN_PATHS | ({HOSTS_PATH} if HOSTS_PATH in found and await self._wrote_hosts() else frozenset[str]())
        return _foreign(found, own)

    async def _wrote_hosts(self) -> bool:
        """Whether /etc/hosts holds exactly what the first process wrote there."""
        try:
            async with self.get(HOSTS_PATH, _SMALL) as chunks:
                data = b"".join([chunk async for chunk in chunks])
            with tarfile.open(fileobj=BytesIO(data)) as archive:
                member = archive.next()
                content = archive.extractfile(member) if member and member.isreg() else None
                return content is not None and content.read() == first.HOSTS.encode()
        except (TransferFailed, tarfile.TarError):
            return False


def _foreign(found: Mapping[str, int | None], own: Set[str]) -> tuple[str, ...]:
    """The paths that differ, without our own, and without folders that differ only because those lie in them."""
    above_own = {str(folder) for path in own & found.keys() for folder in PurePosixPath(path).parents}
    explained = {path for path in above_own if found.get(path) == MODIFIED}
    foreign = [path for path in found if path not in own and path not in explained]
    above_foreign = {folder for folder in explained if any(path.startswith(f"{folder}/") for path in foreign)}
    return tuple(path for path in found if path not in own and (path not in explained or path in above_foreign))


async def _boot(container: Container) -> None:
    """Start the container and wait until its first process says that it runs."""
    said = Kept(4096)
    frames = Frames()
    connection = await container.client.hijack(
        f"/containers/{container.id}/attach", params={"stream": "1", "stdout": "1", "stderr": "1"}
    )
    async with connection:
        async with container.client.open("POST", f"/containers/{container.id}/start") as answer:
            if answer.status == ALREADY_STARTED:
                return
        with anyio.move_on_after(READY_S) as limit:
            while first.READY not in bytes(said.output()):
                data = await connection.receive()
                if not data:
                    break
                for _, piece in frames.feed(data):
                    said.feed(piece)
    if first.READY in bytes(said.output()):
        return
    why = "said nothing" if limit.cancelled_caught else "ended at once"
    raise StartFailed(
        f"the sandbox {container.short_id} isn't ready: its first process {why}: {said.output().text.strip() or 'no output'}. "
        "The image must have a working /bin/sh and sleep"
    )


async def _exists(container: Container) -> bool:
    try:
        await container.inspect()
    except SandboxGone:
        return False
    except EngineError:
        return True
    return True
