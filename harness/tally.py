"""What became of attempts and groups, counted: the summary of an optimiser step, and its metrics.

Names and meanings are those of the Trajectory client's step summary, and Miles's for what aborted; what they don't have is named alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import assert_never

from harness.group import Aborted, Admitted, Cancelled, Filtered, Flat, NoSignal, Outcome, Stale, Ungraded
from harness.outcome import Cause, Ending, Record
from harness.record import AttemptRecord

_UNFINISHED = frozenset({Ending.TIMEOUT, Ending.MAX_STEPS, Ending.TRUNCATION, Ending.LIMIT_REACHED})


class StepSummary(Record):
    """What happened between two optimiser steps, or since the beginning. Retries are attempts of their own.

    Attempts: ``completed_count`` of those that began have ended, and is ``correct + partial + incorrect + ungraded``. Groups:
    ``group_count`` is ``no_signal + used + discarded + pending + aborted + ungraded + cancelled + running`` over a whole rollout; in a
    single step an event counts where it happens, so a group may begin in one step and end in another.
    """

    step: int
    """How many optimiser steps were complete before."""
    completed_steps: int
    trajectory_count: int
    """Attempts that began."""
    completed_count: int
    """Attempts that ended, however."""
    correct_count: int
    """Reward 1."""
    partial_count: int
    """Reward between 0 and 1."""
    incorrect_count: int
    """Graded with 0."""
    ungraded_count: int
    """Without a reward."""
    error_count: int
    """Ended ERROR; graded only where the policy broke the grader."""
    incomplete_count: int
    """Stopped by TIMEOUT, MAX_STEPS, TRUNCATION or LIMIT_REACHED."""
    retried_count: int
    """Attempts that a retry took the place of."""
    termination_reasons: dict[Ending, int]
    group_count: int
    """Groups that began."""
    completed_groups: int
    """Groups whose attempts are all graded."""
    partial_groups: int
    """Groups that lack grades, or attempts that were kept out, and were admitted by the option."""
    no_signal_groups: int
    """Groups whose rewards are all identical, admitted or not."""
    all_success_groups: int
    all_failed_groups: int
    equal_groups: int
    used_groups: int
    """Consumed groups whose rewards differ: not every group of a batch."""
    consumed_groups: int
    """All consumed groups, also those without a signal that the options admit."""
    discarded_groups: int
    """Groups with a signal that were not and will not be consumed: stale, filtered, or left over at the end."""
    stale_groups: int
    filtered_groups: int
    """Kept out by the options, for their attempts' endings."""
    aborted_groups: int
    aborted: dict[Cause, int]
    """By cause. A group with several counts once, by the most frequent."""
    ungraded_groups: int
    ungraded: dict[Ending, int]
    """By ending. A group with several counts once, by the most frequent."""
    cancelled_groups: int
    pending_groups: int
    """Now: admitted groups with a signal that wait for the trainer."""
    running_groups: int
    """Now: groups that have not ended."""


@dataclass(slots=True)
class _Flows:
    """Counts that only grow."""

    trajectory_count: int = 0
    completed_count: int = 0
    correct_count: int = 0
    partial_count: int = 0
    incorrect_count: int = 0
    ungraded_count: int = 0
    error_count: int = 0
    incomplete_count: int = 0
    retried_count: int = 0
    termination_reasons: Counter[Ending] = field(default_factory=Counter[Ending])
    group_count: int = 0
    completed_groups: int = 0
    partial_groups: int = 0
    all_success_groups: int = 0
    all_failed_groups: int = 0
    equal_groups: int = 0
    used_groups: int = 0
    consumed_groups: int = 0
    discarded_groups: int = 0
    stale_groups: int = 0
    filtered_groups: int = 0
    aborted: Counter[Cause] = field(default_factory=Counter[Cause])
    ungraded: Counter[Ending] = field(default_factory=Counter[Ending])
    cancelled_groups: int = 0

    def since(self, earlier: _Flows) -> _Flows:
        return _Flows(**{item.name: getattr(self, item.name) - getattr(earlier, item.name) for item in fields(self)})


