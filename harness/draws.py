"""Which task comes next: the source's, without those that are quarantined, and with suspects held back."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from harness.guard import Guard, NothingToDraw
from harness.task.model import Task

MOST_SKIPPED = 100_000
"""A source that yields so many tasks in a row that are all quarantined has no others."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """The next group is of this task."""

    task: Task


@dataclass(frozen=True, slots=True)
class Later:
    """Whatever could come next waits for a group of another task to end."""


@dataclass(frozen=True, slots=True)
class Spent:
    """The source has ended."""


Draw = Drawn | Later | Spent


class Draws:
    """Draws tasks from a source, one after another.

    most_held: how many tasks may be held back at a time, so that a source which yields nothing else isn't emptied.
    """

    def __init__(self, source: Iterator[Task], guard: Guard, *, most_held: int) -> None:
        self._source = source
        self._guard = guard
        self._most_held = most_held
        self._held: deque[Task] = deque()

    def draw(self, running: Collection[str]) -> Draw:
        """The next task. running: the tasks of the groups that have not ended.

        Raises NothingToDraw, and whatever the source raises.
        """
        for _ in range(len(self._held)):
            task = self._held.popleft()
            if task.key in self._guard.quarantined:
                continue
            if not self._must_wait(task, running):
                return Drawn(task)
            self._held.append(task)
        skipped = 0
        while len(self._held) < self._most_held:
            task = next(self._source, None)
            if task is None:
                return Later() if self._held else Spent()
            if task.key in self._guard.quarantined:
                skipped += 1
                self._check(skipped)
            elif self._must_wait(task, running):
                self._held.append(task)
            else:
                return Drawn(task)
        return Later()

    def _must_wait(self, task: Task, running: Collection[str]) -> bool:
        return self._guard.suspected(task.key) and any(other != task.key for other in running)

    def _check(self, skipped: int) -> None:
        if skipped >= MOST_SKIPPED:
            named = "; ".join(str(entry) for entry in self._guard.quarantined.values())
            raise NothingToDraw(
                f"the source yields nothing but tasks that are quarantined ({named}). Mend them, or give it others"
            )
