"""What a run came to: a report over its attempts in which every number is a grade's, and what has no grade is counted apart.

An attempt that was aborted or never graded is left out of means and of pass@k; it is neither substituted nor scored. Where nothing is
left, there is no score: a mean is None, and the metric has no key.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from harness.estimators import clustered_standard_error, mean, pass_at_k, pass_ks, t_interval
from harness.outcome import Cause, Ending, Integrity
from harness.phases import Phase
from harness.record import AttemptRecord, BenchmarkPlan, RunRecord, failed_builds
from harness.report import BenchmarkScore, EvaluationReport, Score, StepScore, TaskScore, TierScore
from harness.sample import Places, Sample, TaskId, sample_of, settle_places, whole_attempts


def report_on(run: RunRecord, records: Iterable[AttemptRecord]) -> EvaluationReport:
    """The report of a recorded run, finished or not."""
    warnings: Counter[str] = Counter()
    unbuilt: list[AttemptRecord] = []

    def samples() -> Iterable[Sample]:
        # A sample is small; a record isn't, and a run may have tens of thousands.
        for record in records:
            warnings.update(record.warnings)
            if record.build_failure is not None:
                unbuilt.append(record)
            yield sample_of(record)

    report = evaluate(samples(), plans=run.benchmarks, wall_s=run.wall_s)
    return report.model_copy(update={"failed_builds": failed_builds(unbuilt), "attempt_warnings": dict(warnings)})


def evaluate(
    samples: Iterable[Sample], *, plans: Sequence[BenchmarkPlan] = (), n: int | None = None, wall_s: float | None = None
) -> EvaluationReport:
    """The report over the samples, in whatever order they come.

    plans: what was asked of each benchmark. n: attempts of each task of a benchmark that has no plan; None: as many as its
    highest index says.
    """
    attempts = whole_attempts(samples)
    places = settle_places(attempts)
    shares = _shares(places, {plan.benchmark: plan for plan in plans}, n)
    numbers = {share.n for share in shares}
    whole = _Share(
        n=numbers.pop() if len(numbers) == 1 else None,
        tasks=sum(share.tasks for share in shares),
        planned=sum(share.planned for share in shares),
        deciding=places.deciding,
        retried=places.retried,
    )
    return EvaluationReport(
        **dict(_score(whole)),
        benchmarks=tuple(_benchmark(share) for share in shares),
        phase_seconds=_medians(attempts),
        wall_s=wall_s,
        warnings=tuple(
            f"benchmark {share.benchmark}: its attempts carry no index, so pass@k is left out"
            for share in shares
            if any(sample.index is None for sample in share.deciding)
        ),
    )


@dataclass(frozen=True, slots=True)
class _Share:
    """What a score is over. n: None where benchmarks differ."""

    n: int | None
    tasks: int
    planned: int
    deciding: Sequence[Sample]
    retried: Sequence[Sample]
    benchmark: str = ""


def _shares(places: Places, plans: Mapping[str, BenchmarkPlan], n: int | None) -> list[_Share]:
    """Each benchmark's share of the run, also of one without any verdict. One that nobody planned has the tasks that are there."""
    deciding = _by_benchmark(places.deciding)
    retried = _by_benchmark(places.retried)
    shares: list[_Share] = []
    for name in sorted({*plans, *deciding}):
        rows = deciding.get(name, [])
        tasks = len({sample.task for sample in rows})
        highest = max((sample.index for sample in rows if sample.index is not None), default=0)
        guess = BenchmarkPlan(benchmark=name, n=highest + 1 if n is None else n, tasks=tasks)
        plan = plans.get(name, guess)
        tasks = max(plan.tasks, tasks)
        planned = max(plan.n * tasks, len(rows))
        shares.append(_Share(plan.n, tasks, planned, rows, retried.get(name, []), benchmark=name))
    return shares


def _by_benchmark(rows: Iterable[Sample]) -> dict[str, list[Sample]]:
    groups: dict[str, list[Sample]] = {}
    for sample in rows:
        groups.setdefault(sample.task.benchmark, []).append(sample)
    return groups


