"""An attempt on a fake engine: whatever happens in a phase becomes the right verdict, and no sandbox is left."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest

from harness.attempt import AttemptPlan, Workshop, run_attempt
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
from harness.outcome import Cause, Ending, Grade, GradingStatus, InfraAbort, Integrity
from harness.phases import Phase
from harness.ports import AgentContext, Command, GradeRequest
from harness.record import AttemptRecord
from harness.sandbox.fake import FakeEngine, Operation, Process
from harness.task.image import BASE_IMAGE, ImageRef, ImageSource, ResolvedImage
from harness.task.model import AgentOptions, Environment, GraderOptions, Healthcheck, Step, Task


async def fails(process: Process) -> int:
    await process.err(b"not ready")
    return 1


@dataclass
class FakeImages:
    """Finds the one image that the fake engine has."""

    engine: FakeEngine
    failure: HarnessError | None = None
    workdir: str = "/work"
    warnings: tuple[str, ...] = ()

    async def ensure(self, source: ImageSource) -> ResolvedImage:
        if self.failure is not None:
            raise self.failure
        image = await self.engine.inspect_image(BASE_IMAGE)
        assert image is not None
        return ResolvedImage(id=image.id, ref="base", workdir=self.workdir, warnings=self.warnings)

    async def with_repositories(
        self,
        image: ResolvedImage,
        *,
        repositories: Sequence[str],
        users: Sequence[str | None],
        workdir: str | None = None,
    ) -> ResolvedImage:
        return image


async def nothing(_: AgentContext) -> None:
    pass


@dataclass
class FakeAgent:
    """Does what a test tells it to."""

    work: Callable[[AgentContext], Awaitable[None]] = nothing
    prepare: Callable[[AgentContext], Awaitable[None]] = nothing
    name: str = "fake"
    uses_policy: bool = False

    async def setup(self, context: AgentContext) -> None:
        await self.prepare(context)

    async def run(self, context: AgentContext) -> None:
        await self.work(context)


@dataclass
class FakeGrader:
    """Grades with what a test gives it; by default with 1."""

    grades: list[Grade] = field(default_factory=list[Grade])
    failure: Exception | None = None
    collect_failure: Exception | None = None
    graded: list[str | None] = field(default_factory=list[str | None])

    async def collect(self, request: GradeRequest) -> None:
        await request.sandbox.stop()
        if self.collect_failure is not None:
            raise self.collect_failure

    async def grade(self, request: GradeRequest) -> Grade:
        async with request.open_sandbox("grader"):
            self.graded.append(request.step.name)
            if self.failure is not None:
                raise self.failure
            return self.grades.pop(0) if self.grades else grade(1.0)


def grade(reward: float | None) -> Grade:
    status = GradingStatus.FAILED if reward is None else GradingStatus.GRADED
    return Grade(
        status=status, reward=reward, integrity=Integrity.PRISTINE, message="" if reward is not None else "broke"
    )


def a_task(*steps: Step, healthcheck: Healthcheck | None = None, timeout_s: float | None = None) -> Task:
    ordinary = Step(instruction="Do it.", agent=AgentOptions(timeout_s=timeout_s), grader=GraderOptions())
    return Task(
        name="t",
        path=Path("/t"),
        benchmark="b",
        root=Path("/t"),
        digest="sha256:0",
        environment=Environment(image=ImageRef(ref="base"), healthcheck=healthcheck),
        steps=steps or (ordinary,),
    )


class World:
    """One attempt's surroundings, and the records that were committed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.engine = FakeEngine(programs={"false": fails})
        self.images = FakeImages(self.engine)
        self.agent = FakeAgent()
        self.grader = FakeGrader()
        self.committed: list[AttemptRecord] = []
        self.place = anyio.CapacityLimiter(1)

    async def commit(self, record: AttemptRecord) -> None:
        self.committed.append(record)

    def workshop(self) -> Workshop:
        return Workshop(self.engine, self.images, self.agent, self.grader, self.place, self.commit)

    async def attempt(self, task: Task | None = None) -> AttemptRecord:
        plan = AttemptPlan(id="a", run="r", task=task or a_task(), index=0, folder=self.folder / "a")
        try:
            return await run_attempt(plan, self.workshop())
        finally:
            assert self.engine.sandboxes == {}, "a sandbox was left"
            assert self.place.borrowed_tokens == 0, "a place was left taken"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def ended(record: AttemptRecord) -> tuple[Ending, Cause | None, float | None]:
    return record.ending, record.cause, record.reward


def phases(record: AttemptRecord) -> list[Phase]:
    return [stamp.phase for stamp in record.phases]


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
        (TransferFailed("truncated"), (Ending.ERROR, None, None)),
        (EngineUnreachable("no answer"), (Ending.ABORTED, Cause.SANDBOX_LOST, None)),
        (ZeroDivisionError("ours"), (Ending.HARNESS_FAILED, None, None)),
    ],
)
async def test_what_cant_be_collected(
    world: World, failure: Exception, expected: tuple[Ending, Cause | None, float | None]
):
    world.grader.collect_failure = failure
    record = await world.attempt()
    assert ended(record) == expected
    assert world.grader.graded == []


async def test_a_graders_sandbox_that_doesnt_start_is_infrastructure(world: World):
    world.grader.failure = StartFailed("no room")
    assert ended(await world.attempt()) == (Ending.ABORTED, Cause.SANDBOX_UNAVAILABLE, None)


async def test_a_bug_of_ours_in_grading_is_the_harnesss_failure(world: World):
    world.grader.failure = ZeroDivisionError("ours")
    assert ended(await world.attempt()) == (Ending.HARNESS_FAILED, None, None)


async def test_pristine_grading_of_a_root_workdir_is_refused(world: World):
    world.images.workdir = "/"
    record = await world.attempt()
    assert ended(record) == (Ending.ABORTED, Cause.SANDBOX_UNAVAILABLE, None)
    assert "WORKDIR" in record.detail


def steps(*minimum: float | None) -> tuple[Step, ...]:
    return tuple(
        Step(name=f"s{number}", instruction="Do it.", min_reward=least) for number, least in enumerate(minimum)
    )


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
        workshop = Workshop(world.engine, world.images, world.agent, world.grader, world.place, world.commit)
        await run_attempt(plan, workshop)
    assert world.committed == []


def test_attempts_run_under_trio_too(tmp_path: Path):
    pytest.importorskip("trio")
    record: AttemptRecord = anyio.run(World(tmp_path).attempt, backend="trio")
    assert record.reward == 1.0
