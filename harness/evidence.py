"""Where evidence comes from: the ports behind which the host, the engine and the gateway are looked at, and what they tell.

Everything here is seen from the host. What can't be seen is *unknown*; unknown is never evidence (`harness.faults`).
Texts (``said``) are for the people who read a record; no decision reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from harness.faults import DiskState, EngineState, Evidence, Failed, MemoryState, SandboxState, UpstreamState
from harness.outcome import Cause, Record
from harness.phases import Phase
from harness.ports import SandboxSpec


class Source(StrEnum):
    """What was looked at."""

    ENGINE = "engine"
    SANDBOX = "sandbox"
    DISK = "disk"
    MEMORY = "memory"
    CANARY = "canary"
    UPSTREAM = "upstream"


class Reading(Record):
    """One look: what at, what was found (a member of that source's closed set), and for people what it rests on."""

    source: Source
    found: str
    said: str = ""


class Examination(Record):
    """A failure, what was looked at after it, and what was decided on that."""

    failed: Failed
    phase: Phase
    step: str | None = None
    started: bool
    evidence: Evidence
    readings: tuple[Reading, ...] = ()
    judgement: str
    cause: Cause | None = None
    """Set where the judgement is an abort."""
    what: str = ""
    """The failure's own message: for people, never read by the judgement."""
    at: float
    """Seconds since the epoch."""
    took_s: float


# --- the engine and its host ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Case:
    """What is looked into: an attempt's sandbox, and when it failed.

    began: when the sandbox was ready. failed: when the failure was noticed; infinity where nothing has failed yet, and only a
    sandbox that is gone would need an explanation. Both in monotonic seconds (``anyio.current_time``).
    """

    sandbox: str
    spec: SandboxSpec
    began: float
    failed: float


@dataclass(frozen=True, slots=True)
class Sighting:
    """What the host can tell of a case at once."""

    engine: EngineState = EngineState.UNKNOWN
    sandbox: SandboxState = SandboxState.UNKNOWN
    memory: MemoryState = MemoryState.UNKNOWN
    readings: Sequence[Reading] = ()


@dataclass(frozen=True, slots=True)
class DiskSighting:
    """The host's disk reserve; ``said`` is for people."""

    state: DiskState = DiskState.UNKNOWN
    said: str = ""


class Witness(Protocol):
    """Watches one engine and its host for a whole run."""

    def interrupted_since(self, moment: float) -> bool:
        """Whether the engine is known to have gone away since ``moment`` (monotonic). Asks nobody; costs nothing."""
        ...

    async def look(self, case: Case) -> Sighting:
        """Look now. Bounded in time; what can't be looked at is unknown. Raises nothing."""
        ...

    async def disk(self, case: Case, *, quiet: bool) -> DiskSighting:
        """Whether the disk's reserve is breached now, and by whom. Bounded like `look`.

        quiet: nothing of the attempt runs any more, so that what it holds is all that it holds. While it runs it could fill the disk
        in one moment and be small in the next: then it may be an offender, but never a victim.
        """
        ...


class BlindWitness:
    """Sees nothing: for engines that nobody watches."""

    def interrupted_since(self, moment: float) -> bool:
        return False

    async def look(self, case: Case) -> Sighting:
        return Sighting()

    async def disk(self, case: Case, *, quiet: bool) -> DiskSighting:
        return DiskSighting()


# --- the model service ----------------------------------------------------------------------------------------------


class UpstreamFailure(StrEnum):
    """How a model call failed on the gateway's upstream leg, after its retries."""

    REFUSED = "refused"
    RESET = "reset"
    TIMED_OUT = "timed_out"
    UNAVAILABLE = "unavailable"
    """Status 503."""
    CUT = "cut"
    """The stream ended without its terminal event."""
    REJECTED = "rejected"
    """Any other error status for this one request: what is asked can provoke it."""


class Health(StrEnum):
    """The gateway's own probe of the upstream."""

    ANSWERS = "answers"
    FAILS = "fails"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class UpstreamRecord:
    """What the gateway recorded of one attempt's model calls.

    replies: completed ones. failure: how the attempt's last call failed; None when it was answered, or there was none.
    probe: the gateway's health probe of the upstream, made after that failure. others_failing: other sessions whose calls
    failed upstream at the same time.
    """

    replies: int = 0
    failure: UpstreamFailure | None = None
    probe: Health = Health.UNKNOWN
    others_failing: int = 0

    @property
    def lost(self) -> bool:
        """Whether the last call failed in a way that isn't the answer to this one request."""
        return self.failure is not None and self.failure is not UpstreamFailure.REJECTED


def upstream_state(record: UpstreamRecord) -> UpstreamState:
    """What the record says of the model service."""
    if not record.lost:
        return UpstreamState.ANSWERED
    confirmed = record.probe is Health.FAILS or record.others_failing > 0
    return UpstreamState.LOST if confirmed else UpstreamState.UNCONFIRMED


class Gateway(Protocol):
    """The gateway's side of an attempt: the only way from an agent to the policy."""

    def replies(self, attempt: str) -> int:
        """Completed replies on record. From memory."""
        ...

    async def record(self, attempt: str) -> UpstreamRecord:
        """The upstream leg of the attempt's calls. Where the last one failed, the upstream is probed before this returns."""
        ...

    async def collect(self, attempt: str) -> None:
        """Keep the attempt's trajectory. Raises `harness.errors.TrajectoryLost` or `NothingFits`."""
        ...


@dataclass
class NoGateway:
    """No gateway, so no model call: for agents without a policy."""

    empty: UpstreamRecord = field(default_factory=UpstreamRecord)

    def replies(self, attempt: str) -> int:
        return 0

    async def record(self, attempt: str) -> UpstreamRecord:
        return self.empty

    async def collect(self, attempt: str) -> None:
        """There is none."""
