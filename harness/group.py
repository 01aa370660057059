"""Groups: the attempts of one task that are compared with each other, and whether a trainer gets them.

Pure. Admission decides who learns from a group; it never changes the grades and endings on record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from pydantic import Field

from harness.outcome import CAUSE_DISPOSITIONS, DISPOSITIONS, Attribution, Cause, Ending, Record
from harness.record import AttemptRecord
from harness.task.model import Task

SAME_REWARD = 1e-9
"""Rewards that differ by no more are identical: a difference of rounding, divided by its own deviation, would look like a signal."""

Slot = tuple[AttemptRecord, ...]
"""One of a group's ``n`` places: its attempt, and the retries of it. The last one decides."""


@dataclass(frozen=True, slots=True)
class Group:
    """The ``n`` slots of one task, each with at least one attempt.

    version: of the policy's weights when the group began; None where nobody numbers them.
    """

    id: str
    task: Task
    slots: tuple[Slot, ...]
    version: int | None = None

    @property
    def deciding(self) -> tuple[AttemptRecord, ...]:
        """The last attempt of each slot."""
        return tuple(slot[-1] for slot in self.slots)


def wants_retry(slot: Sequence[AttemptRecord], retries: int) -> bool:
    """Whether a slot gets another attempt: its last one has no grade, may be run again, and fewer than ``retries`` were.

    An attempt that our own code failed is run again once at most: what fails twice is a bug, and no accident.
    """
    last = slot[-1]
    if len(slot) > retries or last.reward is not None:
        return False
    if last.ending is Ending.HARNESS_FAILED:
        return all(earlier.ending is not Ending.HARNESS_FAILED for earlier in slot[:-1])
    disposition = DISPOSITIONS[last.ending] if last.cause is None else CAUSE_DISPOSITIONS[last.cause]
    return disposition.retried


# --- admission ------------------------------------------------------------------------------------------------------


class Partial(Record):
    """A group that lacks grades is admitted when at least ``min_k`` of its attempts have one."""

    min_k: int = Field(ge=1)


def partial(min_k: int) -> Partial:
    """The option that admits groups of at least ``min_k`` attempts. Never a default: who is missing is not by chance."""
    return Partial(min_k=min_k)


class AdmissionOptions(Record):
    """Which groups a trainer gets.

    train_on_all_fail: groups whose rewards are all 0. train_on_zero_advantage: the other groups of identical rewards.
    train_on_truncation, train_on_timeout: groups with attempts that ended so.
    train_on_error: groups with attempts whose grading failed, where that is attributed to the policy; others have no reward.
    partial: None: an attempt that is missing, or kept out, drops its group.
    max_staleness: by how many versions the weights may have moved on since a group began; None: by any number.
    """

    train_on_zero_advantage: bool = False
    train_on_all_fail: bool = False
    train_on_truncation: bool = True
    train_on_timeout: bool = True
    train_on_error: bool = False
    partial: Partial | None = None
    max_staleness: int | None = Field(default=None, ge=0)


