"""Whose fault a failure is: one pure, total function from what failed, when, and the evidence, to a judgement.

*Discard only what the policy cannot have caused.* Before the start whatever fails on the host's side is infrastructure. After
it only what the host itself saw counts; everything else is scored on what the stopped sandbox holds. Nothing here ever sees a
sandbox's output, its exit statuses, its files or the text of a message: the inputs are closed sets. `harness.inquest` gathers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import assert_never

from harness.errors import EngineError, EngineUnreachable, SandboxGone, UsageError
from harness.outcome import Cause, Record
from harness.phases import Phase


class Failed(StrEnum):
    """What failed, by its type and by where it came from."""

    ENGINE_SILENT = "engine_silent"
    """Nothing answered on the engine's socket, or a connection to it broke."""
    ENGINE_REFUSED = "engine_refused"
    """The engine answered with an error, or too late: an image, a start, a command, a transfer."""
    SANDBOX_GONE = "sandbox_gone"
    """The engine says that the attempt's sandbox doesn't run, or doesn't exist."""
    FILES_UNREADABLE = "files_unreadable"
    """What the agent left can't be read or can't be started again: tried twice, or larger than any cap allows."""
    GRADER_SANDBOX = "grader_sandbox"
    """A fresh sandbox to grade in could not be had. Nothing of the agent's had entered it."""
    BAD_INPUT = "bad_input"
    """The task or the configuration asks for what can't be had here."""
    AGENT_CODE = "agent_code"
    """The agent's own code raised."""
    MODEL_SERVICE = "model_service"
    """The attempt's last model call failed on the gateway's upstream leg, by the gateway's record."""
    NO_REPLY = "no_reply"
    """An agent that uses a policy ended, and the gateway has no completed reply on record."""
    TRAJECTORY_LOST = "trajectory_lost"
    """The gateway's record of the attempt could not be collected."""
    NOTHING_FITS = "nothing_fits"
    """Nothing that was recorded fits the length."""
    OWN_CODE = "own_code"
    """Code of this project raised."""


class EngineState(StrEnum):
    """The engine itself, seen from the host."""

    SOUND = "sound"
    RESTARTED = "restarted"
    """It was started again while the attempt ran, and that explains the failure in time."""
    UNREACHABLE = "unreachable"
    """Its API doesn't answer the host, or its connections broke when the failure happened."""
    UNKNOWN = "unknown"


class DiskState(StrEnum):
    """The host's disk reserve, and who used it up."""

    SOUND = "sound"
    BREACHED_BY_OTHERS = "breached_by_others"
    """Breached while this attempt was under its quota."""
    BREACHED_BY_THIS = "breached_by_this"
    """Breached while this attempt was over its quota: the offender is scored."""
    UNKNOWN = "unknown"


class MemoryState(StrEnum):
    """What the host's kernel ran out of; a sandbox that reaches its own limit is not in it."""

    SOUND = "sound"
    GLOBAL_OOM = "global_oom"
    UNKNOWN = "unknown"


class CanaryResult(StrEnum):
    """The same operation, at that time, in a sandbox that no policy was ever in."""

    PASSED = "passed"
    FAILED = "failed"
    UNKNOWN = "unknown"


class UpstreamState(StrEnum):
    """The model service, by the gateway's own record of this attempt."""

    ANSWERED = "answered"
    LOST = "lost"
    """Lost, and the gateway's health probe fails too or other sessions fail at the same time."""
    UNCONFIRMED = "unconfirmed"
    """Lost for this attempt alone: one request can be made so that it fails."""
    UNKNOWN = "unknown"


class SandboxState(StrEnum):
    """The attempt's sandbox, as the engine describes it."""

    RUNNING = "running"
    STOPPED = "stopped"
    MISSING = "missing"
    UNKNOWN = "unknown"


class Evidence(Record):
    """What the host saw. What could not be looked at is unknown, and unknown is never evidence."""

    engine: EngineState = EngineState.UNKNOWN
    disk: DiskState = DiskState.UNKNOWN
    memory: MemoryState = MemoryState.UNKNOWN
    canary: CanaryResult = CanaryResult.UNKNOWN
    upstream: UpstreamState = UpstreamState.UNKNOWN
    sandbox: SandboxState = SandboxState.UNKNOWN


