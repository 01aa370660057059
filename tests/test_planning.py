"""The slots of a run: planned once, and found again by what their tasks hold, wherever these lie and in whatever order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.outcome import Cause, Ending, Grade, GradingStatus, Integrity
from harness.planning import PlannedSlot, find_slots, outstanding, plan_benchmarks, plan_slots
from harness.record import AttemptRecord, BenchmarkPlan
from tests.durability.fakes import a_task


def places(slots: Sequence[PlannedSlot]) -> list[tuple[str, int]]:
    return [(slot.task, slot.index) for slot in slots]


def a_record(
    identifier: str, ending: Ending, reward: float | None = None, retry_of: str | None = None
) -> AttemptRecord:
    graded = reward is not None
    status = GradingStatus.GRADED if graded else GradingStatus.NONE
    return AttemptRecord(
        id=identifier,
        run="r",
        benchmark="b",
        task="t",
        task_digest="sha256:t",
        task_path=Path("/t"),
        agent="nop",
        index=0,
        retry_of=retry_of,
        ending=ending,
        cause=Cause.SANDBOX_LOST if ending is Ending.ABORTED else None,
        reward=reward,
        grading=status,
        integrity=Integrity.PRISTINE,
        grade=Grade(status=status, reward=reward, integrity=Integrity.PRISTINE) if graded else None,
        started_at=0.0,
        folder=Path("/f"),
    )


def test_the_first_attempt_of_every_task_comes_before_the_second_of_any():
    slots = plan_slots([a_task("x"), a_task("y")], lambda _: 2)
    assert places(slots) == [("x", 0), ("y", 0), ("x", 1), ("y", 1)]
    assert plan_benchmarks(slots) == (BenchmarkPlan(benchmark="b", n=2, tasks=2),)


def test_a_task_that_is_named_twice_is_one_task():
    twice = [a_task("x"), a_task("y"), a_task("x", path=Path("/elsewhere/x"))]
    slots = plan_slots(twice, lambda _: 1)
    assert places(slots) == [("x", 0), ("y", 0)]
    assert slots[0].path == Path("/tasks/x")


@given(st.permutations([f"t{number}" for number in range(6)]), st.sampled_from(["/tasks", "/moved/away"]))
def test_neither_order_nor_place_changes_which_task_a_slot_means(order: list[str], folder: str):
    slots = plan_slots([a_task(f"t{number}") for number in range(6)], lambda _: 2)
    found = find_slots(slots, [a_task(name, path=Path(folder) / name) for name in order])
    assert found.missing == ()
    assert [slot for slot, _ in found.ready] == list(slots)
    assert all(task.name == slot.task and task.digest == slot.task_digest for slot, task in found.ready)
    assert all(task.path == Path(folder) / task.name for _, task in found.ready)


def test_a_task_that_was_renamed_keeps_its_name_within_the_run():
    slots = plan_slots([a_task("old", digest="sha256:d")], lambda _: 1)
    ((_, task),) = find_slots(slots, [a_task("new", digest="sha256:d")]).ready
    assert (task.name, task.benchmark, task.path) == ("old", "b", Path("/tasks/new"))


def test_of_equal_tasks_each_slot_takes_its_own():
    same = [a_task(name, digest="sha256:d") for name in ("x", "y")]
    slots = plan_slots(same, lambda _: 1)
    assert len(slots) == 2
    assert [task.path.name for _, task in find_slots(slots, same[::-1]).ready] == ["x", "y"]


def test_a_changed_task_is_named_with_both_digests_and_the_others_are_ready():
    slots = plan_slots([a_task("x"), a_task("y")], lambda _: 3)
    found = find_slots(slots, [a_task("x", digest="sha256:other"), a_task("y")])
    assert places([slot for slot, _ in found.ready]) == [("y", 0), ("y", 1), ("y", 2)]
    (missing,) = found.missing
    assert missing.attempts == 3
    assert all(part in str(missing) for part in ("b/x", "has changed", "sha256:x", "sha256:other", "3 attempts"))


def test_a_changed_task_in_the_same_place_under_another_name_has_changed_too():
    slots = plan_slots([a_task("x")], lambda _: 1)
    (missing,) = find_slots(slots, [a_task("z", path=Path("/tasks/x"))]).missing
    assert "has changed" in str(missing)


def test_a_task_that_is_gone_is_named_with_its_old_place():
    (missing,) = find_slots(plan_slots([a_task("x")], lambda _: 1), [a_task("y")]).missing
    assert all(part in str(missing) for part in ("b/x", "is gone", "/tasks/x", "harness resume"))


ABORTED = a_record("a", Ending.ABORTED)
CASES = {
    "no verdict": (None, [], True, True),
    "graded": ("a", [a_record("a", Ending.ENV_DONE, 0.0)], False, False),
    "graded after a timeout": ("a", [a_record("a", Ending.TIMEOUT, 0.0)], False, False),
    "cancelled": ("a", [a_record("a", Ending.CANCELLED)], True, True),
    "aborted, its retry is due": ("a", [ABORTED], True, True),
    "aborted twice": ("b", [ABORTED, a_record("b", Ending.ABORTED, retry_of="a")], False, True),
    "ungraded twice": ("b", [ABORTED, a_record("b", Ending.ERROR, retry_of="a")], False, True),
    "graded at the second go": ("b", [ABORTED, a_record("b", Ending.ENV_DONE, 1.0, retry_of="a")], False, False),
    "cancelled while it was retried": ("b", [ABORTED, a_record("b", Ending.CANCELLED, retry_of="a")], True, True),
    "aborted after a cancellation": (
        "b",
        [a_record("a", Ending.CANCELLED), a_record("b", Ending.ABORTED, retry_of="a")],
        True,
        True,
    ),
    "a verdict that can't be read": ("a", [], False, False),
    "a chain that bites its tail": (
        "b",
        [a_record("a", Ending.ABORTED, retry_of="b"), a_record("b", Ending.ABORTED, retry_of="a")],
        False,
        True,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_a_resumed_run_runs(case: str):
    standing, records, wanted, wanted_ungraded = CASES[case]
    slot = plan_slots([a_task("t")], lambda _: 1)[0].model_copy(update={"attempt": standing})
    assert bool(outstanding([slot], records, retries=1, ungraded=False)) is wanted
    assert bool(outstanding([slot], records, retries=1, ungraded=True)) is wanted_ungraded
