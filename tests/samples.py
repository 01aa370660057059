"""Attempts for tests of evaluations: as little as each statement needs."""

from __future__ import annotations

from itertools import count
from pathlib import Path

from harness.outcome import Cause, Ending, Grade, GradingStatus, Integrity
from harness.phases import Phase, PhaseStamp
from harness.record import AttemptRecord, StepRecord
from harness.sample import Sample, TaskId

_numbers = count()


def task_id(task: str = "t", benchmark: str = "b") -> TaskId:
    return TaskId(benchmark, task, f"sha256:{task}")


def graded(reward: float, index: int | None = 0, *, task: str = "t", benchmark: str = "b", **more: object) -> Sample:
    """A graded attempt that ended by itself."""
    return attempt(Ending.ENV_DONE, index, reward=reward, task=task, benchmark=benchmark, **more)


def aborted(
    index: int | None = 0, cause: Cause = Cause.SANDBOX_LOST, *, task: str = "t", benchmark: str = "b", **more: object
) -> Sample:
    """An attempt that infrastructure ended."""
    return attempt(Ending.ABORTED, index, cause=cause, task=task, benchmark=benchmark, **more)


def attempt(ending: Ending, index: int | None = 0, *, task: str = "t", benchmark: str = "b", **more: object) -> Sample:
    values = {"attempt": f"a{next(_numbers):05d}", **more}
    return Sample(task=task_id(task, benchmark), index=index, ending=ending, **values)  # pyright: ignore[reportArgumentType]


def a_record(folder: Path, sample: Sample, *, run: str = "20261129-120000-aaaa", detail: str = "") -> AttemptRecord:
    """A sample as it is recorded."""
    grade = None
    if sample.reward is not None:
        grade = Grade(status=GradingStatus.GRADED, reward=sample.reward, integrity=sample.integrity)
    own = folder / f"{sample.task.task}-{sample.index}-{sample.attempt}"
    stamps = [
        PhaseStamp(phase=phase, start=1.0, start_mono=0.0, end=1.0 + spent, end_mono=spent)
        for phase, spent in {Phase.AGENT_RUN: 2.0, Phase.GRADING: 0.5}.items()
    ]
    return AttemptRecord(
        id=sample.attempt,
        run=run,
        benchmark=sample.task.benchmark,
        task=sample.task.task,
        task_digest=sample.task.digest,
        task_path=folder,
        agent="nop",
        index=sample.index or 0,
        retry_of=sample.retry_of,
        ending=sample.ending,
        cause=sample.cause,
        detail=detail,
        reward=sample.reward,
        grading=GradingStatus.NONE if grade is None else GradingStatus.GRADED,
        integrity=sample.integrity,
        grade=grade,
        steps=sample.steps,
        phases=tuple(stamps),
        started_at=sample.started_at,
        finished_at=sample.started_at + 3.0,
        folder=own,
    )


def a_step(name: str, reward: float | None) -> StepRecord:
    status = GradingStatus.FAILED if reward is None else GradingStatus.GRADED
    return StepRecord(
        name=name, ending=Ending.ENV_DONE, grade=Grade(status=status, reward=reward, integrity=Integrity.PRISTINE)
    )
