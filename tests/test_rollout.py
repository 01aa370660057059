"""Rollouts, driven by a consumer as a trainer would: in batches and as a stream, under asyncio and trio."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from pydantic import ValidationError

from harness.group import AdmissionOptions, Admitted, Flat, partial
from harness.guard import BudgetSpent, ConsecutiveAborts, ConsecutiveUnused
from harness.outcome import Cause, Ending
from harness.rollout import Rollout
from harness.rollout_options import RolloutOptions
from harness.tally import metrics
from harness.task.model import Task
from tests.groups import FakeRunner, TrainingWorld, numbered, on, tasks

BACKENDS = ["asyncio", "trio", "clock"]
MODES = ["batch", "stream"]
LOST = [(Cause.SANDBOX_LOST, 1.0)]
pytestmark = pytest.mark.parametrize("backend", BACKENDS)


def options(**changes: object) -> RolloutOptions:
    return RolloutOptions.model_validate({"n": 2, "batch_size": 2, **changes})


async def consume(rollout: Rollout, mode: str, wanted: int | None = None) -> list[Admitted]:
    """A trainer that takes so many groups, in batches or from the stream, with an optimiser step for each two; or all there are."""
    taken: list[Admitted] = []
    if mode == "batch":
        while (wanted is None or len(taken) < wanted) and (batch := await rollout.batch()):
            taken += batch
            rollout.end_step()
        return taken
    async with rollout.stream() as groups:
        async for admitted in groups:
            taken.append(admitted)
            if len(taken) % 2 == 0:
                rollout.end_step()
            if len(taken) == wanted:
                break
    return taken


def adds_up(rollout: Rollout) -> None:
    total = rollout.summary()
    fates = total.no_signal_groups + total.used_groups + total.discarded_groups + total.pending_groups
    fates += total.aborted_groups + total.ungraded_groups + total.cancelled_groups + total.running_groups
    assert fates == total.group_count
    graded = total.correct_count + total.partial_count + total.incorrect_count
    assert graded + total.ungraded_count == total.completed_count == sum(total.termination_reasons.values())
    assert total.completed_count == total.trajectory_count, "nothing runs any more"
    assert (total.pending_groups, total.running_groups) == (0, 0)


# --- statement 7: one aborted attempt drops its group, the loop refills, and it is counted by cause


@pytest.mark.parametrize("mode", MODES)
def test_one_aborted_attempt_drops_its_whole_group_and_the_next_task_is_drawn(backend: str, mode: str):
    async def body() -> None:
        runner = FakeRunner({"t1": LOST})
        rollout = Rollout(numbered(), runner, options())
        taken = await consume(rollout, mode, 4)
        assert sorted(admitted.group.task.name for admitted in taken) == ["t0", "t2", "t3", "t4"]
        assert metrics(rollout.summary())["rollout/aborted/drop_SandboxLost"] == 1
        adds_up(rollout)

    on(backend, body)


@pytest.mark.parametrize("mode", MODES)
def test_aborts_are_counted_once_for_each_group_by_its_cause(backend: str, mode: str):
    async def body() -> None:
        both: list[tuple[float | Ending | Cause, ...]] = [(Cause.SERVER_UNREACHABLE, Cause.SERVER_UNREACHABLE)]
        runner = FakeRunner({"t0": LOST, "t1": both, "t2": LOST})
        rollout = Rollout(numbered(), runner, options())
        await consume(rollout, mode, 2)
        total = rollout.summary()
        assert total.aborted == {Cause.SANDBOX_LOST: 2, Cause.SERVER_UNREACHABLE: 1}
        assert total.aborted_groups == 3

    on(backend, body)


@pytest.mark.parametrize("mode", MODES)
def test_real_attempts_are_retried_then_their_group_is_dropped_and_replaced(backend: str, mode: str, tmp_path: Path):
    async def body() -> None:
        world = TrainingWorld(tmp_path)
        world.broken = {"t0": [Cause.SERVER_UNREACHABLE], "t1": [Cause.SANDBOX_LOST] * 4}
        rollout = Rollout(islice(numbered(), 4), world.runner, options())
        taken = await consume(rollout, mode)
        assert sorted(admitted.group.task.name for admitted in taken) == ["t0", "t2", "t3"]
        (retry,) = (row for row in world.last if row.task == "t0" and row.retry_of)
        assert retry.reward is not None
        assert [row.ending for row in world.last if row.task == "t1"] == [Ending.ABORTED] * 4
        assert rollout.summary().aborted == {Cause.SANDBOX_LOST: 1}
        assert rollout.summary().retried_count == 3
        assert all(row.group is not None for row in world.last)
        assert world.engine.sandboxes == {}
        adds_up(rollout)

    on(backend, body)


# --- statement 8: the guard's limit


def test_the_guards_limit_is_four_batches_unless_told_otherwise_and_zero_disables_it(backend: str):
    assert options(batch_size=32).aborted_limit == 128
    assert options(max_consecutive_aborted_groups=5).aborted_limit == 5
    assert options(max_consecutive_aborted_groups=0).aborted_limit == 0

    async def body() -> None:
        runner = FakeRunner({f"t{number}": LOST for number in range(500)})
        rollout = Rollout(numbered(), runner, options(max_consecutive_aborted_groups=0))
        assert len(await rollout.batch()) == 2
        assert rollout.summary().aborted_groups == 500

    on(backend, body)


@pytest.mark.parametrize(
    "field", ["max_consecutive_aborted_groups", "max_consecutive_unused_groups", "quarantine_after", "retries"]
)
def test_a_negative_limit_is_refused_at_start_up(backend: str, field: str):
    with pytest.raises(ValidationError, match=f"(?s){field}.*greater than or equal to 0"):
        options(**{field: -1})


# --- statement 9: so many aborted groups in a row stop generation, call the hooks, drain, and fail


@pytest.mark.parametrize("mode", MODES)
def test_so_many_aborted_groups_in_a_row_fail_the_rollout_naming_count_and_causes(backend: str, mode: str):
    async def body() -> None:
        runner = FakeRunner({f"t{number}": LOST for number in range(100)})
        rollout = Rollout(numbered(), runner, options())
        with pytest.raises(ConsecutiveAborts, match=r"8 groups in a row aborted \(SandboxLost × 8\)") as caught:
            await consume(rollout, mode)
        assert (caught.value.count, caught.value.causes) == (8, {Cause.SANDBOX_LOST: 8})
        assert runner.aborted == 1
        assert rollout.summary().aborted_groups == 8
        adds_up(rollout)
        with pytest.raises(ConsecutiveAborts):
            await consume(rollout, mode)
        assert runner.aborted == 1

    on(backend, body)


@pytest.mark.parametrize("mode", MODES)
def test_a_failing_rollout_stops_what_runs_calls_the_agents_hook_and_waits_until_it_is_gone(
    backend: str, mode: str, tmp_path: Path
):
    async def body() -> None:
        world = TrainingWorld(tmp_path)
        world.hanging = {"hangs"}
        world.broken = {f"t{number}": [Cause.SANDBOX_LOST] * 2 for number in range(9)}

        def source() -> Iterator[Task]:
            yield from tasks("hangs", count=1)
            yield from numbered()

        changes = {"retries": 0, "max_consecutive_aborted_groups": 3}
        rollout = Rollout(source(), world.runner, options(**changes))
        with pytest.raises(ConsecutiveAborts, match="3 groups in a row"):
            await consume(rollout, mode)
        assert world.agent.aborts == 1
        assert world.engine.sandboxes == {}
        endings = Counter((row.task, row.ending) for row in world.last)
        assert endings[("hangs", Ending.CANCELLED)] == 2, "what was stopped is nobody's failure"
        assert rollout.summary().cancelled_groups == 1
        adds_up(rollout)

    on(backend, body)


def test_a_stream_hands_over_what_was_admitted_before_it_fails(backend: str):
    async def body() -> None:
        runner = FakeRunner({f"t{number}": LOST for number in range(2, 100)})
        rollout = Rollout(numbered(), runner, options(max_groups_in_flight=4, max_consecutive_aborted_groups=2))
        taken: list[str] = []
        with pytest.raises(ConsecutiveAborts):
            async with rollout.stream() as groups:
                await anyio.wait_all_tasks_blocked()
                async for admitted in groups:
                    taken.append(admitted.group.task.name)
        assert sorted(taken) == ["t0", "t1"]
        assert rollout.summary().used_groups == 2

    on(backend, body)


def test_a_batch_that_fails_counts_what_it_had_as_discarded(backend: str):
    async def body() -> None:
        runner = FakeRunner({f"t{number}": LOST for number in range(1, 100)})
        rollout = Rollout(numbered(), runner, options())
        with pytest.raises(ConsecutiveAborts):
            await rollout.batch()
        assert (rollout.summary().used_groups, rollout.summary().discarded_groups) == (0, 1)
        adds_up(rollout)

    on(backend, body)


@pytest.mark.parametrize("mode", MODES)
def test_a_hook_that_fails_does_not_hide_why_the_rollout_failed(backend: str, mode: str):
    async def hook() -> None:
        raise ZeroDivisionError

    async def body() -> None:
        runner = FakeRunner({f"t{number}": LOST for number in range(100)}, hook=hook)
        with pytest.raises(ConsecutiveAborts):
            await consume(Rollout(numbered(), runner, options()), mode)
        assert runner.aborted == 1

    on(backend, body)


# --- statement 10: a group that did not abort resets the streak


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("between", [(0.0, 1.0), (0.0, 0.0), (1.0, Ending.ERROR)])
def test_a_group_that_did_not_abort_resets_the_streak_also_one_that_a_filter_drops(
    backend: str, mode: str, between: tuple[float | Ending | Cause, ...]
):
    async def body() -> None:
        outcomes = {f"t{number}": LOST for number in range(12)} | {"t3": [between], "t7": [between]}
        runner = FakeRunner(outcomes)
        changes = {"max_groups_in_flight": 1, "max_consecutive_aborted_groups": 4}
        rollout = Rollout(numbered(), runner, options(**changes))
        with pytest.raises(ConsecutiveAborts):
            await consume(rollout, mode)
        assert rollout.summary().group_count == 12, "four in a row came only at the end"

    on(backend, body)


# --- §4 item 5: every group flat


@pytest.mark.parametrize("mode", MODES)
def test_when_every_group_is_flat_attempts_rise_no_step_is_completed_and_the_budget_stops_the_run(
    backend: str, mode: str
):
    async def body() -> None:
        runner = FakeRunner({"t": [(0.0, 0.0)]})
        rollout = Rollout(tasks("t"), runner, options(max_attempts=101))
        with pytest.raises(BudgetSpent, match="50 groups 0 were used, 50 had no signal") as caught:
            await consume(rollout, mode)
        total = rollout.summary()
        assert caught.value.max_attempts == 101
        assert (total.trajectory_count, total.completed_steps) == (100, 0)
        assert (total.no_signal_groups, total.all_failed_groups, total.used_groups) == (50, 50, 0)
        assert total.incorrect_count == 100, "graded zeros stay graded zeros"
        adds_up(rollout)

    on(backend, body)


@pytest.mark.parametrize("mode", MODES)
def test_a_limit_on_unused_groups_ends_a_run_that_never_gets_a_batch(backend: str, mode: str):
    async def body() -> None:
        rollout = Rollout(tasks("t"), FakeRunner({"t": [(0.5, 0.5)]}), options(max_consecutive_unused_groups=10))
        with pytest.raises(ConsecutiveUnused, match=r"none of 10 groups in a row could be used \(NoSignal × 10\)"):
            await consume(rollout, mode)

    on(backend, body)


# --- §4 item 6: used groups are consumed groups whose rewards differ


@pytest.mark.parametrize("mode", MODES)
def test_used_groups_are_consumed_mixed_groups_and_flat_ones_admitted_by_option_are_not_counted(
    backend: str, mode: str
):
    async def body() -> None:
        runner = FakeRunner({"t0": [(0.0, 0.0)], "t1": [(1.0, 1.0)]})
        admission = AdmissionOptions(train_on_all_fail=True)
        rollout = Rollout(numbered(), runner, options(admission=admission))
        taken = await consume(rollout, mode, 4)
        total = rollout.summary()
        assert [admitted.flat for admitted in taken].count(Flat.ALL_FAIL) == 1
        assert (total.consumed_groups, total.used_groups) == (4, 3)
        assert (total.no_signal_groups, total.all_failed_groups, total.all_success_groups) == (2, 1, 1)
        adds_up(rollout)

    on(backend, body)


def test_each_step_has_its_own_summary_and_together_they_are_the_whole(backend: str):
    async def body() -> None:
        runner = FakeRunner({"t0": LOST, "t3": [(1.0, 1.0)]})
        rollout = Rollout(numbered(), runner, options())
        steps = []
        for _ in range(3):
            await rollout.batch()
            steps.append(rollout.end_step())
        total = rollout.summary()
        assert [step.step for step in steps] == [0, 1, 2]
        assert [step.used_groups for step in steps] == [2, 2, 2]
        assert sum(step.group_count for step in steps) == total.group_count == 8
        assert [step.aborted for step in steps] == [{Cause.SANDBOX_LOST: 1}, {}, {}]
        assert sum(step.no_signal_groups for step in steps) == 1
        assert total.completed_steps == 3

    on(backend, body)


# --- partial groups, quarantine, sources


@pytest.mark.parametrize("mode", MODES)
def test_partial_groups_are_admitted_by_the_option_only(backend: str, mode: str):
    async def body() -> None:
        outcomes = {"t0": [(0.0, 1.0, Cause.SANDBOX_LOST)]}
        strict = Rollout(numbered(), FakeRunner(dict(outcomes)), options(n=3))
        assert all(len(admitted.attempts) == 3 for admitted in await consume(strict, mode, 2))
        lenient = Rollout(numbered(), FakeRunner(dict(outcomes)), options(n=3, admission={"partial": partial(2)}))
        sizes = {admitted.group.task.name: len(admitted.attempts) for admitted in await consume(lenient, mode, 2)}
        assert sizes == {"t0": 2, "t1": 3}
        assert lenient.summary().partial_groups == 1
        adds_up(lenient)

    on(backend, body)


@pytest.mark.parametrize("mode", MODES)
def test_one_unbuildable_task_is_quarantined_and_neither_starves_nor_trips_the_others(backend: str, mode: str):
    async def body() -> None:
        runner = FakeRunner({"bad": LOST})
        changes = {"batch_size": 1, "max_groups_in_flight": 1, "quarantine_after": 2}
        rollout = Rollout(tasks("bad", "good"), runner, options(**changes))
        taken = await consume(rollout, mode, 20)
        assert {admitted.group.task.name for admitted in taken} == {"good"}
        assert [str(entry) for entry in rollout.quarantined.values()] == ["b/bad: SandboxLost × 2"]
        assert runner.begun.count("bad") == 2
        adds_up(rollout)

    on(backend, body)


@pytest.mark.parametrize("mode", MODES)
def test_a_source_that_ends_gives_what_there_is_and_then_nothing(backend: str, mode: str):
    async def body() -> None:
        rollout = Rollout(tasks("a", count=5), FakeRunner(), options())
        assert len(await consume(rollout, mode)) == 5
        assert await consume(rollout, mode) == []

    on(backend, body)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("of", ["source", "runner"])
def test_what_the_source_or_the_runner_raises_reaches_the_consumer_plainly(backend: str, mode: str, of: str):
    def failing() -> Iterator[Task]:
        yield from tasks("a", count=1)
        raise KeyError("tasks.jsonl")

    async def body() -> None:
        runner = FakeRunner(failure=KeyError("disk") if of == "runner" else None)
        rollout = Rollout(failing() if of == "source" else tasks("a"), runner, options())
        with pytest.raises(KeyError):
            await consume(rollout, mode)
        adds_up_without_attempts = rollout.summary()
        assert adds_up_without_attempts.running_groups == 0

    on(backend, body)


def test_what_the_consumer_raises_comes_out_as_it_is_and_everything_is_stopped(backend: str):
    async def body() -> None:
        runner = FakeRunner(takes_s={"t1": 1000.0})
        rollout = Rollout(numbered(), runner, options())
        with pytest.raises(ZeroDivisionError):
            async with rollout.stream() as groups:
                async for _ in groups:
                    raise ZeroDivisionError
        assert runner.cancelled == ["t1"]
        assert runner.aborted == 1
        adds_up(rollout)

    on(backend, body)


def test_cancelling_the_consumer_stops_everything_and_calls_the_hook(backend: str, tmp_path: Path):
    async def body() -> None:
        world = TrainingWorld(tmp_path)
        world.hanging = {"hangs"}
        rollout = Rollout(tasks("hangs"), world.runner, options())
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as around:
                around.start_soon(rollout.batch)
                while len(world.engine.sandboxes) < 4:
                    await anyio.lowlevel.checkpoint()
                scope.cancel()
        assert scope.cancelled_caught
        assert world.agent.aborts == 1
        assert world.engine.sandboxes == {}
        assert {row.ending for row in world.last} == {Ending.CANCELLED}
        adds_up(rollout)

    on(backend, body)


def test_two_consumers_at_once_are_refused(backend: str):
    async def body() -> None:
        rollout = Rollout(numbered(), FakeRunner(), options())
        async with rollout.stream():
            with pytest.raises(anyio.BusyResourceError):
                await rollout.batch()

    on(backend, body)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n": 1}, "nothing to be compared with"),
        ({"n": 2, "admission": {"partial": {"min_k": 3}}}, "min_k 3 is more than the 2 attempts"),
        ({"n": 0}, "greater than or equal to 1"),
    ],
)
def test_options_under_which_no_group_could_be_admitted_are_refused(
    backend: str, changes: dict[str, object], message: str
):
    with pytest.raises(ValidationError, match=message):
        options(**changes)


def test_a_staleness_bound_needs_to_know_the_version(backend: str):
    with pytest.raises(ValueError, match="give the rollout `version`"):
        Rollout(numbered(), FakeRunner(), options(admission={"max_staleness": 1}))
