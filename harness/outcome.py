"""How an attempt ends: endings, causes, grades, verdicts, and the total table of what follows from each.

A reward exists only on a graded attempt: ``reward is None`` means not graded, and a graded zero is something else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from harness.errors import HarnessError


class Ending(StrEnum):
    """Why an attempt stopped."""

    ENV_DONE = "ENV_DONE"
    """The agent finished normally, graded or not."""
    TIMEOUT = "TIMEOUT"
    """The agent's deadline passed."""
    MAX_STEPS = "MAX_STEPS"
    """Its turns were used up."""
    LIMIT_REACHED = "LIMIT_REACHED"
    """A token or context limit, set by the gateway."""
    TRUNCATION = "TRUNCATION"
    """The last reply was cut off by its length."""
    MISSING_SUBMIT = "MISSING_SUBMIT"
    """A required submission is missing."""
    ERROR = "ERROR"
    """The grader failed."""
    HARNESS_FAILED = "HARNESS_FAILED"
    """Code that is not the policy's failed."""
    ABORTED = "ABORTED"
    """Infrastructure failed; always with a cause."""
    CANCELLED = "CANCELLED"
    """The user, or the run, stopped it."""
    STALE = "STALE"
    """The weights moved on before it was used."""


class Cause(StrEnum):
    """Why infrastructure aborted an attempt: the ``exit_status`` of an `InfraAbort`."""

    SANDBOX_UNAVAILABLE = "SandboxUnavailable"
    """It never became ready: engine unreachable, image missing or not built, create, start or healthcheck failed."""
    AGENT_SETUP_FAILED = "AgentSetupFailed"
    """The agent could not be installed or launched."""
    SERVER_UNREACHABLE = "ServerUnreachable"
    """The model service, by the gateway's own record."""
    SANDBOX_LOST = "SandboxLost"
    """After the start, and only on evidence that the policy can't have made."""
    NO_MODEL_CALLS = "NoModelCalls"
    """An agent that uses a policy returned without one completed reply."""
    COLLECT_FAILED = "CollectFailed"
    """The trajectory could not be collected."""
    ALL_TRUNCATED = "AllTruncated"
    """Nothing that was recorded fits the length."""


class Fault(StrEnum):
    """Whose fault an ending is."""

    NOBODY = "nobody"
    POLICY = "policy"
    GRADER = "grader"
    HARNESS = "harness"
    INFRASTRUCTURE = "infrastructure"
    USER = "user"


@dataclass(frozen=True, slots=True)
class Disposition:
    """What follows from an ending.

    retried: an attempt that ended so and has no grade is run again.
    counted: its grade, where it has one, enters means and pass@k.
    trained: its grade, where it has one, reaches a trainer under the default admission options.
    """

    fault: Fault
    retried: bool
    counted: bool
    trained: bool


_ABORT = Disposition(Fault.INFRASTRUCTURE, retried=True, counted=False, trained=False)

DISPOSITIONS: Mapping[Ending, Disposition] = MappingProxyType(
    {
        Ending.ENV_DONE: Disposition(Fault.NOBODY, retried=True, counted=True, trained=True),
        Ending.TIMEOUT: Disposition(Fault.POLICY, retried=False, counted=True, trained=True),
        Ending.MAX_STEPS: Disposition(Fault.POLICY, retried=False, counted=True, trained=True),
        Ending.LIMIT_REACHED: Disposition(Fault.POLICY, retried=False, counted=True, trained=True),
        Ending.TRUNCATION: Disposition(Fault.POLICY, retried=False, counted=True, trained=True),
        Ending.MISSING_SUBMIT: Disposition(Fault.POLICY, retried=False, counted=True, trained=True),
        Ending.ERROR: Disposition(Fault.GRADER, retried=True, counted=True, trained=False),
        Ending.HARNESS_FAILED: Disposition(Fault.HARNESS, retried=True, counted=False, trained=False),
        Ending.ABORTED: _ABORT,
        Ending.CANCELLED: Disposition(Fault.USER, retried=False, counted=False, trained=False),
        Ending.STALE: Disposition(Fault.NOBODY, retried=False, counted=False, trained=False),
    }
)
"""Total over `Ending`. A grade on an `ERROR` exists only when it is attributed to the policy."""

CAUSE_DISPOSITIONS: Mapping[Cause, Disposition] = MappingProxyType(dict.fromkeys(Cause, _ABORT))
"""Total over `Cause`: every abort is infrastructure's, is retried, and is neither counted nor trained on."""

PRECEDENCE: tuple[Ending, ...] = (
    Ending.CANCELLED,
    Ending.ABORTED,
    Ending.HARNESS_FAILED,
    Ending.ERROR,
    Ending.LIMIT_REACHED,
    Ending.MAX_STEPS,
    Ending.TIMEOUT,
    Ending.TRUNCATION,
    Ending.MISSING_SUBMIT,
    Ending.STALE,
    Ending.ENV_DONE,
)
"""When several endings coincide, the first of these is recorded."""


def settle(*endings: Ending) -> Ending:
    """The one ending to record when several coincide."""
    return min(endings, key=PRECEDENCE.index)


