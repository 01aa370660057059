"""SIGKILL wherever a run persists something, in every phase: nothing acknowledged is lost, nothing is scored twice, nothing is missing."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.cli import text
from harness.phases import Phase

ROOT = Path(__file__).parents[2]


def points(folder: Path, what: str, tasks: int, n: int) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "tests.durability.kill_points", str(folder), what, str(tasks), str(n)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(("what", "tasks", "n"), [("run", 2, 1), ("resume", 1, 2)])
def test_a_run_that_is_killed_anywhere_is_whole_after_resuming(tmp_path: Path, what: str, tasks: int, n: int):
    found = points(tmp_path, what, tasks, n)
    for killed in found:
        before, after = killed["before"], killed["after"]
        if not before["run"]:
            assert what == "run"
            assert killed["phases"] == [], "an attempt began of a run that isn't on record"
            continue
        assert killed["resumed"] == 0, killed
        assert before["state"] in ("died", "finished")
        assert after["state"] == "finished"
        assert after["damage"] == []
        rewards = {attempt: reward for attempt, _, reward in after["attempts"]}
        assert len(set(after["slots"])) == tasks * n, "every slot has a verdict of its own"
        assert sorted(rewards) == sorted(after["slots"]), "and there is no other one"
        for attempt, index, reward in before["attempts"]:
            assert [attempt, index, reward] in after["attempts"], "a verdict that stood still stands"
        for attempt, printed in killed["acknowledged"]:
            assert text.reward(rewards[attempt]) == printed, "what a person was shown is on record"
    kinds = {killed["point"].split()[1] for killed in found}
    assert kinds >= {"begin", "statement", "commit", "after", "open", "os.mkdir", "os.rename", "fcntl.flock"}
    phases = {phase for killed in found for phase in killed["phases"]}
    assert phases >= {phase for phase in Phase if phase is not Phase.HEALTHCHECK}
    assert any(killed["acknowledged"] for killed in found)
    assert len(found) > 60
