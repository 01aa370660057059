"""One run has one owner: what an earlier one still writes is refused, and a slot never gets a second verdict."""

import sqlite3
from pathlib import Path

import pytest

from harness.errors import SlotTaken, StaleOwner
from harness.record import RunState
from harness.store.sql import SqlStore

from .records import RUN, a_run, an_attempt, slots


def test_an_owner_that_was_replaced_writes_nothing(tmp_path: Path):
    with SqlStore(tmp_path) as store:
        first = store.begin(a_run(tmp_path), slots(2))
        first.save_attempts([an_attempt(tmp_path, "aa", 1.0)])
        second = store.take(RUN)
        assert second.epoch == first.epoch + 1
        with pytest.raises(StaleOwner, match="taken over"):
            first.save_attempts([an_attempt(tmp_path, "bb", 0.0, index=1)])
        with pytest.raises(StaleOwner):
            first.save_run(a_run(tmp_path).model_copy(update={"ended": RunState.FINISHED}))
        with pytest.raises(StaleOwner):
            first.cancel_requested()
        assert store.run(RUN) == a_run(tmp_path)
        second.save_attempts([an_attempt(tmp_path, "cc", 0.5, index=1)])
        assert [row.id for row in store.attempts(RUN)] == ["aa", "cc"]


def test_a_slot_gets_no_second_verdict_and_the_whole_commit_is_refused(tmp_path: Path):
    with SqlStore(tmp_path) as store:
        owned = store.begin(a_run(tmp_path), slots(2))
        owned.save_attempts([an_attempt(tmp_path, "aa", 0.0)])
        with pytest.raises(SlotTaken, match="attempt aa has one"):
            owned.save_attempts([an_attempt(tmp_path, "bb", 1.0, index=1), an_attempt(tmp_path, "cc", 1.0)])
        assert [row.id for row in store.attempts(RUN)] == ["aa"]
        assert [slot.attempt for slot in store.slots(RUN)] == ["aa", None]


def test_a_retry_takes_its_predecessors_slot_and_both_stay_on_record(tmp_path: Path):
    with SqlStore(tmp_path) as store:
        owned = store.begin(a_run(tmp_path), slots())
        owned.save_attempts([an_attempt(tmp_path, "aa", None)])
        owned.save_attempts([an_attempt(tmp_path, "bb", 1.0, retry_of="aa")])
        with pytest.raises(SlotTaken):
            owned.save_attempts([an_attempt(tmp_path, "cc", 1.0, retry_of="aa")])
        assert {row.id for row in store.attempts(RUN)} == {"aa", "bb"}
        assert store.slots(RUN)[0].attempt == "bb"


def test_a_first_attempt_and_its_retry_may_come_in_one_commit(tmp_path: Path):
    with SqlStore(tmp_path) as store:
        owned = store.begin(a_run(tmp_path), slots())
        owned.save_attempts([an_attempt(tmp_path, "aa", None), an_attempt(tmp_path, "bb", 1.0, retry_of="aa")])
        assert store.slots(RUN)[0].attempt == "bb"


def test_attempts_that_nobody_planned_are_kept_too(tmp_path: Path):
    with SqlStore(tmp_path) as store:
        owned = store.begin(a_run(tmp_path), ())
        owned.save_attempts([an_attempt(tmp_path, "aa"), an_attempt(tmp_path, "bb")])
        assert len(store.attempts(RUN)) == 2


def test_slots_are_read_back_in_their_order(tmp_path: Path):
    planned = (*slots(3, "z"), *slots(2, "a"))
    with SqlStore(tmp_path) as store:
        store.begin(a_run(tmp_path), planned)
        assert store.slots(RUN) == planned


def test_a_request_to_cancel_reaches_the_present_owner_only(tmp_path: Path):
    with SqlStore(tmp_path) as store:
        first = store.begin(a_run(tmp_path), slots())
        assert not first.cancel_requested()
        assert not store.cancelling(RUN)
        store.ask_to_cancel(RUN)
        store.ask_to_cancel(RUN)
        assert first.cancel_requested()
        assert store.cancelling(RUN)
        second = store.take(RUN)
        assert not second.cancel_requested()
        assert not store.cancelling(RUN)


def test_a_missing_run_folder_costs_no_verdict(tmp_path: Path):
    record = an_attempt(tmp_path)
    record.folder.rmdir()
    with SqlStore(tmp_path) as store:
        store.begin(a_run(tmp_path), slots()).save_attempts([record])
        assert store.attempts(RUN) == [record]


def test_verdicts_are_on_the_disk_and_not_only_in_memory(tmp_path: Path):
    with SqlStore(tmp_path) as store:
        store.begin(a_run(tmp_path), slots()).save_attempts([an_attempt(tmp_path)])
        reader = sqlite3.connect(tmp_path / "runs.sqlite")
        assert reader.execute("pragma journal_mode").fetchone() == ("wal",)
        assert reader.execute("select count(*) from attempts").fetchone() == (1,)
