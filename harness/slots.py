"""Slots: an attempt with its retries. The slots of one task are a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

import structlog

from harness.attempt import AttemptPlan, Workshop, run_attempt
from harness.concurrency import together
from harness.group import Group, Slot, wants_retry
from harness.outcome import Ending
from harness.phases import PhaseStamp
from harness.ports import Abortable
from harness.record import AttemptRecord, new_attempt_id
from harness.task.model import Task

_log = structlog.get_logger()


class Watcher(Protocol):
    """Told what happens in a run, while it happens. Must be quick and must not raise."""

    def phase(self, plan: AttemptPlan, stamp: PhaseStamp) -> None:
        """A phase of an attempt began, or ended (``stamp.end`` is set). The first one is its queue."""
        ...

    def ended(self, record: AttemptRecord) -> None:
        """An attempt has its verdict, everything of it is cleaned up, and it decides its slot."""
        ...

    def retried(self, record: AttemptRecord, retry: AttemptPlan) -> None:
        """An attempt has its verdict, everything of it is cleaned up, and the retry takes its place."""
        ...

    def cancelled(self, plan: AttemptPlan) -> None:
        """An attempt was stopped, by a cancellation or because its record can't be kept; nobody gets a record of it."""
        ...


def attempt_folder(run_folder: Path, task: Task, index: int, attempt: str) -> Path:
    """Where an attempt's files go."""
    return run_folder / f"{task.path.name}-{index}-{attempt}"


def plan_retry(plan: AttemptPlan) -> AttemptPlan:
    """The same attempt anew: an id and a folder of its own, beside the old one's."""
    identifier = new_attempt_id()
    folder = attempt_folder(plan.folder.parent, plan.task, plan.index, identifier)
    return replace(plan, id=identifier, folder=folder, retry_of=plan.id)


async def run_slot(plan: AttemptPlan, workshop: Workshop, watcher: Watcher, *, retries: int) -> Slot:
    """Run an attempt, and as long as it ends aborted or ungraded, a new one in its place, up to ``retries`` times.

    Raises nothing but cancellation and what committing a record raises. A cancelled attempt is never retried.
    """
    slot: list[AttemptRecord] = []
    while True:
        slot.append(await _attempt(plan, workshop, watcher))
        last = slot[-1]
        if not wants_retry(slot, retries):
            watcher.ended(last)
            return tuple(slot)
        retry = plan_retry(plan)
        if last.ending is Ending.HARNESS_FAILED:
            _log.error("attempt_rerun_after_our_failure", attempt=last.id, retry=retry.id, detail=last.detail)
        watcher.retried(last, retry)
        plan = retry


async def _attempt(plan: AttemptPlan, workshop: Workshop, watcher: Watcher) -> AttemptRecord:
    try:
        return await run_attempt(plan, workshop, partial(watcher.phase, plan))
    except BaseException:
        watcher.cancelled(plan)
        raise


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """A group that is to be run. version: of the policy's weights as it begins; None where nobody numbers them."""

    id: str
    task: Task
    n: int
    retries: int
    version: int | None = None


class GroupRunner(Protocol):
    """Runs groups, several at a time."""

    async def run(self, plan: GroupPlan, watcher: Watcher) -> Group:
        """Every slot, to its end."""
        ...

    async def abort(self) -> None:
        """End what agents still run elsewhere, while the groups are being cancelled."""
        ...


@dataclass(frozen=True, slots=True)
class AttemptGroups:
    """Groups of real attempts, as many at once as the workshop has places. folder: the run's."""

    run_id: str
    folder: Path
    workshop: Workshop

    async def run(self, plan: GroupPlan, watcher: Watcher) -> Group:
        slots: list[Slot | None] = [None] * plan.n

        async def one(first: AttemptPlan) -> None:
            slots[first.index] = await run_slot(first, self.workshop, watcher, retries=plan.retries)

        await together(*(partial(one, first) for first in self._attempts(plan)))
        return Group(plan.id, plan.task, tuple(slot for slot in slots if slot is not None), plan.version)

    async def abort(self) -> None:
        if isinstance(self.workshop.agent, Abortable):
            await self.workshop.agent.abort()

    def _attempts(self, plan: GroupPlan) -> Sequence[AttemptPlan]:
        identifiers = [new_attempt_id() for _ in range(plan.n)]
        return [
            AttemptPlan(
                id=identifier,
                run=self.run_id,
                task=plan.task,
                index=index,
                folder=attempt_folder(self.folder, plan.task, index, identifier),
                group=plan.id,
            )
            for index, identifier in enumerate(identifiers)
        ]
