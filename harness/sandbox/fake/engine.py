"""The fake engine and its sandboxes."""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import Self

import anyio
import anyio.lowlevel

from harness.errors import HarnessError, SandboxGone, StartFailed
from harness.ports import ArchiveCaps, Command, EngineInfo, ExecResult, OutputSink, Reaped, SandboxSpec
from harness.sandbox.fake.images import FakeImages
from harness.sandbox.fake.programs import PROGRAMS, Process, Program, run
from harness.sandbox.fake.tree import Tree
from harness.sandbox.kept import Kept
from harness.sandbox.meter import metered

CHUNK_BYTES = 64 * 1024
SYSTEM_ENV = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}


class Operation(StrEnum):
    """A call that a test can make fail."""

    INFO = "info"
    CREATE = "create"
    EXEC = "exec"
    PUT = "put"
    GET = "get"
    STOP = "stop"
    START = "start"
    CHANGES = "changes"
    REAP = "reap"


@dataclass
class Faults:
    """Errors that wait for the next calls of their operations."""

    waiting: defaultdict[Operation, deque[HarnessError]] = field(default_factory=lambda: defaultdict(deque))

    async def check(self, operation: Operation) -> None:
        """Raises the next error that waits for this operation. A point where a cancellation is noticed, like a real call."""
        await anyio.lowlevel.checkpoint()
        if self.waiting[operation]:
            raise self.waiting[operation].popleft()


class FakeSandbox:
    """A sandbox in memory. ``tree`` is its file system, for tests to look at; ``commands`` what was run in it."""

    def __init__(
        self, *, id: str, spec: SandboxSpec, base: Tree, programs: Mapping[str, Program], faults: Faults
    ) -> None:
        self.id = id
        self.spec = spec
        self.warnings: tuple[str, ...] = ()
        self.tree = base.copy()
        self.commands: list[Command] = []
        self.running = True
        self.removed = False
        self._base = base
        self._programs = programs
        self._faults = faults
        self._scopes: set[anyio.CancelScope] = set()
        self.tree.folder(self.workdir)

    @property
    def workdir(self) -> str:
        return self.spec.workdir or self.spec.image.workdir

    async def exec(self, command: Command, sink: OutputSink | None = None) -> ExecResult:
        self._require(running=True)
        await self._faults.check(Operation.EXEC)
        self.commands.append(command)
        began = anyio.current_time()
        stdout, stderr = Kept(command.keep_bytes), Kept(command.keep_bytes)
        status: int | None = None
        # A deadline ends the command; so does the sandbox's stop, from outside.
        with anyio.CancelScope(
            deadline=began + (math.inf if command.deadline_s is None else command.deadline_s)
        ) as scope:
            self._scopes.add(scope)
            try:
                status = await run(self._process(command, _writer(stdout, sink), _writer(stderr, sink)))
            finally:
                self._scopes.discard(scope)
        self._require(running=True)
        return ExecResult(status, stdout.output(), stderr.output(), anyio.current_time() - began)

    def _process(self, command: Command, out: OutputSink, err: OutputSink) -> Process:
        uid, gid = _ids(command.user or self.spec.image.user)
        return Process(
            argv=command.argv,
            env={**SYSTEM_ENV, **self.spec.image.env, **self.spec.env, **command.env},
            cwd=command.cwd or self.workdir,
            uid=uid,
            gid=gid,
            stdin=command.stdin or b"",
            tree=self.tree,
            out=out,
            err=err,
            programs=self._programs,
        )

    async def put(self, path: str, archive: AsyncIterable[bytes]) -> None:
        self._require()
        await self._faults.check(Operation.PUT)
        data = b"".join([chunk async for chunk in archive])
        self.tree.unpack(path, data)

    @asynccontextmanager
    async def get(self, path: str, caps: ArchiveCaps = ArchiveCaps()) -> AsyncGenerator[AsyncIterator[bytes]]:
        self._require()
        await self._faults.check(Operation.GET)
        yield metered(_chunks(self.tree.pack(path)), caps, path)

    async def stop(self) -> None:
        self._require()
        await self._faults.check(Operation.STOP)
        self._end()

    async def start(self) -> None:
        self._require()
        await self._faults.check(Operation.START)
        self.running = True

    async def changes(self) -> tuple[str, ...]:
        self._require()
        await self._faults.check(Operation.CHANGES)
        return self.tree.differences(self._base)

    def vanish(self) -> None:
        """As if someone had removed it behind the harness's back."""
        self._end()
        self.removed = True

    def die(self) -> None:
        """As if its first process had been killed: it stops, its files stay."""
        self._end()

    def _end(self) -> None:
        self.running = False
        for scope in self._scopes:
            scope.cancel()

    def _require(self, *, running: bool = False) -> None:
        if self.removed:
            raise SandboxGone(f"the sandbox {self.id} is gone")
        if running and not self.running:
            raise SandboxGone(f"the sandbox {self.id} doesn't run")