class Ground(StrEnum):
    """A reason, after the start, to believe that infrastructure failed."""

    ENGINE_RESTARTED = "engine_restarted"
    ENGINE_UNREACHABLE = "engine_unreachable"
    DISK_RESERVE = "disk_reserve"
    GLOBAL_OOM = "global_oom"
    CANARY_FAILED = "canary_failed"
    UPSTREAM_LOST = "upstream_lost"


HOST = frozenset(Ground) - {Ground.UPSTREAM_LOST}
"""The grounds that explain why an operation on a sandbox failed."""


@dataclass(frozen=True, slots=True)
class Infrastructure:
    """Abort with this cause. ``grounds`` is empty where none is needed: before the start, and for what no policy can reach."""

    cause: Cause
    grounds: frozenset[Ground] = frozenset()


@dataclass(frozen=True, slots=True)
class Scored:
    """Grade what the stopped file system holds."""


@dataclass(frozen=True, slots=True)
class NothingLeft:
    """There is nothing left to grade, and nothing but the policy explains it: reward 0."""


@dataclass(frozen=True, slots=True)
class OwnFault:
    """Code that is not the policy's failed: no reward."""


Judgement = Infrastructure | Scored | NothingLeft | OwnFault


@dataclass(frozen=True, slots=True)
class After:
    """What a failure after the start means: with one of ``admits`` an abort with ``cause``, else ``otherwise``."""

    admits: frozenset[Ground]
    cause: Cause
    otherwise: Judgement


_BY_PHASE: Mapping[Phase, Cause] = MappingProxyType(
    dict.fromkeys(Phase, Cause.SANDBOX_UNAVAILABLE) | {Phase.AGENT_SETUP: Cause.AGENT_SETUP_FAILED}
)
"""What a failure around the sandbox is called before the start; a sandbox can be *lost* only after it."""

BEFORE: Mapping[Failed, Mapping[Phase, Cause] | Cause | OwnFault] = MappingProxyType(
    {
        Failed.ENGINE_SILENT: _BY_PHASE,
        Failed.ENGINE_REFUSED: _BY_PHASE,
        Failed.SANDBOX_GONE: _BY_PHASE,
        Failed.FILES_UNREADABLE: _BY_PHASE,
        Failed.BAD_INPUT: _BY_PHASE,
        Failed.GRADER_SANDBOX: Cause.SANDBOX_UNAVAILABLE,
        Failed.MODEL_SERVICE: Cause.SERVER_UNREACHABLE,
        Failed.NO_REPLY: Cause.NO_MODEL_CALLS,
        Failed.TRAJECTORY_LOST: Cause.COLLECT_FAILED,
        Failed.NOTHING_FITS: Cause.ALL_TRUNCATED,
        Failed.AGENT_CODE: OwnFault(),
        Failed.OWN_CODE: OwnFault(),
    }
)
"""Before the start the policy has done nothing: total over `Failed`, whatever the evidence."""

_SANDBOX = After(HOST, Cause.SANDBOX_LOST, Scored())
_NEVER = frozenset[Ground]()

