"""Failures after the start, on a fake engine: what the host saw decides, it is on the record, and looking has an end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from harness.canary import Canaries, Operation, ordinary
from harness.errors import EngineError, EngineUnreachable, SandboxGone, StartFailed, TransferFailed
from harness.evidence import Case, DiskSighting, Sighting, Source
from harness.faults import CanaryResult, DiskState, EngineState, Failed, Infrastructure, MemoryState, Scored
from harness.inquest import Inquest, Place
from harness.outcome import Attribution, Cause, Ending, Grade, GradingStatus, Integrity
from harness.phases import Phase
from harness.ports import AgentContext, Command, Labels, Sandbox, SandboxSpec
from harness.record import AttemptRecord
from harness.sandbox.fake import FakeEngine, FakeSandbox, Process
from harness.sandbox.fake import Operation as Call
from harness.task.image import BASE_IMAGE, ResolvedImage
from harness.task.model import Healthcheck
from tests.worlds import World, a_task, ended, grade, steps

LOST = (Ending.ABORTED, Cause.SANDBOX_LOST, None)
SCORED = (Ending.ENV_DONE, None, 1.0)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def working(*actions: Callable[[FakeSandbox], object]) -> Callable[[AgentContext], Awaitable[None]]:
    """An agent that does something to its sandbox, then runs a command in it."""

    async def work(context: AgentContext) -> None:
        assert isinstance(context.sandbox, FakeSandbox)
        for action in actions:
            action(context.sandbox)
        await context.sandbox.exec(Command(["pwd"]))

    return work


def found(record: AttemptRecord) -> dict[Source, str]:
    return {reading.source: reading.found for examination in record.evidence for reading in examination.readings}


async def test_a_killed_first_process_is_graded_on_the_stopped_file_system(world: World):
    world.agent.work = working(FakeSandbox.die)
    record = await world.attempt()
    assert ended(record) == SCORED
    assert found(record) == {
        Source.ENGINE: "sound",
        Source.SANDBOX: "stopped",
        Source.DISK: "sound",
        Source.MEMORY: "sound",
        Source.CANARY: "passed",
    }
    assert record.evidence[0].judgement == "scored on the stopped file system"


async def test_a_vanished_sandbox_that_nothing_explains_is_zero(world: World):
    world.agent.work = working(FakeSandbox.vanish)
    record = await world.attempt()
    assert ended(record) == (Ending.ENV_DONE, None, 0.0)
    assert found(record)[Source.CANARY] == CanaryResult.PASSED
    assert world.grader.graded == []


async def test_a_vanished_sandbox_while_a_canary_fails_too_is_lost(world: World):
    world.agent.work = working(
        FakeSandbox.vanish, lambda _: world.engine.fail_next(Call.START, StartFailed("runc is broken"))
    )
    record = await world.attempt()
    assert ended(record) == LOST
    assert found(record)[Source.CANARY] == CanaryResult.FAILED
    assert "runc is broken" in record.evidence[0].readings[-1].said


@pytest.mark.parametrize("operation", [Call.CREATE, Call.START, Call.PUT, Call.GET])
async def test_a_canary_tries_what_every_attempt_does(world: World, operation: Call):
    async def work(context: AgentContext) -> None:
        world.engine.fail_next(Call.EXEC, EngineError("refused"))
        world.engine.fail_next(operation, EngineError("refused"))
        await context.sandbox.exec(Command(["pwd"]))

    world.agent.work = work
    assert ended(await world.attempt()) == LOST


async def test_an_engine_error_that_a_canary_doesnt_meet_is_scored(world: World):
    """A policy that exhausts its processes gets a genuine error of the engine."""

    async def work(context: AgentContext) -> None:
        world.engine.fail_next(Call.EXEC, EngineError("OCI runtime exec failed: resource temporarily unavailable"))
        await context.sandbox.exec(Command(["pwd"]))

    world.agent.work = work
    assert ended(await world.attempt()) == SCORED


async def test_a_restart_of_the_engine_loses_the_sandbox(world: World):
    world.agent.work = working(lambda _: world.witness.restart())
    record = await world.attempt()
    assert ended(record) == LOST
    assert record.evidence[0].judgement == "infrastructure: SandboxLost (engine_restarted)"
    assert len(world.engine.made) == 1, "no canary is needed where the engine itself is known to have gone"


async def test_a_restart_that_the_agent_took_for_a_tools_failure_loses_the_sandbox(world: World):
    async def work(context: AgentContext) -> None:
        world.witness.restart()
        with pytest.raises(SandboxGone):
            await context.sandbox.exec(Command(["pwd"]))

    world.agent.work = work
    assert ended(await world.attempt()) == LOST


async def test_a_restart_that_a_sandbox_lived_through_excuses_nothing(world: World):
    async def work(_: AgentContext) -> None:
        world.witness.restart()
        world.witness.state = EngineState.SOUND

    world.agent.work = work
    record = await world.attempt()
    assert ended(record) == SCORED
    assert Source.CANARY not in found(record), "nothing has failed"


@pytest.mark.parametrize(
    ("disk", "expected"),
    [(DiskState.BREACHED_BY_OTHERS, LOST), (DiskState.BREACHED_BY_THIS, SCORED), (DiskState.UNKNOWN, SCORED)],
)
async def test_a_full_disk_is_its_offenders_fault(
    world: World, disk: DiskState, expected: tuple[Ending, Cause | None, float | None]
):
    world.witness.room = disk
    world.agent.work = working(lambda _: world.engine.fail_next(Call.EXEC, EngineError("no space left")))
    assert ended(await world.attempt()) == expected


@pytest.mark.parametrize(
    ("failures", "expected"), [(1, SCORED), (2, (Ending.ABORTED, Cause.SANDBOX_UNAVAILABLE, None))]
)
async def test_a_fresh_sandbox_is_tried_again_without_the_agents(
    world: World, failures: int, expected: tuple[Ending, Cause | None, float | None]
):
    """Whatever the agent's sandbox has used up, it is free then: the policy doesn't escape, and no victim is scored."""

    async def work(_: AgentContext) -> None:
        world.engine.fail_next(Call.CREATE, *[StartFailed("no space left on device")] * failures)

    world.agent.work = work
    assert ended(await world.attempt()) == expected


async def test_where_a_step_follows_an_offender_of_the_disk_is_scored(world: World):
    async def work(_: AgentContext) -> None:
        world.witness.room = DiskState.BREACHED_BY_THIS
        world.engine.fail_next(Call.CREATE, StartFailed("no space left on device"))

    world.agent.work = work
    first, second = steps(0.5, None)
    assert ended(await world.attempt(a_task(first, second))) == (Ending.ENV_DONE, None, 0.0)


def blamed(attribution: Attribution, reward: float | None = None) -> Grade:
    status = GradingStatus.FAILED if reward is None else GradingStatus.GRADED
    return Grade(
        status=status, reward=reward, integrity=Integrity.PRISTINE, attribution=attribution, message="the control: full"
    )


async def test_a_control_that_infrastructure_kept_from_running_is_tried_again_without_the_agents_sandbox(world: World):
    world.grader.grades = [blamed(Attribution.INFRASTRUCTURE), grade(1.0)]
    assert ended(await world.attempt()) == SCORED


@pytest.mark.parametrize(
    ("room", "expected"),
    [
        (DiskState.SOUND, (Ending.ERROR, None, None)),
        (DiskState.BREACHED_BY_OTHERS, (Ending.ERROR, None, None)),
        (DiskState.BREACHED_BY_THIS, (Ending.ENV_DONE, None, 0.0)),
    ],
)
async def test_who_fills_the_disk_doesnt_escape_by_a_control_that_cant_run(
    world: World, room: DiskState, expected: tuple[Ending, Cause | None, float | None]
):
    world.witness.room = room
    world.grader.grades = [blamed(Attribution.INFRASTRUCTURE), blamed(Attribution.INFRASTRUCTURE)]
    assert ended(await world.attempt()) == expected


async def test_a_restart_of_the_engine_in_the_midst_of_grading_convicts_nobody(world: World):
    """In the live tier it ends the agent's sandbox for good, and a control would pass."""

    async def restart() -> None:
        world.witness.restart()

    world.grader.before_grading = restart
    world.grader.grades = [blamed(Attribution.POLICY, 0.0)]
    assert ended(await world.attempt()) == LOST