class FakeEngine(FakeImages):
    """`ports.Engine` and `ports.ImageEngine` in memory.

    programs: added to, and winning over, the built-in ones: by name, by path, or by the whole text of a shell script.
    """

    def __init__(self, *, programs: Mapping[str, Program] | None = None) -> None:
        super().__init__()
        self.sandboxes: dict[str, FakeSandbox] = {}
        """Those that exist, by id."""
        self.made: list[FakeSandbox] = []
        """Every one that was ever made, in order."""
        self.warnings: tuple[str, ...] = ()
        """What each new sandbox warns of."""
        self._programs = {**PROGRAMS, **(programs or {})}
        self._faults = Faults()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to close."""

    def fail_next(self, operation: Operation, *errors: HarnessError) -> None:
        """Make the next calls of ``operation`` raise these, one each."""
        self._faults.waiting[operation].extend(errors)

    async def info(self) -> EngineInfo:
        await self._faults.check(Operation.INFO)
        return EngineInfo("fake", "0", "fake", "x86_64", cpus=2, memory_bytes=2**33, root_dir=None)

    def in_use(self) -> frozenset[str]:
        return frozenset(sandbox.spec.image.id for sandbox in self.sandboxes.values())

    @asynccontextmanager
    async def sandbox(self, spec: SandboxSpec) -> AsyncGenerator[FakeSandbox]:
        await self._faults.check(Operation.CREATE)
        image = self.images.get(spec.image.id)
        if image is None:
            raise StartFailed(f"a sandbox of {spec.image.ref} can't be created: no such image {spec.image.id}")
        digest = hashlib.sha256(f"{id(self)}/{len(self.made)}".encode()).hexdigest()
        sandbox = FakeSandbox(id=digest, spec=spec, base=image.tree, programs=self._programs, faults=self._faults)
        sandbox.warnings = self.warnings
        self.made.append(sandbox)
        self.sandboxes[sandbox.id] = sandbox
        try:
            await self._faults.check(Operation.START)
            yield sandbox
        finally:
            sandbox.vanish()
            self.sandboxes.pop(sandbox.id, None)

    async def reap(self, *, run: str | None = None, dry_run: bool = False, spare_living: bool = False) -> Reaped:
        """Owners here never die: what a sweep finds is of ``run``."""
        await self._faults.check(Operation.REAP)
        found = [sandbox for sandbox in self.sandboxes.values() if run is not None and sandbox.spec.labels.run == run]
        if spare_living:
            return Reaped(spared=tuple(sandbox.id for sandbox in found))
        if not dry_run:
            for sandbox in found:
                sandbox.vanish()
                del self.sandboxes[sandbox.id]
        return Reaped(sandboxes=tuple(sandbox.id for sandbox in found))


def _writer(kept: Kept, sink: OutputSink | None) -> OutputSink:
    async def write(data: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        if data:
            kept.feed(data)
            if sink is not None:
                await sink(data)

    return write


async def _chunks(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), CHUNK_BYTES):
        await anyio.lowlevel.checkpoint()
        yield data[start : start + CHUNK_BYTES]


_KNOWN_USERS = {"": 0, "root": 0, "nobody": 65534}


def _ids(user: str) -> tuple[int, int]:
    name, _, group = user.partition(":")
    uid = _KNOWN_USERS.get(name)
    uid = uid if uid is not None else int(name) if name.isdecimal() else 1000
    return uid, int(group) if group.isdecimal() else (uid if uid in _KNOWN_USERS.values() else 0)
