"""The surroundings of an attempt, all of them fakes: for tests of what becomes of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from harness.attempt import AttemptPlan, Workshop, run_attempt
from harness.errors import (
    HarnessError,
)
from harness.gateway.fake import FakeGateway
from harness.outcome import Cause, Ending, Grade, GradingStatus, Integrity
from harness.phases import Phase
from harness.ports import AgentContext, GradeRequest, Sandbox
from harness.record import AttemptRecord
from harness.sandbox.fake import FakeEngine, FakeSandbox, Process
from harness.sandbox.fake.witness import FakeWitness
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
    failures: int = 100
    """How often grading fails with ``failure``."""
    collect_failures: list[Exception] = field(default_factory=list[Exception])
    collect_roles: tuple[str, ...] = ("agent",)
    """In whose sandboxes collecting fails; a canary's role is ``probe``."""
    before_grading: Callable[[], Awaitable[None]] | None = None
    graded: list[str | None] = field(default_factory=list[str | None])

    async def collect(self, request: GradeRequest) -> None:
        await request.sandbox.stop()
        if self.collect_failures and _role(request.sandbox) in self.collect_roles:
            raise self.collect_failures.pop(0)

    async def grade(self, request: GradeRequest) -> Grade:
        async with request.open_sandbox("grader"):
            self.graded.append(request.step.name)
            if self.before_grading is not None:
                await self.before_grading()
            if self.failure is not None and self.failures:
                self.failures -= 1
                raise self.failure
            return self.grades.pop(0) if self.grades else grade(1.0)


def _role(sandbox: Sandbox) -> str:
    assert isinstance(sandbox, FakeSandbox)
    return sandbox.spec.labels.role


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
        self.witness = FakeWitness(self.engine)
        self.gateway = FakeGateway()
        self.agent = FakeAgent()
        self.grader = FakeGrader()
        self.committed: list[AttemptRecord] = []
        self.place = anyio.CapacityLimiter(1)

    async def commit(self, record: AttemptRecord) -> None:
        self.committed.append(record)

    @property
    def workshop(self) -> Workshop:
        return Workshop(
            engine=self.engine,
            images=self.images,
            agent=self.agent,
            grader=self.grader,
            place=self.place,
            commit=self.commit,
            witness=self.witness,
            gateway=self.gateway,
        )

    async def attempt(self, task: Task | None = None) -> AttemptRecord:
        plan = AttemptPlan(id="a", run="r", task=task or a_task(), index=0, folder=self.folder / "a")
        try:
            return await run_attempt(plan, self.workshop)
        finally:
            assert self.engine.sandboxes == {}, "a sandbox was left"
            assert self.place.borrowed_tokens == 0, "a place was left taken"


def ended(record: AttemptRecord) -> tuple[Ending, Cause | None, float | None]:
    return record.ending, record.cause, record.reward


def phases(record: AttemptRecord) -> list[Phase]:
    return [stamp.phase for stamp in record.phases]


def steps(*minimum: float | None) -> tuple[Step, ...]:
    return tuple(
        Step(name=f"s{number}", instruction="Do it.", min_reward=least) for number, least in enumerate(minimum)
    )
