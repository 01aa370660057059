"""An engine that stops, dies or restarts under an attempt: on one of the test's own, which nobody else uses."""

from __future__ import annotations

import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest

from harness.errors import EngineError
from harness.faults import EngineState
from harness.outcome import Cause, Ending
from harness.ports import AgentContext, Command
from harness.record import AttemptRecord
from harness.sandbox.docker.engine import DockerEngine
from harness.sandbox.docker.peer import engine_process
from harness.sandbox.docker.witness import DockerWitness, watch_engine
from tests.sandbox.docker.own_engine import IMAGE, OwnEngine, give_image, missing, own_engine

from .attempts import SOLVE, Attempts

pytestmark = [pytest.mark.engine, pytest.mark.skipif(missing() is not None, reason=missing() or "")]

LOST = (Ending.ABORTED, Cause.SANDBOX_LOST, None)


@asynccontextmanager
async def attempts_on(own: OwnEngine, folder: Path) -> AsyncGenerator[tuple[Attempts, DockerWitness]]:
    async with DockerEngine(own.address) as engine:
        await give_image(engine)
        async with watch_engine(engine) as witness:
            with anyio.fail_after(10):
                while not witness.connected:  # noqa: ASYNC110 - another task's state
                    await anyio.sleep(0.01)
            yield Attempts(engine, folder, witness, image=IMAGE), witness


def ended(record: AttemptRecord) -> tuple[Ending, Cause | None, float | None]:
    return record.ending, record.cause, record.reward


async def restart(own: OwnEngine, how: signal.Signals = signal.SIGTERM) -> None:
    await anyio.to_thread.run_sync(partial(own.stop, how))
    await anyio.to_thread.run_sync(own.start)


async def test_an_attempt_passes_on_it(tmp_path: Path):
    """The control: without it the other tests would show nothing."""
    with own_engine() as own:
        async with attempts_on(own, tmp_path) as (attempts, witness):
            record = await attempts.commands("sound", SOLVE)
            assert witness.life == engine_process(own.address)
    assert ended(record) == (Ending.ENV_DONE, None, 1.0), record.detail
    assert record.evidence == ()


async def test_an_engine_that_is_stopped_mid_attempt(tmp_path: Path):
    with own_engine() as own:
        async with attempts_on(own, tmp_path) as (attempts, _):

            async def work(context: AgentContext) -> None:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(context.sandbox.exec, Command(["sleep", "60"]))
                    await anyio.sleep(0.5)
                    await anyio.to_thread.run_sync(own.stop)

            record = await attempts.doing("stopped", work)
    assert ended(record) == LOST
    assert record.evidence[0].evidence.engine is EngineState.UNREACHABLE


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_an_engine_that_is_restarted_mid_attempt(tmp_path: Path, how: signal.Signals):
    with own_engine() as own:
        async with attempts_on(own, tmp_path) as (attempts, witness):

            async def work(context: AgentContext) -> None:
                await restart(own, how)
                await context.sandbox.exec(Command(["true"]))

            record = await attempts.doing("restarted", work)
            assert witness.interruptions
    assert ended(record) == LOST
    assert record.evidence[0].evidence.engine is EngineState.RESTARTED, record.evidence


async def test_a_restart_that_the_agent_took_for_a_tools_failure(tmp_path: Path):
    with own_engine() as own:
        async with attempts_on(own, tmp_path) as (attempts, _):

            async def work(context: AgentContext) -> None:
                await restart(own)
                with pytest.raises(EngineError):
                    await context.sandbox.exec(Command(["true"]))

            record = await attempts.doing("unseen", work)
    assert ended(record) == LOST


async def test_a_restart_before_an_attempt_excuses_nothing_in_it(tmp_path: Path):
    with own_engine() as own:
        async with attempts_on(own, tmp_path) as (attempts, witness):
            await restart(own)
            with anyio.fail_after(10):
                while not (witness.interruptions and witness.connected):  # noqa: ASYNC110 - another task's state
                    await anyio.sleep(0.01)
            assert witness.interruptions[0].restarted is True
            record = await attempts.commands("later", SOLVE, "kill -TERM 1; sleep 2", "true")
    assert ended(record) == (Ending.ENV_DONE, None, 1.0)
    assert record.evidence[0].evidence.engine is EngineState.SOUND
