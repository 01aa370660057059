"""What a run leaves behind when it is stopped or killed, in whichever phase: no sandbox, and every verdict that stood."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import COMMAND, EXAMPLES, Ran

pytestmark = pytest.mark.engine

PATIENCE_S = 60.0


def containers(run: str) -> list[str]:
    listing = ["/usr/bin/docker", "ps", "--all", "--quiet", "--filter", f"label=harness.run={run}"]
    return subprocess.run(listing, capture_output=True, text=True, check=True).stdout.split()


class Running:
    """A run in a process of its own, watched through its phase stamps."""

    def __init__(self, tmp_path: Path, *arguments: str) -> None:
        self.runs = tmp_path / "runs"
        words = [*COMMAND, "run", *arguments, "--runs-dir", str(self.runs)]
        # Where the tests run under nohup, the run would be under it too.
        words = ["/usr/bin/env", "--default-signal=HUP", *words]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def wait_for(self, phase: str) -> None:
        """Until the phase has begun in some attempt."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            for path in self.runs.glob("*/*/phases.jsonl"):
                if any(f'"phase": "{phase}"' in line for line in path.read_text().splitlines()):
                    return
            assert self.process.poll() is None, self.process.communicate()
            time.sleep(0.002)
        raise AssertionError(f"{phase} never began")

    @property
    def id(self) -> str:
        return next(path.name for path in self.runs.iterdir() if path.is_dir())


@pytest.mark.parametrize("phase", ["image", "sandbox", "agent_setup", "agent_run", "collect", "grading", "teardown"])
def test_a_killed_run_leaves_no_container_after_gc_and_its_stamps_show_where_it_died(
    tmp_path: Path, harness: Callable[..., Ran], phase: str
):
    running = Running(tmp_path, str(EXAMPLES / "hello"))
    running.wait_for(phase)
    running.process.kill()
    running.process.communicate()
    identifier = running.id
    assert harness("gc").status == 0
    assert containers(identifier) == []
    stamps = next(running.runs.glob("*/*/phases.jsonl")).read_text().splitlines()
    assert phase in {json.loads(line)["phase"] for line in stamps}
    listed = harness("runs", identifier, "--json", runs_dir=running.runs)
    assert listed.status == 0
    if phase == "teardown":
        assert [row["reward"] for row in json.loads(listed.stdout)] == [1.0]


def test_the_next_run_removes_what_a_killed_one_left(tmp_path: Path, harness: Callable[..., Ran]):
    script = tmp_path / "script"
    script.write_text("sleep 987\n")
    running = Running(tmp_path, str(EXAMPLES / "hello"), "--agent", f"scripted:{script}")
    running.wait_for("agent_run")
    running.process.kill()
    running.process.communicate()
    assert containers(running.id)
    assert harness("run", EXAMPLES / "hello", runs_dir=tmp_path / "other").status == 0
    assert containers(running.id) == []


def test_gc_takes_nothing_from_a_run_that_goes_on(tmp_path: Path, harness: Callable[..., Ran]):
    script = tmp_path / "script"
    script.write_text("sleep 987\n")
    running = Running(tmp_path, str(EXAMPLES / "hello"), "--agent", f"scripted:{script}")
    running.wait_for("agent_run")
    collected = harness("gc", "--run", running.id)
    assert collected.status == 1
    assert "its run still goes on" in collected.stderr
    assert containers(running.id)
    running.process.kill()
    running.process.communicate()
    assert harness("gc", "--run", running.id).status == 0
    assert containers(running.id) == []


@pytest.mark.parametrize(
    ("signals", "status"),
    [
        ([signal.SIGINT], 130),
        ([signal.SIGINT] * 4, 130),
        ([signal.SIGTERM], 143),
        ([signal.SIGHUP, signal.SIGTERM], 129),
    ],
    ids=["one Ctrl-C", "four Ctrl-C", "SIGTERM", "SIGHUP then SIGTERM"],
)
def test_a_signal_stops_the_run_cleanly_and_keeps_what_stood(
    tmp_path: Path, harness: Callable[..., Ran], signals: list[int], status: int
):
    script = tmp_path / "script"
    script.write_text("sleep 987\n")
    running = Running(
        tmp_path, str(EXAMPLES / "hello"), "--agent", f"scripted:{script}", "-n", "3", "--concurrency", "2"
    )
    running.wait_for("agent_run")
    for number in signals:
        os.kill(running.process.pid, number)
        time.sleep(0.05)
    stdout, stderr = running.process.communicate(timeout=PATIENCE_S)
    assert running.process.returncode == status
    assert "Traceback" not in stderr
    assert "stopping" in stderr
    assert "stopped by a signal" in stdout
    assert containers(running.id) == []
    rows = json.loads(harness("runs", running.id, "--json", runs_dir=running.runs).stdout)
    assert {row["ending"] for row in rows} == {"CANCELLED"}
    assert all(row["reward"] is None for row in rows)


def test_verdicts_that_stood_survive_a_signal(tmp_path: Path, harness: Callable[..., Ran]):
    running = Running(tmp_path, str(EXAMPLES / "hello"), "-n", "20", "--concurrency", "1")
    deadline = time.monotonic() + PATIENCE_S
    while not list(tmp_path.glob("runs/*/*/result.json")) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(running.process.pid, signal.SIGINT)
    running.process.communicate(timeout=PATIENCE_S)
    rows = json.loads(harness("runs", running.id, "--json", runs_dir=running.runs).stdout)
    assert rows[0]["reward"] == 1.0
    assert len(rows) < 20
    assert containers(running.id) == []
