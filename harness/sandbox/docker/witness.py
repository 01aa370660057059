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
from harness.evidence import Case, DiskSighting, Reading, Sighting, Source
from harness.faults import DiskState, EngineState, MemoryState, SandboxState
from harness.sandbox.docker.address import UnixAddress
from harness.sandbox.docker.client import ApiError
from harness.sandbox.docker.engine import DockerEngine
from harness.sandbox.docker.interruption import Interruption, explained
from harness.sandbox.docker.json import Json, member, number, text
from harness.sandbox.docker.peer import EngineProcess, engine_process
from harness.sandbox.host import DiskReserve, KernelLog, Shortage

PING_S = 8.0
INSPECT_S = 8.0
SIZE_S = 15.0
"""The engine walks through what a sandbox wrote."""
PROCESS_S = 3.0
RECONNECT_S = (0.1, 0.3, 1.0, 3.0)
UNDECLARED_QUOTA_BYTES = 1024**3
"""What an attempt whose task sets no disk limit may have written and still count as a victim of others."""
MANY_FILES_BYTES = 1024**2
"""A list of files this long names more than ten thousand."""
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
    reserve: DiskReserve | None = None
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
        memory, kernel = self._memory(case)
        readings = (
            Reading(source=Source.ENGINE, found=engine, said=why),
            Reading(source=Source.SANDBOX, found=container.state, said=_stopped(container)),
            Reading(source=Source.MEMORY, found=memory, said=kernel),
        )
        return Sighting(engine, container.state, memory, readings)

    async def disk(self, case: Case, *, quiet: bool) -> DiskSighting:
        shortage = self.reserve.shortage() if self.reserve is not None else None
        match shortage:
            case None:
                return DiskSighting(DiskState.UNKNOWN, "the engine's disk can't be seen from here")
            case Shortage.NOTHING:
                return DiskSighting(DiskState.SOUND, "its reserve holds")
            case Shortage.BYTES:
                used, quota = await self._used_bytes(case.sandbox), case.spec.resources.disk_bytes
                over, what = used is not None and used >= (quota or UNDECLARED_QUOTA_BYTES), f"{used} bytes"
            case Shortage.FILES:
                used = await self._listed_bytes(case.sandbox)
                over, what = (
                    used is not None and used >= MANY_FILES_BYTES,
                    f"files whose names take {used} bytes or more",
                )
        said = f"below its reserve of {shortage}; this attempt holds {what}"
        if over:
            return DiskSighting(DiskState.BREACHED_BY_THIS, said)
        if used is None or not quiet:
            return DiskSighting(DiskState.UNKNOWN, f"{said}, and may hold more")
        return DiskSighting(DiskState.BREACHED_BY_OTHERS, said)

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
        if self.reserve is None:
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
            self.reserve = DiskReserve(Path(info.root_dir))

    async def _used_bytes(self, id: str) -> int | None:
        """What a container has written; nothing where it is gone. The engine walks through it."""
        try:
            answer: Json = await self.engine.client.call(
                "GET", f"/containers/{id}/json", params={"size": "1"}, timeout_s=SIZE_S
            )
        except ApiError as error:
            return 0 if error.status == 404 else None
        except EngineError:
            return None
        return number(answer, "SizeRw") or 0

    async def _listed_bytes(self, id: str) -> int | None:
        """How long the list of what a container has made is, up to the length that tells an offender."""
        length = 0
        try:
            with anyio.fail_after(SIZE_S):
                async with self.engine.client.open("GET", f"/containers/{id}/changes") as answer:
                    async for chunk in answer.chunks():
                        length += len(chunk)
                        if length >= MANY_FILES_BYTES:
                            break
        except ApiError as error:
            return 0 if error.status == 404 else None
        except (EngineError, TimeoutError):
            return None
        return length

    def _memory(self, case: Case) -> tuple[MemoryState, str]:
        if self.reserve is None:
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
        async with background(witness.watch):
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
