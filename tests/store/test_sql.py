"""The store: what was committed is read back as it was, by any unique prefix, also by another process."""

import json
import sqlite3
from pathlib import Path

import pytest

from harness.errors import ConfigError, StoreError
from harness.outcome import Ending, Grade, GradingStatus, Integrity
from harness.record import AttemptRecord, RunRecord
from harness.store.sql import SqlStore


def a_run(folder: Path, identifier: str = "20261129-120000-aaaa") -> RunRecord:
    return RunRecord(id=identifier, created_at=1.0, command=("harness",), agent="nop", attempts=1, folder=folder)


def an_attempt(folder: Path, identifier: str = "abcdef0123", reward: float | None = 0.0) -> AttemptRecord:
    folder.mkdir(parents=True, exist_ok=True)
    status = GradingStatus.NONE if reward is None else GradingStatus.GRADED
    grade = None if reward is None else Grade(status=status, reward=reward, integrity=Integrity.PRISTINE)
    return AttemptRecord(
        id=identifier,
        run="20261129-120000-aaaa",
        benchmark="b",
        task="t",
        task_digest="sha256:0",
        task_path=folder,
        agent="nop",
        index=0,
        ending=Ending.HARNESS_FAILED if reward is None else Ending.ENV_DONE,
        reward=reward,
        grading=status,
        integrity=Integrity.PRISTINE,
        grade=grade,
        started_at=1.0,
        folder=folder,
    )


@pytest.mark.parametrize("reward", [None, 0.0, 1.0])
def test_a_verdict_is_read_back_as_it_was(tmp_path: Path, reward: float | None):
    record = an_attempt(tmp_path / "a", reward=reward)
    with SqlStore(tmp_path) as store:
        store.save_run(a_run(tmp_path))
        store.save_attempt(record)
    with SqlStore(tmp_path, create=False) as store:
        assert store.attempt("abc") == record
        assert store.attempts(record.run) == [record]
        assert store.runs() == [a_run(tmp_path)]
    assert json.loads((tmp_path / "a" / "result.json").read_text())["reward"] == reward


def test_ungraded_is_null_in_the_database_and_zero_is_zero(tmp_path: Path):
    with SqlStore(tmp_path) as store:
        store.save_run(a_run(tmp_path))
        store.save_attempt(an_attempt(tmp_path / "a", "aa", reward=None))
        store.save_attempt(an_attempt(tmp_path / "b", "bb", reward=0.0))
    rows = sqlite3.connect(tmp_path / "runs.sqlite").execute("select id, reward from attempts order by id").fetchall()
    assert rows == [("aa", None), ("bb", 0.0)]


def test_saving_again_replaces_the_row(tmp_path: Path):
    record = an_attempt(tmp_path / "a")
    with SqlStore(tmp_path) as store:
        store.save_run(a_run(tmp_path))
        store.save_attempt(record)
        store.save_attempt(record.model_copy(update={"finished_at": 9.0}))
        assert store.attempt(record.id).finished_at == 9.0
        assert len(store.attempts(record.run)) == 1


@pytest.mark.parametrize(("prefix", "message"), [("zz", "no attempt"), ("a", "several"), ("%", "no attempt")])
def test_an_id_that_names_none_or_several_is_one_clear_error(tmp_path: Path, prefix: str, message: str):
    with SqlStore(tmp_path) as store:
        store.save_run(a_run(tmp_path))
        store.save_attempt(an_attempt(tmp_path / "a", "aa"))
        store.save_attempt(an_attempt(tmp_path / "b", "ab"))
        with pytest.raises(ConfigError, match=message):
            store.attempt(prefix)


def test_a_folder_without_runs_is_one_clear_error(tmp_path: Path):
    with pytest.raises(ConfigError, match="holds no runs"):
        SqlStore(tmp_path / "none", create=False)


def test_a_folder_that_cant_be_made_is_one_clear_error(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="runs folder"):
        SqlStore(tmp_path / "file" / "runs")


def test_a_file_that_is_no_database_is_one_clear_error(tmp_path: Path):
    (tmp_path / "runs.sqlite").write_bytes(b"junk" * 2000)
    with pytest.raises(StoreError, match="not a database"):
        SqlStore(tmp_path)
