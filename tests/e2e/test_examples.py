"""Every example is passed by its solution and failed by doing nothing."""

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from .conftest import EXAMPLES, ROOT, Ran

pytestmark = [pytest.mark.engine, pytest.mark.network]

NAMES = {path.parent.name for path in EXAMPLES.glob("*/task.toml")}


@pytest.mark.parametrize(("agent", "reward"), [("oracle", 1.0), ("nop", 0.0)])
def test_all_examples(harness: Callable[..., Ran], agent: str, reward: float):
    ran = harness("run", EXAMPLES, "--agent", agent, "--json")
    assert ran.rewards == dict.fromkeys(NAMES, reward), ran.stderr
    assert ran.status == 0
    schema = json.loads((ROOT / "docs" / "result.schema.json").read_text())
    for row in ran.document["attempts"]:
        assert row["grading"] == "graded"
        assert row["cause"] is None
        phases = [stamp["phase"] for stamp in row["phases"]]
        assert phases[:4] == ["queue", "image", "sandbox", "agent_setup"]
        assert phases[-2:] == ["grading", "teardown"]
        assert all(stamp["end_mono"] >= stamp["start_mono"] for stamp in row["phases"])
        result = json.loads((Path(row["folder"]) / "result.json").read_text())
        jsonschema.validate(result, schema)
        assert result == row


def test_an_attempt_is_shown_by_the_beginning_of_its_id(harness: Callable[..., Ran]):
    ran = harness("run", EXAMPLES / "hello", "--json")
    attempt = ran.document["attempts"][0]
    shown = harness("show", attempt["id"][:6])
    assert shown.status == 0
    for part in ("ENV_DONE", "reward", "agent_run", "grader.log", "result.json"):
        assert part in shown.stdout
    assert harness("show", attempt["id"], "--json").document == attempt
    listed = harness("runs")
    assert ran.document["run"]["id"] in listed.stdout
    assert attempt["id"] in harness("runs", ran.document["run"]["id"]).stdout


def test_a_run_is_reported_and_compared_later(harness: Callable[..., Ran], tmp_path: Path):
    first = harness("run", EXAMPLES / "hello", "-n", "2", "--json").document
    assert first["run"]["benchmarks"] == [{"benchmark": "examples", "n": 2, "tasks": 1}]
    assert first["summary"]["pass_at_k"] == {"1": 1.0, "2": 1.0}
    kept = json.loads((Path(first["run"]["folder"]) / "report.json").read_text())
    assert kept == harness("report", first["run"]["id"], "--json").document
    assert kept["metrics"] == {name: first["metrics"][name] for name in kept["metrics"]}
    page = tmp_path / "page.html"
    assert harness("report", first["run"]["id"], "--html", page).status == 0
    assert "<!doctype html>" in page.read_text()
    second = harness("run", EXAMPLES / "hello", "--agent", "nop", "--json").document
    compared = harness("compare", first["run"]["id"], second["run"]["id"], "--json").document
    assert (compared["mean_difference"], compared["losses"], compared["interval"]) == (-1.0, 1, None)
    unknown = harness("compare", first["run"]["id"], "nothing")
    assert unknown.status == 2
    assert unknown.stderr.count("\n") == 1


def test_a_new_task_passes_as_it_is(harness: Callable[..., Ran], tmp_path: Path):
    assert harness("init", "my-task").status == 0
    assert harness("run", tmp_path / "my-task", "--agent", "oracle", "--json").rewards == {"my-task": 1.0}
    assert harness("run", tmp_path / "my-task", "--agent", "nop", "--json").rewards == {"my-task": 0.0}
    again = harness("init", "my-task")
    assert again.status == 2
    assert "exists already" in again.stderr


def test_one_bad_task_never_cancels_its_siblings(harness: Callable[..., Ran], tmp_path: Path):
    for name in ("good", "broken", "unbuildable"):
        assert harness("init", name).status == 0
    (tmp_path / "broken" / "task.toml").write_text("[agent\n")
    (tmp_path / "unbuildable" / "environment" / "Dockerfile").write_text("FROM harness/base:bookworm\nRUN exit 7\n")
    ran = harness("run", tmp_path / "good", tmp_path / "broken", tmp_path / "unbuildable", "--json")
    assert ran.status == 2
    assert "broken/task.toml" in ran.stderr
    assert ran.rewards == {"good": 1.0, "unbuildable": None}
    aborted = next(row for row in ran.document["attempts"] if row["task"] == "unbuildable")
    assert (aborted["ending"], aborted["cause"]) == ("ABORTED", "SandboxUnavailable")
    assert "RUN exit 7" in aborted["detail"]
    assert ran.document["summary"]["mean_reward"] == 1.0
    assert ran.document["summary"]["ungraded_by_ending"] == {"ABORTED/SandboxUnavailable": 1}


def test_ungraded_is_exit_status_1(harness: Callable[..., Ran], tmp_path: Path):
    assert harness("init", "silent").status == 0
    (tmp_path / "silent" / "tests" / "test.sh").write_text("#!/bin/sh\nexit 0\n")
    ran = harness("run", tmp_path / "silent", "--json")
    assert ran.status == 1
    row = ran.document["attempts"][0]
    assert (row["ending"], row["reward"], row["grading"]) == ("ERROR", None, "failed")
    assert "—" in harness("run", tmp_path / "silent").stdout


def test_a_test_scripts_exit_status_is_recorded_and_doesnt_replace_its_result(
    harness: Callable[..., Ran], tmp_path: Path
):
    assert harness("init", "odd").status == 0
    (tmp_path / "odd" / "tests" / "test.sh").write_text("#!/bin/sh\necho 1 > /logs/verifier/reward.txt\nexit 7\n")
    ran = harness("run", tmp_path / "odd", "--json")
    row = ran.document["attempts"][0]
    assert row["reward"] == 1.0
    assert row["grade"]["runs"][0]["exit_status"] == 7


def test_an_unreachable_engine_is_named_with_its_remedy(harness: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    ran = harness("run", EXAMPLES / "hello", "--json")
    assert ran.status == 1
    row = ran.document["attempts"][0]
    assert (row["ending"], row["cause"], row["reward"]) == ("ABORTED", "SandboxUnavailable", None)
    assert "/nowhere/docker.sock" in row["detail"]
    doctor = harness("doctor")
    assert doctor.status == 1
    assert "unset DOCKER_HOST" in doctor.stdout
    assert "Traceback" not in ran.stderr + doctor.stderr
