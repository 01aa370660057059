"""Runs, slots and verdicts for tests of the store."""

from __future__ import annotations

from pathlib import Path

from harness.config import ImagesConfig, RunConfig
from harness.outcome import Cause, Ending, Grade, GradingStatus, Integrity
from harness.planning import PlannedSlot
from harness.record import AttemptRecord, RunRecord

RUN = "20261129-120000-aaaa"


def a_run(folder: Path, identifier: str = RUN, attempts: int = 1) -> RunRecord:
    return RunRecord(
        id=identifier,
        created_at=1.0,
        command=("harness",),
        agent="nop",
        attempts=attempts,
        folder=folder / identifier,
        config=RunConfig(paths=[Path("/tasks")], images=ImagesConfig(map={"a": "b"}), concurrency=3),
    )


def slots(count: int = 1, task: str = "t") -> tuple[PlannedSlot, ...]:
    return tuple(
        PlannedSlot(benchmark="b", task=task, task_digest=f"sha256:{task}", index=index, path=Path("/tasks") / task)
        for index in range(count)
    )


def an_attempt(
    folder: Path,
    identifier: str = "abcdef0123",
    reward: float | None = 0.0,
    *,
    run: str = RUN,
    index: int = 0,
    retry_of: str | None = None,
    task: str = "t",
) -> AttemptRecord:
    """Of the runs folder ``folder``: with a reward graded, without one aborted."""
    own = folder / run / f"{task}-{index}-{identifier}"
    own.mkdir(parents=True, exist_ok=True)
    status = GradingStatus.NONE if reward is None else GradingStatus.GRADED
    grade = None if reward is None else Grade(status=status, reward=reward, integrity=Integrity.PRISTINE)
    return AttemptRecord(
        id=identifier,
        run=run,
        benchmark="b",
        task=task,
        task_digest=f"sha256:{task}",
        task_path=Path("/tasks") / task,
        agent="nop",
        index=index,
        retry_of=retry_of,
        ending=Ending.ABORTED if reward is None else Ending.ENV_DONE,
        cause=Cause.SANDBOX_UNAVAILABLE if reward is None else None,
        reward=reward,
        grading=status,
        integrity=Integrity.PRISTINE,
        grade=grade,
        started_at=1.0,
        finished_at=2.0,
        folder=own,
    )
