"""Comparing runs: paired by content, and never a zero for what has no grade."""

import math
from dataclasses import replace
from statistics import stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.comparison import Comparison, Outcome, compare
from harness.estimators import student_t
from harness.outcome import Ending, Integrity
from harness.sample import Sample
from tests.samples import aborted, attempt, graded


def compared(first: list[Sample], second: list[Sample]) -> Comparison:
    return compare(first, second, first="one", second="two")


def rewards(values: dict[str, float]) -> list[Sample]:
    return [graded(reward, task=task) for task, reward in values.items()]


def test_the_difference_is_second_minus_first_over_tasks_with_a_t_interval():
    found = compared(rewards({"a": 0.0, "b": 0.5, "c": 1.0}), rewards({"a": 1.0, "b": 0.5, "c": 0.75}))
    differences = [1.0, 0.0, -0.25]
    error = stdev(differences) / math.sqrt(3)
    assert found.mean_difference == pytest.approx(0.25)
    assert found.standard_error == pytest.approx(error)
    assert found.interval is not None
    assert found.interval.high == pytest.approx(min(1.0, 0.25 + student_t(0.95, 2) * error))
    assert (found.wins, found.losses, found.ties, found.not_compared) == (1, 1, 1, 0)


def test_tasks_are_paired_by_content_whatever_their_name():
    one, other = graded(0.0, task="old-name"), graded(1.0, task="new-name")
    found = compared([one], [replace(other, task=replace(other.task, digest=one.task.digest))])
    assert found.compared == 1
    assert found.wins == 1


def test_a_task_whose_content_changed_is_not_compared_and_named():
    other = graded(1.0, task="a")
    found = compared(rewards({"a": 0.0}), [replace(other, task=replace(other.task, digest="sha256:other"))])
    assert found.compared == 0
    assert found.mean_difference is None
    assert (found.only_first, found.only_second) == (("b/a",), ("b/a",))
    assert "b/a is in both runs with different content, so it isn't compared" in found.warnings


def test_tasks_that_only_one_run_has_are_named():
    found = compared(rewards({"a": 0.0, "mine": 1.0}), rewards({"a": 1.0, "yours": 0.0}))
    assert (found.only_first, found.only_second) == (("b/mine",), ("b/yours",))
    assert found.mean_difference == 1.0


def test_what_has_no_grade_is_counted_and_never_a_zero():
    first = [graded(1.0, 0, task="a"), aborted(1, task="a"), graded(1.0, 0, task="z")]
    second = [graded(1.0, 0, task="a"), aborted(0, task="z"), attempt(Ending.ENV_DONE, 1, task="z")]
    found = compared(first, second)
    assert (found.mean_difference, found.compared, found.not_compared, found.losses) == (0.0, 1, 1, 0)
    a, z = found.tasks
    assert (a.first.ungraded, a.first.mean_reward, a.outcome) == (1, 1.0, Outcome.TIE)
    assert (z.second.ungraded, z.second.mean_reward, z.difference, z.outcome) == (2, None, None, Outcome.NOT_COMPARED)


def test_one_task_has_a_difference_and_no_interval():
    found = compared(rewards({"a": 0.0}), rewards({"a": 1.0}))
    assert (found.mean_difference, found.interval) == (1.0, None)
    assert "one task alone says nothing about other tasks: there is no interval" in found.warnings


def test_equal_differences_are_warned_of():
    found = compared(rewards({"a": 0.0, "b": 0.0}), rewards({"a": 1.0, "b": 1.0}))
    assert found.interval is not None
    assert found.interval.low == found.interval.high == 1.0
    assert any("the interval has no width" in warning for warning in found.warnings)


def test_nothing_in_common_is_said():
    found = compared(rewards({"a": 0.0}), rewards({"b": 0.0}))
    assert found.warnings == ("the runs have no task in common",)
    assert found.mean_difference is None


def test_different_tiers_are_said():
    found = compared(rewards({"a": 0.0}), [graded(0.0, task="a", integrity=Integrity.LIVE)])
    assert "graded in different tiers: b/a" in found.warnings


def test_a_retried_attempt_is_its_last():
    first = [aborted(0, task="a", attempt="x"), graded(1.0, 0, task="a", attempt="y", retry_of="x")]
    found = compared(first, rewards({"a": 1.0}))
    assert (found.tasks[0].first.attempts, found.tasks[0].first.ungraded, found.ties) == (1, 0, 1)


TASKS = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from([0.0, 0.1, 0.3, 1.0]))


@given(TASKS, TASKS)
def test_swapping_the_runs_turns_every_sign(first: dict[str, float], second: dict[str, float]):
    there, back = compared(rewards(first), rewards(second)), compared(rewards(second), rewards(first))
    assert (there.wins, there.losses, there.ties) == (back.losses, back.wins, back.ties)
    assert (there.only_first, there.only_second) == (back.only_second, back.only_first)
    assert there.standard_error == pytest.approx(back.standard_error)
    if there.mean_difference is not None:
        assert back.mean_difference == pytest.approx(-there.mean_difference)


@given(TASKS)
def test_a_run_beside_itself_is_all_ties(values: dict[str, float]):
    samples = rewards(values)
    found = compared(samples, samples)
    assert (found.ties, found.wins, found.losses) == (len(values), 0, 0)
    assert found.mean_difference == (0.0 if values else None)


@given(TASKS, TASKS, st.integers(1, 4))
def test_how_often_a_task_was_tried_doesnt_weigh_it(first: dict[str, float], second: dict[str, float], times: int):
    once = compared(rewards(first), rewards(second))
    often = compared([graded(r, index, task=t) for t, r in first.items() for index in range(times)], rewards(second))
    assert often.mean_difference == pytest.approx(once.mean_difference)
    assert often.standard_error == pytest.approx(once.standard_error)
