"""A run in another process, killed, cancelled, doubled or out of room: what is on record stands, and resuming completes it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from .conftest import COMMAND, EXAMPLES, Ran
from .test_interrupts import PATIENCE_S, Running, containers

pytestmark = pytest.mark.engine

MIB = 1024**2


def rows(harness: Callable[..., Ran], running: Running) -> list[dict[str, object]]:
    return json.loads(harness("runs", running.id, "--json", runs_dir=running.runs).stdout)


@pytest.fixture
def sleeping(tmp_path: Path) -> Generator[Running]:
    """A run of two attempts, one after the other, whose agent sleeps."""
    script = tmp_path / "script"
    script.write_text("sleep 987\n")
    running = Running(
        tmp_path, str(EXAMPLES / "hello"), "--agent", f"scripted:{script}", "-n", "2", "--concurrency", "1"
    )
    running.wait_for("agent_run")
    yield running
    if running.process.poll() is None:
        running.process.terminate()
    running.process.communicate(timeout=PATIENCE_S)


@pytest.mark.parametrize("phase", ["queue", "sandbox", "agent_run", "collect", "grading", "teardown"])
def test_a_killed_run_is_whole_after_resuming_and_no_container_is_left(
    tmp_path: Path, harness: Callable[..., Ran], phase: str
):
    running = Running(tmp_path, str(EXAMPLES / "hello"), "-n", "2", "--concurrency", "1")
    running.wait_for(phase)
    running.process.kill()
    running.process.communicate()
    stood = rows(harness, running)
    (listed,) = json.loads(harness("runs", "--json", runs_dir=running.runs).stdout)
    assert listed["state"] == "died"
    resumed = harness("resume", running.id, "--json", runs_dir=running.runs)
    assert resumed.status == 0, resumed.stderr
    attempts = resumed.document["attempts"]
    assert [(row["index"], row["reward"]) for row in attempts] == [(0, 1.0), (1, 1.0)]
    assert all(row["id"] in [attempt["id"] for attempt in attempts] for row in stood)
    assert containers(running.id) == []
    (listed,) = json.loads(harness("runs", "--json", runs_dir=running.runs).stdout)
    assert listed["state"] == "finished"


def test_a_run_that_goes_on_refuses_a_second_owner_at_once_and_can_be_cancelled(
    harness: Callable[..., Ran], sleeping: Running
):
    identifier = sleeping.id
    began = time.monotonic()
    second = harness("resume", identifier, runs_dir=sleeping.runs)
    assert second.status == 2
    assert f"owned by process {sleeping.process.pid} on " in second.stderr
    assert (
        time.monotonic() - began < 10
    )  # within a second in tests/durability; here the interpreter starts, on a machine that may be busy

    following = subprocess.Popen(
        [
            "/usr/bin/env",
            "--default-signal=INT",
            *COMMAND,
            "runs",
            identifier,
            "--follow",
            "--runs-dir",
            str(sleeping.runs),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    (listed,) = json.loads(harness("runs", "--json", runs_dir=sleeping.runs).stdout)
    assert listed["state"] == "running"
    following.send_signal(signal.SIGINT)
    following.communicate(timeout=PATIENCE_S)
    assert following.returncode in (130, -signal.SIGINT)
    assert sleeping.process.poll() is None, "who only watches stops nothing"

    first = harness("cancel", identifier[:15], "--json", runs_dir=sleeping.runs)
    assert json.loads(first.stdout) == {"run": identifier, "state": "cancelling"}
    waited = harness("cancel", identifier, "--wait", runs_dir=sleeping.runs)
    assert waited.stdout == f"run {identifier}: cancelled\n"
    assert harness("cancel", identifier, runs_dir=sleeping.runs).stdout == waited.stdout
    stdout, stderr = sleeping.process.communicate(timeout=PATIENCE_S)
    assert sleeping.process.returncode == 1
    assert "cancelled by `harness cancel`" in stderr
    assert f"harness resume {identifier}" in stdout
    assert containers(identifier) == []
    assert [row["ending"] for row in rows(harness, sleeping)] == ["CANCELLED"]


def test_cancelling_a_run_that_isnt_running_says_so(tmp_path: Path, harness: Callable[..., Ran]):
    running = Running(tmp_path, str(EXAMPLES / "hello"))
    running.process.communicate(timeout=PATIENCE_S)
    done = harness("cancel", running.id, "--wait", runs_dir=running.runs)
    assert (done.status, done.stdout) == (0, f"run {running.id} is not running: finished\n")


def test_a_killed_runs_cancel_says_that_it_died_and_what_to_do(harness: Callable[..., Ran], sleeping: Running):
    sleeping.process.kill()
    sleeping.process.communicate()
    done = harness("cancel", sleeping.id, runs_dir=sleeping.runs)
    assert done.status == 0
    assert all(part in done.stdout for part in ("it died", str(sleeping.process.pid), "harness resume", "harness gc"))
    assert harness("gc").status == 0
    assert containers(sleeping.id) == []


def test_tasks_are_found_where_they_were_moved_and_those_that_changed_are_named(
    tmp_path: Path, harness: Callable[..., Ran]
):
    tasks = tmp_path / "tasks"
    for name in ("stays", "changes"):
        shutil.copytree(EXAMPLES / "hello", tasks / name)
        (tasks / name / "note").write_text(name)  # equal tasks would be found in each other's place
    running = Running(tmp_path, str(tasks))
    running.wait_for("queue")
    running.process.kill()
    running.process.communicate()
    tasks.rename(tmp_path / "moved")
    (tmp_path / "moved" / "changes" / "instruction.md").write_text("Do something else.\n")

    gone = harness("resume", running.id, runs_dir=running.runs)
    assert gone.status == 2
    assert gone.stderr.count("it is gone") == 2
    resumed = harness("resume", running.id, tmp_path / "moved", "--json", runs_dir=running.runs)
    assert resumed.status == 2
    assert "changes has changed since the run began" in resumed.stderr
    assert resumed.rewards == {"stays": 1.0}


def test_another_script_is_another_agent(tmp_path: Path, harness: Callable[..., Ran], sleeping: Running):
    sleeping.process.kill()
    sleeping.process.communicate()
    (tmp_path / "script").write_text("true\n")
    resumed = harness("resume", sleeping.id, runs_dir=sleeping.runs)
    assert resumed.status == 2
    assert "has changed since the run began, and one run has one agent" in resumed.stderr


@pytest.fixture
def small_disk(tmp_path: Path) -> Generator[Path]:
    """A file system of 8 MiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system takes root")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)], check=True)
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill(disk: Path, leave_bytes: int = 0) -> Path:
    """A file that takes what the disk has left, up to some bytes."""
    state = os.statvfs(disk)
    ballast = disk / "ballast"
    try:
        with ballast.open("wb", buffering=0) as file:
            file.write(b"x" * max(state.f_bavail * state.f_frsize - leave_bytes, 0))
            while leave_bytes == 0:
                file.write(b"x" * 512)
    except OSError:
        pass
    return ballast


