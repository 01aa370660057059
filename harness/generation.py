"""Groups being generated: drawn, run bounded in flight, admitted, handed over; and stopped cleanly, whatever ends it.

A group holds a place from the moment it is drawn. One that no trainer gets gives it back, and the next task is drawn. An admitted one
gives it back when it is handed over (a stream), or never (a batch): a slow consumer slows the drawing, and nothing is dropped.
"""

from __future__ import annotations

import math
import secrets
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import assert_never

import anyio
import structlog
from anyio.abc import TaskGroup

from harness.draws import Drawn, Draws, Later, Spent
from harness.group import (
    Aborted,
    Admitted,
    Cancelled,
    Filtered,
    Group,
    NoSignal,
    Outcome,
    Stale,
    Ungraded,
    admit,
)
from harness.guard import BudgetSpent, Guard
from harness.rollout_options import STREAK_BATCHES, RolloutOptions
from harness.slots import GroupPlan, GroupRunner, Watcher
from harness.tally import Tally
from harness.task.model import Task

_log = structlog.get_logger()
ABORT_HOOK_S = 30.0
"""How long an agent's abort hook may take."""


@dataclass(frozen=True, slots=True)
class Supply:
    """What the generations of a rollout share.

    version: of the policy's weights now; None where nobody numbers them.
    """

    options: RolloutOptions
    runner: GroupRunner
    draws: Draws
    guard: Guard
    tally: Tally
    watcher: Watcher
    version: Callable[[], int | None]


@asynccontextmanager
async def generate(supply: Supply, *, places: int, refill: bool) -> AsyncGenerator[Generation]:
    """Generate groups in the background of the body; at its end, stop what still runs and wait until it is gone.

    places: groups that run or wait to be taken. refill: a taken group's place is filled anew.
    """
    generation = Generation(supply, places=places, refill=refill)
    raised: Exception | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(generation.run)
        try:
            yield generation
        except Exception as error:  # noqa: BLE001 - raised again below, outside the task group, which would wrap it
            raised = error
        finally:
            generation.stop()
    generation.discard_rest()
    if raised is not None:
        raise raised


