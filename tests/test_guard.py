"""The guard: an outage fails the rollout, a broken task is quarantined, and neither is taken for the other."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from harness.draws import Drawn, Draws, Later, Spent
from harness.group import AdmissionOptions, admit
from harness.guard import ConsecutiveAborts, ConsecutiveUnused, Guard, NothingToDraw
from harness.outcome import Cause, Ending
from tests.groups import group, record, task, tasks

LOST = (Cause.SANDBOX_LOST, 1.0)
FINE = (0.0, 1.0)
FLAT = (0.0, 0.0)


class Watched:
    """A guard that is fed with groups."""

    def __init__(self, *, limit: int = 4, unused: int = 0, quarantine: int = 3) -> None:
        self.guard = Guard(max_aborted=limit, max_unused=unused, quarantine_after=quarantine)

    def ended(self, name: str, *attempts: float | Ending | Cause, **options: bool) -> list[str]:
        """The names of the tasks that are quarantined by it."""
        outcome = admit(group(*attempts, of=name), AdmissionOptions.model_validate(options))
        return [entry.task for entry in self.guard.ended(outcome)]

    def failed(self, *running: str) -> bool:
        return self.guard.failure([task(name).key for name in running]) is not None


def test_so_many_aborted_groups_in_a_row_fail_and_the_failure_names_count_and_causes():
    watched = Watched(limit=4)
    causes = (Cause.SANDBOX_LOST, Cause.SERVER_UNREACHABLE, Cause.SANDBOX_LOST, Cause.SANDBOX_LOST)
    for number, cause in enumerate(causes):
        assert not watched.failed()
        watched.ended(f"t{number}", cause, 1.0)
    failure = watched.guard.failure([])
    assert isinstance(failure, ConsecutiveAborts)
    assert failure.count == 4
    assert failure.causes == {Cause.SANDBOX_LOST: 3, Cause.SERVER_UNREACHABLE: 1}
    assert str(failure).startswith("4 groups in a row aborted (SandboxLost × 3, ServerUnreachable × 1), of b/t0, b/t1")


@pytest.mark.parametrize(
    ("attempts", "options"),
    [
        (FINE, {}),
        (FLAT, {}),
        ((1.0, Ending.ERROR), {}),
    ],
    ids=["admitted", "no signal", "ungraded"],
)
def test_a_group_that_did_not_abort_resets_the_streak(attempts: tuple[float | Ending, ...], options: dict[str, bool]):
    watched = Watched(limit=2)
    watched.ended("a", *LOST)
    watched.ended("b", *attempts, **options)
    watched.ended("c", *LOST)
    assert not watched.failed()
    watched.ended("d", *LOST)
    assert watched.failed()


def test_a_group_that_a_filter_drops_resets_the_streak_too():
    watched = Watched(limit=2)
    watched.ended("a", *LOST)
    timeout = group(record(Ending.TIMEOUT, reward=0.0), record(1.0), of="b")
    watched.guard.ended(admit(timeout, AdmissionOptions(train_on_timeout=False)))
    assert watched.guard.streak == 0


def test_a_cancelled_group_says_nothing():
    watched = Watched(limit=2)
    watched.ended("a", *LOST)
    watched.ended("b", Ending.CANCELLED, 1.0)
    assert watched.guard.streak == 1


def test_zero_disables_the_guard():
    watched = Watched(limit=0)
    for number in range(1000):
        watched.ended(f"t{number}", *LOST)
    assert not watched.failed()


def test_a_negative_limit_is_refused():
    with pytest.raises(ValueError, match="negative"):
        Guard(max_aborted=-1)


def test_groups_that_are_all_of_no_use_fail_where_that_is_asked_for():
    watched = Watched(limit=0, unused=3)
    for number, attempts in enumerate([FLAT, (1.0, 1.0), FINE, FLAT, LOST, (1.0, Ending.ERROR)]):
        assert not watched.failed()
        watched.ended(f"t{number}", *attempts)
    failure = watched.guard.failure([])
    assert isinstance(failure, ConsecutiveUnused)
    assert failure.outcomes == {"NoSignal": 1, "Aborted": 1, "Ungraded": 1}


# --- quarantine


def test_a_task_that_keeps_aborting_while_others_do_not_is_quarantined_and_named():
    watched = Watched(limit=4, quarantine=3)
    assert watched.ended("bad", *LOST) == []
    assert watched.ended("good", *FINE) == []
    assert watched.ended("bad", *LOST) == []
    assert watched.ended("bad", *LOST) == ["b/bad"]
    assert str(watched.guard.quarantined["b/bad"]) == "b/bad: SandboxLost × 3"


def test_one_unbuildable_task_never_trips_the_guard_while_others_run():
    watched = Watched(limit=4, quarantine=3)
    for _ in range(6):
        watched.ended("bad", *LOST)
        assert not watched.failed("bad", "good")
    assert watched.ended("good", *FINE) == ["b/bad"]
    watched.ended("bad", *LOST)
    assert watched.guard.streak == 0, "its last groups say nothing about the infrastructure"


def test_an_outage_quarantines_nobody():
    watched = Watched(limit=0, quarantine=2)
    for number in range(20):
        assert watched.ended(f"t{number % 4}", *LOST) == []
    assert watched.ended("t0", *FINE) == []
    assert watched.ended("t1", *LOST) == ["b/t1"], "it goes on aborting when the outage is over"


def test_two_broken_tasks_side_by_side_are_both_quarantined():
    watched = Watched(limit=8, quarantine=3)
    found: list[str] = []
    for _ in range(3):
        found += watched.ended("bad", *LOST)
        found += watched.ended("worse", *LOST)
        found += watched.ended("good", *FINE)
    assert sorted(found) == ["b/bad", "b/worse"]


def test_a_streak_of_one_task_trips_when_no_other_task_can_clear_it():
    watched = Watched(limit=4, quarantine=3)
    for _ in range(4):
        watched.ended("only", *LOST)
    assert not watched.failed("other")
    assert watched.failed("only")
    assert watched.failed()
    watched.ended("other", *LOST)
    assert watched.failed("third")


def test_a_limit_below_the_quarantines_is_exact_also_for_one_task():
    watched = Watched(limit=1, quarantine=3)
    watched.ended("bad", *LOST)
    assert watched.failed("good")


def test_a_task_that_is_never_graded_is_quarantined_only_while_others_are_graded():
    watched = Watched(quarantine=2)
    for _ in range(3):
        assert watched.ended("one", 1.0, Ending.ERROR) == []
        assert watched.ended("two", 1.0, Ending.ERROR) == []
    assert watched.ended("c", *FLAT) == ["b/one", "b/two"]


def test_a_task_that_recovers_is_not_suspected_any_more():
    watched = Watched(quarantine=2)
    watched.ended("other", *FINE)
    watched.ended("a", *LOST)
    watched.ended("a", *FINE)
    watched.ended("other", *FINE)
    assert watched.ended("a", *LOST) == []


def test_zero_disables_the_quarantine():
    watched = Watched(limit=4, quarantine=0)
    for _ in range(4):
        assert watched.ended("bad", *LOST) == []
    assert watched.failed("good"), "without it, a streak of one task counts like any other"


# --- drawing


def drawn(draws: Draws, *running: str) -> str | type:
    found = draws.draw([task(name).key for name in running])
    return found.task.name if isinstance(found, Drawn) else type(found)


def test_quarantined_tasks_are_drawn_no_more():
    watched = Watched(quarantine=1)
    watched.ended("bad", *LOST)
    watched.ended("good", *FINE)
    draws = Draws(tasks("bad", "good", count=5), watched.guard, most_held=2)
    assert [drawn(draws) for _ in range(3)] == ["good", "good", Spent]


def test_a_suspect_is_held_back_while_others_run_and_drawn_when_none_does():
    watched = Watched(limit=0, quarantine=1)
    watched.ended("bad", *LOST)
    draws = Draws(tasks("bad", "good", count=4), watched.guard, most_held=2)
    assert drawn(draws, "good") == "good"
    assert drawn(draws, "good") is Later, "so many are held that the source is left alone"
    assert drawn(draws) == "bad"
    assert drawn(draws, "bad") == "bad", "its own groups can't clear it"
    assert drawn(draws, "bad") == "good"
    assert drawn(draws, "bad") is Spent


def test_a_source_of_nothing_but_quarantined_tasks_fails_and_names_them():
    watched = Watched(quarantine=1)
    watched.ended("bad", *LOST)
    watched.ended("good", *FINE)
    endless: Iterator = itertools.repeat(task("bad"))
    with pytest.raises(NothingToDraw, match="b/bad: SandboxLost × 1"):
        Draws(endless, watched.guard, most_held=2).draw([])
