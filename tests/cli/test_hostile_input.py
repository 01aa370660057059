"""Whatever is typed, and wherever the output goes: one message, a fitting exit status, no traceback, no control of the terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.agents.registry import make_agent
from harness.cli.text import printable
from harness.errors import ConfigError
from harness.store.database import DATABASE
from harness.store.sql import SqlStore
from harness.task.template import create_task

COMMAND = [sys.executable, "-c", "from harness.cli import main; main()"]


def shell(script: str, cwd: Path) -> subprocess.CompletedProcess[bytes]:
    """Run a line of shell in which ``$H`` is the program."""
    line = f'H() {{ "{sys.executable}" -c "from harness.cli import main; main()" "$@"; }}; {script}'
    return subprocess.run(["bash", "-c", line], cwd=cwd, capture_output=True, check=False, timeout=60)


@pytest.mark.parametrize("words", [["show"], ["runs"], ["report"], ["run"], ["init"], ["run", "x", "--runs-dir"]])
def test_an_argument_that_is_no_text(tmp_path: Path, words: list[str]):
    done = subprocess.run([*COMMAND, *words, b"\xff"], cwd=tmp_path, capture_output=True, check=False)
    assert (done.returncode, b"Traceback" in done.stderr) == (2, False), done.stderr
    assert rb"\udcff" in done.stderr


def test_a_task_whose_folder_is_no_text_is_named_and_keeps_no_sibling_from_loading(tmp_path: Path):
    create_task(tmp_path / "tasks" / "good")
    create_task(tmp_path / "tasks" / "bad").rename(tmp_path / "tasks" / "bad\udcff")
    done = shell("DOCKER_HOST=unix:///nowhere H run tasks --json", tmp_path)
    assert done.returncode == 2
    assert b"isn't valid UTF-8. Rename the folder" in done.stderr
    assert b"Traceback" not in done.stderr
    assert b'"task": "good"' in done.stdout


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("H --help >&-", 0),
        ("H runs --runs-dir . >&- 2>&-", 2),
        ("H --help >/dev/full", 1),
        ("H init new-task <&- >&- 2>&-", 0),
    ],
)
def test_output_that_leads_nowhere(tmp_path: Path, script: str, status: int):
    done = shell(script, tmp_path)
    assert done.returncode == status
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr


def test_a_full_disk_behind_the_output_is_said(tmp_path: Path):
    assert (
        shell("H --help >/dev/full", tmp_path).stderr
        == b"error: the output can't be written: No space left on device\n"
    )


@pytest.mark.parametrize("words", ["run x", "runs", "doctor", "init x"])
def test_a_working_directory_that_is_gone(tmp_path: Path, words: str):
    done = shell(f"mkdir gone; cd gone; rmdir ../gone; H {words}", tmp_path)
    assert (done.returncode, b"Traceback" in done.stderr) == (2, False), done.stderr


@pytest.mark.parametrize("option", ["-n", "--concurrency"])
def test_a_number_beyond_reason_is_refused_at_once(tmp_path: Path, option: str):
    done = shell(f"H run . {option} 100000000", tmp_path)
    assert done.returncode == 2
    assert b"range" in done.stderr


def test_an_agent_without_a_name_is_not_the_default_one(tmp_path: Path):
    create_task(tmp_path / "t")
    done = shell("H run t --agent ''", tmp_path)
    assert done.returncode == 2
    assert b"no agent is called ''" in done.stderr


@pytest.mark.parametrize("name", ["/dev/zero", "pipe", "large", "folder"])
def test_a_script_that_never_ends_is_refused(tmp_path: Path, name: str):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").touch()
    os.truncate(tmp_path / "large", 2**40)
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError, match=r"regular file|larger than"):
        make_agent(f"scripted:{tmp_path / name}")


@pytest.mark.parametrize("name", ["a?b", "a#b", "a%20b", "a b", ":memory:", "a\nb"])
def test_the_database_lies_in_the_runs_folder_whatever_its_name(tmp_path: Path, name: str):
    with SqlStore(tmp_path / name):
        pass
    assert (tmp_path / name / DATABASE).is_file()
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_nothing_printed_moves_the_cursor_or_turns_the_text():
    assert printable("a\x1b[2J\r\x9b\u202eb\udcff\tc\nd") == "a\\x1b[2J\\r\\x9b\\u202eb\\udcff\tc\nd"