class Generation:
    """One stretch of generating groups: for a batch, or for a stream."""

    def __init__(self, supply: Supply, *, places: int, refill: bool) -> None:
        self.failure: Exception | None = None
        """Why it ended early."""
        self._supply = supply
        self._refill = refill
        self._places = anyio.Semaphore(places)
        self._in_flight = anyio.Semaphore(supply.options.groups_in_flight)
        self._running: Counter[str] = Counter()
        self._send, self._receive = anyio.create_memory_object_stream[Admitted](math.inf)
        self._scope = anyio.CancelScope()
        self._over = anyio.Event()
        self._interrupted = False
        self._spent = False
        self._group_ended = anyio.Event()

    # --- the consumer's side

    async def take(self) -> Admitted | None:
        """The next admitted group, when there is one; None when no more will come. Raises why generating failed."""
        while True:
            try:
                admitted = await self._receive.receive()
            except anyio.EndOfStream:
                if self.failure is not None:
                    raise self.failure from None
                return None
            if self._refill:
                self._places.release()
            options = self._supply.options.admission
            if not isinstance(admit(admitted.group, options, version=self._supply.version()), Stale):
                return admitted
            self._supply.tally.discarded(admitted, stale=True)
            _log.info("stale_group_discarded", group=admitted.group.id, task=admitted.group.task.key)

    def stop(self) -> None:
        """Draw no more, cancel the groups that run, and have the agents' abort hooks called. `run` ends when they are gone."""
        self._interrupted |= self._running.total() > 0
        self._over.set()
        self._scope.cancel()

    def discard_rest(self) -> None:
        """Count what was admitted and never taken."""
        while True:
            try:
                self._supply.tally.discarded(self._receive.receive_nowait(), stale=False)
            except (anyio.WouldBlock, anyio.EndOfStream):
                break
        self._receive.close()

    # --- the background

    async def run(self) -> None:
        """Until the source has ended, generating failed, or it is stopped."""
        try:
            async with anyio.create_task_group() as around:
                around.start_soon(self._call_hooks)
                with self._scope:
                    async with anyio.create_task_group() as groups:
                        await self._draw_all(groups)
                if self._spent and self.failure is None:
                    self.failure = BudgetSpent(self._supply.options.max_attempts or 0, self._supply.tally.total())
                self._over.set()
        finally:
            self._send.close()

    async def _call_hooks(self) -> None:
        """Beside the groups while they are cancelled: an agent may need its hook to come to an end."""
        try:
            await self._over.wait()
        finally:
            if self._interrupted or self._running.total():
                with anyio.move_on_after(ABORT_HOOK_S, shield=True) as limit:
                    try:
                        await self._supply.runner.abort()
                    except Exception as error:  # noqa: BLE001 - plug-in code: its failure mustn't hide why we stop
                        _log.warning("abort_hook_failed", error=repr(error))
                if limit.cancelled_caught:
                    _log.warning("abort_hook_cut_off", after_s=ABORT_HOOK_S)

    async def _draw_all(self, groups: TaskGroup) -> None:
        while True:
            await self._places.acquire()
            await self._in_flight.acquire()
            task = await self._draw()
            if task is None or self._over.is_set():  # stopped between two points where a cancellation is noticed
                return
            options = self._supply.options
            plan = GroupPlan(
                id=new_group_id(), task=task, n=options.n, retries=options.retries, version=self._supply.version()
            )
            self._running[task.key] += 1
            self._supply.tally.group_began()
            groups.start_soon(self._one, plan)

    async def _draw(self) -> Task | None:
        supply = self._supply
        most = supply.options.max_attempts
        while True:
            if most is not None and supply.tally.committed_attempts(supply.options.n) + supply.options.n > most:
                self._spent = True
                return None
            try:
                drawn = supply.draws.draw(+self._running)
            except Exception as error:  # noqa: BLE001 - plug-in code: the consumer gets what the source raised
                self._fail(error)
                return None
            match drawn:
                case Drawn():
                    return drawn.task
                case Later():
                    await self._group_ended.wait()
                case Spent():
                    return None
                case _:
                    assert_never(drawn)

    async def _one(self, plan: GroupPlan) -> None:
        group: Group | None = None
        try:
            group = await self._supply.runner.run(plan, self._supply.watcher)
        except Exception as error:  # noqa: BLE001 - carried to the consumer, where it is raised
            self._fail(error)
        finally:
            self._running[plan.task.key] -= 1
            self._in_flight.release()
            self._group_ended.set()
            self._group_ended = anyio.Event()
            if group is None:
                self._interrupted = True
                self._supply.tally.group_cancelled()
        if group is not None:
            self._settle(group)

    def _settle(self, group: Group) -> None:
        supply = self._supply
        outcome = admit(group, supply.options.admission, version=supply.version())
        supply.tally.group_ended(outcome)
        for entry in supply.guard.ended(outcome):
            _log.warning("task_quarantined", task=entry.task, reasons=[str(reason) for reason in entry.reasons])
        self._hand_over(outcome)
        if (failure := supply.guard.failure(list(+self._running))) is not None:
            self._fail(failure)
        self._warn_when_nothing_is_used()

    def _hand_over(self, outcome: Outcome) -> None:
        match outcome:
            case Admitted():
                self._send.send_nowait(outcome)
            case NoSignal() | Aborted() | Ungraded() | Filtered() | Stale() | Cancelled():
                self._places.release()
            case _:
                assert_never(outcome)

    def _warn_when_nothing_is_used(self) -> None:
        unused, every = self._supply.guard.unused, STREAK_BATCHES * self._supply.options.batch_size
        if unused and unused % every == 0:
            total = self._supply.tally.total()
            _log.warning(
                "no_group_used_for_long",
                groups_in_a_row=unused,
                no_signal_groups=total.no_signal_groups,
                used_groups=total.used_groups,
                aborted_groups=total.aborted_groups,
                ungraded_groups=total.ungraded_groups,
            )

    def _fail(self, error: Exception) -> None:
        self._interrupted = True
        self.failure = self.failure or error
        self.stop()


def new_group_id() -> str:
    """Ten hexadecimal digits."""
    return secrets.token_hex(5)
