"""The guard of a rollout: tells an outage from a broken task, and ends what would otherwise draw new tasks for ever.

Pure. Groups that abort one after another are an outage: the streak reaches its limit, and the rollout fails. A task that keeps aborting
while other tasks don't is broken: it is quarantined, named, and no longer drawn. As long as only one task aborts and the groups of
others are still running, nobody can tell which of the two it is; until one of those ends, the task is suspected and waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import assert_never

from harness.errors import HarnessError
from harness.group import Aborted, Admitted, Cancelled, Filtered, NoSignal, Outcome, Stale, Ungraded
from harness.outcome import Cause, Ending
from harness.tally import StepSummary


class RolloutFailed(HarnessError):
    """A rollout can't go on. Each leaf says why, and what was seen."""


class ConsecutiveAborts(RolloutFailed):
    """So many groups in a row aborted that the infrastructure must be down.

    count: how many. causes: how many of them aborted for which cause. tasks: those whose groups they were.
    """

    def __init__(self, count: int, causes: Mapping[Cause, int], tasks: Collection[str]) -> None:
        self.count = count
        self.causes = dict(causes)
        self.tasks = tuple(dict.fromkeys(tasks))
        by_cause = ", ".join(f"{cause} × {number}" for cause, number in self.causes.items())
        named = ", ".join(self.tasks[:3]) + (f" and {len(self.tasks) - 3} more" if len(self.tasks) > 3 else "")
        super().__init__(
            f"{count} groups in a row aborted ({by_cause}), of {named}. Mend what the causes name; `harness doctor` looks at the engine. "
            "max_consecutive_aborted_groups sets how many may, 0 any number"
        )


class ConsecutiveUnused(RolloutFailed):
    """So many groups in a row were of no use to the trainer that it will never get a batch. outcomes: what they were, by name."""

    def __init__(self, count: int, outcomes: Mapping[str, int]) -> None:
        self.count = count
        self.outcomes = dict(outcomes)
        shown = ", ".join(f"{name} × {number}" for name, number in self.outcomes.items())
        super().__init__(
            f"none of {count} groups in a row could be used ({shown}). Look at some attempts' rewards and grader logs; "
            "max_consecutive_unused_groups sets how many there may be, 0 any number"
        )


class NothingToDraw(RolloutFailed):
    """The source yields nothing but quarantined tasks."""