class Tally:
    """Counts what it is told. The levels (what is running or pending now) follow from the counts."""

    def __init__(self) -> None:
        self._flows = _Flows()
        self._marked = _Flows()
        self._steps = 0
        self._running = 0
        self._pending = 0

    # --- attempts

    def attempt_began(self) -> None:
        self._flows.trajectory_count += 1

    def attempt_ended(self, record: AttemptRecord) -> None:
        self._end(record.ending, record.reward)

    def attempt_cancelled(self) -> None:
        """It was stopped while it ran, and who waited for its record never got one."""
        self._end(Ending.CANCELLED, None)

    def attempt_retried(self) -> None:
        """It ended, and a retry takes its place."""
        self._flows.retried_count += 1

    def _end(self, ending: Ending, reward: float | None) -> None:
        flows = self._flows
        flows.completed_count += 1
        flows.termination_reasons[ending] += 1
        flows.error_count += ending is Ending.ERROR
        flows.incomplete_count += ending in _UNFINISHED
        if reward is None:
            flows.ungraded_count += 1
        elif reward >= 1:
            flows.correct_count += 1
        elif reward > 0:
            flows.partial_count += 1
        else:
            flows.incorrect_count += 1

    # --- groups

    def group_began(self) -> None:
        self._flows.group_count += 1
        self._running += 1

    def group_cancelled(self) -> None:
        """It was stopped while it ran."""
        self._running -= 1
        self._flows.cancelled_groups += 1

    def group_ended(self, outcome: Outcome) -> None:
        flows = self._flows
        self._running -= 1
        flows.completed_groups += all(attempt.reward is not None for attempt in outcome.group.deciding)
        match outcome:
            case Admitted():
                flows.partial_groups += len(outcome.attempts) < len(outcome.group.slots)
                if outcome.flat is None:
                    self._pending += 1
                else:
                    self._no_signal(outcome.flat)
            case NoSignal():
                self._no_signal(outcome.flat)
            case Aborted():
                flows.aborted[outcome.cause] += 1
            case Ungraded():
                flows.ungraded[outcome.ending] += 1
            case Filtered():
                flows.filtered_groups += 1
                flows.discarded_groups += 1
            case Stale():
                flows.stale_groups += 1
                flows.discarded_groups += 1
            case Cancelled():
                flows.cancelled_groups += 1
            case _:
                assert_never(outcome)

    def consumed(self, admitted: Admitted) -> None:
        """The trainer took it."""
        self._flows.consumed_groups += 1
        if admitted.flat is None:
            self._pending -= 1
            self._flows.used_groups += 1

    def discarded(self, admitted: Admitted, *, stale: bool) -> None:
        """It was admitted, and the trainer won't take it."""
        if admitted.flat is None:
            self._pending -= 1
            self._flows.discarded_groups += 1
            self._flows.stale_groups += stale

    def _no_signal(self, flat: Flat) -> None:
        match flat:
            case Flat.ALL_PASS:
                self._flows.all_success_groups += 1
            case Flat.ALL_FAIL:
                self._flows.all_failed_groups += 1
            case Flat.EQUAL:
                self._flows.equal_groups += 1
            case _:
                assert_never(flat)

    # --- summaries

    def committed_attempts(self, n: int) -> int:
        """How many attempts have begun, or will without another group being drawn. n: of a group."""
        return self._flows.group_count * n + self._flows.retried_count

    def total(self) -> StepSummary:
        """Since the beginning."""
        return self._summary(self._flows, step=0)

    def end_step(self) -> StepSummary:
        """An optimiser step is complete: what happened since the one before. The next step's counts begin at nothing."""
        flows = self._flows.since(self._marked)
        self._marked = self._flows.since(_Flows())
        self._steps += 1
        return self._summary(flows, step=self._steps - 1)

    def _summary(self, flows: _Flows, *, step: int) -> StepSummary:
        values = {item.name: getattr(flows, item.name) for item in fields(flows)}
        return StepSummary(
            step=step,
            completed_steps=self._steps,
            no_signal_groups=flows.all_success_groups + flows.all_failed_groups + flows.equal_groups,
            aborted_groups=flows.aborted.total(),
            ungraded_groups=flows.ungraded.total(),
            pending_groups=self._pending,
            running_groups=self._running,
            **values,
        )


def metrics(summary: StepSummary) -> Mapping[str, float]:
    """The summary under the names that a metrics logger shows: ``rollout/aborted/drop_SandboxUnavailable`` and so on."""
    counts = summary.model_dump(exclude={"step", "aborted", "ungraded", "termination_reasons"})
    return {
        **{f"rollout/{name}": float(count) for name, count in counts.items()},
        **{f"rollout/aborted/drop_{cause}": float(count) for cause, count in summary.aborted.items()},
        **{f"rollout/ungraded/drop_{ending}": float(count) for ending, count in summary.ungraded.items()},
        **{f"rollout/termination_reasons/{end}": float(count) for end, count in summary.termination_reasons.items()},
    }
