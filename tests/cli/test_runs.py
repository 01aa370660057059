"""`harness runs` and `harness cancel`: how runs stand, and what can't be read."""

from __future__ import annotations

import json
import shlex
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from harness.cli import cli
from harness.lock import own_run
from harness.record import RunState
from harness.store.sql import SqlStore
from tests.store.records import RUN, a_run, an_attempt, slots

Call = Callable[[str], Result]


@pytest.fixture
def call(tmp_path: Path) -> Call:
    def run(line: str) -> Result:
        return CliRunner().invoke(cli, [*shlex.split(line), "--runs-dir", str(tmp_path)], standalone_mode=False)

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run of two slots, one with a verdict; nobody works on it."""
    with SqlStore(tmp_path) as store:
        store.begin(a_run(tmp_path, attempts=2), slots(2)).save_attempts([an_attempt(tmp_path, "aa", 1.0)])
    return tmp_path


def state(call: Call) -> str:
    return json.loads(call("runs --json").output)[0]["state"]


def test_a_run_without_an_owner_or_an_ending_has_died(folder: Path, call: Call):
    assert state(call) == "died"
    assert "died" in call("runs").output
    said = call(f"cancel {RUN}").output
    assert "is not running: it died" in said


@pytest.mark.parametrize("ended", [RunState.FINISHED, RunState.CANCELLED, RunState.INCOMPLETE])
def test_how_a_run_ended_is_on_record(folder: Path, call: Call, ended: RunState):
    with SqlStore(folder) as store:
        store.take(RUN).save_run(a_run(folder).model_copy(update={"ended": ended}))
    assert state(call) == ended
    said = call(f"cancel {RUN}").output
    assert said == (
        f"run {RUN}: cancelled\n" if ended is RunState.CANCELLED else f"run {RUN} is not running: {ended}\n"
    )


def test_a_running_run_is_asked_to_stop_and_asking_again_changes_nothing(folder: Path, call: Call):
    with own_run(folder / RUN):
        assert state(call) == "running"
        for _ in range(2):
            assert json.loads(call(f"cancel {RUN[:14]} --json").output) == {"run": RUN, "state": "cancelling"}
        assert state(call) == "cancelling"


def test_a_request_that_came_too_late_doesnt_stop_the_next_owner(folder: Path, call: Call):
    with own_run(folder / RUN):
        call(f"cancel {RUN}")
    with SqlStore(folder) as store, own_run(folder / RUN):
        assert not store.take(RUN).cancel_requested()
        assert state(call) == "running"


def test_following_a_run_that_has_ended_tells_it_all_and_comes_back(folder: Path, call: Call):
    lines = call(f"runs {RUN} --follow").output.splitlines()
    assert len(lines) == 2
    assert "b/t#0: reward 1, ENV_DONE" in lines[0]
    assert lines[1] == f"run {RUN}: died"
    assert json.loads(call(f"runs {RUN} --follow --json").output)["id"] == "aa"


@pytest.mark.parametrize("line", [f"runs {RUN}", "runs", f"report {RUN}", f"runs {RUN} --follow"])
def test_a_row_that_cant_be_read_is_named_and_the_status_says_so(folder: Path, call: Call, line: str):
    (result,) = folder.glob("*/*-aa/result.json")
    result.unlink()
    with sqlite3.connect(folder / "runs.sqlite") as connection:
        connection.execute("update attempts set record = 'x'")
    done = call(line)
    assert done.return_value == 1
    assert "error: the row of attempt aa can't be read: its checksum is wrong" in done.stderr
    assert f"harness resume {RUN}" in done.stderr


@pytest.mark.parametrize("line", ["runs --follow", f"runs {RUN} --rebuild", "runs --rebuild --follow"])
def test_options_that_dont_go_together_are_bad_use(folder: Path, call: Call, line: str):
    assert "UsageError" in repr(call(line).exception)


def test_a_broken_database_is_made_anew(folder: Path, call: Call):
    (folder / "runs.sqlite").write_bytes(b"junk" * 2000)
    assert "--rebuild" in str(call("runs").exception)
    done = call("runs --rebuild --json")
    assert done.return_value == 0
    assert "1 runs with 1 attempts" in done.stderr
    assert json.loads(done.stdout)[0]["id"] == RUN
