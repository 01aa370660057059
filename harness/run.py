"""A run: many attempts at once, each with its own verdict; one that goes wrong never touches its siblings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from harness.attempt import AttemptPlan, Workshop
from harness.concurrency import find, together
from harness.errors import StartRefused, StoreError
from harness.slots import Watcher, run_slot


@dataclass(frozen=True, slots=True)
class Execution:
    """The attempts of a run. Their verdicts go through the workshop's ``commit``; the watcher is only told.

    retries: of each attempt that ends aborted or ungraded.
    refused: why attempts were not started, one entry each; they have no verdict.
    """

    plans: Sequence[AttemptPlan]
    workshop: Workshop
    watcher: Watcher
    retries: int = 1
    refused: list[StartRefused] = field(default_factory=list[StartRefused])

    async def run(self) -> None:
        """Run every attempt and its retries, as many at once as the workshop has places. Cancelling it cancels them all, cleanly.

        Raises StoreError when a verdict can't be kept: nothing that follows could be trusted to be, so all are cancelled.
        """
        try:
            await together(*(partial(self._one, plan) for plan in self.plans))
        except ExceptionGroup as group:  # an attempt holds its sandboxes in a task group
            if (error := find(group, StoreError)) is None:
                raise
            raise error from group

    async def _one(self, plan: AttemptPlan) -> None:
        try:
            await run_slot(plan, self.workshop, self.watcher, retries=self.retries)
        except StartRefused as refusal:
            self.refused.append(refusal)
