"""A run without Docker: real lock, store, ledger and attempts; a fake engine, and an agent and a grader that do as they are told."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio

from harness.attempt import Workshop
from harness.cli.conduct import Conducted, conduct
from harness.config import RunConfig
from harness.lock import own_run
from harness.outcome import Grade, GradingStatus
from harness.planning import find_slots, outstanding, plan_benchmarks, plan_slots
from harness.ports import AgentContext, GradeRequest
from harness.record import AttemptRecord, RunRecord
from harness.sandbox.fake import FakeEngine
from harness.store.ledger import Ledger
from harness.store.owned import OwnedRun
from harness.store.sql import SqlStore
from harness.task.image import BASE_IMAGE, ImageRef, ImageSource, ResolvedImage
from harness.task.model import Environment, Step, Task
from harness.wiring import plan_attempts

RUN = "20261129-120000-aaaa"


def a_task(name: str = "t", digest: str | None = None, path: Path | None = None) -> Task:
    return Task(
        name=name,
        path=path or Path("/tasks") / name,
        benchmark="b",
        root=Path("/tasks"),
        digest=digest or f"sha256:{name}",
        environment=Environment(image=ImageRef(ref="base")),
        steps=(Step(instruction="Do it."),),
    )


class FoundImages:
    """Finds the one image that the fake engine has."""

    def __init__(self, engine: FakeEngine) -> None:
        self._engine = engine

    async def ensure(self, source: ImageSource) -> ResolvedImage:
        image = await self._engine.inspect_image(BASE_IMAGE)
        assert image is not None
        return ResolvedImage(id=image.id, ref="base", workdir="/work")

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


@dataclass(frozen=True)
class ErrandAgent:
    """Does what a test tells it to."""

    work: Callable[[AgentContext], Awaitable[None]] = nothing
    name: str = "errand"
    uses_policy: bool = False

    async def setup(self, context: AgentContext) -> None:
        pass

    async def run(self, context: AgentContext) -> None:
        await self.work(context)


IDLE = ErrandAgent()


class LotteryGrader:
    """Gives every attempt a reward of its own, so that one which were graded twice would show."""

    async def collect(self, request: GradeRequest) -> None:
        await request.sandbox.stop()

    async def grade(self, request: GradeRequest) -> Grade:
        async with request.open_sandbox("grader"):
            attempt = request.folder.parent.name.rsplit("-", 1)[1]
            reward = int(attempt, 16) / 16 ** len(attempt)
            return Grade(status=GradingStatus.GRADED, reward=reward, integrity=request.integrity)


@dataclass(frozen=True)
class Surroundings:
    """What a run meets. admit: before each attempt. commit: in place of the ledger's, where it is to fail."""

    agent: ErrandAgent = IDLE
    concurrency: int = 2
    admit: Callable[[], None] = lambda: None
    commit: Callable[[AttemptRecord], Awaitable[None]] | None = None
    retries: int = 0

    @asynccontextmanager
    async def open(self, owned: OwnedRun) -> AsyncGenerator[Workshop]:
        engine = FakeEngine()
        yield Workshop(
            engine=engine,
            images=FoundImages(engine),
            agent=self.agent,
            grader=LotteryGrader(),
            place=anyio.CapacityLimiter(self.concurrency),
            commit=self.commit or Ledger(owned).commit,
            admit=self.admit,
        )
        assert engine.sandboxes == {}, "a sandbox was left"


CALM = Surroundings()


def start(folder: Path, tasks: Sequence[Task], *, n: int = 1, met: Surroundings = CALM) -> int:
    """What `harness run` does from a loaded configuration on; the exit status."""
    slots = plan_slots(tasks, lambda _: n)
    record = RunRecord(
        id=RUN,
        created_at=time.time(),
        command=(),
        agent="errand",
        attempts=len(slots),
        benchmarks=plan_benchmarks(slots),
        folder=folder / RUN,
        config=RunConfig(),
    )
    with SqlStore(folder) as store, own_run(record.folder):
        owned = store.begin(record, slots)
        plans = plan_attempts(record, find_slots(slots, tasks).ready)
        return conduct(Conducted(record, (), plans, store, owned, partial(met.open, owned), met.retries), as_json=True)


def go_on(folder: Path, tasks: Sequence[Task], *, ungraded: bool = False, met: Surroundings = CALM) -> int:
    """What `harness resume` does; the exit status."""
    with SqlStore(folder) as store, own_run(folder / RUN):
        record = store.run(RUN)
        records = store.attempts(RUN)
        wanted = outstanding(store.slots(RUN), records, retries=met.retries, ungraded=ungraded)
        owned = store.take(RUN)
        record = record.resumed(records, config=RunConfig(), folder=folder / RUN)
        owned.save_run(record)
        plans = plan_attempts(record, find_slots(wanted, tasks).ready)
        return conduct(Conducted(record, (), plans, store, owned, partial(met.open, owned), met.retries), as_json=True)
