"""What the policy can't have caused aborts with its cause, and the evidence is on the record. The engine that others use is left alone:
a forwarder stands in front of it, and breaks."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest

from harness.concurrency import background
from harness.errors import EngineError
from harness.faults import CanaryResult, DiskState, EngineState, Failed
from harness.outcome import Cause, Ending
from harness.phases import Phase
from harness.ports import AgentContext, Command
from harness.record import AttemptRecord
from harness.sandbox.docker.engine import DockerEngine
from harness.sandbox.docker.witness import DockerWitness, watch_engine
from harness.task.model import Resources
from tests.sandbox.docker.forwarder import Forwarder, forwarder

from .attempts import SOLVE, Attempts

pytestmark = pytest.mark.engine

LOST = (Ending.ABORTED, Cause.SANDBOX_LOST, None)
UNAVAILABLE = (Ending.ABORTED, Cause.SANDBOX_UNAVAILABLE, None)
RUN = "evidence"


def ended(record: AttemptRecord) -> tuple[Ending, Cause | None, float | None]:
    return record.ending, record.cause, record.reward


@asynccontextmanager
async def fronted(folder: Path) -> AsyncGenerator[tuple[Attempts, Forwarder, DockerWitness]]:
    """Attempts through a forwarder; what they could not remove through it is removed directly."""
    async with forwarder(folder) as front, DockerEngine(front.address) as engine, DockerEngine() as direct:
        try:
            async with watch_engine(engine) as witness:
                with anyio.fail_after(10):
                    while not (witness.connected and witness.reserve):  # noqa: ASYNC110 - another task's state
                        await anyio.sleep(0.01)
                yield Attempts(engine, folder, witness), front, witness
        finally:
            await direct.reap(run=RUN)


async def solve(context: AgentContext) -> None:
    await context.sandbox.exec(Command(["/bin/sh", "-c", SOLVE]))


async def test_an_engine_that_is_cut_off_mid_attempt(tmp_path: Path):
    async with fronted(tmp_path) as (attempts, front, _):

        async def work(context: AgentContext) -> None:
            await solve(context)
            await front.cut()
            await context.sandbox.exec(Command(["true"]))

        record = await attempts.doing("cut", work)
    assert ended(record) == LOST
    (examination,) = record.evidence
    assert (examination.failed, examination.phase) == (Failed.ENGINE_SILENT, Phase.AGENT_RUN)
    assert examination.evidence.engine is EngineState.UNREACHABLE


async def test_connections_that_break_under_a_transfer(tmp_path: Path):
    async with fronted(tmp_path) as (attempts, front, _):

        async def work(context: AgentContext) -> None:
            async with context.sandbox.get("/usr") as chunks:
                async for _ in chunks:
                    await front.reset()

        record = await attempts.doing("reset", work)
    assert ended(record) == LOST
    (examination,) = record.evidence
    assert examination.failed is Failed.ENGINE_REFUSED
    assert examination.evidence.engine is EngineState.UNREACHABLE


async def test_an_engine_that_answers_everything_with_an_error(tmp_path: Path):
    async with fronted(tmp_path) as (attempts, front, _):

        async def work(context: AgentContext) -> None:
            front.refused = lambda _: True
            await context.sandbox.exec(Command(["true"]))

        record = await attempts.doing("errors", work)
    assert ended(record) == LOST


async def test_an_engine_that_was_gone_while_the_agent_didnt_look(tmp_path: Path):
    """The agent takes it for a tool's failure and returns; the engine answers again, but its sandbox has ended with it."""
    async with fronted(tmp_path) as (attempts, front, witness), DockerEngine() as direct:

        async def work(context: AgentContext) -> None:
            await front.reset()
            await direct.client.call("POST", f"/containers/{context.sandbox.id}/kill")
            with pytest.raises(EngineError):
                await context.sandbox.exec(Command(["true"]))

        record = await attempts.doing("unseen", work)
        assert witness.interruptions
    assert ended(record) == LOST
    assert record.evidence[0].evidence.engine is EngineState.RESTARTED


async def test_an_image_that_was_removed_before_the_start(tmp_path: Path):
    async with DockerEngine() as engine:
        record = await Attempts(engine, tmp_path, image="sha256:" + "0" * 64).commands("removed", SOLVE)
    assert ended(record) == UNAVAILABLE
    assert Phase.AGENT_SETUP not in [stamp.phase for stamp in record.phases]


async def test_a_pull_that_the_registry_refuses(tmp_path: Path):
    async with DockerEngine() as engine:
        record = await Attempts(engine, tmp_path, image="127.0.0.1:1/none/such:1").commands("refused", SOLVE)
    assert ended(record) == UNAVAILABLE
    assert "can't be pulled" in record.detail
    assert [stamp.phase for stamp in record.phases] == [Phase.QUEUE, Phase.IMAGE, Phase.TEARDOWN]


@pytest.mark.parametrize(
    ("written", "disk", "expected"),
    [
        ("true", DiskState.BREACHED_BY_OTHERS, LOST),
        ("head -c 3000000 /dev/zero > /srv/much", DiskState.BREACHED_BY_THIS, (Ending.ENV_DONE, None, 1.0)),
    ],
    ids=["a victim", "the offender"],
)
async def test_a_host_disk_reserve_that_is_breached(
    tmp_path: Path, written: str, disk: DiskState, expected: tuple[Ending, Cause | None, float | None]
):
    async with fronted(tmp_path) as (attempts, _, witness):

        async def work(context: AgentContext) -> None:
            await solve(context)
            await context.sandbox.exec(Command(["/bin/sh", "-c", written]))
            assert witness.reserve is not None
            witness.reserve.reserve_bytes = 2**62
            await context.sandbox.stop()
            await context.sandbox.exec(Command(["true"]))

        task = attempts.task(resources=Resources(disk_bytes=2_000_000))
        record = await attempts.doing("disk", work, task=task)
    assert record.evidence[0].evidence.disk is disk, record.evidence
    assert ended(record) == expected


@pytest.mark.parametrize("canary", [CanaryResult.PASSED, CanaryResult.FAILED])
async def test_a_container_that_somebody_removed(tmp_path: Path, canary: CanaryResult):
    async with fronted(tmp_path) as (attempts, front, _), DockerEngine() as direct:

        async def work(context: AgentContext) -> None:
            await solve(context)
            await direct.client.call("DELETE", f"/containers/{context.sandbox.id}", params={"force": "1"})
            if canary is CanaryResult.FAILED:
                front.refused = lambda request: b"/containers/create?" in request[:60]
            await context.sandbox.exec(Command(["true"]))

        record = await attempts.doing("vanished", work)
    assert record.evidence[0].evidence.canary is canary
    assert ended(record) == (LOST if canary is CanaryResult.FAILED else (Ending.ENV_DONE, None, 0.0))


async def test_an_engine_that_is_lost_while_grading(tmp_path: Path):
    async with fronted(tmp_path) as (attempts, front, _):
        (attempts.folder / "tests" / "test.sh").write_text("#!/bin/sh\necho grading; sleep 30\n")

        async def cut_when_grading(log: Path) -> None:
            with anyio.fail_after(30):
                while not (log.exists() and b"grading" in log.read_bytes()):  # noqa: ASYNC110 - a file that grows
                    await anyio.sleep(0.05)
            await front.cut()

        async with background(partial(cut_when_grading, tmp_path / "grading" / "grader.log")):
            record = await attempts.doing("grading", solve)
    assert ended(record) == LOST
    assert record.evidence[0].phase is Phase.GRADING
