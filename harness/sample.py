"""What an evaluation looks at: the samples of attempts, one deciding attempt for each place of a plan.

A place is a task and an index. Where an attempt was retried, or run anew, the last one decides, and the others are only counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from harness.outcome import DISPOSITIONS, Cause, Ending, Integrity, settle
from harness.phases import Phase
from harness.record import AttemptRecord, StepRecord

_WEAKEST_LAST = tuple(Integrity)


@dataclass(frozen=True, slots=True)
class TaskId:
    """A task within a run. The digest is what it is; the name tells copies of it apart."""

    benchmark: str
    task: str
    digest: str


@dataclass(frozen=True, slots=True)
class Sample:
    """An attempt as an evaluation sees it, or one part of an attempt whose trajectory was split.

    index: None where whoever made the attempt didn't number it. phase_seconds: time in each phase that ended.
    """

    attempt: str
    task: TaskId
    index: int | None
    ending: Ending
    cause: Cause | None = None
    reward: float | None = None
    integrity: Integrity = Integrity.PRISTINE
    retry_of: str | None = None
    started_at: float = 0.0
    steps: tuple[StepRecord, ...] = ()
    phase_seconds: tuple[tuple[Phase, float], ...] = ()

    @property
    def counted(self) -> bool:
        """Whether the reward enters means and pass@k."""
        return self.reward is not None and DISPOSITIONS[self.ending].counted

    @property
    def passed(self) -> bool:
        return self.counted and self.reward is not None and self.reward >= 1.0

    @property
    def reason(self) -> str:
        """The ending, with its cause: ``ABORTED/SandboxUnavailable``."""
        return f"{self.ending}/{self.cause}" if self.cause else str(self.ending)


def sample_of(record: AttemptRecord) -> Sample:
    """A recorded attempt. Its tier is the weakest of those that it was graded in."""
    grades = [grade for grade in (record.grade, *(step.grade for step in record.steps)) if grade is not None]
    tiers = [grade.integrity for grade in grades] or [record.integrity]
    seconds: dict[Phase, float] = {}
    for stamp in record.phases:
        if stamp.duration_s is not None:
            seconds[stamp.phase] = seconds.get(stamp.phase, 0.0) + stamp.duration_s
    return Sample(
        attempt=record.id,
        task=TaskId(record.benchmark, record.task, record.task_digest),
        index=record.index,
        ending=record.ending,
        cause=record.cause,
        reward=record.reward,
        integrity=max(tiers, key=_WEAKEST_LAST.index),
        retry_of=record.retry_of,
        started_at=record.started_at,
        steps=record.steps,
        phase_seconds=tuple(seconds.items()),
    )


def whole_attempts(samples: Iterable[Sample]) -> list[Sample]:
    """Each attempt once. One aborted part drops all its parts' rewards.

    Raises ValueError when the parts of an attempt have different rewards: it has one.
    """
    parts: dict[str, list[Sample]] = {}
    for sample in samples:
        parts.setdefault(sample.attempt, []).append(sample)
    return [_whole(group) for group in parts.values()]


def _whole(parts: Sequence[Sample]) -> Sample:
    aborted = sorted((part for part in parts if part.ending is Ending.ABORTED), key=lambda part: part.cause or "")
    if aborted:
        return replace(aborted[0], reward=None)
    if len(parts) == 1:
        return parts[0]
    ending = settle(*(part.ending for part in parts))
    rewards = {part.reward for part in parts if part.reward is not None}
    if len(rewards) > 1:
        raise ValueError(f"attempt {parts[0].attempt} has several rewards: {sorted(rewards)}")
    return replace(parts[0], ending=ending, reward=rewards.pop() if rewards else None)


@dataclass(frozen=True, slots=True)
class Places:
    """deciding: one attempt for each place. retried: those that a later attempt at the same place replaces."""

    deciding: tuple[Sample, ...]
    retried: tuple[Sample, ...]


def settle_places(attempts: Sequence[Sample]) -> Places:
    """Which attempt decides at each place: the last of its chain of retries; of several, the one that started last."""
    by_id = {sample.attempt: sample for sample in attempts}
    replaced = {sample.retry_of for sample in attempts}
    places: dict[tuple[TaskId, int | str], list[Sample]] = {}
    for sample in attempts:
        place = _first(sample, by_id).attempt if sample.index is None else sample.index
        places.setdefault((sample.task, place), []).append(sample)
    deciding: list[Sample] = []
    for group in places.values():
        last = [sample for sample in group if sample.attempt not in replaced] or group
        deciding.append(max(last, key=lambda sample: (sample.started_at, sample.attempt)))
    kept = {sample.attempt for sample in deciding}
    return Places(tuple(deciding), tuple(sample for sample in attempts if sample.attempt not in kept))


def _first(sample: Sample, by_id: Mapping[str, Sample]) -> Sample:
    """Where the chain of retries began. A chain that bites its tail ends where it does."""
    seen = {sample.attempt}
    while (earlier := by_id.get(sample.retry_of or "")) is not None and earlier.attempt not in seen:
        sample = earlier
        seen.add(sample.attempt)
    return sample
