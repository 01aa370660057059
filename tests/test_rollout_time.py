"""Rollouts over time, on trio's virtual clock: backpressure, bounds in flight, staleness, hooks that hang."""

from __future__ import annotations

import anyio
import pytest

from harness.generation import ABORT_HOOK_S
from harness.guard import ConsecutiveAborts
from harness.outcome import Cause
from harness.rollout import Rollout
from harness.rollout_options import RolloutOptions
from tests.groups import FakeRunner, numbered, on, tasks

LOST = [(Cause.SANDBOX_LOST, 1.0)]


def options(**changes: object) -> RolloutOptions:
    return RolloutOptions.model_validate({"n": 2, "batch_size": 2, **changes})


def test_a_slow_consumer_slows_the_drawing_and_nothing_is_dropped():
    async def body() -> None:
        runner = FakeRunner(takes_s={f"t{number}": 1.0 for number in range(100)})
        rollout = Rollout(numbered(), runner, options(max_groups_in_flight=3))
        taken: list[str] = []
        async with rollout.stream() as groups:
            async for admitted in groups:
                taken.append(admitted.group.task.name)
                await anyio.sleep(3600)
                waiting = rollout.summary().pending_groups + rollout.summary().running_groups
                assert waiting <= 3
                assert len(runner.begun) <= len(taken) + 3
                if len(taken) == 10:
                    break
        assert sorted(taken) == sorted(f"t{number}" for number in range(10))

    on("clock", body)


def test_a_fast_consumer_keeps_as_many_groups_in_flight_as_it_may():
    async def body() -> None:
        runner = FakeRunner(takes_s={f"t{number}": 60.0 for number in range(100)})
        rollout = Rollout(numbered(), runner, options(max_groups_in_flight=5))
        began = anyio.current_time()
        async with rollout.stream() as groups:
            async for _ in groups:
                if rollout.summary().used_groups == 50:
                    break
        assert runner.most_at_once == 5
        assert anyio.current_time() - began == pytest.approx(600)

    on("clock", body)


def test_a_batch_leaves_nothing_running_and_begins_no_group_too_many():
    async def body() -> None:
        runner = FakeRunner({"t1": LOST}, takes_s={"t0": 5.0, "t1": 1.0, "t2": 7.0})
        rollout = Rollout(numbered(), runner, options())
        began = anyio.current_time()
        assert len(await rollout.batch()) == 2
        assert anyio.current_time() - began == pytest.approx(8)
        assert runner.begun == ["t0", "t1", "t2"]
        assert runner.cancelled == []
        assert runner.aborted == 0, "nothing was stopped"
        await anyio.sleep(3600)
        assert len(runner.begun) == 3, "while the trainer works, nothing runs"

    on("clock", body)


def test_a_batch_runs_no_more_groups_at_a_time_than_it_may():
    async def body() -> None:
        runner = FakeRunner(takes_s={f"t{number}": 1.0 for number in range(100)})
        rollout = Rollout(numbered(), runner, options(batch_size=12, max_groups_in_flight=3))
        began = anyio.current_time()
        assert len(await rollout.batch()) == 12
        assert runner.most_at_once == 3
        assert anyio.current_time() - began == pytest.approx(4)

    on("clock", body)


def test_a_group_that_waits_while_the_weights_move_on_too_far_is_discarded_counted_and_replaced():
    async def body() -> None:
        version = 0
        runner = FakeRunner()
        settings = options(max_groups_in_flight=3, admission={"max_staleness": 1})
        rollout = Rollout(numbered(), runner, settings, version=lambda: version)
        taken: list[tuple[str, int | None]] = []
        async with rollout.stream() as groups:
            async for admitted in groups:
                taken.append((admitted.group.task.name, admitted.group.version))
                if len(taken) == 4:
                    break
                await anyio.sleep(60)
                version += 2 if len(taken) == 1 else 0
        total = rollout.summary()
        assert taken[0][1] == 0
        assert {entry for _, entry in taken[1:]} == {2}
        assert total.stale_groups == 3
        assert total.discarded_groups >= total.stale_groups
        assert total.used_groups == 4

    on("clock", body)


def test_a_hook_that_hangs_is_cut_off_and_the_rollout_fails_all_the_same():
    async def body() -> None:
        runner = FakeRunner({f"t{number}": LOST for number in range(100)}, hook=anyio.sleep_forever)
        began = anyio.current_time()
        with pytest.raises(ConsecutiveAborts):
            await Rollout(numbered(), runner, options()).batch()
        assert anyio.current_time() - began == pytest.approx(ABORT_HOOK_S)

    on("clock", body)


def test_one_task_that_aborts_at_once_does_not_trip_the_guard_while_slow_ones_run():
    async def body() -> None:
        runner = FakeRunner({"bad": LOST}, takes_s={"good": 7200.0})
        rollout = Rollout(tasks("bad", "good"), runner, options(batch_size=1, max_groups_in_flight=8))
        async with rollout.stream() as groups:
            async for admitted in groups:
                assert admitted.group.task.name == "good"
                if rollout.summary().used_groups == 20:
                    break
        assert list(rollout.quarantined) == ["b/bad"]
        assert runner.begun.count("bad") <= 3 + 8
        assert runner.most_at_once == 8, "the suspect's place was taken by others"

    on("clock", body)


def test_an_outage_of_everything_trips_the_guard_though_each_task_is_suspected():
    async def body() -> None:
        runner = FakeRunner(dict.fromkeys("abc", LOST), takes_s={"a": 1.0, "b": 2.0, "c": 3.0})
        rollout = Rollout(tasks("a", "b", "c"), runner, options(batch_size=8))
        with pytest.raises(ConsecutiveAborts, match="32 groups"):
            await rollout.batch()
        assert dict(rollout.quarantined) == {}

    on("clock", body)
