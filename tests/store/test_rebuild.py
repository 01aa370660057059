"""A database made anew from the files beside it says what the old one said."""

from pathlib import Path

import pytest

from harness.errors import ConfigError, RunHeld, StoreError
from harness.lock import own_run
from harness.store.rebuild import rebuild
from harness.store.sql import SqlStore

from .records import RUN, a_run, an_attempt, slots


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run of three slots: one was retried, one has a grade of 0, one has no verdict."""
    with SqlStore(tmp_path) as store:
        owned = store.begin(a_run(tmp_path), slots(3))
        owned.save_attempts([an_attempt(tmp_path, "aa", None), an_attempt(tmp_path, "cc", 0.0, index=1)])
        owned.save_attempts([an_attempt(tmp_path, "bb", 1.0, retry_of="aa")])
    return tmp_path


def said(folder: Path) -> tuple[object, ...]:
    with SqlStore(folder, create=False) as store:
        return store.runs(), store.attempts(RUN), store.slots(RUN), store.damage


@pytest.mark.parametrize("damage", ["broken", "gone", "older"])
def test_the_new_database_says_what_the_old_one_said(folder: Path, damage: str):
    before = said(folder)
    database = folder / "runs.sqlite"
    if damage == "broken":
        database.write_bytes(b"junk" * 2000)
        with pytest.raises(StoreError, match="--rebuild"):
            SqlStore(folder)
    elif damage == "gone":
        database.unlink()
    done = rebuild(folder)
    assert (done.runs, done.attempts, done.problems) == (1, 3, ())
    assert said(folder) == before
    assert (done.kept_as is not None) == (damage != "gone")
    assert done.kept_as is None or done.kept_as.exists()


def test_a_rebuilt_run_goes_on(folder: Path):
    rebuild(folder)
    with SqlStore(folder) as store:
        store.take(RUN).save_attempts([an_attempt(folder, "dd", 0.5, index=2)])
        assert [slot.attempt for slot in store.slots(RUN)] == ["bb", "cc", "dd"]


def test_what_has_no_sound_file_is_named_and_left_out(folder: Path):
    (result,) = folder.glob("*/*-cc/result.json")
    result.write_text(result.read_text()[:-20])
    (folder / "other").mkdir()
    (folder / "other" / "run.json").write_text("{}")
    done = rebuild(folder)
    assert (done.runs, done.attempts) == (1, 2)
    assert [name in problem for name, problem in zip(["-cc", "other"], done.problems, strict=True)] == [True, True]
    with SqlStore(folder) as store:
        assert [slot.attempt for slot in store.slots(RUN)] == ["bb", None, None]


def test_a_run_that_goes_on_keeps_its_database(folder: Path):
    before = said(folder)
    with own_run(folder / RUN), pytest.raises(RunHeld, match="going on"):
        rebuild(folder)
    assert said(folder) == before


def test_a_folder_without_runs_is_one_clear_error(tmp_path: Path):
    with pytest.raises(ConfigError, match="nothing to make a database from"):
        rebuild(tmp_path)
