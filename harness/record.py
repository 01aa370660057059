"""What is kept of an attempt and of a run: the shape of ``result.json``, of ``--json``, and of the store's rows."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from harness.errors import BuildFailed
from harness.outcome import Attribution, Cause, Ending, Grade, GradingStatus, Integrity, Record, Verdict
from harness.phases import PhaseStamp
from harness.task.image import ResolvedImage
from harness.task.model import task_key

SCHEMA_VERSION = "1"


class StepRecord(Record):
    """One step of a multi-step attempt."""

    name: str
    ending: Ending
    grade: Grade | None


class BuildFailure(Record):
    """An image that could not be built, and whom it keeps from running.

    instruction: the Dockerfile's, where the builder named it. log_tail: the log's last lines, at most 4 KiB.
    tasks: keys of the tasks that can't run without the image: on an attempt its own, in a summary all of the run's.
    """

    message: str
    instruction: str
    log_tail: str
    log_path: str | None
    tasks: tuple[str, ...]

    @classmethod
    def of(cls, error: BuildFailed) -> BuildFailure:
        return cls(
            message=str(error),
            instruction=error.instruction,
            log_tail=error.log_tail,
            log_path=error.log_path,
            tasks=error.tasks,
        )


class AttemptRecord(Record):
    """The whole record of one attempt. ``reward`` is null unless ``grading`` is ``graded``."""

    schema_version: str = SCHEMA_VERSION
    id: str
    run: str
    benchmark: str
    task: str
    task_digest: str
    task_path: Path
    agent: str
    index: int
    """Which of the task's attempts in this run, from 0."""
    retry_of: str | None = None
    ending: Ending
    cause: Cause | None = None
    detail: str = ""
    reward: float | None = None
    grading: GradingStatus
    integrity: Integrity
    attribution: Attribution | None = None
    grade: Grade | None = None
    steps: tuple[StepRecord, ...] = ()
    """Empty for an ordinary task."""
    image: ResolvedImage | None = None
    build_failure: BuildFailure | None = None
    """Set where the attempt was aborted because an image could not be built."""
    warnings: tuple[str, ...] = ()
    """What was asked for and could not be had, though the attempt went on: limits that the engine can't enforce, and the like."""
    phases: tuple[PhaseStamp, ...] = ()
    started_at: float
    """Seconds since the epoch."""
    finished_at: float | None = None
    folder: Path

    @property
    def key(self) -> str:
        """``benchmark/task``, for people."""
        return task_key(self.benchmark, self.task)

    @property
    def counted(self) -> bool:
        return Verdict(ending=self.ending, cause=self.cause, grade=self.grade).counted

    @property
    def passed(self) -> bool:
        return self.reward is not None and self.reward >= 1.0


class RunRecord(Record):
    """A run: what was asked, and when."""

    id: str
    created_at: float
    command: tuple[str, ...]
    agent: str
    attempts: int
    """How many were planned."""
    finished_at: float | None = None
    folder: Path


class RunSummary(Record):
    """What a run came to. Means are over counted attempts only; ``mean_reward`` is null when none was.

    phase_seconds: median seconds by phase, over the attempts that finished it.
    """

    attempts: int
    graded: int
    passed: int
    failed: int
    ungraded: int
    mean_reward: float | None
    mean_reward_by_integrity: dict[Integrity, float]
    ungraded_by_ending: dict[str, int]
    """``ABORTED`` is counted by cause: ``ABORTED/SandboxUnavailable``."""
    failed_builds: tuple[BuildFailure, ...] = ()
    """Each failed build once, with every task that needed it."""
    warnings: dict[str, int] = {}
    """Each warning, and how many attempts had it."""
    phase_seconds: dict[str, float]
    wall_s: float


def summarise(records: Iterable[AttemptRecord], *, wall_s: float) -> RunSummary:
    """The summary of a run's attempts."""
    rows = list(records)
    counted = [row for row in rows if row.counted]
    ungraded = [row for row in rows if row.reward is None]
    reasons = Counter(f"{row.ending}/{row.cause}" if row.cause else str(row.ending) for row in ungraded)
    passed = sum(row.passed for row in counted)
    by_tier: dict[Integrity, list[float]] = {}
    for row in counted:
        by_tier.setdefault(row.integrity, []).append(row.reward or 0.0)
    rewards = [reward for tier in by_tier.values() for reward in tier]
    return RunSummary(
        attempts=len(rows),
        graded=len(rows) - len(ungraded),
        passed=passed,
        failed=len(counted) - passed,
        ungraded=len(ungraded),
        mean_reward=sum(rewards) / len(rewards) if rewards else None,
        mean_reward_by_integrity={tier: sum(values) / len(values) for tier, values in by_tier.items()},
        ungraded_by_ending=dict(sorted(reasons.items())),
        failed_builds=_failed_builds(rows),
        warnings=dict(Counter(warning for row in rows for warning in row.warnings)),
        phase_seconds=_medians(rows),
        wall_s=wall_s,
    )


def _failed_builds(rows: list[AttemptRecord]) -> tuple[BuildFailure, ...]:
    """A build is known by its log: tasks whose images are the same share one."""
    found: dict[str, BuildFailure] = {}
    for failure in (row.build_failure for row in rows):
        if failure is not None:
            first = found.setdefault(failure.log_path or failure.message, failure)
            tasks = tuple(dict.fromkeys([*first.tasks, *failure.tasks]))
            found[failure.log_path or failure.message] = first.model_copy(update={"tasks": tasks})
    return tuple(found.values())


def _medians(rows: list[AttemptRecord]) -> dict[str, float]:
    """Median over attempts of the time in each phase; a phase that a multi-step task repeats is summed within its attempt."""
    from statistics import median

    seconds: dict[str, list[float]] = {}
    for row in rows:
        own: dict[str, float] = {}
        for stamp in row.phases:
            if stamp.duration_s is not None:
                own[stamp.phase] = own.get(stamp.phase, 0.0) + stamp.duration_s
        for phase, spent in own.items():
            seconds.setdefault(phase, []).append(spent)
    return {phase: median(values) for phase, values in seconds.items()}


def new_run_id() -> str:
    """Sorts by time: ``20261129-233015-3f9a``."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"


def new_attempt_id() -> str:
    """Ten hexadecimal digits; any unique prefix names the attempt."""
    return secrets.token_hex(5)
