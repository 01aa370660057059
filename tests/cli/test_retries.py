"""`harness run --retries`: what is run again, what is shown, and what decides. Without an engine, every attempt aborts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.attempt import AttemptPlan
from harness.cli.view import describe_retried
from harness.outcome import Ending
from tests.groups import record, task

ROOT = Path(__file__).resolve().parents[2]
HELLO = ROOT / "examples" / "tasks" / "hello"


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from harness.cli import main; main()", "run", str(HELLO), *arguments]
    environ = {**os.environ, "DOCKER_HOST": f"unix://{folder}/no-engine.sock"}
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=environ)


@pytest.mark.parametrize(
    ("options", "per_slot"), [((), 2), (("--retries", "0"), 1), (("--retries", "2"), 3)], ids=["default", "0", "2"]
)
def test_an_aborted_attempt_is_run_again_and_counts_once(tmp_path: Path, options: tuple[str, ...], per_slot: int):
    ran = run(tmp_path, "-n", "2", "--json", *options)
    assert ran.returncode == 1, ran.stderr
    document = json.loads(ran.stdout)
    rows = document["attempts"]
    assert len(rows) == 2 * per_slot
    assert {(row["ending"], row["cause"], row["reward"]) for row in rows} == {("ABORTED", "SandboxUnavailable", None)}
    assert sum(row["retry_of"] is None for row in rows) == 2
    assert {row["retry_of"] for row in rows if row["retry_of"]} <= {row["id"] for row in rows}
    assert document["summary"]["attempts"] == 2, "in the numbers an attempt counts once"
    assert ran.stderr.count("run again as") == 2 * (per_slot - 1)
    assert "[2/2]" in ran.stderr
    assert "[3/2]" not in ran.stderr


def test_the_configuration_says_how_often_and_the_option_wins(tmp_path: Path):
    (tmp_path / "harness.toml").write_text("retries = 0\n")
    assert len(json.loads(run(tmp_path, "--json").stdout)["attempts"]) == 1
    assert len(json.loads(run(tmp_path, "--json", "--retries", "1").stdout)["attempts"]) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [("retries = -1", "retries: must be at least 0, not -1"), ("retries = true", "must be a whole number, not true")],
)
def test_a_bad_number_of_retries_is_refused_in_one_line(tmp_path: Path, content: str, message: str):
    (tmp_path / "harness.toml").write_text(f"{content}\n")
    ran = run(tmp_path)
    assert ran.returncode == 2
    assert message in ran.stderr
    assert "Traceback" not in ran.stderr
    assert run(tmp_path, "--retries", "-1").returncode == 2


def test_a_failure_of_our_own_code_is_reported_loudly_when_it_is_run_again():
    failed = record(Ending.HARNESS_FAILED).model_copy(update={"detail": "ZeroDivisionError in phase grading: ours"})
    retry = AttemptPlan(id="again", run="r", task=task("t"), index=0, folder=Path("/t"))
    line = describe_retried(failed, retry)
    assert line.startswith("error: ")
    assert "ZeroDivisionError" in line
    assert "The harness itself failed (/t/agent.log); one fresh retry: again" in line
