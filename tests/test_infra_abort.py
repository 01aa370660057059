"""What aborts an attempt, and what never does: the statements about InfraAbort and causes, each with a test named after it."""

from __future__ import annotations

import pickle
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import anyio.to_process
import pytest

import harness
from harness.errors import EngineUnreachable, ImageUnavailable, NothingFits, SandboxGone, StartFailed, TrajectoryLost
from harness.evidence import Health, UpstreamFailure
from harness.faults import Failed
from harness.outcome import CAUSE_DISPOSITIONS, DISPOSITIONS, Cause, Ending, InfraAbort
from harness.phases import Phase
from harness.ports import AgentContext, Command
from harness.sandbox.fake import Operation
from harness.task.model import Healthcheck
from tests.worlds import World, a_task, ended, grade, phases, steps

Work = Callable[[AgentContext], Awaitable[None]]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def raises(*errors: Exception) -> Work:
    """An agent's work that raises these, one a call; once they are used up it returns."""
    waiting = list(errors)

    async def work(_: AgentContext) -> None:
        if waiting:
            raise waiting.pop(0)

    return work


def policy(world: World, work: Work, *, replies: int = 1) -> None:
    """An agent with a policy that gets some replies, then does ``work``."""

    async def with_replies(context: AgentContext) -> None:
        for _ in range(replies):
            world.gateway.reply("a")
        await work(context)

    world.agent.uses_policy = True
    world.agent.work = with_replies


# --- 1: raised in an agent function ---------------------------------------------------------------------------------


@pytest.mark.parametrize("cause", Cause)
async def test_1_an_infra_abort_in_an_agent_function_aborts_with_its_cause(world: World, cause: Cause):
    world.agent.work = raises(harness.InfraAbort(cause, detail="said so"))
    record = await world.attempt()
    assert ended(record) == (Ending.ABORTED, cause, None)
    assert "said so" in record.detail
    assert world.grader.graded == []


async def test_1_an_infra_abort_in_an_agents_setup_aborts_with_its_cause(world: World):
    world.agent.prepare = raises(InfraAbort(Cause.SERVER_UNREACHABLE))
    assert ended(await world.attempt()) == (Ending.ABORTED, Cause.SERVER_UNREACHABLE, None)


def test_1_every_abort_is_retried_and_neither_counted_nor_trained_on():
    for disposition in (DISPOSITIONS[Ending.ABORTED], *CAUSE_DISPOSITIONS.values()):
        assert (disposition.retried, disposition.counted, disposition.trained) == (True, False, False)


# --- 2: anything else -----------------------------------------------------------------------------------------------


async def test_2_returning_none_is_graded(world: World):
    policy(world, raises())
    assert ended(await world.attempt()) == (Ending.ENV_DONE, None, 1.0)


@pytest.mark.parametrize("error", [ValueError("x"), ConnectionError("x"), TimeoutError(), KeyError("model")])
async def test_2_what_is_raised_after_the_start_keeps_what_was_recorded(world: World, error: Exception):
    policy(world, raises(error))
    world.grader.grades = [grade(0.0)]
    record = await world.attempt()
    assert ended(record) == (Ending.ENV_DONE, None, 0.0)
    assert world.gateway.collected == ["a"]
    assert type(error).__name__ in record.detail


async def test_2_an_exception_before_the_start_is_diagnosed_and_not_graded(world: World):
    async def work(context: AgentContext) -> None:
        await context.log(b"connecting to the model\n")
        try:
            raise ImportError("no module named openai")
        except ImportError as error:
            raise RuntimeError("the model client is missing") from error

    policy(world, work, replies=0)
    record = await world.attempt()
    assert ended(record) == (Ending.HARNESS_FAILED, None, None)
    assert record.diagnostic is not None
    assert record.diagnostic.chain == (
        "RuntimeError: the model client is missing",
        "ImportError: no module named openai",
    )
    assert record.diagnostic.locations[-1].endswith("in work")
    assert "connecting to the model" in record.diagnostic.agent_log


# --- 3: the cause survives ------------------------------------------------------------------------------------------


def lose_the_model(cause: str) -> None:
    raise InfraAbort(cause, "in another process")