def test_a_disk_that_fills_up_refuses_starts_and_keeps_results_readable(
    tmp_path: Path, harness: Callable[..., Ran], small_disk: Path
):
    config = tmp_path / "harness.toml"
    config.write_text('disk_reserve = "4M"\n')
    runs = small_disk / "runs"
    run = [*COMMAND, "run", str(EXAMPLES / "hello"), "-n", "3", "--concurrency", "1", "--runs-dir", str(runs)]
    process = subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    deadline = time.monotonic() + PATIENCE_S
    while not list(runs.glob("*/*/result.json")) and time.monotonic() < deadline:
        time.sleep(0.005)
    ballast = fill(small_disk, leave_bytes=2 * MIB)
    _, stderr = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert "not started" in stderr
    assert "the reserve is 4 MiB" in stderr
    assert "Traceback" not in stderr

    refused = harness("run", EXAMPLES / "hello", runs_dir=runs)
    assert refused.status == 1
    assert "the reserve is 4 MiB" in refused.stderr

    ballast.unlink()
    fill(small_disk)
    listed = harness("runs", "--json", runs_dir=runs)
    assert listed.status == 0, listed.stderr
    (run_record,) = json.loads(listed.stdout)
    assert run_record["state"] == "incomplete"
    kept = json.loads(harness("runs", run_record["id"], "--json", runs_dir=runs).stdout)
    assert kept
    assert {row["reward"] for row in kept} == {1.0}

    ballast.unlink()
    resumed = harness("resume", run_record["id"], "--json", runs_dir=runs)
    assert resumed.status == 0, resumed.stderr
    assert [row["reward"] for row in resumed.document["attempts"]] == [1.0] * 3
    assert {row["id"] for row in kept} <= {row["id"] for row in resumed.document["attempts"]}


def test_a_disk_that_is_full_in_the_middle_ends_the_run_with_one_clear_error(
    tmp_path: Path, harness: Callable[..., Ran], small_disk: Path
):
    (tmp_path / "harness.toml").write_text("disk_reserve = 0\n")
    runs = small_disk / "runs"
    run = [*COMMAND, "run", str(EXAMPLES / "hello"), "-n", "40", "--concurrency", "1", "--runs-dir", str(runs)]
    process = subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    deadline = time.monotonic() + PATIENCE_S
    while not list(runs.glob("*/*/result.json")) and time.monotonic() < deadline:
        time.sleep(0.005)
    ballast = fill(small_disk)
    _, stderr = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert "Traceback" not in stderr, stderr
    listed = harness("runs", "--json", runs_dir=runs)
    assert listed.status == 0, listed.stderr
    (run_record,) = json.loads(listed.stdout)
    assert containers(run_record["id"]) == []
    kept = json.loads(harness("runs", run_record["id"], "--json", runs_dir=runs).stdout)
    assert {row["reward"] for row in kept if row["ending"] == "ENV_DONE"} == {1.0}
    ballast.unlink()
    resumed = harness("resume", run_record["id"], "--ungraded", "--json", runs_dir=runs)
    assert resumed.status == 0, resumed.stderr
    assert resumed.document["summary"]["graded"] == 40
