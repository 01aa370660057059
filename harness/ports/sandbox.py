"""The port of what runs sandboxes, and what goes through it."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

from harness.task.image import ResolvedImage
from harness.task.model import Network, Resources, Security


@dataclass(frozen=True, slots=True)
class Labels:
    """Who a sandbox belongs to, so that whatever dies, it can be reaped.

    lease_s: seconds from the sandbox's start until anyone may remove it; also its maximum lifetime.
    """

    run: str
    attempt: str
    role: str
    """``agent``, ``grader``, ``control`` or ``probe``."""
    lease_s: float


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """What a sandbox is to be. Its first process is the harness's own; the image's entrypoint and command are not run."""

    image: ResolvedImage
    labels: Labels
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    workdir: str | None = None
    network: Network = Network()
    resources: Resources = Resources()
    security: Security = Security()
    toolbox: bool = False
    """Mount the read-only toolbox (static shell and tools) at `TOOLBOX`."""


TOOLBOX = "/.harness/toolbox"
"""Where the toolbox lies in a sandbox that asked for it: ``bash`` and ``busybox``, both static, and ``bin/`` with busybox's applets."""


@dataclass(frozen=True, slots=True)
class Output:
    """What a command wrote to one stream: all of it, or its head and tail.

    total_bytes counts everything that was written; ``dropped_bytes`` is what lies between head and tail and isn't here.
    """

    head: bytes
    tail: bytes
    total_bytes: int

    @property
    def dropped_bytes(self) -> int:
        return self.total_bytes - len(self.head) - len(self.tail)

    def __bytes__(self) -> bytes:
        if not self.dropped_bytes:
            return self.head + self.tail
        return self.head + f"\n[{self.dropped_bytes} bytes left out]\n".encode() + self.tail

    @property
    def text(self) -> str:
        """For people: undecodable bytes are replaced."""
        return bytes(self).decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class ExecResult:
    """How a command ended. ``exit_status`` is None when its deadline ended it."""

    exit_status: int | None
    stdout: Output
    stderr: Output
    duration_s: float

    @property
    def timed_out(self) -> bool:
        return self.exit_status is None


OutputSink = Callable[[bytes], Awaitable[None]]
"""Gets each chunk of a command's standard output and error, in order, while it runs. Must be quick."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command to run in a sandbox.

    argv: program and arguments; no shell is involved unless argv names one.
    user: name, uid or ``uid:gid``; None: the image's.
    cwd: None: the sandbox's working directory.
    deadline_s: when it passes, the command's process group and session are ended; None: none.
    keep_bytes: how much of each stream's head, and as much of its tail, is kept in the result.
    """

    argv: Sequence[str]
    user: str | None = None
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    stdin: bytes | None = None
    deadline_s: float | None = None
    keep_bytes: int = 64 * 1024


@dataclass(frozen=True, slots=True)
class ArchiveCaps:
    """What an archive read from a sandbox may hold; more raises `TransferFailed`."""

    max_bytes: int = 4 * 1024**3
    max_members: int = 200_000


class Sandbox(Protocol):
    """One running container of one attempt."""

    @property
    def id(self) -> str: ...

    @property
    def warnings(self) -> tuple[str, ...]:
        """What its specification asks for and this engine doesn't enforce, such as a disk limit; a sentence each."""
        ...

    async def exec(self, command: Command, sink: OutputSink | None = None) -> ExecResult:
        """Run a command and wait for it. Its output is drained always and kept bounded.

        Raises SandboxGone when the sandbox doesn't run, EngineUnreachable when the engine doesn't answer. A program that
        doesn't exist is exit status 127 (126 when it can't be executed), as in a shell: that's the sandbox's business.
        """
        ...

    async def put(self, path: str, archive: AsyncIterable[bytes]) -> None:
        """Unpack a tar stream below ``path`` (which must exist), as root, keeping owners and modes. Works when stopped too."""
        ...

    def get(self, path: str, caps: ArchiveCaps = ArchiveCaps()) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Read ``path`` as a tar stream whose members are named below the path's last part. Works when stopped too.

        Raises PathMissing when there is nothing at ``path``, TransferFailed when a cap is broken. Links aren't followed
        within the archive; a link *at* ``path`` is returned as a link.
        """
        ...

    async def stop(self) -> None:
        """End every process at once. The file system stays. Stopping twice is fine."""
        ...

    async def start(self) -> None:
        """Start a stopped sandbox again, on the same file system."""
        ...

    async def changes(self) -> tuple[str, ...]:
        """Absolute paths that differ from the image: added, changed or deleted."""
        ...


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What the engine says of itself."""

    name: str
    version: str
    id: str
    architecture: str
    cpus: int
    memory_bytes: int
    root_dir: str | None
    """Where it keeps its data, on the engine's own machine."""


@dataclass(frozen=True, slots=True)
class Reaped:
    """What a sweep removed, or would remove. ``spared``: the sandboxes that stay because their owner lives."""

    sandboxes: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    images: tuple[str, ...] = ()  # tags, and ids of images that have none
    spared: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.sandboxes or self.networks or self.volumes or self.images)


class Engine(Protocol):
    """What runs sandboxes."""

    async def info(self) -> EngineInfo: ...

    def sandbox(self, spec: SandboxSpec) -> AbstractAsyncContextManager[Sandbox]:
        """A started sandbox, removed at the end whatever happened.

        Raises StartFailed, EngineUnreachable, or UnsupportedError when what the spec asks can't be enforced here.
        """
        ...

    async def reap(self, *, run: str | None = None, dry_run: bool = False, spare_living: bool = False) -> Reaped:
        """Remove what is left of dead owners and of leases that ended; with ``run``, everything of that run.

        spare_living: of that run, only what has no living owner: an attempt that loses its sandbox has nothing left to be graded.
        """
        ...