class InfraAbort(HarnessError):
    """Infrastructure failed in a way that the policy can't have caused. Agent functions may raise it too."""

    def __init__(self, cause: Cause | str, detail: str = "") -> None:
        self.cause = Cause(cause)
        self.detail = detail
        super().__init__(f"{self.cause}: {detail}" if detail else str(self.cause))

    @property
    def exit_status(self) -> str:
        """The cause, under the name that Miles's users know."""
        return str(self.cause)

    def __reduce__(self) -> tuple[type[InfraAbort], tuple[str, str]]:
        return (InfraAbort, (str(self.cause), self.detail))


class Record(BaseModel):
    """Base of everything that crosses a disk or a process: frozen, and strict about its fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class GradingStatus(StrEnum):
    """What became of the grading, beside the ending."""

    GRADED = "graded"
    FAILED = "failed"
    NONE = "none"


class Integrity(StrEnum):
    """How well the grading was kept out of the policy's reach (DESIGN §7)."""

    PRISTINE = "pristine"
    """Declared artifacts in a fresh sandbox of the task's image."""
    RESTARTED = "restarted"
    """The same file system, every process killed."""
    LIVE = "live"
    """In place, for tasks whose services must still run."""


class Attribution(StrEnum):
    """Whose fault a failed grading is."""

    POLICY = "policy"
    GRADER = "grader"
    INFRASTRUCTURE = "infrastructure"


class RewardComponent(Record):
    """One named part of a reward. ``value`` lies within ``low..high``; weight 0 is informative only."""

    name: str
    value: float
    low: float = 0.0
    high: float = 1.0
    weight: float = Field(default=1.0, ge=0)
    explanation: str = ""

    @model_validator(mode="after")
    def _within_bounds(self) -> Self:
        numbers = (self.value, self.low, self.high, self.weight)
        if not all(math.isfinite(number) for number in numbers):
            raise ValueError(f"reward {self.name!r}: every number must be finite")
        if not self.low < self.high:
            raise ValueError(f"reward {self.name!r}: low {self.low} is not below high {self.high}")
        if not self.low <= self.value <= self.high:
            raise ValueError(f"reward {self.name!r}: {self.value} is outside {self.low}..{self.high}")
        return self

    @property
    def scaled(self) -> float:
        """The value on 0..1."""
        return (self.value - self.low) / (self.high - self.low)


def weighted_mean(components: tuple[RewardComponent, ...]) -> float | None:
    """Weighted mean of the scaled values; None when no component carries weight (that is ungraded, not 0)."""
    total = sum(component.weight for component in components)
    if total == 0:
        return None
    return sum(component.scaled * component.weight for component in components) / total


class GraderRun(Record):
    """One execution of a grader: what was graded, and how it went."""

    subject: str
    """``attempt`` for what the agent left, ``control`` for an untouched image."""
    status: GradingStatus
    exit_status: int | None = None
    """Of the test script. It doesn't replace a valid result file, but it is shown."""
    duration_s: float
    message: str = ""


class Grade(Record):
    """What grading found. ``reward`` is None unless ``status`` is graded."""

    status: GradingStatus
    reward: float | None = Field(default=None, allow_inf_nan=False)
    """Weighted mean of the components, on 0..1."""
    components: tuple[RewardComponent, ...] = ()
    integrity: Integrity
    attribution: Attribution | None = None
    runs: tuple[GraderRun, ...] = ()
    changed_paths: tuple[str, ...] = ()
    """System paths that differ from the image; reported by the restarted and live tiers."""
    holes: tuple[str, ...] = ()
    """What the tier can't rule out."""
    message: str = ""

    @model_validator(mode="after")
    def _reward_means_graded(self) -> Self:
        if (self.reward is not None) != (self.status is GradingStatus.GRADED):
            raise ValueError(f"a grade that is {self.status} can't have reward {self.reward}")
        return self


class Verdict(Record):
    """The final word on an attempt: ending, cause, grade."""

    ending: Ending
    cause: Cause | None = None
    detail: str = ""
    """One line for a person: what happened, and where to look."""
    grade: Grade | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.cause is not None) != (self.ending is Ending.ABORTED):
            raise ValueError(f"ending {self.ending} and cause {self.cause} don't go together")
        never_graded = {Ending.ABORTED, Ending.HARNESS_FAILED, Ending.CANCELLED}
        if self.ending in never_graded and self.reward is not None:
            raise ValueError(f"an attempt that ended {self.ending} can't have a reward")
        attribution = self.grade.attribution if self.grade else None
        if self.ending is Ending.ERROR and self.reward is not None and attribution is not Attribution.POLICY:
            raise ValueError("an ERROR has a reward only when it is attributed to the policy")
        return self

    @property
    def reward(self) -> float | None:
        """None means: not graded."""
        return self.grade.reward if self.grade else None

    @property
    def grading(self) -> GradingStatus:
        return self.grade.status if self.grade else GradingStatus.NONE

    @property
    def counted(self) -> bool:
        """Whether the reward enters a mean."""
        return self.reward is not None and DISPOSITIONS[self.ending].counted
