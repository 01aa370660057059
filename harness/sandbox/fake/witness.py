"""A witness of the fake engine, for tests and simulations: it sees what a test says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio
import anyio.lowlevel

from harness.evidence import Case, DiskSighting, Reading, Sighting, Source
from harness.faults import DiskState, EngineState, MemoryState, SandboxState
from harness.sandbox.fake.engine import FakeEngine


@dataclass
class FakeWitness:
    """`evidence.Witness`. What is not set is sound; the sandbox's state is the fake engine's."""

    engine: FakeEngine
    state: EngineState = EngineState.SOUND
    room: DiskState = DiskState.SOUND
    """On the disk."""
    memory: MemoryState = MemoryState.SOUND
    cases: list[Case] = field(default_factory=list[Case])
    """What it was asked about."""
    _interruptions: list[float] = field(default_factory=list[float])

    def restart(self) -> None:
        """The engine restarts now: every sandbox ends, its files stay."""
        self.state = EngineState.RESTARTED
        self._interruptions.append(anyio.current_time())
        for sandbox in self.engine.sandboxes.values():
            sandbox.die()

    def interrupted_since(self, moment: float) -> bool:
        return any(interruption >= moment for interruption in self._interruptions)

    async def look(self, case: Case) -> Sighting:
        await anyio.lowlevel.checkpoint()
        self.cases.append(case)
        sandbox = self.engine.sandboxes.get(case.sandbox)
        running = SandboxState.RUNNING if sandbox and sandbox.running else SandboxState.STOPPED
        state = running if sandbox and not sandbox.removed else SandboxState.MISSING
        found = (
            (Source.ENGINE, self.state),
            (Source.SANDBOX, state),
            (Source.MEMORY, self.memory),
        )
        readings: Sequence[Reading] = [Reading(source=source, found=what) for source, what in found]
        return Sighting(self.state, state, self.memory, readings)

    async def disk(self, case: Case, *, quiet: bool) -> DiskSighting:
        await anyio.lowlevel.checkpoint()
        victim = self.room is DiskState.BREACHED_BY_OTHERS
        return DiskSighting(DiskState.UNKNOWN if victim and not quiet else self.room)
