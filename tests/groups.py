"""Groups for tests: of records without attempts behind them, and of real attempts on the fake engine."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.lowlevel
from trio.testing import MockClock

from harness.attempt import AttemptPlan, Workshop
from harness.group import Group
from harness.outcome import Attribution, Cause, Ending, Grade, GradingStatus, InfraAbort, Integrity
from harness.phases import Phase, PhaseStamp
from harness.ports import AgentContext, GradeRequest
from harness.record import AttemptRecord
from harness.sandbox.fake import FakeEngine
from harness.slots import AttemptGroups, GroupPlan, Watcher
from harness.task.model import Task
from tests.worlds import FakeAgent, FakeGrader, FakeImages, a_task, grade

Attempted = float | Ending | Cause
"""What an attempt came to: a reward, an ending without one, or a cause."""
numbers = itertools.count()


def task(name: str) -> Task:
    return a_task().model_copy(update={"name": name, "path": Path("/") / name})


def tasks(*names: str, count: int | None = None) -> Iterator[Task]:
    """Tasks of these names over and over; ``count`` of them, or without end."""
    return itertools.islice(map(task, itertools.cycle(names)), count)


def numbered(prefix: str = "t") -> Iterator[Task]:
    """Ever new tasks: t0, t1, …"""
    return (task(f"{prefix}{number}") for number in itertools.count())


def record(
    what: Attempted,
    *,
    reward: float | None = None,
    attribution: Attribution | None = None,
    retry_of: str | None = None,
) -> AttemptRecord:
    """A graded attempt from a reward, an aborted one from a cause, another one from its ending."""
    ending, cause = (Ending.ENV_DONE, None) if isinstance(what, float) else (what, None)
    if isinstance(what, float):
        reward = what
    if isinstance(what, Cause):
        ending, cause = Ending.ABORTED, what
    assert isinstance(ending, Ending)
    return AttemptRecord(
        id=f"a{next(numbers)}",
        run="r",
        benchmark="b",
        task="t",
        task_digest="sha256:0",
        task_path=Path("/t"),
        agent="fake",
        index=0,
        retry_of=retry_of,
        ending=ending,
        cause=cause,
        reward=reward,
        grading=GradingStatus.NONE if reward is None else GradingStatus.GRADED,
        attribution=attribution,
        integrity=Integrity.PRISTINE,
        started_at=0.0,
        folder=Path("/t"),
    )


def group(*attempts: Attempted | AttemptRecord, of: str = "t", version: int | None = None, id: str = "g") -> Group:
    """A group whose slots each have one attempt."""
    records = [entry if isinstance(entry, AttemptRecord) else record(entry) for entry in attempts]
    return Group(id, task(of), tuple((entry,) for entry in records), version)


@dataclass
class FakeRunner:
    """Groups whose outcome a test writes down: by task, for one group after another; the last one stays. Otherwise 0 and 1.

    takes_s: how long a group of a task takes. begun, ended, aborted: what happened, for the test to look at.
    """

    outcomes: Mapping[str, Sequence[Sequence[Attempted]]] = field(
        default_factory=dict[str, Sequence[Sequence[Attempted]]]
    )
    takes_s: Mapping[str, float] = field(default_factory=dict[str, float])
    seen: Counter[str] = field(default_factory=Counter[str])
    begun: list[str] = field(default_factory=list[str])
    ended: list[str] = field(default_factory=list[str])
    cancelled: list[str] = field(default_factory=list[str])
    aborted: int = 0
    most_at_once: int = 0
    failure: Exception | None = None
    hook: Callable[[], Awaitable[None]] = anyio.lowlevel.checkpoint

    async def run(self, plan: GroupPlan, watcher: Watcher) -> Group:
        name = plan.task.name
        self.begun.append(name)
        self.most_at_once = max(self.most_at_once, len(self.begun) - len(self.ended) - len(self.cancelled))
        attempts = [
            AttemptPlan(id=f"{plan.id}-{index}", run="r", task=plan.task, index=index, folder=Path("/"))
            for index in range(plan.n)
        ]
        for attempt in attempts:
            watcher.phase(attempt, PhaseStamp(phase=Phase.QUEUE, start=0, start_mono=0))
        try:
            await anyio.sleep(self.takes_s.get(name, 0))
        except BaseException:
            self.cancelled.append(name)
            for attempt in attempts:
                watcher.cancelled(attempt)
            raise
        if self.failure is not None:
            raise self.failure
        waiting = self.outcomes.get(name, [(0.0, 1.0)])
        outcome = waiting[min(self.seen[name], len(waiting) - 1)]
        self.seen[name] += 1
        ended = group(*itertools.islice(itertools.cycle(outcome), plan.n), of=name, version=plan.version, id=plan.id)
        for slot in ended.slots:
            watcher.ended(slot[-1])
        self.ended.append(name)
        return ended

    async def abort(self) -> None:
        self.aborted += 1
        await self.hook()


@dataclass
class AbortableAgent(FakeAgent):
    """One with a hook. Its calls are counted."""

    aborts: int = 0

    async def abort(self) -> None:
        self.aborts += 1


class ByIndex(FakeGrader):
    """0 for the first attempt of a group, 1 for the second, and so on, so that there is a signal."""

    async def grade(self, request: GradeRequest) -> Grade:
        async with request.open_sandbox("grader"):
            _, index, _ = request.folder.parent.name.rsplit("-", 2)
            return grade(float(int(index) % 2))


class TrainingWorld:
    """Real attempts on the fake engine. broken: tasks whose agent's work aborts with that cause, as often as the list is long."""

    def __init__(self, folder: Path, *, places: int = 8) -> None:
        self.engine = FakeEngine()
        self.agent = AbortableAgent(work=self._work)
        self.grader = ByIndex()
        self.broken: dict[str, list[Cause]] = {}
        self.hanging: set[str] = set()
        self.committed: list[AttemptRecord] = []
        images = FakeImages(self.engine)
        self.workshop = Workshop(
            self.engine, images, self.agent, self.grader, anyio.CapacityLimiter(places), self._commit
        )
        self.runner = AttemptGroups(run_id="r", folder=folder, workshop=self.workshop)

    async def _commit(self, record: AttemptRecord) -> None:
        self.committed.append(record)

    async def _work(self, context: AgentContext) -> None:
        if context.task.name in self.hanging:
            await anyio.sleep_forever()
        if waiting := self.broken.get(context.task.name):
            raise InfraAbort(waiting.pop(0), "on purpose")

    @property
    def last(self) -> list[AttemptRecord]:
        """Each attempt's last record."""
        return list({row.id: row for row in self.committed}.values())


def on(backend: str, body: Callable[[], Awaitable[None]]) -> None:
    """Run a test's body under asyncio, trio, or trio with a virtual clock that jumps whenever all tasks wait."""
    if backend == "clock":
        anyio.run(body, backend="trio", backend_options={"clock": MockClock(autojump_threshold=0)})
    else:
        anyio.run(body, backend=backend)
