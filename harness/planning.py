"""The slots of a run: every attempt that was planned, known by the content of its task. Pure.

A slot is a task's digest with a name and an index. Where the task lies, and in which order tasks are named, is no part of that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.group import wants_retry
from harness.outcome import Ending, Record
from harness.record import AttemptRecord, BenchmarkPlan
from harness.task.model import Task, task_key


class PlannedSlot(Record):
    """One attempt that a run is to have a verdict on.

    index: which of the task's attempts, from 0. path: where the task lay when the run began.
    """

    benchmark: str
    task: str
    task_digest: str
    index: int
    path: Path
    attempt: str | None = None
    """The attempt whose verdict stands: the last of its retries. None: there is no verdict."""

    @property
    def key(self) -> str:
        """``benchmark/task``, for people."""
        return task_key(self.benchmark, self.task)

    @property
    def content(self) -> tuple[str, str, str]:
        """What the slots of one task share, and those of no other."""
        return self.task_digest, self.benchmark, self.task


def plan_slots(tasks: Sequence[Task], attempts_for: Callable[[str], int]) -> tuple[PlannedSlot, ...]:
    """Each task as often as its benchmark asks, the first of all tasks before the second of any.

    A task that is there twice, in content and in name, is one task.
    """
    distinct: dict[tuple[str, str, str], Task] = {}
    for task in tasks:
        distinct.setdefault((task.digest, task.benchmark, task.name), task)
    wanted = [(index, task) for task in distinct.values() for index in range(attempts_for(task.benchmark))]
    return tuple(
        PlannedSlot(benchmark=task.benchmark, task=task.name, task_digest=task.digest, index=index, path=task.path)
        for index, task in sorted(wanted, key=lambda pair: pair[0])
    )


def plan_benchmarks(slots: Iterable[PlannedSlot]) -> tuple[BenchmarkPlan, ...]:
    """What the slots ask of each benchmark, in their order."""
    contents: dict[str, set[tuple[str, str, str]]] = {}
    numbers: Counter[str] = Counter()
    for slot in slots:
        contents.setdefault(slot.benchmark, set()).add(slot.content)
        numbers[slot.benchmark] = max(numbers[slot.benchmark], slot.index + 1)
    return tuple(
        BenchmarkPlan(benchmark=name, n=numbers[name], tasks=len(distinct)) for name, distinct in contents.items()
    )


def outstanding(
    slots: Sequence[PlannedSlot], records: Iterable[AttemptRecord], *, retries: int, ungraded: bool
) -> tuple[PlannedSlot, ...]:
    """The slots that are to be run: without a verdict, cancelled before they had one of their own, or with a retry that is still due.

    ungraded: those whose attempt was aborted or has no grade, too. records: the verdicts that can be read; one that stands and can't
    be read by this version is left alone.
    """
    by_id = {record.id: record for record in records}

    def wanted(slot: PlannedSlot) -> bool:
        if slot.attempt is None:
            return True
        chain = _chain(slot.attempt, by_id)
        if not chain:
            return False
        last = chain[-1]
        cancelled = last.ending is Ending.CANCELLED
        return cancelled or wants_retry(chain, retries) or (ungraded and last.reward is None)

    return tuple(filter(wanted, slots))


def _chain(attempt: str, by_id: Mapping[str, AttemptRecord]) -> list[AttemptRecord]:
    """The attempt and those that it is a retry of, oldest first, without what was cancelled before."""
    chain: list[AttemptRecord] = []
    record = by_id.get(attempt)
    seen: set[str] = set()
    while record is not None and record.id not in seen:
        seen.add(record.id)
        if not chain or record.ending is not Ending.CANCELLED:
            chain.append(record)
        record = by_id.get(record.retry_of or "")
    return chain[::-1]


@dataclass(frozen=True, slots=True)
class Missing:
    """A task whose content is nowhere in what was looked through. now: the task that has its name or its place, if one does."""

    slot: PlannedSlot
    attempts: int
    now: Task | None

    def __str__(self) -> str:
        count = f"{self.attempts} attempt{'s' if self.attempts > 1 else ''}"
        if self.now is not None:
            digests = f"{self.slot.task_digest[:19]} → {self.now.digest[:19]}"
            return (
                f"task {self.slot.key}: {self.now.path} has changed since the run began ({digests}), so its {count} "
                "can't go on. Bring its content back, or start a new run"
            )
        return (
            f"task {self.slot.key}: it is gone (it lay at {self.slot.path}), so its {count} can't go on. "
            "Bring it back, or name the folder where it is now: harness resume RUN PATH"
        )


@dataclass(frozen=True, slots=True)
class Found:
    """Slots with their tasks, in the slots' order, and the tasks that are missing."""

    ready: tuple[tuple[PlannedSlot, Task], ...]
    missing: tuple[Missing, ...]


def find_slots(slots: Iterable[PlannedSlot], tasks: Sequence[Task]) -> Found:
    """Each slot's task among ``tasks``, by content. One that has been renamed keeps, in this run, the name that it had."""
    by_digest: dict[str, list[Task]] = {}
    for task in tasks:
        by_digest.setdefault(task.digest, []).append(task)
    ready: list[tuple[PlannedSlot, Task]] = []
    missing: dict[tuple[str, str, str], list[PlannedSlot]] = {}
    for slot in slots:
        same = by_digest.get(slot.task_digest)
        if same is None:
            missing.setdefault(slot.content, []).append(slot)
        else:
            ready.append((slot, _named_as(slot, _nearest(slot, same))))
    named = {(task.benchmark, task.name): task for task in tasks}
    at = {task.path: task for task in tasks}
    return Found(tuple(ready), tuple(_missing(group, named, at) for group in missing.values()))


def _nearest(slot: PlannedSlot, same: Sequence[Task]) -> Task:
    """Of tasks with the same content: the one with the slot's name, else the one at its place, else the first."""
    for task in same:
        if (task.benchmark, task.name) == (slot.benchmark, slot.task):
            return task
    return next((task for task in same if task.path == slot.path), same[0])


def _named_as(slot: PlannedSlot, task: Task) -> Task:
    if (task.benchmark, task.name) == (slot.benchmark, slot.task):
        return task
    return task.model_copy(update={"benchmark": slot.benchmark, "name": slot.task})


def _missing(slots: Sequence[PlannedSlot], named: Mapping[tuple[str, str], Task], at: Mapping[Path, Task]) -> Missing:
    first = slots[0]
    return Missing(first, len(slots), named.get((first.benchmark, first.task)) or at.get(first.path))