async def test_3_the_cause_survives_a_subprocess_agent(world: World):
    async def work(_: AgentContext) -> None:
        await anyio.to_process.run_sync(lose_the_model, "ServerUnreachable")

    world.agent.work = work
    record = await world.attempt()
    assert ended(record) == (Ending.ABORTED, Cause.SERVER_UNREACHABLE, None)
    assert "in another process" in record.detail


def test_3_the_cause_survives_pickling():
    again = pickle.loads(pickle.dumps(InfraAbort(Cause.SANDBOX_LOST, "why")))
    assert (again.cause, again.detail, again.exit_status) == (Cause.SANDBOX_LOST, "why", "SandboxLost")


async def test_3_the_cause_survives_an_exception_group(world: World):
    abort = InfraAbort(Cause.SANDBOX_LOST)
    world.agent.work = raises(ExceptionGroup("a", [SandboxGone("x"), ExceptionGroup("b", [ValueError(), abort])]))
    assert ended(await world.attempt()) == (Ending.ABORTED, Cause.SANDBOX_LOST, None)


@pytest.mark.parametrize(
    "failure", [TrajectoryLost("x"), TimeoutError(), RuntimeError("any"), InfraAbort(Cause.COLLECT_FAILED)]
)
async def test_3_the_cause_survives_a_trajectory_collection_that_then_fails(world: World, failure: Exception):
    policy(world, raises(InfraAbort(Cause.SERVER_UNREACHABLE)))
    world.gateway.collect_failure = failure
    assert ended(await world.attempt()) == (Ending.ABORTED, Cause.SERVER_UNREACHABLE, None)


# --- 4: replies and trajectories ------------------------------------------------------------------------------------


async def test_4_a_policy_agent_without_a_completed_reply_made_no_model_calls(world: World):
    policy(world, raises(), replies=0)
    assert ended(await world.attempt()) == (Ending.ABORTED, Cause.NO_MODEL_CALLS, None)
    assert world.grader.graded == []


async def test_4_a_policy_agent_that_hangs_before_its_first_reply_made_no_model_calls(world: World):
    async def hang(_: AgentContext) -> None:
        await anyio.sleep_forever()

    policy(world, hang, replies=0)
    assert ended(await world.attempt(a_task(timeout_s=0.05))) == (Ending.ABORTED, Cause.NO_MODEL_CALLS, None)


async def test_4_an_agent_without_a_policy_never_lacks_model_calls(world: World):
    assert ended(await world.attempt()) == (Ending.ENV_DONE, None, 1.0)


@pytest.mark.parametrize(
    ("failure", "cause"),
    [
        (TrajectoryLost("x"), Cause.COLLECT_FAILED),
        (OSError("disk"), Cause.COLLECT_FAILED),
        (NothingFits("x"), Cause.ALL_TRUNCATED),
    ],
)
async def test_4_a_trajectory_that_cant_be_collected_aborts(world: World, failure: Exception, cause: Cause):
    policy(world, raises())
    world.gateway.collect_failure = failure
    assert ended(await world.attempt()) == (Ending.ABORTED, cause, None)


async def test_4_an_agent_without_a_policy_has_no_trajectory_to_lose(world: World):
    world.gateway.collect_failure = TrajectoryLost("x")
    assert ended(await world.attempt()) == (Ending.ENV_DONE, None, 1.0)


# --- 5: what an agent returns ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [*Cause, "ABORTED"])
async def test_5_an_exit_status_that_is_returned_never_aborts(world: World, status: str):
    async def work(_: AgentContext) -> None:
        return {"exit_status": status}  # type: ignore[return-value] # pyright: ignore[reportReturnType]

    world.agent.work = work
    assert ended(await world.attempt()) == (Ending.ENV_DONE, None, 1.0)


# --- 6: before the start --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("failure", [EngineUnreachable("down"), ImageUnavailable("429 from the registry")])
async def test_6_an_image_that_cant_be_had_is_an_unavailable_sandbox(world: World, failure: Exception):
    world.images.failure = failure  # pyright: ignore[reportAttributeAccessIssue]
    record = await world.attempt()
    assert ended(record) == (Ending.ABORTED, Cause.SANDBOX_UNAVAILABLE, None)
    assert Phase.AGENT_SETUP not in phases(record)


