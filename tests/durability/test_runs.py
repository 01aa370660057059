"""Whole runs on a fake engine: refused, cancelled, taken over, with a store that fails; and each of them resumed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from harness.errors import RunHeld, StaleOwner, StartRefused, StoreError
from harness.lock import is_held, own_run
from harness.outcome import Cause, Ending, InfraAbort
from harness.ports import AgentContext
from harness.record import AttemptRecord, RunState
from harness.store.sql import SqlStore
from tests.durability.fakes import RUN, ErrandAgent, Surroundings, a_task, go_on, start

TASKS = [a_task("x"), a_task("y")]


def on_record(folder: Path) -> tuple[RunState, list[AttemptRecord], list[str | None]]:
    """The state, the attempts, and the attempts that stand."""
    assert not is_held(folder / RUN)
    with SqlStore(folder, create=False) as store:
        records = list(store.attempts(RUN))
        assert store.damage == ()
        return store.run(RUN).standing(owned=False), records, [slot.attempt for slot in store.slots(RUN)]


def admitting(count: int) -> Callable[[], None]:
    """Room for so many looks: an attempt is looked at when it queues and when it starts."""
    left = count

    def admit() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise StartRefused("the disk is nearly full")

    return admit


def test_a_run_is_finished_when_every_slot_has_a_verdict(tmp_path: Path):
    assert start(tmp_path, TASKS, n=2) == 0
    state, records, standing = on_record(tmp_path)
    assert state is RunState.FINISHED
    assert sorted(record.id for record in records) == sorted(filter(None, standing))
    assert len(standing) == 4


def test_what_was_refused_has_no_verdict_and_is_all_that_is_resumed(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    # Four look for room as they queue, one as it starts.
    assert start(tmp_path, TASKS, n=2, met=Surroundings(admit=admitting(5), concurrency=1)) == 1
    state, first, standing = on_record(tmp_path)
    assert state is RunState.INCOMPLETE
    assert len(first) == 1
    assert standing.count(None) == 3
    assert len(list(tmp_path.glob(f"{RUN}/*/"))) == 1, "a refused attempt leaves no folder"
    said = capfd.readouterr().err
    assert f"3 attempts were not started: the disk is nearly full. Make room, then: harness resume {RUN}" in said

    assert go_on(tmp_path, TASKS) == 0
    state, records, standing = on_record(tmp_path)
    assert state is RunState.FINISHED
    assert len(records) == 4
    assert first[0] in records
    assert None not in standing


def test_resuming_a_finished_run_runs_nothing(tmp_path: Path):
    start(tmp_path, TASKS)
    before = on_record(tmp_path)
    assert go_on(tmp_path, TASKS) == 0
    assert on_record(tmp_path) == before


def test_resuming_finds_tasks_that_were_moved_and_reordered(tmp_path: Path):
    start(tmp_path, TASKS, met=Surroundings(admit=admitting(3), concurrency=1))
    moved = [a_task("y", path=Path("/moved/y")), a_task("new"), a_task("x", path=Path("/moved/x"))]
    assert go_on(tmp_path, moved) == 0
    _, records, standing = on_record(tmp_path)
    assert sorted(record.task for record in records) == ["x", "y"]
    assert None not in standing


def test_a_task_that_changed_stays_without_a_verdict(tmp_path: Path):
    start(tmp_path, TASKS, met=Surroundings(admit=admitting(0)))
    go_on(tmp_path, [a_task("x", digest="sha256:other"), a_task("y")])
    state, records, standing = on_record(tmp_path)
    assert [record.task for record in records] == ["y"]
    assert standing.count(None) == 1
    assert state is RunState.INCOMPLETE


def test_ungraded_attempts_are_run_again_only_when_asked_for(tmp_path: Path):
    async def abort(context: AgentContext) -> None:
        if context.task.name == "x":
            raise InfraAbort(Cause.SERVER_UNREACHABLE, "refused")

    assert start(tmp_path, TASKS, met=Surroundings(agent=ErrandAgent(abort))) == 1
    _, first, _ = on_record(tmp_path)
    (aborted,) = [record for record in first if record.reward is None]
    assert go_on(tmp_path, TASKS) == 1
    assert on_record(tmp_path)[1] == first
    assert go_on(tmp_path, TASKS, ungraded=True) == 0
    _, records, standing = on_record(tmp_path)
    (again,) = [record for record in records if record.retry_of == aborted.id]
    assert again.reward is not None
    assert len(records) == 3
    assert again.id in standing
    assert aborted.id not in standing


def test_a_retry_that_was_due_when_the_run_died_is_run(tmp_path: Path):
    async def abort(context: AgentContext) -> None:
        raise InfraAbort(Cause.SERVER_UNREACHABLE, "refused")

    # Without retries: what is on record is what a run with one retry leaves that dies between the two.
    start(tmp_path, TASKS[:1], met=Surroundings(agent=ErrandAgent(abort)))
    assert go_on(tmp_path, TASKS[:1], met=Surroundings(retries=1)) == 0
    _, records, standing = on_record(tmp_path)
    assert [record.retry_of for record in records] == [None, records[0].id]
    assert standing == [records[1].id]


def test_a_second_owner_is_refused_while_the_first_one_works(tmp_path: Path):
    refused: list[str] = []

    async def intrude(_: AgentContext) -> None:
        try:
            go_on(tmp_path, TASKS)
        except RunHeld as error:
            refused.append(str(error))

    assert start(tmp_path, TASKS, met=Surroundings(agent=ErrandAgent(intrude))) == 0
    assert len(refused) == 2
    assert f"run {RUN} is owned by process" in refused[0]


def test_a_run_that_is_taken_over_behind_its_lock_writes_nothing_more(tmp_path: Path):
    async def take(_: AgentContext) -> None:
        with SqlStore(tmp_path) as other:
            other.take(RUN)

    with pytest.raises(StaleOwner, match="taken over"):
        start(tmp_path, TASKS, met=Surroundings(agent=ErrandAgent(take)))
    state, records, _ = on_record(tmp_path)
    assert state is RunState.DIED
    assert records == []
    assert go_on(tmp_path, TASKS) == 0


def test_a_cancelled_run_keeps_what_stood_and_goes_on_when_it_is_resumed(tmp_path: Path):
    async def cancel(context: AgentContext) -> None:
        if context.task.name == "y":
            with SqlStore(tmp_path) as other:
                other.ask_to_cancel(RUN)
                assert other.cancelling(RUN)
            await anyio.sleep_forever()

    assert start(tmp_path, TASKS, n=2, met=Surroundings(agent=ErrandAgent(cancel), concurrency=1)) == 1
    state, first, _ = on_record(tmp_path)
    assert state is RunState.CANCELLED
    endings = {record.task: record.ending for record in first}
    assert endings == {"x": Ending.ENV_DONE, "y": Ending.CANCELLED}
    assert go_on(tmp_path, TASKS) == 0
    state, records, standing = on_record(tmp_path)
    assert state is RunState.FINISHED
    assert all(record in records for record in first)
    assert {record.id for record in records if record.reward is not None} == set(standing)


def test_a_store_that_fails_ends_the_run_with_its_own_words_and_loses_nothing(tmp_path: Path):
    async def commit(record: AttemptRecord) -> None:
        raise StoreError("the disk is full")

    with pytest.raises(StoreError, match="the disk is full"):
        start(tmp_path, TASKS, n=2, met=Surroundings(commit=commit))
    assert on_record(tmp_path)[0] is RunState.DIED
    assert go_on(tmp_path, TASKS) == 0


def test_a_resumed_run_is_reported_whole_and_its_pause_doesnt_count(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    start(tmp_path, TASKS, met=Surroundings(admit=admitting(3), concurrency=1))
    with SqlStore(tmp_path) as store, own_run(tmp_path / RUN):
        record = store.run(RUN)
        earlier = {name: getattr(record, name) - 1000 for name in ("created_at", "finished_at")}
        store.take(RUN).save_run(record.model_copy(update=earlier))
    capfd.readouterr()
    go_on(tmp_path, TASKS)
    document = json.loads(capfd.readouterr().out)
    assert document["summary"]["attempts"] == document["summary"]["graded"] == 2
    assert document["summary"]["wall_s"] < 100
    assert document["run"]["ended"] == "finished"
