"""What is kept of an attempt and of a run: the shape of ``result.json``, of ``--json``, and of the store's rows."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator

from harness.config import RunConfig
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


class RunState(StrEnum):
    """How a run stands. Whether somebody works on it is asked of its lock, never of the record."""

    RUNNING = "running"
    CANCELLING = "cancelling"
    """It was asked to stop, and cleans up."""
    FINISHED = "finished"
    """Every slot has a verdict."""
    CANCELLED = "cancelled"
    """It was asked to stop, and has."""
    INCOMPLETE = "incomplete"
    """It ended by itself, and slots lack a verdict: the host had no room to start them, or their tasks were gone."""
    DIED = "died"
    """Nobody works on it, and nobody wrote down that it ended."""


def _config(value: Any) -> RunConfig | None:
    """From JSON, as from TOML: text and numbers that the fields' own checks turn into what they mean."""
    return value if value is None or isinstance(value, RunConfig) else RunConfig.model_validate(value)


class RunRecord(Record):
    """A run: what was asked, and when.

    config: what the run resolved, for whoever resumes it. agent_digest: of what the agent was told, where that is a file.
    ended: how its last owner left it: finished, cancelled or incomplete; None while it runs, and when it died.
    """

    id: str
    created_at: float
    command: tuple[str, ...]
    agent: str
    attempts: int
    """How many were planned."""
    finished_at: float | None = None
    folder: Path
    config: Annotated[RunConfig | None, BeforeValidator(_config)] = None
    agent_digest: str | None = None
    ended: RunState | None = None
    paused_s: float = 0.0
    """How long nobody worked on it, from one owner's last sign of life to the next one's beginning."""

    @property
    def wall_s(self) -> float | None:
        """How long it was worked on; None while it is."""
        return None if self.finished_at is None else self.finished_at - self.created_at - self.paused_s

    def resumed(self, records: Iterable[AttemptRecord], *, config: RunConfig, folder: Path) -> RunRecord:
        """As a new owner begins with it now. records: its verdicts, signs of life of an owner that died."""
        signs = [self.created_at, *(record.finished_at or record.started_at for record in records)]
        left_at = self.finished_at or max(signs)
        paused_s = self.paused_s + max(time.time() - left_at, 0.0)
        update = {"config": config, "folder": folder, "paused_s": paused_s, "finished_at": None, "ended": None}
        return self.model_copy(update=update)

    def state(self, *, owned: bool, cancelling: bool = False) -> RunState:
        """How it stands. owned: a process holds its lock. cancelling: that process was asked to stop."""
        if owned:
            return RunState.CANCELLING if cancelling else RunState.RUNNING
        return self.ended or RunState.DIED


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
        phase_seconds=_medians(rows),
        wall_s=wall_s,
    )


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
