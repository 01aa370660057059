"""Damage: a row that can't be read goes to quarantine and is named, the others are served, and sound files take its place."""

import shutil
import sqlite3
from pathlib import Path

import pytest

from harness.errors import StoreError
from harness.store.quarantine import Kind
from harness.store.rows import checksum
from harness.store.sql import SqlStore

from .records import RUN, a_run, an_attempt, slots

DAMAGES = {
    "a flipped reward": "update attempts set record = replace(record, '\"reward\": 0.5', '\"reward\": 1.0') where id = 'bb'",
    "cut off": "update attempts set record = substr(record, 1, 100) where id = 'bb'",
    "empty": "update attempts set record = '' where id = 'bb'",
    "bytes that are no text": "update attempts set record = x'ff00ff00' where id = 'bb'",
    "text that isn't UTF-8": "update attempts set record = cast(x'7b22ff22' as text) where id = 'bb'",
    "another attempt's record": (
        "update attempts set (record, checksum) = (select record, checksum from attempts where id = 'aa') where id = 'bb'"
    ),
    "a number": "update attempts set record = 7 where id = 'bb'",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three verdicts: aa, bb and cc, with rewards 0, 0.5 and 1."""
    with SqlStore(tmp_path) as store:
        owned = store.begin(a_run(tmp_path), slots(3))
        owned.save_attempts(
            [an_attempt(tmp_path, name * 2, index / 2, index=index) for index, name in enumerate("abc")]
        )
    return tmp_path


def change(folder: Path, statement: str) -> None:
    connection = sqlite3.connect(folder / "runs.sqlite")
    with connection:
        assert connection.execute(statement).rowcount == 1
    connection.close()


@pytest.fixture(params=DAMAGES)
def damaged(folder: Path, request: pytest.FixtureRequest) -> Path:
    change(folder, DAMAGES[request.param])
    return folder


def without_results(folder: Path) -> None:
    for path in folder.glob("*/*-bb/result.json"):
        path.unlink()


def test_a_damaged_row_is_named_and_the_rest_is_served(damaged: Path):
    without_results(damaged)
    with SqlStore(damaged, create=False) as store:
        assert [row.id for row in store.attempts(RUN)] == ["aa", "cc"]
        (damage,) = store.damage
        assert (damage.kind, damage.row, damage.run, damage.restored) == (Kind.ATTEMPT, "bb", RUN, False)
        assert f"harness resume {RUN}" in str(damage)
        assert [slot.attempt for slot in store.slots(RUN)] == ["aa", None, "cc"]
    kept = sqlite3.connect(damaged / "runs.sqlite").execute(
        "select row, run, slot, length(record) >= 0 from quarantine"
    )
    assert kept.fetchall() == [("bb", RUN, 1, 1)]


def test_a_damaged_row_is_named_until_its_slot_has_a_verdict_again(damaged: Path):
    without_results(damaged)
    for _ in range(2):
        with SqlStore(damaged, create=False) as store:
            store.attempts(RUN)
            assert [damage.row for damage in store.damage] == ["bb"]
    with SqlStore(damaged, create=False) as store:
        store.take(RUN).save_attempts([an_attempt(damaged, "dd", 0.5, index=1)])
        assert [row.id for row in store.attempts(RUN)] == ["aa", "dd", "cc"]
        assert store.damage == ()


def test_a_sound_result_file_takes_the_rows_place(damaged: Path):
    with SqlStore(damaged, create=False) as store:
        assert [(row.id, row.reward) for row in store.attempts(RUN)] == [("aa", 0.0), ("bb", 0.5), ("cc", 1.0)]
        assert [damage.restored for damage in store.damage] == [True]
        assert [slot.attempt for slot in store.slots(RUN)] == ["aa", "bb", "cc"]
    with SqlStore(damaged, create=False) as store:
        assert store.attempt("bb").reward == 0.5
        assert store.damage == ()


@pytest.mark.parametrize("text", ["", "{}", "another"])
def test_an_unsound_result_file_doesnt(damaged: Path, text: str):
    (own,) = damaged.glob("*/*-bb")
    if text == "another":
        (other,) = damaged.glob("*/*-aa/result.json")
        shutil.copy(other, own / "result.json")
    else:
        (own / "result.json").write_text(text)
    with SqlStore(damaged, create=False) as store:
        assert [row.id for row in store.attempts(RUN)] == ["aa", "cc"]


def test_showing_a_damaged_attempt_is_one_clear_error(damaged: Path):
    without_results(damaged)
    with SqlStore(damaged, create=False) as store, pytest.raises(StoreError, match="attempt bb can't be read"):
        store.attempt("bb")


@pytest.mark.parametrize("sound", [True, False])
def test_a_damaged_run_is_named_and_the_others_are_listed(folder: Path, sound: bool):
    with SqlStore(folder) as store:
        store.begin(a_run(folder, "20261130-000000-bbbb"), ())
    change(folder, f"update runs set record = '{{}}' where id = '{RUN}'")
    if not sound:
        (folder / RUN / "run.json").write_text("{")
    with SqlStore(folder, create=False) as store:
        assert {run.id for run in store.runs()} == {"20261130-000000-bbbb", *([RUN] if sound else [])}
        assert [(damage.kind, damage.restored) for damage in store.damage] == [(Kind.RUN, sound)]
        assert len(store.attempts(RUN)) == 3


def test_a_database_that_cant_be_written_is_still_read(folder: Path):
    change(folder, DAMAGES["empty"])
    connection = sqlite3.connect(folder / "runs.sqlite")
    connection.execute("create trigger refuse before insert on quarantine begin select raise(abort, 'no'); end")
    connection.commit()
    with SqlStore(folder, create=False) as store:
        assert [row.id for row in store.attempts(RUN)] == ["aa", "cc"]
        assert [damage.moved for damage in store.damage] == [False]
        assert "stays where it is" in str(store.damage[0])


@pytest.mark.parametrize("table", ["runs", "attempts"])
def test_what_another_version_wrote_is_named_and_left_alone(folder: Path, table: str):
    identifier, text = (RUN, '{"id": "x"}') if table == "runs" else ("bb", '{"novelty": 1}')
    connection = sqlite3.connect(folder / "runs.sqlite")
    with connection:
        connection.execute(
            f"update {table} set record = ?, checksum = ? where id = ?", (text, checksum(text), identifier)
        )
    for _ in range(2):
        with SqlStore(folder, create=False) as store:
            assert [row.id for row in store.attempts(RUN)] == (["aa", "bb", "cc"] if table == "runs" else ["aa", "cc"])
            assert len(store.runs()) == (table != "runs")
            assert ["another version" in str(damage) for damage in store.damage] == [True]
            assert [slot.attempt for slot in store.slots(RUN)] == ["aa", "bb", "cc"]


@pytest.mark.parametrize("damage", ["a page", "the head", "cut off"])
def test_a_broken_file_is_one_clear_error(folder: Path, damage: str):
    path = folder / "runs.sqlite"
    data = bytearray(path.read_bytes())
    if damage == "a page":
        for page in range(1, len(data) // 4096):
            data[page * 4096 : page * 4096 + 512] = b"\xff" * 512
    elif damage == "the head":
        data[:100] = b"\0" * 100
    else:
        del data[5000:]
    path.write_bytes(data)
    with pytest.raises(StoreError, match="--rebuild"), SqlStore(folder, create=False) as store:
        store.runs()
        store.attempts(RUN)
