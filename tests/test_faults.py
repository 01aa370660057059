"""Whose fault a failure is: every combination of inputs, against tables that can be read, and the properties that must hold."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import (
    BuildFailed,
    CapExceeded,
    ConfigError,
    EngineError,
    EngineUnreachable,
    ImageUnavailable,
    PathMissing,
    SandboxGone,
    StartFailed,
    TransferFailed,
    UsageError,
)
from harness.faults import (
    CanaryResult,
    DiskState,
    EngineState,
    Evidence,
    Failed,
    Infrastructure,
    Judgement,
    MemoryState,
    NothingLeft,
    OwnFault,
    SandboxState,
    Scored,
    UpstreamState,
    classify,
    describe,
    judge,
)
from harness.outcome import Cause
from harness.phases import Phase

UNAVAILABLE, SETUP, SERVER, LOST = "SandboxUnavailable", "AgentSetupFailed", "ServerUnreachable", "SandboxLost"
NO_CALLS, COLLECT, TRUNCATED = "NoModelCalls", "CollectFailed", "AllTruncated"
SCORED, ZERO, OURS = "scored", "0", "our fault"

BEFORE_THE_START = {
    # what failed             in agent_setup  elsewhere
    Failed.ENGINE_SILENT: (SETUP, UNAVAILABLE),
    Failed.ENGINE_REFUSED: (SETUP, UNAVAILABLE),
    Failed.SANDBOX_GONE: (SETUP, UNAVAILABLE),
    Failed.FILES_UNREADABLE: (SETUP, UNAVAILABLE),
    Failed.BAD_INPUT: (SETUP, UNAVAILABLE),
    Failed.GRADER_SANDBOX: (UNAVAILABLE, UNAVAILABLE),
    Failed.MODEL_SERVICE: (SERVER, SERVER),
    Failed.NO_REPLY: (NO_CALLS, NO_CALLS),
    Failed.TRAJECTORY_LOST: (COLLECT, COLLECT),
    Failed.NOTHING_FITS: (TRUNCATED, TRUNCATED),
    Failed.AGENT_CODE: (OURS, OURS),
    Failed.OWN_CODE: (OURS, OURS),
}

AFTER_THE_START = {
    # what failed             on host evidence  on the gateway's  on neither  on neither, sandbox missing
    Failed.ENGINE_SILENT: (LOST, SCORED, SCORED, ZERO),
    Failed.ENGINE_REFUSED: (LOST, SCORED, SCORED, ZERO),
    Failed.SANDBOX_GONE: (LOST, SCORED, SCORED, ZERO),
    Failed.FILES_UNREADABLE: (LOST, ZERO, ZERO, ZERO),
    Failed.GRADER_SANDBOX: (UNAVAILABLE, UNAVAILABLE, UNAVAILABLE, UNAVAILABLE),
    Failed.BAD_INPUT: (OURS, OURS, OURS, OURS),
    Failed.AGENT_CODE: (SCORED, SCORED, SCORED, SCORED),
    Failed.MODEL_SERVICE: (SCORED, SERVER, SCORED, SCORED),
    Failed.NO_REPLY: (SCORED, SCORED, SCORED, SCORED),
    Failed.TRAJECTORY_LOST: (COLLECT, COLLECT, COLLECT, COLLECT),
    Failed.NOTHING_FITS: (TRUNCATED, TRUNCATED, TRUNCATED, TRUNCATED),
    Failed.OWN_CODE: (OURS, OURS, OURS, OURS),
}
"""But for two rows that stand in `expected`: an attempt that filled the disk, and our code over what the policy made."""

READING = (Phase.COLLECT, Phase.GRADING)


def every_evidence() -> Iterator[Evidence]:
    for engine, disk, memory, canary, upstream, sandbox in product(
        EngineState, DiskState, MemoryState, CanaryResult, UpstreamState, SandboxState
    ):
        yield Evidence.model_construct(
            engine=engine, disk=disk, memory=memory, canary=canary, upstream=upstream, sandbox=sandbox
        )


def host_evidence(evidence: Evidence) -> bool:
    """DESIGN §6 (b), (c) and (d); an attempt that filled the disk has none."""
    if evidence.disk is DiskState.BREACHED_BY_THIS:
        return False
    return (
        evidence.engine in (EngineState.RESTARTED, EngineState.UNREACHABLE)
        or evidence.disk is DiskState.BREACHED_BY_OTHERS
        or evidence.memory is MemoryState.GLOBAL_OOM
        or evidence.canary is CanaryResult.FAILED
    )


def expected(failed: Failed, phase: Phase, *, started: bool, evidence: Evidence) -> str:
    if not started:
        in_setup, elsewhere = BEFORE_THE_START[failed]
        return in_setup if phase is Phase.AGENT_SETUP else elsewhere
    if failed is Failed.GRADER_SANDBOX and evidence.disk is DiskState.BREACHED_BY_THIS:
        return SCORED
    if failed is Failed.OWN_CODE and phase in READING and evidence.canary is CanaryResult.PASSED:
        return ZERO
    on_host, on_gateway, on_neither, missing = AFTER_THE_START[failed]
    if host_evidence(evidence) and on_host != on_neither:
        return on_host
    if evidence.upstream is UpstreamState.LOST and on_gateway != on_neither:
        return on_gateway
    return missing if evidence.sandbox is SandboxState.MISSING else on_neither


def word(judgement: Judgement) -> str:
    match judgement:
        case Infrastructure(cause):
            return str(cause)
        case Scored():
            return SCORED
        case NothingLeft():
            return ZERO
        case OwnFault():
            return OURS


@pytest.mark.parametrize("started", [False, True], ids=["before the start", "after the start"])
@pytest.mark.parametrize("failed", Failed)
def test_the_whole_product_of_inputs(failed: Failed, started: bool):
    rows = 0
    for phase, evidence in product(Phase, every_evidence()):
        found = word(judge(failed, phase, started=started, evidence=evidence))
        wanted = expected(failed, phase, started=started, evidence=evidence)
        assert found == wanted, f"{failed} in {phase}, started: {started}, {evidence!r}: {found}, not {wanted}"
        rows += 1
    assert rows == 9 * 4 * 4 * 3 * 3 * 4 * 4


READABLE = [
    # what failed, the one thing that the host saw, and what follows
    (Failed.SANDBOX_GONE, {}, "scored on the stopped file system"),
    (Failed.SANDBOX_GONE, {"sandbox": SandboxState.MISSING}, "nothing left to grade: 0"),
    (Failed.SANDBOX_GONE, {"engine": EngineState.RESTARTED}, "infrastructure: SandboxLost (engine_restarted)"),
    (Failed.SANDBOX_GONE, {"memory": MemoryState.GLOBAL_OOM}, "infrastructure: SandboxLost (global_oom)"),
    (Failed.ENGINE_SILENT, {"engine": EngineState.SOUND}, "scored on the stopped file system"),
    (Failed.ENGINE_SILENT, {"engine": EngineState.UNREACHABLE}, "infrastructure: SandboxLost (engine_unreachable)"),
    (Failed.ENGINE_REFUSED, {"canary": CanaryResult.PASSED}, "scored on the stopped file system"),
    (Failed.ENGINE_REFUSED, {"canary": CanaryResult.FAILED}, "infrastructure: SandboxLost (canary_failed)"),
    (Failed.ENGINE_REFUSED, {"canary": CanaryResult.UNKNOWN}, "scored on the stopped file system"),
    (Failed.ENGINE_REFUSED, {"disk": DiskState.BREACHED_BY_OTHERS}, "infrastructure: SandboxLost (disk_reserve)"),
    (Failed.ENGINE_REFUSED, {"disk": DiskState.BREACHED_BY_THIS}, "scored on the stopped file system"),
    (Failed.FILES_UNREADABLE, {"canary": CanaryResult.PASSED}, "nothing left to grade: 0"),
    (Failed.FILES_UNREADABLE, {"canary": CanaryResult.FAILED}, "infrastructure: SandboxLost (canary_failed)"),
    (Failed.MODEL_SERVICE, {"upstream": UpstreamState.UNCONFIRMED}, "scored on the stopped file system"),
    (Failed.MODEL_SERVICE, {"upstream": UpstreamState.LOST}, "infrastructure: ServerUnreachable (upstream_lost)"),
    (Failed.AGENT_CODE, {"engine": EngineState.RESTARTED}, "scored on the stopped file system"),
    (Failed.GRADER_SANDBOX, {}, "infrastructure: SandboxUnavailable"),
    (Failed.OWN_CODE, {"canary": CanaryResult.FAILED}, "our own fault: not graded"),
    (Failed.OWN_CODE, {"canary": CanaryResult.PASSED}, "nothing left to grade: 0"),
]


@pytest.mark.parametrize(("failed", "seen", "says"), READABLE)
def test_rows_that_people_read(failed: Failed, seen: dict[str, object], says: str):
    evidence = Evidence.model_validate(seen)
    assert describe(judge(failed, Phase.COLLECT, started=True, evidence=evidence)) == says


@pytest.mark.parametrize("failed", [Failed.ENGINE_SILENT, Failed.ENGINE_REFUSED, Failed.SANDBOX_GONE])
def test_an_offender_of_the_disk_isnt_excused_by_what_it_brought_down(failed: Failed):
    evidence = Evidence(engine=EngineState.RESTARTED, disk=DiskState.BREACHED_BY_THIS, canary=CanaryResult.FAILED)
    assert judge(failed, Phase.AGENT_RUN, started=True, evidence=evidence) == Scored()


EVIDENCE = st.builds(
    Evidence,
    engine=st.sampled_from(EngineState),
    disk=st.sampled_from(DiskState),
    memory=st.sampled_from(MemoryState),
    canary=st.sampled_from(CanaryResult),
    upstream=st.sampled_from(UpstreamState),
    sandbox=st.sampled_from(SandboxState),
)
ENGINE_FAILURES = [Failed.ENGINE_SILENT, Failed.ENGINE_REFUSED, Failed.SANDBOX_GONE, Failed.FILES_UNREADABLE]
OUT_OF_REACH = [Failed.GRADER_SANDBOX, Failed.TRAJECTORY_LOST, Failed.NOTHING_FITS]
"""What no policy can reach: a sandbox that it never was in, and the gateway's own record on the host."""