class Flat(StrEnum):
    """How the rewards of a group without a signal are identical."""

    ALL_PASS = "all_pass"
    ALL_FAIL = "all_fail"
    EQUAL = "equal"
    """Identical, between 0 and 1."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """A trainer gets it.

    attempts: one for each slot, or under `Partial` fewer; each has a reward. flat: set where identical rewards were asked for.
    """

    group: Group
    attempts: tuple[AttemptRecord, ...]
    flat: Flat | None = None


@dataclass(frozen=True, slots=True)
class NoSignal:
    """Its rewards are identical, so nothing can be learned from comparing them."""

    group: Group
    flat: Flat


@dataclass(frozen=True, slots=True)
class Aborted:
    """It lacks a grade because infrastructure failed. causes: of each slot that aborted, in order."""

    group: Group
    causes: tuple[Cause, ...]

    @property
    def cause(self) -> Cause:
        """The one that it is counted by: the most frequent, of several the first."""
        return Counter(self.causes).most_common(1)[0][0]


@dataclass(frozen=True, slots=True)
class Ungraded:
    """It lacks a grade, and nothing aborted. endings: of each slot without a grade, in order."""

    group: Group
    endings: tuple[Ending, ...]

    @property
    def ending(self) -> Ending:
        """The one that it is counted by: the most frequent, of several the first."""
        return Counter(self.endings).most_common(1)[0][0]


@dataclass(frozen=True, slots=True)
class Filtered:
    """Every attempt is graded, and the options keep some out. endings: of those, in order."""

    group: Group
    endings: tuple[Ending, ...]


@dataclass(frozen=True, slots=True)
class Stale:
    """The weights moved on before it was used. lag: by how many versions, where they are numbered."""

    group: Group
    lag: int | None


@dataclass(frozen=True, slots=True)
class Cancelled:
    """One of its attempts was stopped by the user, or by the run."""

    group: Group


Outcome = Admitted | NoSignal | Aborted | Ungraded | Filtered | Stale | Cancelled
"""What became of a group that ended. Closed: consumed by match and assert_never."""


def admit(group: Group, options: AdmissionOptions, *, version: int | None = None) -> Outcome:
    """Whether a trainer gets the group.

    version: of the weights now. When several reasons speak against it, the first of these is its outcome: cancelled, aborted,
    stale by its attempts' endings, ungraded, no signal, filtered, stale by its age.
    """
    attempts = group.deciding
    survivors = tuple(attempt for attempt in attempts if _admissible(attempt, options))
    least = len(attempts) if options.partial is None else options.partial.min_k
    if not survivors or len(survivors) < least or any(attempt.ending is Ending.CANCELLED for attempt in attempts):
        return _refusal(group, options)
    flat = flatness(survivors)
    if flat is not None and not _wanted(flat, options):
        return NoSignal(group, flat)
    lag = None if version is None or group.version is None else version - group.version
    if options.max_staleness is not None and lag is not None and lag > options.max_staleness:
        return Stale(group, lag)
    return Admitted(group, survivors, flat)


def _refusal(group: Group, options: AdmissionOptions) -> NoSignal | Aborted | Ungraded | Filtered | Stale | Cancelled:
    missing = [attempt for attempt in group.deciding if attempt.reward is None]
    endings = tuple(attempt.ending for attempt in missing)
    if Ending.CANCELLED in endings:
        return Cancelled(group)
    if causes := tuple(attempt.cause for attempt in missing if attempt.cause is not None):
        return Aborted(group, causes)
    if Ending.STALE in endings:
        return Stale(group, None)
    if endings:
        return Ungraded(group, endings)
    if (flat := flatness(group.deciding)) is not None:
        return NoSignal(group, flat)
    return Filtered(group, tuple(attempt.ending for attempt in group.deciding if not _admissible(attempt, options)))


def flatness(attempts: Sequence[AttemptRecord]) -> Flat | None:
    """How the rewards of graded attempts are identical; None when they differ."""
    rewards = [attempt.reward for attempt in attempts if attempt.reward is not None]
    if max(rewards) - min(rewards) > SAME_REWARD:
        return None
    if min(rewards) >= 1 - SAME_REWARD:
        return Flat.ALL_PASS
    return Flat.ALL_FAIL if max(rewards) <= SAME_REWARD else Flat.EQUAL


def _wanted(flat: Flat, options: AdmissionOptions) -> bool:
    return options.train_on_all_fail if flat is Flat.ALL_FAIL else options.train_on_zero_advantage


def _admissible(attempt: AttemptRecord, options: AdmissionOptions) -> bool:
    if attempt.reward is None:
        return False
    match attempt.ending:
        case Ending.TRUNCATION:
            return options.train_on_truncation
        case Ending.TIMEOUT:
            return options.train_on_timeout
        case Ending.ERROR:
            return options.train_on_error and attempt.attribution is Attribution.POLICY
        case ending:
            return DISPOSITIONS[ending].trained
