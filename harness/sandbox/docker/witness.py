"""What the host sees of a Docker engine: its connections, its process, its disk, its kernel, and what it says of a container.

For a whole run one stream of events is held open (of the daemon's own events, so that hardly any come): its end tells at once that
the engine went away. All else is looked at only when something has failed.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import anyio

from harness.concurrency import background, in_thread
from harness.errors import EngineError, HarnessError
from harness.evidence import Case, Reading, Sighting, Source
from harness.faults import DiskState, EngineState, MemoryState, SandboxState
from harness.sandbox.docker.address import UnixAddress
from harness.sandbox.docker.client import ApiError
from harness.sandbox.docker.engine import DockerEngine
from harness.sandbox.docker.interruption import Interruption, explained
from harness.sandbox.docker.json import Json, member, number, text
from harness.sandbox.docker.peer import EngineProcess, engine_process
from harness.sandbox.host import DiskReserve, KernelLog

PING_S = 8.0
INSPECT_S = 8.0
SIZE_S = 15.0
"""The engine walks through what a sandbox wrote."""
PROCESS_S = 3.0
SAMPLE_S = 2.0
RECONNECT_S = (0.1, 0.3, 1.0, 3.0)
RECENT_S = 60.0
"""A full disk explains a failure for this long."""
UNDECLARED_QUOTA_BYTES = 1024**3
"""What an attempt whose task sets no disk limit may have written and still count as a victim of others."""
CLOCK_S = 5.0
"""Between the kernel's clock and ours."""


@dataclass(frozen=True, slots=True)
class ContainerReading:
    """What the engine says of a container. stopped_at: unix time."""

    state: SandboxState
    stopped_at: float | None = None