class BudgetSpent(RolloutFailed):
    """Another group would exceed the budget of attempts. summary: what it was spent on."""

    def __init__(self, max_attempts: int, summary: StepSummary) -> None:
        self.max_attempts = max_attempts
        self.summary = summary
        super().__init__(
            f"the budget of {max_attempts} attempts is spent: of {summary.group_count} groups {summary.used_groups} were used, "
            f"{summary.no_signal_groups} had no signal, {summary.aborted_groups} aborted, {summary.ungraded_groups} had no grade; "
            f"{summary.completed_steps} optimiser steps were completed. max_attempts sets the budget"
        )


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A task that is no longer drawn. reasons: why its last groups had no grade, the oldest first."""

    task: str
    reasons: tuple[Cause | Ending, ...]

    def __str__(self) -> str:
        counted = ", ".join(f"{reason} × {number}" for reason, number in Counter(self.reasons).items())
        return f"{self.task}: {counted}"


@dataclass(slots=True)
class _Suspicion:
    """A task's groups without a grade, in a row.

    in_streak: how many of them, the last ones, belong to the streak that goes on now. others_fine: a group of another task was graded in
    the meantime.
    """

    reasons: list[Cause | Ending] = field(default_factory=list[Cause | Ending])
    in_streak: int = 0
    others_fine: bool = False


class Guard:
    """Watches the outcomes of groups in the order in which they end.

    max_aborted, max_unused: so many groups in a row, and the rollout fails; 0: never.
    quarantine_after: so many groups of one task in a row without a grade, while others have one, and it is quarantined; 0: never.
    """

    def __init__(self, *, max_aborted: int, max_unused: int = 0, quarantine_after: int = 0) -> None:
        if min(max_aborted, max_unused, quarantine_after) < 0:
            raise ValueError("the limits of a guard can't be negative; 0 disables one")
        self._max_aborted = max_aborted
        self._max_unused = max_unused
        self._quarantine_after = quarantine_after
        self._streak: list[tuple[str, Cause]] = []
        self._unused: list[str] = []
        self._suspicions: dict[str, _Suspicion] = {}
        self._quarantined: dict[str, Quarantined] = {}

    @property
    def streak(self) -> int:
        """How many groups in a row have aborted by now."""
        return len(self._streak)

    @property
    def unused(self) -> int:
        """How many groups in a row were of no use to the trainer by now."""
        return len(self._unused)

    @property
    def quarantined(self) -> Mapping[str, Quarantined]:
        return self._quarantined

    def suspected(self, task: str) -> bool:
        """Whether the task may be broken, and should wait while groups of other tasks are running."""
        suspicion = self._suspicions.get(task)
        return suspicion is not None and 0 < self._quarantine_after <= len(suspicion.reasons)

    def ended(self, outcome: Outcome) -> tuple[Quarantined, ...]:
        """A group ended. Returns the tasks that this quarantined.

        The last groups of a task that is quarantined already say nothing when they abort.
        """
        task = outcome.group.task.key
        if task in self._quarantined and isinstance(outcome, Aborted):
            return ()
        match outcome:
            case Aborted():
                self._unused.append(type(outcome).__name__)
                self._streak.append((task, outcome.cause))
                self._suspect(task, outcome.cause).in_streak += 1
            case Ungraded():
                self._unused.append(type(outcome).__name__)
                self._end_streak()
                if task not in self._quarantined:
                    self._suspect(task, outcome.ending)
            case Admitted():
                self._unused.clear()
                self._graded(task)
            case NoSignal() | Filtered() | Stale():
                self._unused.append(type(outcome).__name__)
                self._graded(task)
            case Cancelled():
                return ()
            case _:
                assert_never(outcome)
        return self._newly_quarantined()

    def failure(self, running: Collection[str]) -> RolloutFailed | None:
        """Why the rollout must fail now; None while it may go on.

        running: the tasks of the groups that have not ended.
        """
        if 0 < self._max_aborted <= len(self._streak):
            tasks = {task for task, _ in self._streak}
            undecided = len(tasks) == 1 and all(map(self.suspected, tasks)) and not tasks.issuperset(running)
            if not undecided:
                causes = Counter(cause for _, cause in self._streak)
                return ConsecutiveAborts(len(self._streak), causes, [task for task, _ in self._streak])
        if 0 < self._max_unused <= len(self._unused):
            return ConsecutiveUnused(len(self._unused), Counter(self._unused))
        return None

    def _suspect(self, task: str, reason: Cause | Ending) -> _Suspicion:
        suspicion = self._suspicions.setdefault(task, _Suspicion())
        suspicion.reasons.append(reason)
        return suspicion

    def _end_streak(self) -> None:
        """A streak of several tasks was an outage: whatever it did to each of them counts once against it."""
        outage = len({task for task, _ in self._streak}) > 1
        self._streak.clear()
        for suspicion in self._suspicions.values():
            if outage and suspicion.in_streak > 1:
                del suspicion.reasons[1 - suspicion.in_streak :]
            suspicion.in_streak = 0

    def _graded(self, task: str) -> None:
        self._end_streak()
        self._suspicions.pop(task, None)
        for suspicion in self._suspicions.values():
            suspicion.others_fine = True

    def _newly_quarantined(self) -> tuple[Quarantined, ...]:
        broken = tuple(
            Quarantined(task, tuple(suspicion.reasons))
            for task, suspicion in self._suspicions.items()
            if suspicion.others_fine and self.suspected(task)
        )
        for entry in broken:
            self._quarantined[entry.task] = entry
            del self._suspicions[entry.task]
        return broken
