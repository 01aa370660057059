"""An attempt on a fake engine: whatever happens in a phase becomes the right verdict, and no sandbox is left."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from harness.attempt import AttemptPlan, run_attempt
from harness.errors import (
    BuildFailed,
    CapExceeded,
    EngineUnreachable,
    HarnessError,
    ImageUnavailable,
    SandboxGone,
    StartFailed,
    TransferFailed,
)
from harness.faults import EngineState
from harness.outcome import Attribution, Cause, Ending, GradingStatus, InfraAbort
from harness.phases import Phase
from harness.ports import AgentContext, Command
from harness.record import AttemptRecord
from harness.sandbox.fake import Operation
from harness.task.model import Healthcheck
from tests.worlds import FakeAgent, World, a_task, ended, grade, phases, steps


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_an_ordinary_attempt_goes_through_every_phase_and_is_graded(world: World):
    record = await world.attempt()
    assert ended(record) == (Ending.ENV_DONE, None, 1.0)
    assert phases(record) == [phase for phase in Phase if phase is not Phase.HEALTHCHECK]
    assert all(stamp.end is not None for stamp in record.phases)


async def test_the_verdict_is_committed_before_the_sandboxes_are_removed(world: World):
    record = await world.attempt()
    first, last = world.committed
    assert first.reward == 1.0
    assert Phase.TEARDOWN not in phases(first)
    assert first.finished_at is None
    assert last == record
    assert last.finished_at is not None


@pytest.mark.parametrize(
    "failure",
    [
        EngineUnreachable("no answer"),
        ImageUnavailable("no such image"),
        BuildFailed("RUN exit 7 failed", instruction="RUN exit 7", log_tail=""),
    ],
)
async def test_an_image_that_cant_be_had_is_an_unavailable_sandbox(world: World, failure: HarnessError):
    world.images.failure = failure
    record = await world.attempt()
    assert ended(record) == (Ending.ABORTED, Cause.SANDBOX_UNAVAILABLE, None)
    assert str(failure) in record.detail
    assert phases(record) == [Phase.QUEUE, Phase.IMAGE, Phase.TEARDOWN]


@pytest.mark.parametrize("operation", [Operation.CREATE, Operation.START, Operation.PUT])
async def test_a_sandbox_that_doesnt_start_is_unavailable(world: World, operation: Operation):
    world.engine.fail_next(operation, StartFailed("out of address pools"))
    assert ended(await world.attempt()) == (Ending.ABORTED, Cause.SANDBOX_UNAVAILABLE, None)


async def test_a_failing_healthcheck_is_an_unavailable_sandbox(world: World):
    check = Healthcheck(command="false", interval_s=0, retries=2)
    record = await world.attempt(a_task(healthcheck=check))
    assert ended(record) == (Ending.ABORTED, Cause.SANDBOX_UNAVAILABLE, None)
    assert "not ready" in record.detail
    assert Phase.AGENT_SETUP not in phases(record), "agent_setup would prove that the sandbox was ready"


async def test_what_an_image_or_a_sandbox_warns_of_is_on_the_record_once(world: World):
    world.images.warnings = ("the host's certificates can't be added",)
    world.engine.warnings = ("the engine's storage can't limit a sandbox",)
    record = await world.attempt()
    assert len(world.engine.made) == 2
    assert record.warnings == (*world.images.warnings, *world.engine.warnings)
    assert world.committed[0].warnings == record.warnings


async def test_an_agent_that_cant_be_installed_is_a_failed_setup(world: World):
    async def prepare(context: AgentContext) -> None:
        world.engine.fail_next(Operation.EXEC, SandboxGone("gone"))
        await context.sandbox.exec(Command(["pwd"]))

    world.agent.prepare = prepare
    assert ended(await world.attempt()) == (Ending.ABORTED, Cause.AGENT_SETUP_FAILED, None)


async def test_an_agents_bug_before_the_start_is_the_harnesss_failure(world: World):
    async def prepare(_: AgentContext) -> None:
        raise KeyError("model")

    world.agent.prepare = prepare
    record = await world.attempt()
    assert ended(record) == (Ending.HARNESS_FAILED, None, None)
    assert "KeyError" in record.detail
    assert "Traceback" in (record.folder / "agent.log").read_text()


@pytest.mark.parametrize(
    "error", [ValueError("policy crashed it"), SandboxGone("its init was killed"), TransferFailed("x")]
)
async def test_whatever_an_agent_raises_after_the_start_is_graded(world: World, error: Exception):
    async def work(_: AgentContext) -> None:
        raise error

    world.agent.work = work
    world.grader.grades = [grade(0.0)]
    record = await world.attempt()
    assert ended(record) == (Ending.ENV_DONE, None, 0.0)
    assert type(error).__name__ in record.detail


@pytest.mark.parametrize("group", [False, True])
async def test_an_agents_abort_keeps_its_cause_also_in_a_group(world: World, group: bool):
    async def work(_: AgentContext) -> None:
        abort = InfraAbort(Cause.SERVER_UNREACHABLE, "connection refused")
        raise ExceptionGroup("several", [ValueError(), ExceptionGroup("deeper", [abort])]) if group else abort

    world.agent.work = work
    record = await world.attempt()
    assert ended(record) == (Ending.ABORTED, Cause.SERVER_UNREACHABLE, None)
    assert world.grader.graded == []


async def test_an_engine_that_stops_answering_loses_the_sandbox(world: World):
    async def work(context: AgentContext) -> None:
        world.witness.state = EngineState.UNREACHABLE
        world.engine.fail_next(Operation.EXEC, EngineUnreachable("socket closed"))
        await context.sandbox.exec(Command(["pwd"]))

    world.agent.work = work
    assert ended(await world.attempt()) == (Ending.ABORTED, Cause.SANDBOX_LOST, None)


async def test_the_agents_deadline_is_a_timeout_and_is_graded(world: World):
    async def work(_: AgentContext) -> None:
        await anyio.sleep_forever()

    world.agent.work = work
    record = await world.attempt(a_task(timeout_s=0.05))
    assert ended(record) == (Ending.TIMEOUT, None, 1.0)
    assert "0.05" in record.detail


async def test_a_failed_grader_is_an_error_and_never_a_reward_even_after_a_timeout(world: World):
    async def work(_: AgentContext) -> None:
        await anyio.sleep_forever()

    world.agent.work = work
    world.grader.grades = [grade(None)]
    record = await world.attempt(a_task(timeout_s=0.01))
    assert ended(record) == (Ending.ERROR, None, None)
    assert record.grading is GradingStatus.FAILED
    assert "broke" in record.detail


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (SandboxGone("no such container"), (Ending.ENV_DONE, None, 0.0)),
        (CapExceeded("too large"), (Ending.ENV_DONE, None, 0.0)),
        (TransferFailed("truncated"), (Ending.ENV_DONE, None, 0.0)),
        (EngineUnreachable("no answer"), (Ending.ENV_DONE, None, 0.0)),
        (ZeroDivisionError("ours"), (Ending.ERROR, None, 0.0)),
    ],
)
async def test_what_can_be_collected_from_an_untouched_sandbox_but_not_from_the_agents_is_nothing(
    world: World, failure: Exception, expected: tuple[Ending, Cause | None, float | None]
):
    world.grader.collect_failures = [failure, failure]
    record = await world.attempt()
    assert ended(record) == expected
    assert world.grader.graded == []
    assert record.attribution == (Attribution.POLICY if record.ending is Ending.ERROR else None)


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (CapExceeded("too large"), (Ending.ABORTED, Cause.SANDBOX_LOST, None)),
        (TransferFailed("truncated"), (Ending.ABORTED, Cause.SANDBOX_LOST, None)),
        (ZeroDivisionError("ours"), (Ending.HARNESS_FAILED, None, None)),
    ],
)
async def test_what_cant_be_collected_from_any_sandbox_is_not_the_policys(
    world: World, failure: Exception, expected: tuple[Ending, Cause | None, float | None]
):
    world.grader.collect_roles = ("agent", "probe")
    world.grader.collect_failures = [failure] * 3
    assert ended(await world.attempt()) == expected


@pytest.mark.parametrize(
    "failure", [SandboxGone("doesn't run"), TransferFailed("truncated"), EngineUnreachable("connection reset")]
)
async def test_a_collection_that_failed_once_is_tried_again(world: World, failure: Exception):
    world.grader.collect_failures = [failure]
    assert ended(await world.attempt()) == (Ending.ENV_DONE, None, 1.0)


async def test_a_graders_sandbox_that_doesnt_start_is_infrastructure(world: World):
    async def work(_: AgentContext) -> None:
        world.engine.fail_next(Operation.START, StartFailed("no room"), StartFailed("no room"))

    world.agent.work = work
    record = await world.attempt()
    assert ended(record) == (Ending.ABORTED, Cause.SANDBOX_UNAVAILABLE, None)
    assert "no room" in record.detail


async def test_an_engine_that_fails_once_while_grading_is_asked_again(world: World):
    world.grader.failure = EngineUnreachable("connection reset")
    world.grader.failures = 1
    assert ended(await world.attempt()) == (Ending.ENV_DONE, None, 1.0)


async def test_an_engine_that_fails_twice_while_grading_is_a_failed_grading(world: World):
    world.grader.failure = EngineUnreachable("connection reset")
    assert ended(await world.attempt()) == (Ending.ERROR, None, None)


async def test_a_bug_of_ours_in_grading_is_the_harnesss_failure(world: World):
    world.grader.failure = ZeroDivisionError("ours")
    assert ended(await world.attempt()) == (Ending.HARNESS_FAILED, None, None)


async def test_pristine_grading_of_a_root_workdir_is_refused(world: World):
    world.images.workdir = "/"
    record = await world.attempt()
    assert ended(record) == (Ending.ABORTED, Cause.SANDBOX_UNAVAILABLE, None)
    assert "WORKDIR" in record.detail


async def test_steps_run_in_order_on_one_sandbox_and_their_rewards_are_averaged(world: World):
    world.grader.grades = [grade(1.0), grade(0.5)]
    record = await world.attempt(a_task(*steps(None, None)))
    assert ended(record) == (Ending.ENV_DONE, None, 0.75)
    assert [step.name for step in record.steps] == ["s0", "s1"]
    assert [sandbox.spec.labels.role for sandbox in world.engine.made].count("agent") == 1
    assert [stamp.step for stamp in record.phases if stamp.phase is Phase.AGENT_RUN] == ["s0", "s1"]


async def test_a_step_below_its_minimum_ends_the_task(world: World):
    world.grader.grades = [grade(0.4), grade(1.0)]
    record = await world.attempt(a_task(*steps(0.5, None)))
    assert record.reward == 0.4
    assert [step.name for step in record.steps] == ["s0"]


async def test_a_failed_grading_ends_a_task_of_steps_without_a_reward(world: World):
    world.grader.grades = [grade(1.0), grade(None), grade(1.0)]
    record = await world.attempt(a_task(*steps(None, None, None)))
    assert ended(record) == (Ending.ERROR, None, None)
    assert world.grader.graded == ["s0", "s1"]


@pytest.mark.parametrize("phase", [Phase.AGENT_SETUP, Phase.AGENT_RUN])
async def test_a_cancelled_attempt_is_recorded_and_cleaned_up(world: World, phase: Phase):
    async def hang(_: AgentContext) -> None:
        await anyio.sleep_forever()

    world.agent = FakeAgent(work=hang) if phase is Phase.AGENT_RUN else FakeAgent(prepare=hang)
    with anyio.move_on_after(0.2):
        await world.attempt()
    assert ended(world.committed[-1]) == (Ending.CANCELLED, None, None)
    assert world.committed[-1].finished_at is not None
    assert phases(world.committed[-1])[-2:] == [phase, Phase.TEARDOWN]


async def test_an_attempt_that_is_cancelled_in_the_queue_has_no_verdict(world: World):
    await world.place.acquire_on_behalf_of("another")
    with anyio.move_on_after(0.05):
        plan = AttemptPlan(id="a", run="r", task=a_task(), index=0, folder=world.folder / "a")
        await run_attempt(plan, world.workshop)
    assert world.committed == []


def test_attempts_run_under_trio_too(tmp_path: Path):
    pytest.importorskip("trio")
    record: AttemptRecord = anyio.run(World(tmp_path).attempt, backend="trio")
    assert record.reward == 1.0