async def test_a_grading_that_survives_a_restart_of_the_engine_counts(world: World):
    async def restart() -> None:
        world.witness.restart()

    world.grader.before_grading = restart
    assert ended(await world.attempt()) == SCORED


async def test_a_global_oom_loses_the_sandbox(world: World):
    world.witness.memory = MemoryState.GLOBAL_OOM
    world.agent.work = working(FakeSandbox.die)
    assert ended(await world.attempt()) == LOST


async def test_an_engine_lost_while_grading_loses_the_sandbox(world: World):
    world.grader.failure = EngineUnreachable("gone")
    world.witness.state = EngineState.UNREACHABLE
    assert ended(await world.attempt()) == LOST


async def test_an_engine_lost_while_collecting_loses_the_sandbox(world: World):
    world.grader.collect_failures = [TransferFailed("cut off")]
    world.witness.state = EngineState.UNREACHABLE
    assert ended(await world.attempt()) == LOST
    assert world.grader.graded == []


@pytest.mark.parametrize(("canary", "expected"), [("passes", 0.5), ("fails", None)])
async def test_a_later_step_that_cant_be_prepared_is_judged_too(world: World, canary: str, expected: float | None):
    async def prepare(_: AgentContext) -> None:
        # Nothing runs a command before the second step's check; then the canary's is the next.
        world.engine.fail_next(Call.EXEC, *[EngineError("refused")] * (1 if canary == "passes" else 2))

    world.agent.prepare = prepare
    world.grader.grades = [grade(1.0), grade(0.0)]
    first, second = steps(None, None)
    checked = second.model_copy(update={"healthcheck": Healthcheck(command="pwd", interval_s=0, retries=1)})
    record = await world.attempt(a_task(first, checked))
    assert record.reward == expected
    assert record.cause is (None if canary == "passes" else Cause.SANDBOX_LOST)