@dataclass
class DockerWitness:
    """`evidence.Witness` for one engine; `watch_engine` makes it."""

    engine: DockerEngine
    kernel: KernelLog
    disk: DiskReserve | None = None
    life: EngineProcess | None = None
    connected: bool = False
    ping_s: float = PING_S
    interruptions: list[Interruption] = field(default_factory=list[Interruption])

    def interrupted_since(self, moment: float) -> bool:
        return any(interruption.at >= moment for interruption in self.interruptions)

    async def look(self, case: Case) -> Sighting:
        reachable, said = await self._ping()
        container = await self._container(case.sandbox) if reachable else ContainerReading(SandboxState.UNKNOWN)
        engine, why = await self._engine(case, container) if reachable else (EngineState.UNREACHABLE, said)
        disk, room = await self._disk(case, reachable=reachable)
        memory, kernel = self._memory(case)
        readings = (
            Reading(source=Source.ENGINE, found=engine, said=why),
            Reading(source=Source.SANDBOX, found=container.state, said=_stopped(container)),
            Reading(source=Source.DISK, found=disk, said=room),
            Reading(source=Source.MEMORY, found=memory, said=kernel),
        )
        return Sighting(engine, container.state, disk, memory, readings)

    # --- the engine ---------------------------------------------------------------------------------------------

    async def _ping(self) -> tuple[bool, str]:
        """Twice: the first try may meet a pooled connection that a past life of the engine has left."""
        said = ""
        for _ in range(2):
            try:
                await self.engine.client.call("GET", "/_ping", timeout_s=self.ping_s)
            except EngineError as error:
                said = str(error)
            else:
                return True, "answers"
        return False, said

    async def _engine(self, case: Case, container: ContainerReading) -> tuple[EngineState, str]:
        now = await self.read_life()
        if now is not None and self.life is not None and not now.same(self.life):
            # Restarted so quickly that the stream's end has not been seen yet, or before one could be opened.
            self.note_end(restarted=True)
            self.life = now
        who = f"{now.name} {now.pid}, started {_clock(now.started)}" if now else "its process can't be seen from here"
        state = explained(self.interruptions, case, stopped_at=container.stopped_at, state=container.state)
        if state is EngineState.SOUND:
            return state, f"answers; {who}"
        times = ", ".join(_clock(item.wall) for item in self.interruptions if item.at >= case.began)
        return state, f"its stream of events ended at {times}; {who}"

    async def read_life(self) -> EngineProcess | None:
        """The process behind the socket now."""
        with anyio.move_on_after(PROCESS_S):
            return await in_thread(engine_process, self.engine.client.address, abandon=True)
        return None

    def note_end(self, *, restarted: bool | None = None) -> None:
        """The engine went away just now."""
        self.interruptions.append(Interruption(anyio.current_time(), time.time(), restarted=restarted))

    async def watch(self) -> None:
        """Hold the stream of events; open it again when it has ended."""
        failures = 0
        while True:
            try:
                filters = json.dumps({"type": ["daemon"]})
                async with self.engine.client.open("GET", "/events", params={"filters": filters}) as answer:
                    await self._opened()
                    failures = 0
                    async for _ in answer.chunks():
                        pass
            except (HarnessError, ValueError):
                pass  # unreachable, cut, or nonsense in its place: the same news as an orderly end
            if self.connected:
                self.connected = False
                self.note_end()
            await anyio.sleep(RECONNECT_S[min(failures, len(RECONNECT_S) - 1)])
            failures += 1

    async def _opened(self) -> None:
        before, self.life = self.life, await self.read_life()
        self.connected = True
        if self.disk is None:
            await self._find_disk()
        if not self.interruptions or self.interruptions[-1].until is not None:
            return
        known = before is not None and self.life is not None
        restarted = not before.same(self.life) if before and self.life and known else None
        last = self.interruptions[-1]
        self.interruptions[-1] = last.over(until=time.time(), restarted=last.restarted or restarted)

    # --- one container ------------------------------------------------------------------------------------------

    async def _container(self, id: str) -> ContainerReading:
        try:
            answer = await self.engine.client.call("GET", f"/containers/{id}/json", timeout_s=INSPECT_S)
        except ApiError as error:
            return ContainerReading(SandboxState.MISSING if error.status == 404 else SandboxState.UNKNOWN)
        except EngineError:
            return ContainerReading(SandboxState.UNKNOWN)
        if member(answer, "State", "Running") is True:
            return ContainerReading(SandboxState.RUNNING)
        return ContainerReading(SandboxState.STOPPED, _unix(text(answer, "State", "FinishedAt")))

    # --- the host -----------------------------------------------------------------------------------------------

    async def _find_disk(self) -> None:
        """The engine's disk, where it is this machine's."""
        info = await self.engine.info()
        local = isinstance(self.engine.client.address, UnixAddress) and info.name == socket.gethostname()
        if local and info.root_dir and Path(info.root_dir).is_dir():
            self.disk = DiskReserve(Path(info.root_dir))

    async def sample(self) -> None:
        """Keep an eye on the disk: who filled it may have been cleaned up by the time its victims are looked into."""
        while True:
            if self.disk is not None:
                self.disk.sample(anyio.current_time())
            await anyio.sleep(SAMPLE_S)

    async def _disk(self, case: Case, *, reachable: bool) -> tuple[DiskState, str]:
        if self.disk is None:
            return DiskState.UNKNOWN, "the engine's disk can't be seen from here"
        self.disk.sample(anyio.current_time())
        breached = self.disk.breached_since(max(case.began, case.failed - RECENT_S))
        if breached is None:
            return DiskState.UNKNOWN, f"{self.disk.path} can't be read"
        room = f"{self.disk.free_bytes or 0:,} bytes free of a reserve of {self.disk.reserve_bytes:,}"
        if not breached:
            return DiskState.SOUND, room
        used = await self._used_bytes(case.sandbox) if reachable else None
        if used is None:
            return DiskState.UNKNOWN, f"{room}; the engine can't say how much of it is this attempt's"
        quota = case.spec.resources.disk_bytes or UNDECLARED_QUOTA_BYTES
        state = DiskState.BREACHED_BY_THIS if used >= quota else DiskState.BREACHED_BY_OTHERS
        return state, f"{room}; this attempt wrote {used:,} of {quota:,}"

    async def _used_bytes(self, id: str) -> int | None:
        try:
            answer: Json = await self.engine.client.call(
                "GET", f"/containers/{id}/json", params={"size": "1"}, timeout_s=SIZE_S
            )
        except EngineError:
            return None
        return number(answer, "SizeRw") or 0

    def _memory(self, case: Case) -> tuple[MemoryState, str]:
        if self.disk is None:
            return MemoryState.UNKNOWN, "the engine's kernel can't be seen from here"
        age = anyio.current_time() - case.began
        found = self.kernel.global_oom_since(time.monotonic() - age - CLOCK_S)
        if found is None:
            return (
                MemoryState.UNKNOWN,
                "processes were killed, and the kernel's log can't be read to tell whose limit it was",
            )
        if not found:
            return (
                MemoryState.SOUND,
                "the kernel killed nothing for want of memory, but for sandboxes at their own limit",
            )
        if case.spec.resources.memory_bytes is None:
            return (
                MemoryState.UNKNOWN,
                "the machine ran out of memory, and this attempt has no limit: it may be the reason",
            )
        return MemoryState.GLOBAL_OOM, "the machine ran out of memory while this attempt was held to its own limit"


@asynccontextmanager
async def watch_engine(engine: DockerEngine) -> AsyncGenerator[DockerWitness]:
    """A witness that watches from here to the end of the block."""
    with KernelLog() as kernel:
        witness = DockerWitness(engine, kernel)
        async with background(witness.watch, witness.sample):
            yield witness


def _unix(value: str) -> float | None:
    """Docker's time of day (nanoseconds, UTC); its year 1 means never."""
    try:
        moment = datetime.fromisoformat(value[:26].rstrip("Z") + "+00:00").timestamp()
    except ValueError:
        return None
    return moment if moment > 0 else None


def _clock(moment: float) -> str:
    return time.strftime("%H:%M:%S", time.gmtime(moment)) + " UTC"


def _stopped(container: ContainerReading) -> str:
    return "" if container.stopped_at is None else f"since {_clock(container.stopped_at)}"
