"""A build that fails is tried once in a run, and every task that it keeps from running is named."""

from __future__ import annotations

from pathlib import Path

import anyio

from harness.attempt import AttemptPlan, Workshop
from harness.images.resolve import ImageResolver
from harness.outcome import Cause, Ending
from harness.phases import PhaseStamp
from harness.record import AttemptRecord, failed_builds
from harness.run import Execution
from harness.sandbox.fake import FakeEngine
from harness.task.image import DockerfileBuild
from harness.task.model import Environment, Step, Task
from tests.worlds import FakeAgent, FakeGrader


class Watcher:
    """Keeps the records that attempts end with."""

    def __init__(self) -> None:
        self.records: list[AttemptRecord] = []

    def phase(self, plan: AttemptPlan, stamp: PhaseStamp) -> None:
        pass

    def ended(self, record: AttemptRecord) -> None:
        self.records.append(record)

    def retried(self, record: AttemptRecord, retry: AttemptPlan) -> None:
        pass

    def cancelled(self, plan: AttemptPlan) -> None:
        pass


def a_task(folder: Path, name: str, dockerfile: str) -> Task:
    path = folder / name / "environment" / "Dockerfile"
    path.parent.mkdir(parents=True)
    path.write_text(dockerfile)
    image = DockerfileBuild(dockerfile=path)
    environment = Environment(image=image)
    return Task(
        name=name,
        path=folder / name,
        benchmark="b",
        root=folder / name,
        digest=f"sha256:{name}",
        environment=environment,
        steps=(Step(instruction="Do it."),),
    )


async def test_four_attempts_of_each_of_two_tasks_with_one_image_are_one_build(tmp_path: Path) -> None:
    broken = "FROM harness/base:bookworm\nRUN false\nWORKDIR /w\n"
    tasks = [a_task(tmp_path, name, broken) for name in ("one", "two")]
    tasks.append(a_task(tmp_path, "sound", "FROM harness/base:bookworm\nWORKDIR /w\n"))
    plans = [
        AttemptPlan(id=f"{task.name}{index}", run="r", task=task, index=index, folder=tmp_path / f"{task.name}{index}")
        for index in range(4)
        for task in tasks
    ]
    engine, watcher = FakeEngine(), Watcher()

    async def commit(record: AttemptRecord) -> None:
        pass

    resolver = ImageResolver(engine, certificates=(), cache=tmp_path / "cache")
    workshop = Workshop(engine, resolver, FakeAgent(), FakeGrader(), anyio.CapacityLimiter(4), commit)
    await Execution(plans, workshop, watcher, retries=0).run()
    builds = [request for request in engine.builds if request.tag.startswith("harness/build:")]
    assert len(builds) == 2, "the broken image and the sound one, each once"
    for record in watcher.records:
        if record.task == "sound":
            assert (record.reward, record.build_failure) == (1.0, None)
            continue
        assert (record.ending, record.cause) == (Ending.ABORTED, Cause.SANDBOX_UNAVAILABLE)
        assert str(tmp_path / record.task) in record.detail
        assert record.build_failure is not None
        assert (record.build_failure.instruction, record.build_failure.tasks) == ("RUN false", (f"b/{record.task}",))
    (failure,) = failed_builds(watcher.records)
    assert sorted(failure.tasks) == ["b/one", "b/two"]
    assert "RUN false" in failure.log_tail
    assert failure.log_path is not None and Path(failure.log_path).exists()