@pytest.mark.parametrize("operation", [Operation.CREATE, Operation.START])
async def test_6_a_sandbox_that_doesnt_start_is_unavailable(world: World, operation: Operation):
    world.engine.fail_next(operation, StartFailed("no"))
    record = await world.attempt()
    assert ended(record) == (Ending.ABORTED, Cause.SANDBOX_UNAVAILABLE, None)
    assert Phase.AGENT_SETUP not in phases(record)


async def test_6_a_failing_healthcheck_is_an_unavailable_sandbox(world: World):
    record = await world.attempt(a_task(healthcheck=Healthcheck(command="false", interval_s=0, retries=1)))
    assert ended(record) == (Ending.ABORTED, Cause.SANDBOX_UNAVAILABLE, None)
    assert Phase.AGENT_SETUP not in phases(record)


@pytest.mark.parametrize("group", [False, True])
async def test_6_an_agent_that_cant_be_installed_failed_its_setup(world: World, group: bool):
    error = SandboxGone("while it was installed")
    world.agent.prepare = raises(ExceptionGroup("several", [error]) if group else error)
    record = await world.attempt()
    assert ended(record) == (Ending.ABORTED, Cause.AGENT_SETUP_FAILED, None)
    assert Phase.AGENT_SETUP in phases(record)


async def test_6_an_engine_that_fails_before_the_first_reply_is_an_unavailable_sandbox(world: World):
    policy(world, raises(EngineUnreachable("down")), replies=0)
    assert ended(await world.attempt()) == (Ending.ABORTED, Cause.SANDBOX_UNAVAILABLE, None)


async def test_6_nothing_is_looked_at_before_the_start(world: World):
    world.engine.fail_next(Operation.START, StartFailed("no"))
    record = await world.attempt()
    (examination,) = record.evidence
    assert (examination.failed, examination.started, examination.readings) == (Failed.ENGINE_REFUSED, False, ())
    assert world.witness.cases == []
    assert len(world.engine.made) == 1, "a canary was started"


# --- 7: steps -------------------------------------------------------------------------------------------------------


async def test_7_an_attempt_has_started_once_any_step_has(world: World):
    replied: list[None] = []

    async def work(_: AgentContext) -> None:
        if not replied:
            replied.append(None)
            world.gateway.reply("a")
            return
        raise ValueError("in the second step, without a reply in it")

    world.agent.uses_policy = True
    world.agent.work = work
    assert ended(await world.attempt(a_task(*steps(None, None)))) == (Ending.ENV_DONE, None, 1.0)


async def test_7_a_steps_loss_of_the_model_service_is_the_attempts(world: World):
    async def work(context: AgentContext) -> None:
        world.gateway.reply("a")
        if context.step.name == "s1":
            world.gateway.fail("a", UpstreamFailure.REFUSED)

    world.agent.uses_policy = True
    world.agent.work = work
    world.gateway.probe = Health.FAILS
    record = await world.attempt(a_task(*steps(None, None)))
    assert ended(record) == (Ending.ABORTED, Cause.SERVER_UNREACHABLE, None)
    assert [step.name for step in record.steps] == ["s0"]


# --- 8: the model service -------------------------------------------------------------------------------------------

LOST = [failure for failure in UpstreamFailure if failure is not UpstreamFailure.REJECTED]


def losing(world: World, failure: UpstreamFailure, error: Exception | None = None) -> Work:
    async def work(_: AgentContext) -> None:
        world.gateway.fail("a", failure)
        if error is not None:
            raise error

    return work


@pytest.mark.parametrize("error", [None, ConnectionError("x")], ids=["returned", "raised"])
@pytest.mark.parametrize("failure", LOST)
async def test_8_a_model_service_that_is_lost_by_the_gateways_record(
    world: World, failure: UpstreamFailure, error: Exception | None
):
    policy(world, losing(world, failure, error))
    world.gateway.probe = Health.FAILS
    record = await world.attempt()
    assert ended(record) == (Ending.ABORTED, Cause.SERVER_UNREACHABLE, None)
    assert "probe: fails" in record.evidence[-1].readings[-1].said


@pytest.mark.parametrize("failure", LOST)
async def test_8_also_when_the_first_request_failed(world: World, failure: UpstreamFailure):
    policy(world, losing(world, failure, ConnectionError("x")), replies=0)
    assert ended(await world.attempt()) == (Ending.ABORTED, Cause.SERVER_UNREACHABLE, None)


