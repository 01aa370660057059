"""The shape of an evaluation's report: ``report.json``, the ``summary`` of ``--json``, and the metrics that trainers log."""

from __future__ import annotations

from collections.abc import Iterable

from harness.estimators import Interval
from harness.outcome import Cause, Ending, Integrity, Record
from harness.phases import Phase
from harness.record import BuildFailure
from harness.task.model import task_key


class TierScore(Record):
    """The counted attempts that were graded in one tier."""

    integrity: Integrity
    attempts: int
    mean_reward: float
    standard_error: float | None


class Score(Record):
    """What a set of attempts came to. ``attempts = graded + ungraded``; an attempt that was run again counts once, by its last run.
    A grade on a stale attempt is not counted: there ``passed + failed`` is less than ``graded``.

    Means are over counted attempts only: None when there is none. The standard error takes a task's attempts as one cluster: None
    for fewer than two tasks.
    """

    tasks: int
    """Asked for. One without any verdict has no row in ``by_task``."""
    n: int | None
    """Attempts of each task that were asked for. None: the benchmarks differ."""
    planned: int
    """Attempts that were asked for. Those without a verdict are ``planned - attempts``."""
    attempts: int
    graded: int
    passed: int
    """Counted attempts with the full reward."""
    failed: int
    """The other counted attempts."""
    ungraded: int
    mean_reward: float | None
    standard_error: float | None
    interval: Interval | None
    """Of the mean, over tasks: Student's t, with one degree of freedom less than there are tasks with a grade."""
    mean_reward_by_integrity: dict[Integrity, float]
    tiers: tuple[TierScore, ...]
    complete_tasks: int
    """Tasks whose ``n`` attempts are all counted."""
    pass_at_k: dict[int, float]
    """By k, over the complete tasks; empty when there are none, or when the benchmarks' ``n`` differ."""
    endings: dict[str, int]
    """All attempts; ``ABORTED`` by cause: ``ABORTED/SandboxUnavailable``."""
    ungraded_by_ending: dict[str, int]
    aborted: int
    aborted_ratio: float | None
    """Aborted attempts among all attempts. None without attempts."""
    aborted_by_cause: dict[Cause, int]
    retried: int
    """Earlier runs of attempts that were run again. They are in no other number."""
    retried_by_ending: dict[str, int]


class StepScore(Record):
    """A step of a multi-step task, over the counted attempts that reached it."""

    step: str
    reached: int
    passed: int
    mean_reward: float | None


class TaskScore(Record):
    """The attempts of one task. ``mean_reward`` is None when none is counted."""

    benchmark: str
    task: str
    digest: str
    attempts: int
    passed: int
    failed: int
    ungraded: int
    mean_reward: float | None
    rewards: tuple[float | None, ...]
    """Each attempt's, in the order of their indexes. None: not counted."""
    endings: dict[str, int]
    steps: tuple[StepScore, ...] = ()
    """Empty for an ordinary task."""

    @property
    def key(self) -> str:
        """``benchmark/task``, for people."""
        return task_key(self.benchmark, self.task)


class BenchmarkScore(Score):
    """One benchmark, with its own number of attempts for each task."""

    benchmark: str
    by_task: tuple[TaskScore, ...]

    @property
    def standalone(self) -> bool:
        """Whether it is only a task that belongs to no benchmark."""
        return self.tasks == 1 and any(task.task == self.benchmark for task in self.by_task)


class EvaluationReport(Score):
    """A whole run. Its own numbers pool the benchmarks."""

    benchmarks: tuple[BenchmarkScore, ...]
    phase_seconds: dict[Phase, float]
    """Median time in each phase, over the attempts that finished it; a phase that a task repeats is summed within an attempt."""
    wall_s: float | None
    warnings: tuple[str, ...] = ()
    failed_builds: tuple[BuildFailure, ...] = ()
    """Each failed build once, with every task that needed it."""
    attempt_warnings: dict[str, int] = {}
    """Each warning of an attempt, and how many attempts had it."""

    @property
    def metrics(self) -> dict[str, float]:
        """The numbers under the names that trainers log: ``eval/<benchmark>``, ``eval/<benchmark>-pass@4``, …

        What can't be said has no key: no mean without a counted attempt, no pass@k without a complete task.
        """
        return dict(pair for score in self.benchmarks for pair in _metrics(score))


def _metrics(score: BenchmarkScore) -> Iterable[tuple[str, float]]:
    name = f"eval/{score.benchmark}"
    if score.mean_reward is not None:
        yield name, score.mean_reward
    if score.standard_error is not None:
        yield f"{name}-standard_error", score.standard_error
    for k, value in score.pass_at_k.items():
        yield f"{name}-pass@{k}", value
    if score.aborted_ratio is not None:
        yield f"{name}-aborted_ratio", score.aborted_ratio
    for cause, count in score.aborted_by_cause.items():
        yield f"{name}-aborted/{cause}", count
    for reason, count in score.ungraded_by_ending.items():
        if not reason.startswith(Ending.ABORTED):
            yield f"{name}-ungraded/{reason}", count