async def test_happy_attempts_cost_nothing(world: World):
    record = await world.attempt()
    assert record.evidence == ()
    assert world.witness.cases == []
    assert [sandbox.spec.labels.role for sandbox in world.engine.made] == ["agent", "grader"]


# --- the canary -----------------------------------------------------------------------------------------------------


async def a_spec(engine: FakeEngine) -> SandboxSpec:
    image = await engine.inspect_image(BASE_IMAGE)
    assert image is not None
    labels = Labels(run="r", attempt="a", role="agent", lease_s=100)
    return SandboxSpec(image=ResolvedImage(id=image.id, ref=BASE_IMAGE), labels=labels)


async def test_attempts_that_fail_together_share_a_canary():
    engine, canaries = FakeEngine(), Canaries()
    spec = await a_spec(engine)
    results: list[CanaryResult] = []

    async def ask() -> None:
        results.append((await canaries.ask(engine, spec)).result)

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(ask)
    assert results == [CanaryResult.PASSED] * 20
    assert len(engine.made) <= 2
    assert {sandbox.spec.labels.role for sandbox in engine.made} == {"probe"}
    assert engine.sandboxes == {}


async def test_a_canary_from_before_a_failure_says_nothing_of_it():
    engine, canaries = FakeEngine(), Canaries()
    spec = await a_spec(engine)
    assert (await canaries.ask(engine, spec)).result is CanaryResult.PASSED
    engine.fail_next(Call.START, StartFailed("broken since"))
    assert (await canaries.ask(engine, spec)).result is CanaryResult.FAILED


async def test_a_canary_has_an_end():
    async def hang(_: Process) -> int:
        await anyio.sleep_forever()
        raise AssertionError

    engine, canaries = FakeEngine(programs={"exit 0": hang}), Canaries(Operation(ordinary, limit_s=0.05))
    assert (await canaries.ask(engine, await a_spec(engine))).result is CanaryResult.FAILED
    assert engine.sandboxes == {}


@pytest.mark.parametrize("failures", [1, 2])
async def test_a_canary_that_fails_beside_a_running_attempt_is_asked_again_without_it(world: World, failures: int):
    """The live tier: what the attempt runs may be what the canary failed of."""
    inquest = Inquest("a", world.engine, world.witness, world.gateway, Canaries())
    async with world.engine.sandbox(await a_spec(world.engine)) as sandbox:
        assert isinstance(sandbox, FakeSandbox)
        inquest.watch(sandbox, sandbox.spec, keep_running=True)
        world.engine.fail_next(Call.START, *[StartFailed("starved")] * failures)
        judgement = await inquest.judge(Failed.ENGINE_REFUSED, Place(Phase.AGENT_RUN, started=True), EngineError("x"))
        assert not sandbox.running
    assert isinstance(judgement, Scored if failures == 1 else Infrastructure)


async def test_a_running_attempt_of_the_live_tier_is_left_running_while_the_canary_passes(world: World):
    inquest = Inquest("a", world.engine, world.witness, world.gateway, Canaries())
    async with world.engine.sandbox(await a_spec(world.engine)) as sandbox:
        assert isinstance(sandbox, FakeSandbox)
        inquest.watch(sandbox, sandbox.spec, keep_running=True)
        await inquest.judge(Failed.ENGINE_REFUSED, Place(Phase.AGENT_RUN, started=True), EngineError("x"))
        assert sandbox.running


async def test_a_bug_in_a_canary_is_unknown():
    async def broken(_: Sandbox) -> None:
        raise ZeroDivisionError

    engine = FakeEngine()
    song = await Canaries().ask(engine, await a_spec(engine), operation=Operation(broken))
    assert song.result is CanaryResult.UNKNOWN


async def test_looking_is_bounded(world: World):
    class SlowWitness:
        def interrupted_since(self, moment: float) -> bool:
            return False

        async def look(self, case: Case) -> Sighting:
            await anyio.sleep_forever()
            raise AssertionError

        async def disk(self, case: Case, *, quiet: bool) -> DiskSighting:
            await anyio.sleep_forever()
            raise AssertionError

    inquest = Inquest("a", world.engine, SlowWitness(), world.gateway, Canaries(), look_s=0.05)
    async with world.engine.sandbox(await a_spec(world.engine)) as sandbox:
        assert isinstance(sandbox, FakeSandbox)
        inquest.watch(sandbox, sandbox.spec, keep_running=False)
        place = Place(Phase.AGENT_RUN, started=True)
        await inquest.judge(Failed.SANDBOX_GONE, place, SandboxGone("x"))
    (examination,) = inquest.examinations
    assert examination.evidence.engine is EngineState.UNKNOWN
    assert examination.evidence.canary is CanaryResult.PASSED