@given(st.sampled_from(Failed), st.sampled_from(Phase), EVIDENCE)
def test_after_the_start_nothing_aborts_without_accepted_evidence(failed: Failed, phase: Phase, evidence: Evidence):
    judgement = judge(failed, phase, started=True, evidence=evidence)
    if isinstance(judgement, Infrastructure) and failed not in OUT_OF_REACH:
        assert judgement.grounds
        assert host_evidence(evidence) or evidence.upstream is UpstreamState.LOST


@given(st.sampled_from(Failed), st.sampled_from(Phase))
def test_what_is_unknown_is_never_evidence(failed: Failed, phase: Phase):
    judgement = judge(failed, phase, started=True, evidence=Evidence())
    assert not isinstance(judgement, Infrastructure) or failed in OUT_OF_REACH


@given(st.sampled_from(ENGINE_FAILURES), st.sampled_from(Phase), EVIDENCE)
def test_before_the_start_no_engine_failure_is_ever_scored(failed: Failed, phase: Phase, evidence: Evidence):
    assert isinstance(judge(failed, phase, started=False, evidence=evidence), Infrastructure)


@given(st.sampled_from(Failed), st.sampled_from(Phase), EVIDENCE)
def test_a_sandbox_is_lost_only_after_the_start(failed: Failed, phase: Phase, evidence: Evidence):
    judgement = judge(failed, phase, started=False, evidence=evidence)
    assert not isinstance(judgement, Infrastructure) or judgement.cause is not Cause.SANDBOX_LOST
    assert not isinstance(judgement, Scored | NothingLeft)


