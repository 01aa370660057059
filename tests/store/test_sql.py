"""The store: what was committed is read back as it was, by any unique prefix, also by another process."""

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from harness.errors import ConfigError, StoreError
from harness.store.sql import SqlStore

from .records import RUN, a_run, an_attempt, slots


@pytest.mark.parametrize("reward", [None, 0.0, 1.0])
def test_a_verdict_is_read_back_as_it_was(tmp_path: Path, reward: float | None):
    record = an_attempt(tmp_path, reward=reward)
    with SqlStore(tmp_path) as store:
        store.begin(a_run(tmp_path), slots()).save_attempts([record])
    with SqlStore(tmp_path, create=False) as store:
        assert store.attempt("abc") == record
        assert store.attempts(RUN) == [record]
        assert store.runs() == [a_run(tmp_path)]
        assert store.run("2026") == a_run(tmp_path)
        assert store.damage == ()
    assert json.loads((record.folder / "result.json").read_text())["reward"] == reward


def test_ungraded_is_null_in_the_database_and_zero_is_zero(tmp_path: Path):
    with SqlStore(tmp_path) as store:
        owned = store.begin(a_run(tmp_path), slots(2))
        owned.save_attempts([an_attempt(tmp_path, "aa", None), an_attempt(tmp_path, "bb", 0.0, index=1)])
    rows = sqlite3.connect(tmp_path / "runs.sqlite").execute("select id, reward from attempts order by id").fetchall()
    assert rows == [("aa", None), ("bb", 0.0)]


def test_saving_again_replaces_the_row(tmp_path: Path):
    record = an_attempt(tmp_path)
    with SqlStore(tmp_path) as store:
        owned = store.begin(a_run(tmp_path), slots())
        owned.save_attempts([record])
        owned.save_attempts([record.model_copy(update={"finished_at": 9.0})])
        assert store.attempt(record.id).finished_at == 9.0
        assert len(store.attempts(record.run)) == 1


@pytest.mark.parametrize(("prefix", "message"), [("zz", "no attempt"), ("a", "several"), ("%", "no attempt")])
def test_an_id_that_names_none_or_several_is_one_clear_error(tmp_path: Path, prefix: str, message: str):
    with SqlStore(tmp_path) as store:
        owned = store.begin(a_run(tmp_path), slots(2))
        owned.save_attempts([an_attempt(tmp_path, "aa"), an_attempt(tmp_path, "ab", index=1)])
        with pytest.raises(ConfigError, match=message):
            store.attempt(prefix)


def test_an_id_that_others_begin_with_names_its_own(tmp_path: Path):
    with SqlStore(tmp_path) as store:
        owned = store.begin(a_run(tmp_path), slots(5))
        owned.save_attempts([an_attempt(tmp_path, f"a{'b' * length}", index=length) for length in range(5)])
        assert store.attempt("abb").id == "abb"


def test_a_folder_without_runs_is_one_clear_error(tmp_path: Path):
    with pytest.raises(ConfigError, match="holds no runs"):
        SqlStore(tmp_path / "none", create=False)


def test_a_folder_that_cant_be_made_is_one_clear_error(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="runs folder"):
        SqlStore(tmp_path / "file" / "runs")


@pytest.mark.parametrize("create", [True, False])
def test_a_file_that_is_no_database_is_one_clear_error(tmp_path: Path, create: bool):
    (tmp_path / "runs.sqlite").write_bytes(b"junk" * 2000)
    with pytest.raises(StoreError, match=r"not a database.*--rebuild"):
        SqlStore(tmp_path, create=create)


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("version", ["1", "999", "soup"])
def test_a_database_of_another_version_is_one_clear_error(tmp_path: Path, version: str, create: bool):
    SqlStore(tmp_path).__exit__(None, None, None)
    with sqlite3.connect(tmp_path / "runs.sqlite") as connection:
        connection.execute("update meta set value = ?", (version,))
    with pytest.raises(StoreError, match="another version"):
        SqlStore(tmp_path, create=create)


def test_a_database_from_before_versions_is_one_clear_error(tmp_path: Path):
    with sqlite3.connect(tmp_path / "runs.sqlite") as connection:
        connection.execute("create table runs (id text)")
    with pytest.raises(StoreError, match="another version"):
        SqlStore(tmp_path)


def test_processes_that_open_a_new_folder_at_the_same_time_all_can(tmp_path: Path):
    code = f"from pathlib import Path; from harness.store.sql import SqlStore; SqlStore(Path({str(tmp_path)!r}))"
    processes = [subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE) for _ in range(6)]
    assert [process.communicate()[1].decode() for process in processes] == [""] * 6
    with SqlStore(tmp_path, create=False) as store:
        assert store.runs() == []