async def test_8_other_sessions_that_fail_at_the_same_time_confirm_it(world: World):
    policy(world, losing(world, UpstreamFailure.UNAVAILABLE))
    world.gateway.fail("another", UpstreamFailure.UNAVAILABLE)
    assert ended(await world.attempt()) == (Ending.ABORTED, Cause.SERVER_UNREACHABLE, None)


@pytest.mark.parametrize("failure", UpstreamFailure)
async def test_8_what_happens_to_one_request_alone_is_scored(world: World, failure: UpstreamFailure):
    policy(world, losing(world, failure, ConnectionError("x")))
    assert ended(await world.attempt()) == (Ending.ENV_DONE, None, 1.0)


async def test_8_an_error_status_for_one_request_is_scored_even_while_the_service_is_down(world: World):
    policy(world, losing(world, UpstreamFailure.REJECTED))
    world.gateway.probe = Health.FAILS
    assert ended(await world.attempt()) == (Ending.ENV_DONE, None, 1.0)


async def test_8_a_call_that_was_answered_in_the_end_is_no_loss(world: World):
    async def work(_: AgentContext) -> None:
        world.gateway.fail("a", UpstreamFailure.RESET)
        world.gateway.reply("a")

    policy(world, work)
    world.gateway.probe = Health.FAILS
    assert ended(await world.attempt()) == (Ending.ENV_DONE, None, 1.0)


async def test_8_an_agents_typed_error_only_asks(world: World):
    policy(world, raises(ConnectionRefusedError("the model service")))
    world.gateway.probe = Health.FAILS
    record = await world.attempt()
    assert ended(record) == (Ending.ENV_DONE, None, 1.0), "the gateway has no failed call on record"


async def test_8_a_look_alike_class_is_scored(world: World):
    class InfraAbort(Exception):
        cause = Cause.SERVER_UNREACHABLE
        exit_status = "ServerUnreachable"

    class EngineUnreachable(ConnectionError):
        pass

    for number, error in enumerate((InfraAbort("ServerUnreachable"), EngineUnreachable("nothing answers"))):
        world.folder /= str(number)
        world.agent.work = raises(error)
        assert ended(await world.attempt()) == (Ending.ENV_DONE, None, 1.0)


async def test_8_a_printed_provider_error_is_scored(world: World):
    async def work(context: AgentContext) -> None:
        await context.sandbox.exec(Command(["echo", "litellm.ServiceUnavailableError: 503 ServerUnreachable"]))
        await context.log(b"harness.outcome.InfraAbort: ServerUnreachable\n")

    policy(world, work)
    world.gateway.probe = Health.FAILS
    assert ended(await world.attempt()) == (Ending.ENV_DONE, None, 1.0)


# --- 9 and 10 -------------------------------------------------------------------------------------------------------


async def test_9_a_timeout_after_the_start_is_scored(world: World):
    async def hang(_: AgentContext) -> None:
        await anyio.sleep_forever()

    policy(world, hang)
    assert ended(await world.attempt(a_task(timeout_s=0.05))) == (Ending.TIMEOUT, None, 1.0)


async def test_10_our_own_code_is_never_a_score(world: World):
    world.grader.failure = ZeroDivisionError("ours")
    record = await world.attempt()
    assert ended(record) == (Ending.HARNESS_FAILED, None, None)
    assert record.diagnostic is not None
    assert record.diagnostic.chain == ("ZeroDivisionError: ours",)


async def test_10_our_code_that_also_fails_without_the_policy_is_ours(world: World):
    world.grader.collect_roles = ("agent", "probe")
    world.grader.collect_failures = [IndexError("ours")] * 2
    assert ended(await world.attempt()) == (Ending.HARNESS_FAILED, None, None)


async def test_10_our_code_that_fails_on_what_the_policy_left_alone_is_scored(world: World):
    world.grader.collect_failures = [IndexError("made by the policy")]
    record = await world.attempt()
    assert ended(record) == (Ending.ERROR, None, 0.0)
    assert record.attribution == "policy"


async def test_10_our_code_that_fails_to_grade_what_the_policy_left_alone_is_scored(world: World):
    world.grader.failure, world.grader.failures = IndexError("made by the policy"), 1
    record = await world.attempt()
    assert ended(record) == (Ending.ERROR, None, 0.0)
    assert record.attribution == "policy"
