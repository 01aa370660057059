"""Two runs side by side, task by task: the same task is the one with the same content, whatever its name or place.

The difference of a task is that of its two means, over counted attempts. The difference of the runs is the mean over the tasks that both
have graded, each task once, with Student's t interval over those tasks (paired, clustered by task). What has no grade on one side is
not compared; it is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from harness.estimators import Interval, clustered_standard_error, mean, t_interval
from harness.outcome import Integrity, Record
from harness.record import AttemptRecord, RunRecord
from harness.sample import Sample, sample_of, settle_places, whole_attempts
from harness.task.model import task_key

_ROUNDING = 1e-12
"""Differences below this are those of adding up, not of grades."""


class Side(Record):
    """What one run has of a task. ``mean_reward`` is None when nothing is counted."""

    key: str
    """``benchmark/task``; where a run holds copies of a task, the first of their names."""
    attempts: int
    ungraded: int
    mean_reward: float | None
    tiers: tuple[Integrity, ...]


class Outcome(StrEnum):
    """How the second run did beside the first."""

    WIN = "win"
    LOSS = "loss"
    TIE = "tie"
    NOT_COMPARED = "not_compared"
    """One side, or both, have no grade."""


class TaskComparison(Record):
    """One task that both runs have. ``difference`` is second minus first; None when a side has no grade."""

    digest: str
    first: Side
    second: Side
    difference: float | None
    outcome: Outcome


class Comparison(Record):
    """Second run minus first. ``mean_difference`` is None when no task has a grade in both, the interval for fewer than two tasks."""

    first: str
    second: str
    compared: int
    """Tasks with a grade in both runs. Every number below is over these."""
    first_mean: float | None
    """Mean of the tasks' means: each task weighs the same, however many attempts it has."""
    second_mean: float | None
    mean_difference: float | None
    standard_error: float | None
    interval: Interval | None
    wins: int
    losses: int
    ties: int
    not_compared: int
    """Tasks of both runs where a side has no grade."""
    tasks: tuple[TaskComparison, ...]
    only_first: tuple[str, ...]
    """Tasks, ``benchmark/task``, whose content only the first run has."""
    only_second: tuple[str, ...]
    warnings: tuple[str, ...]


def compare_runs(
    first: RunRecord, first_records: Iterable[AttemptRecord], second: RunRecord, second_records: Iterable[AttemptRecord]
) -> Comparison:
    """Two recorded runs."""
    return compare(map(sample_of, first_records), map(sample_of, second_records), first=first.id, second=second.id)


def compare(
    first_samples: Iterable[Sample], second_samples: Iterable[Sample], *, first: str, second: str
) -> Comparison:
    """The comparison of two runs' samples, in whatever order they come. ``first`` and ``second`` name the runs."""
    left, right = _sides(first_samples), _sides(second_samples)
    shared = sorted(left.keys() & right.keys(), key=lambda digest: (left[digest].key, digest))
    tasks = tuple(_task(digest, left[digest], right[digest]) for digest in shared)
    compared = [task for task in tasks if task.difference is not None]
    differences = [task.difference for task in compared if task.difference is not None]
    error = clustered_standard_error([difference] for difference in differences)
    average = mean(differences)
    interval = None
    if average is not None and error is not None:
        interval = t_interval(average, error, len(differences), low=-1.0, high=1.0)
    outcomes = [task.outcome for task in tasks]
    only_first, only_second = _only(left, right), _only(right, left)
    return Comparison(
        first=first,
        second=second,
        compared=len(compared),
        first_mean=mean([task.first.mean_reward for task in compared if task.first.mean_reward is not None]),
        second_mean=mean([task.second.mean_reward for task in compared if task.second.mean_reward is not None]),
        mean_difference=average,
        standard_error=error,
        interval=interval,
        wins=outcomes.count(Outcome.WIN),
        losses=outcomes.count(Outcome.LOSS),
        ties=outcomes.count(Outcome.TIE),
        not_compared=outcomes.count(Outcome.NOT_COMPARED),
        tasks=tasks,
        only_first=only_first,
        only_second=only_second,
        warnings=tuple(_warnings(tasks, differences, sorted({*only_first} & {*only_second}))),
    )


def _sides(samples: Iterable[Sample]) -> dict[str, Side]:
    """By digest."""
    groups: dict[str, list[Sample]] = {}
    for sample in settle_places(whole_attempts(samples)).deciding:
        groups.setdefault(sample.task.digest, []).append(sample)
    return {digest: _side(rows) for digest, rows in groups.items()}


def _side(rows: Sequence[Sample]) -> Side:
    counted = [sample for sample in rows if sample.counted]
    tiers = {sample.integrity for sample in counted}
    return Side(
        key=min(task_key(sample.task.benchmark, sample.task.task) for sample in rows),
        attempts=len(rows),
        ungraded=len(rows) - len(counted),
        mean_reward=mean([sample.reward for sample in counted if sample.reward is not None]),
        tiers=tuple(tier for tier in Integrity if tier in tiers),
    )


def _task(digest: str, first: Side, second: Side) -> TaskComparison:
    difference, outcome = None, Outcome.NOT_COMPARED
    if first.mean_reward is not None and second.mean_reward is not None:
        difference = second.mean_reward - first.mean_reward
        if abs(difference) < _ROUNDING:
            difference = 0.0
        outcome = Outcome.TIE if difference == 0 else Outcome.WIN if difference > 0 else Outcome.LOSS
    return TaskComparison(digest=digest, first=first, second=second, difference=difference, outcome=outcome)


def _only(these: Mapping[str, Side], those: Mapping[str, Side]) -> tuple[str, ...]:
    return tuple(sorted(side.key for digest, side in these.items() if digest not in those))


def _warnings(tasks: Sequence[TaskComparison], differences: Sequence[float], changed: Sequence[str]) -> Iterable[str]:
    if not tasks:
        yield "the runs have no task in common"
    elif not differences:
        yield "no task has a grade in both runs"
    elif len(differences) == 1:
        yield "one task alone says nothing about other tasks: there is no interval"
    elif len(set(differences)) == 1:
        yield "every task differs by the same amount: the interval has no width, and says little about other tasks"
    for key in changed:
        yield f"{key} is in both runs with different content, so it isn't compared"
    mixed = [task.first.key for task in tasks if task.difference is not None and task.first.tiers != task.second.tiers]
    if mixed:
        yield f"graded in different tiers: {', '.join(mixed[:5])}{' …' if len(mixed) > 5 else ''}"
