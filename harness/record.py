"""What is kept of an attempt and of a run: the shape of ``result.json`` and of the store's rows."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from harness.config import RunConfig
from harness.diagnostic import Diagnostic
from harness.errors import BuildFailed
from harness.evidence import Examination
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
    """The attempt that this one is a retry of. The last of a chain decides; the others are only kept."""
    group: str | None = None
    """Its group in a rollout. Null in an evaluation, where all attempts of a task are one group."""
    ending: Ending
    cause: Cause | None = None
    detail: str = ""
    reward: float | None = Field(default=None, allow_inf_nan=False)
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
    evidence: tuple[Examination, ...] = ()
    """Each failure on the way to the verdict, what was looked at then, and what that decided. Empty when all went well."""
    diagnostic: Diagnostic | None = None
    """Where code that isn't the policy's failed."""
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


class BenchmarkPlan(Record):
    """What a run asks of one benchmark: ``n`` attempts of each of its ``tasks``."""

    benchmark: str
    n: int
    tasks: int


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
    benchmarks: tuple[BenchmarkPlan, ...] = ()
    """Each with its own ``n``."""
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

    def standing(self, *, owned: bool, cancelling: bool = False) -> RunState:
        """How it stands. owned: a process holds its lock. cancelling: that process was asked to stop."""
        if owned:
            return RunState.CANCELLING if cancelling else RunState.RUNNING
        return self.ended or RunState.DIED


def failed_builds(rows: Iterable[AttemptRecord]) -> tuple[BuildFailure, ...]:
    """Each failed build once, with every task that needed it. A build is known by its log: tasks of one image share it."""
    found: dict[str, BuildFailure] = {}
    for failure in (row.build_failure for row in rows):
        if failure is not None:
            first = found.setdefault(failure.log_path or failure.message, failure)
            tasks = tuple(dict.fromkeys([*first.tasks, *failure.tasks]))
            found[failure.log_path or failure.message] = first.model_copy(update={"tasks": tasks})
    return tuple(found.values())


def new_run_id() -> str:
    """Sorts by time: ``20261129-233015-3f9a``."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"


def new_attempt_id() -> str:
    """Ten hexadecimal digits; any unique prefix names the attempt."""
    return secrets.token_hex(5)
