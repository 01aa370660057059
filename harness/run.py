"""A run: many attempts at once, each with its own verdict; one that goes wrong never touches its siblings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from harness.attempt import AttemptPlan, Workshop, run_attempt
from harness.concurrency import together
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
    """The attempts of a run. Their verdicts go through the workshop's ``commit``; the watcher is only told."""

    plans: Sequence[AttemptPlan]
    workshop: Workshop
    watcher: Watcher

    async def run(self) -> None:
        """Run every attempt, as many at once as the workshop has places. Cancelling it cancels them all, cleanly.

        Raises StoreError when a verdict can't be kept: nothing that follows could be trusted to be, so all are cancelled.
        """
        await together(*(partial(self._one, plan) for plan in self.plans))

    async def _one(self, plan: AttemptPlan) -> None:
        record = await run_attempt(plan, self.workshop, lambda stamp: self.watcher.phase(plan, stamp))
        self.watcher.ended(record)