AFTER: Mapping[Failed, After] = MappingProxyType(
    {
        Failed.ENGINE_SILENT: _SANDBOX,
        Failed.ENGINE_REFUSED: _SANDBOX,
        Failed.SANDBOX_GONE: _SANDBOX,
        Failed.FILES_UNREADABLE: After(HOST, Cause.SANDBOX_LOST, NothingLeft()),
        # No policy was ever in a fresh sandbox: its failure is a canary's. An offender of the disk is asked for in `judge`.
        Failed.GRADER_SANDBOX: After(_NEVER, Cause.SANDBOX_UNAVAILABLE, Infrastructure(Cause.SANDBOX_UNAVAILABLE)),
        Failed.BAD_INPUT: After(_NEVER, Cause.SANDBOX_LOST, OwnFault()),
        Failed.AGENT_CODE: After(_NEVER, Cause.SANDBOX_LOST, Scored()),
        Failed.MODEL_SERVICE: After(frozenset({Ground.UPSTREAM_LOST}), Cause.SERVER_UNREACHABLE, Scored()),
        Failed.NO_REPLY: After(_NEVER, Cause.NO_MODEL_CALLS, Scored()),
        # The gateway's own record of the attempt lies on the host, out of every sandbox's reach.
        Failed.TRAJECTORY_LOST: After(_NEVER, Cause.COLLECT_FAILED, Infrastructure(Cause.COLLECT_FAILED)),
        Failed.NOTHING_FITS: After(_NEVER, Cause.ALL_TRUNCATED, Infrastructure(Cause.ALL_TRUNCATED)),
        Failed.OWN_CODE: After(_NEVER, Cause.SANDBOX_LOST, OwnFault()),
    }
)
"""After the start: total over `Failed`."""

_READING = frozenset({Phase.COLLECT, Phase.GRADING})
"""Where our code reads what a started sandbox holds."""


def judge(failed: Failed, phase: Phase, *, started: bool, evidence: Evidence) -> Judgement:
    """The one decision. Total: every combination has a judgement, and none raises."""
    if not started:
        return _before(failed, phase)
    rule = AFTER[failed]
    found = grounds(evidence) & rule.admits
    if found:
        return Infrastructure(rule.cause, found)
    if failed is Failed.GRADER_SANDBOX and evidence.disk is DiskState.BREACHED_BY_THIS:
        return Scored()
    if failed is Failed.OWN_CODE and phase in _READING and evidence.canary is CanaryResult.PASSED:
        return NothingLeft()
    if rule.otherwise == Scored() and rule.admits == HOST and evidence.sandbox is SandboxState.MISSING:
        return NothingLeft()
    return rule.otherwise


def _before(failed: Failed, phase: Phase) -> Judgement:
    match BEFORE[failed]:
        case Cause() as cause:
            return Infrastructure(cause)
        case OwnFault() as own:
            return own
        case by_phase:
            return Infrastructure(by_phase[phase])


def grounds(evidence: Evidence) -> frozenset[Ground]:
    """What in the evidence speaks for infrastructure.

    An attempt that used up the host's disk may have brought down the engine and the canary with it: then neither speaks.
    """
    found = {
        Ground.ENGINE_RESTARTED: evidence.engine is EngineState.RESTARTED,
        Ground.ENGINE_UNREACHABLE: evidence.engine is EngineState.UNREACHABLE,
        Ground.DISK_RESERVE: evidence.disk is DiskState.BREACHED_BY_OTHERS,
        Ground.GLOBAL_OOM: evidence.memory is MemoryState.GLOBAL_OOM,
        Ground.CANARY_FAILED: evidence.canary is CanaryResult.FAILED,
        Ground.UPSTREAM_LOST: evidence.upstream is UpstreamState.LOST,
    }
    holds = frozenset(ground for ground, seen in found.items() if seen)
    return holds - HOST if evidence.disk is DiskState.BREACHED_BY_THIS else holds


def classify(error: EngineError | UsageError) -> Failed:
    """What failed, where an operation on the attempt's own sandbox or image raised this."""
    match error:
        case EngineUnreachable():
            return Failed.ENGINE_SILENT
        case SandboxGone():
            return Failed.SANDBOX_GONE
        case EngineError():
            return Failed.ENGINE_REFUSED
        case UsageError():
            return Failed.BAD_INPUT


def describe(judgement: Judgement) -> str:
    """One line for the record: ``infrastructure: SandboxLost (engine_restarted)``."""
    match judgement:
        case Infrastructure(cause, found):
            return f"infrastructure: {cause}" + (f" ({', '.join(sorted(found))})" if found else "")
        case Scored():
            return "scored on the stopped file system"
        case NothingLeft():
            return "nothing left to grade: 0"
        case OwnFault():
            return "our own fault: not graded"
        case _:
            assert_never(judgement)
