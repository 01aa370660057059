"""A run: many attempts at once, each with its own verdict; one that goes wrong never touches its siblings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import anyio

from harness.attempt import AttemptPlan, Workshop, run_attempt
from harness.errors import StartRefused
from harness.phases import PhaseStamp
from harness.record import AttemptRecord


class Watcher(Protocol):
    """Told what happens in a run, while it happens. Must be quick and must not raise."""

    def phase(self, plan: AttemptPlan, stamp: PhaseStamp) -> None:
        """A phase of an attempt began, or ended (``stamp.end`` is set)."""
        ...

    def ended(self, record: AttemptRecord) -> None:
        """An attempt has its verdict, and everything of it is cleaned up."""
        ...


@dataclass(frozen=True, slots=True)
class Execution:
    """The attempts of a run. Their verdicts go through the workshop's ``commit``; the watcher is only told.

    refused: why attempts were not started, one entry each; they have no verdict.
    """

    plans: Sequence[AttemptPlan]
    workshop: Workshop
    watcher: Watcher
    refused: list[StartRefused] = field(default_factory=list[StartRefused])

    async def run(self) -> None:
        """Run every attempt, as many at once as the workshop has places. Cancelling it cancels them all, cleanly."""
        async with anyio.create_task_group() as tasks:
            for plan in self.plans:
                tasks.start_soon(self._one, plan)

    async def _one(self, plan: AttemptPlan) -> None:
        try:
            record = await run_attempt(plan, self.workshop, lambda stamp: self.watcher.phase(plan, stamp))
        except StartRefused as refusal:
            self.refused.append(refusal)
        else:
            self.watcher.ended(record)
