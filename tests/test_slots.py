"""Slots on the fake engine: an attempt without a grade is run again, as a new attempt that points at the old one."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from harness.attempt import AttemptPlan
from harness.errors import StartFailed
from harness.group import Slot
from harness.outcome import Cause, Ending, InfraAbort
from harness.phases import PhaseStamp
from harness.ports import AgentContext
from harness.record import AttemptRecord
from harness.run import Execution
from harness.sandbox.fake import Operation
from harness.slots import run_slot
from tests.groups import task
from tests.worlds import World, a_task, grade


class Told:
    """A watcher that remembers."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.retries: list[AttemptPlan] = []

    def phase(self, plan: AttemptPlan, stamp: PhaseStamp) -> None:
        pass

    def ended(self, record: AttemptRecord) -> None:
        self.events.append(("ended", record.id))

    def retried(self, record: AttemptRecord, retry: AttemptPlan) -> None:
        self.events.append(("retried", record.id))
        self.retries.append(retry)

    def cancelled(self, plan: AttemptPlan) -> None:
        self.events.append(("cancelled", plan.id))


class SlotWorld(World):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.told = Told()

    def plan(self, index: int = 0) -> AttemptPlan:
        return AttemptPlan(id=f"first{index}", run="r", task=a_task(), index=index, folder=self.folder / f"t-{index}")

    async def slot(self, *, retries: int) -> Slot:
        slot = await run_slot(self.plan(), self.workshop, self.told, retries=retries)
        assert self.engine.sandboxes == {}
        return slot


@pytest.fixture
def world(tmp_path: Path) -> SlotWorld:
    return SlotWorld(tmp_path)


async def test_an_aborted_attempt_is_run_again_and_the_last_one_decides(world: SlotWorld):
    world.engine.fail_next(Operation.CREATE, StartFailed("out of address pools"))
    first, second = await world.slot(retries=1)
    assert (first.ending, first.cause, first.reward) == (Ending.ABORTED, Cause.SANDBOX_UNAVAILABLE, None)
    assert (second.ending, second.reward) == (Ending.ENV_DONE, 1.0)
    assert world.told.events == [("retried", first.id), ("ended", second.id)]


async def test_a_retry_is_a_new_attempt_in_the_same_place_that_points_at_the_old_one(world: SlotWorld):
    world.engine.fail_next(Operation.CREATE, StartFailed("no"))
    first, second = await world.slot(retries=1)
    assert second.retry_of == first.id != second.id
    assert (first.retry_of, second.index, second.task_digest) == (None, first.index, first.task_digest)
    assert second.folder != first.folder
    assert second.folder.parent == first.folder.parent
    assert (first.folder / "phases.jsonl").exists()
    assert {row.id for row in world.committed} == {first.id, second.id}, "both are on record"


@pytest.mark.parametrize(("retries", "attempts"), [(0, 1), (1, 2), (3, 4)])
async def test_there_are_as_many_retries_as_were_asked_for(world: SlotWorld, retries: int, attempts: int):
    world.images.failure = StartFailed("down")
    slot = await world.slot(retries=retries)
    assert [row.ending for row in slot] == [Ending.ABORTED] * attempts
    assert [row.retry_of for row in slot] == [None, *(row.id for row in slot[:-1])]


async def test_a_failed_grading_is_run_again(world: SlotWorld):
    world.grader.grades = [grade(None), grade(0.0)]
    first, second = await world.slot(retries=1)
    assert (first.ending, first.reward) == (Ending.ERROR, None)
    assert (second.ending, second.reward) == (Ending.ENV_DONE, 0.0)


async def test_a_graded_zero_is_not_run_again(world: SlotWorld):
    world.grader.grades = [grade(0.0)]
    (only,) = await world.slot(retries=5)
    assert only.reward == 0.0


async def test_our_own_failure_gets_one_fresh_retry_and_stays_when_it_ends_so_again(world: SlotWorld):
    world.grader.failure = ZeroDivisionError("ours")
    slot = await world.slot(retries=5)
    assert [row.ending for row in slot] == [Ending.HARNESS_FAILED, Ending.HARNESS_FAILED]


async def test_a_cancelled_attempt_is_never_run_again(world: SlotWorld):
    async def work(_: AgentContext) -> None:
        scope.cancel()
        await anyio.sleep_forever()

    world.agent.work = work
    with anyio.CancelScope() as scope:
        await world.slot(retries=5)
    assert scope.cancelled_caught
    assert [row.ending for row in world.committed] == [Ending.CANCELLED] * 2
    assert world.told.events == [("cancelled", "first0")]


async def test_what_fails_while_an_attempt_is_cancelled_is_no_abort_and_is_not_run_again(world: SlotWorld):
    async def work(_: AgentContext) -> None:
        scope.cancel()
        raise InfraAbort(Cause.SANDBOX_LOST, "its sandbox was removed first")

    world.agent.work = work
    with anyio.CancelScope() as scope:
        await world.slot(retries=1)
    assert scope.cancelled_caught
    assert {row.ending for row in world.committed} == {Ending.CANCELLED}


async def test_in_an_evaluation_nothing_is_substituted_for_an_attempt_that_stays_without_a_grade(world: SlotWorld):
    async def work(context: AgentContext) -> None:
        if context.task.name == "bad":
            raise InfraAbort(Cause.SERVER_UNREACHABLE, "refused")

    world.agent.work = work
    plans = [
        AttemptPlan(id=f"{name}{n}", run="r", task=task(name), index=n, folder=world.folder / f"{name}-{n}")
        for name in ("good", "bad")
        for n in range(2)
    ]
    await Execution(plans, world.workshop, world.told, retries=1).run()
    last = {row.id: row for row in world.committed}.values()
    assert sorted((row.task, row.index, row.reward) for row in last if row.retry_of is None) == [
        ("bad", 0, None),
        ("bad", 1, None),
        ("good", 0, 1.0),
        ("good", 1, 1.0),
    ]
    assert sorted(row.retry_of for row in last if row.retry_of) == ["bad0", "bad1"]
    assert [kind for kind, _ in world.told.events].count("ended") == len(plans)