def _score(share: _Share) -> Score:
    deciding = share.deciding
    counted = [sample for sample in deciding if sample.counted]
    graded = sum(sample.reward is not None for sample in deciding)
    passed = sum(sample.passed for sample in counted)
    aborted = Counter(sample.cause for sample in deciding if sample.ending is Ending.ABORTED)
    clusters = [_rewards(rows) for rows in _by_task(counted).values()]
    average, error = mean(_rewards(counted)), clustered_standard_error(clusters)
    interval = None
    if average is not None and error is not None:
        interval = t_interval(average, error, len(clusters), low=0.0, high=1.0)
    tiers = tuple(_tiers(counted))
    complete = _complete(share)
    return Score(
        tasks=share.tasks,
        n=share.n,
        planned=share.planned,
        attempts=len(deciding),
        graded=graded,
        passed=passed,
        failed=len(counted) - passed,
        ungraded=len(deciding) - graded,
        mean_reward=average,
        standard_error=error,
        interval=interval,
        mean_reward_by_integrity={tier.integrity: tier.mean_reward for tier in tiers},
        tiers=tiers,
        complete_tasks=len(complete),
        pass_at_k=_pass_at_k(complete),
        endings=_reasons(deciding),
        ungraded_by_ending=_reasons(sample for sample in deciding if sample.reward is None),
        aborted=aborted.total(),
        aborted_ratio=aborted.total() / len(deciding) if deciding else None,
        aborted_by_cause={cause: aborted[cause] for cause in Cause if cause in aborted},
        retried=len(share.retried),
        retried_by_ending=_reasons(share.retried),
    )


def _complete(share: _Share) -> list[list[Sample]]:
    """For each task whose attempts 0 to n - 1 are all counted: those attempts."""
    if share.n is None:
        return []
    complete: list[list[Sample]] = []
    for rows in _by_task(sample for sample in share.deciding if sample.counted).values():
        numbered = {sample.index: sample for sample in rows}
        found = [numbered[index] for index in range(share.n) if index in numbered]
        if len(found) == share.n:
            complete.append(found)
    return complete


def _pass_at_k(complete: Sequence[Sequence[Sample]]) -> dict[int, float]:
    """Over tasks with equally many attempts."""
    if not complete:
        return {}
    n = len(complete[0])
    passed = [sum(sample.passed for sample in rows) for rows in complete]
    return {k: math.fsum(pass_at_k(n, count, k) for count in passed) / len(passed) for k in pass_ks(n)}


def _benchmark(share: _Share) -> BenchmarkScore:
    by_task = _by_task(share.deciding)
    return BenchmarkScore(
        **dict(_score(share)),
        benchmark=share.benchmark,
        by_task=tuple(_task(task, rows) for task, rows in by_task.items()),
    )


def _task(task: TaskId, rows: Sequence[Sample]) -> TaskScore:
    counted = [sample for sample in rows if sample.counted]
    passed = sum(sample.passed for sample in counted)
    return TaskScore(
        benchmark=task.benchmark,
        task=task.task,
        digest=task.digest,
        attempts=len(rows),
        passed=passed,
        failed=len(counted) - passed,
        ungraded=sum(sample.reward is None for sample in rows),
        mean_reward=mean(_rewards(counted)),
        rewards=tuple(sample.reward if sample.counted else None for sample in rows),
        endings=_reasons(rows),
        steps=_steps(counted),
    )


def _steps(counted: Sequence[Sample]) -> tuple[StepScore, ...]:
    grades: dict[str, list[float | None]] = {}
    for sample in counted:
        for step in sample.steps:
            grades.setdefault(step.name, []).append(step.grade.reward if step.grade else None)
    scores: list[StepScore] = []
    for name, rewards in grades.items():
        known = [reward for reward in rewards if reward is not None]
        passed = sum(reward >= 1.0 for reward in known)
        scores.append(StepScore(step=name, reached=len(rewards), passed=passed, mean_reward=mean(known)))
    return tuple(scores)


def _tiers(counted: Sequence[Sample]) -> Iterable[TierScore]:
    for tier in Integrity:
        rows = [sample for sample in counted if sample.integrity is tier]
        if (average := mean(_rewards(rows))) is not None:
            error = clustered_standard_error(map(_rewards, _by_task(rows).values()))
            yield TierScore(integrity=tier, attempts=len(rows), mean_reward=average, standard_error=error)


def _by_task(rows: Iterable[Sample]) -> dict[TaskId, list[Sample]]:
    """By task and in each by index, both in a settled order."""
    ordered = sorted(rows, key=_order)
    groups: dict[TaskId, list[Sample]] = {}
    for sample in ordered:
        groups.setdefault(sample.task, []).append(sample)
    return groups


def _order(sample: Sample) -> tuple[str, str, str, int, float, str]:
    task, index = sample.task, -1 if sample.index is None else sample.index
    return task.benchmark, task.task, task.digest, index, sample.started_at, sample.attempt


def _rewards(rows: Iterable[Sample]) -> list[float]:
    return [sample.reward for sample in rows if sample.reward is not None]


def _reasons(rows: Iterable[Sample]) -> dict[str, int]:
    return dict(sorted(Counter(sample.reason for sample in rows).items()))


def _medians(attempts: Sequence[Sample]) -> dict[Phase, float]:
    seconds: dict[Phase, list[float]] = {}
    for sample in attempts:
        for phase, spent in sample.phase_seconds:
            seconds.setdefault(phase, []).append(spent)
    return {phase: median(seconds[phase]) for phase in Phase if phase in seconds}