@given(st.sampled_from(ENGINE_FAILURES), st.sampled_from(Phase), EVIDENCE, st.sampled_from(UpstreamState))
def test_the_model_services_record_says_nothing_of_a_sandbox(
    failed: Failed, phase: Phase, evidence: Evidence, upstream: UpstreamState
):
    other = evidence.model_copy(update={"upstream": upstream})
    assert judge(failed, phase, started=True, evidence=evidence) == judge(failed, phase, started=True, evidence=other)


@pytest.mark.parametrize(
    ("error", "failed"),
    [
        (EngineUnreachable("x"), Failed.ENGINE_SILENT),
        (SandboxGone("x"), Failed.SANDBOX_GONE),
        (StartFailed("x"), Failed.ENGINE_REFUSED),
        (ImageUnavailable("x"), Failed.ENGINE_REFUSED),
        (BuildFailed("x", instruction="", log_tail=""), Failed.ENGINE_REFUSED),
        (TransferFailed("x"), Failed.ENGINE_REFUSED),
        (CapExceeded("x"), Failed.ENGINE_REFUSED),
        (PathMissing("x"), Failed.ENGINE_REFUSED),
        (EngineError("nothing answers at the engine's socket"), Failed.ENGINE_REFUSED),
        (ConfigError("x"), Failed.BAD_INPUT),
    ],
)
def test_a_failure_is_told_by_its_type(error: EngineError | UsageError, failed: Failed):
    assert classify(error) is failed
