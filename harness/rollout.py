"""A rollout: groups of graded attempts for a trainer that asks for them.

A trainer in step with it takes one batch after another; while it trains, nothing runs::

    rollout = Rollout(tasks, runner, RolloutOptions(n=8, batch_size=32))
    while batch := await rollout.batch():
        train(batch)
        log(metrics(rollout.end_step()))

A trainer beside it takes groups as they come; a slow one slows the drawing of tasks, and nothing is dropped but what is stale::

    async with rollout.stream() as groups:
        async for group in groups: ...

Either way a group that no trainer gets is counted and replaced by one of the next task, and the guard watches over all of them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager

import anyio

from harness.attempt import AttemptPlan
from harness.draws import Draws
from harness.generation import Generation, Supply, generate
from harness.group import Admitted
from harness.guard import BudgetSpent, Guard, Quarantined, RolloutFailed
from harness.phases import Phase, PhaseStamp
from harness.record import AttemptRecord
from harness.rollout_options import RolloutOptions
from harness.slots import GroupRunner, Watcher
from harness.tally import StepSummary, Tally
from harness.task.model import Task


class Rollout:
    """Draws tasks, runs groups, yields those that are admitted. Used by one consumer at a time, in either way.

    Once it has failed with a `RolloutFailed`, it raises the same again: a new one begins anew.
    """

    def __init__(
        self,
        source: Iterator[Task],
        runner: GroupRunner,
        options: RolloutOptions,
        *,
        version: Callable[[], int] | None = None,
        watcher: Watcher | None = None,
    ) -> None:
        """source: tasks in the order in which groups of them begin; endless where a trainer wants several epochs.

        version: of the policy's weights, asked when a group begins and when it is handed over. Raises ValueError when the options need it.
        """
        if options.admission.max_staleness is not None and version is None:
            raise ValueError("max_staleness needs to know the version of the weights: give the rollout `version`")
        self._options = options
        self._tally = Tally()
        self._guard = Guard(
            max_aborted=options.aborted_limit,
            max_unused=options.max_consecutive_unused_groups,
            quarantine_after=options.quarantine_after,
        )
        self._supply = Supply(
            options=options,
            runner=runner,
            draws=Draws(source, self._guard, most_held=options.groups_in_flight),
            guard=self._guard,
            tally=self._tally,
            watcher=_Counting(self._tally, watcher),
            version=version or (lambda: None),
        )
        self._in_use = anyio.ResourceGuard("generating groups for")
        self._failure: RolloutFailed | None = None

    async def batch(self) -> tuple[Admitted, ...]:
        """``batch_size`` admitted groups; fewer when the source, or the budget, ends; none when it has ended before.

        When it returns nothing is running. Raises RolloutFailed, BudgetSpent among it where there is nothing left to return, and what
        the source or the runner raises.
        """
        size = self._options.batch_size
        taken: list[Admitted] = []
        try:
            async with self._generate(places=size, refill=False) as generation:
                while len(taken) < size and (admitted := await generation.take()) is not None:
                    taken.append(admitted)
        except BudgetSpent:
            if not taken:
                raise
        except BaseException:
            for admitted in taken:
                self._tally.discarded(admitted, stale=False)
            raise
        for admitted in taken:
            self._tally.consumed(admitted)
        return tuple(taken)

    @asynccontextmanager
    async def stream(self) -> AsyncGenerator[AsyncIterator[Admitted]]:
        """Admitted groups as they come, until the source or the budget ends. What still runs when the body ends is cancelled.

        Iterating raises as `batch` does, after every group that was admitted before has been handed over.
        """
        async with self._generate(places=self._options.groups_in_flight, refill=True) as generation:
            yield self._consumed(generation)

    def end_step(self) -> StepSummary:
        """The trainer has completed an optimiser step: what happened since the one before."""
        return self._tally.end_step()

    def summary(self) -> StepSummary:
        """What happened since the beginning."""
        return self._tally.total()

    @property
    def quarantined(self) -> Mapping[str, Quarantined]:
        """The tasks that are no longer drawn, by name."""
        return self._guard.quarantined

    @asynccontextmanager
    async def _generate(self, *, places: int, refill: bool) -> AsyncGenerator[Generation]:
        if self._failure is not None:
            raise self._failure
        with self._in_use:
            async with generate(self._supply, places=places, refill=refill) as generation:
                try:
                    yield generation
                finally:
                    if isinstance(generation.failure, RolloutFailed):
                        self._failure = generation.failure

    async def _consumed(self, generation: Generation) -> AsyncIterator[Admitted]:
        while (admitted := await generation.take()) is not None:
            self._tally.consumed(admitted)
            yield admitted


class _Counting:
    """Counts attempts, and tells another watcher of them."""

    def __init__(self, tally: Tally, watcher: Watcher | None) -> None:
        self._tally = tally
        self._watcher = watcher

    def phase(self, plan: AttemptPlan, stamp: PhaseStamp) -> None:
        if stamp.phase is Phase.QUEUE and stamp.end is None:
            self._tally.attempt_began()
        if self._watcher is not None:
            self._watcher.phase(plan, stamp)

    def ended(self, record: AttemptRecord) -> None:
        self._tally.attempt_ended(record)
        if self._watcher is not None:
            self._watcher.ended(record)

    def retried(self, record: AttemptRecord, retry: AttemptPlan) -> None:
        self._tally.attempt_ended(record)
        self._tally.attempt_retried()
        if self._watcher is not None:
            self._watcher.retried(record, retry)

    def cancelled(self, plan: AttemptPlan) -> None:
        self._tally.attempt_cancelled()
        if self._watcher is not None:
            self._watcher.cancelled(plan)
