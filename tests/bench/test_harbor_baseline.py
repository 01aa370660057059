"""Harbor itself is not run here; a stand-in writes what Harbor 0.26 writes."""

import json
import os
import sys
from pathlib import Path

import pytest

from bench.harbor_baseline import Harbor
from bench.harbor_environment import SetupError, find_docker

RESULT = {
    "started_at": "2026-11-29T23:45:16.500000Z",
    "finished_at": "2026-11-29T23:45:30.000000Z",
    "environment_setup": {"started_at": "2026-11-29T23:45:16.500000Z", "finished_at": "2026-11-29T23:45:18.000000Z"},
    "agent_setup": {"started_at": "2026-11-29T23:45:18.000000Z", "finished_at": "2026-11-29T23:45:18.000000Z"},
    "agent_execution": {"started_at": "2026-11-29T23:45:18.000000Z", "finished_at": "2026-11-29T23:45:18.500000Z"},
    "verifier": {"started_at": "2026-11-29T23:45:19.000000Z", "finished_at": "2026-11-29T23:45:19.750000Z"},
    "verifier_result": {"rewards": {"reward": 1.0}},
}
STAND_IN = f"""#!{sys.executable}
import json, os, pathlib, shutil, sys
options = dict(zip(sys.argv[2::2], sys.argv[3::2]))
task = pathlib.Path(options["--path"])
compose = task / "environment" / "docker-compose.yaml"
plugin = pathlib.Path(os.environ["DOCKER_CONFIG"], "cli-plugins", "docker-compose")
print(task.name, shutil.which("docker"), plugin.exists(), os.environ["HARBOR_TELEMETRY"])
results = json.loads(pathlib.Path(__file__).with_name("results.json").read_text())
for number, result in enumerate(results):
    folder = pathlib.Path(options["--jobs-dir"], "job", f"trial-{{number}}")
    folder.mkdir(parents=True)
    result["config"] = compose.read_text() if compose.exists() else None
    (folder / "result.json").write_text(json.dumps(result))
"""


@pytest.fixture
def task(tmp_path: Path) -> Path:
    folder = tmp_path / "hello"
    (folder / "environment").mkdir(parents=True)
    (folder / "task.toml").write_text("")
    return folder


def stand_in(tmp_path: Path, results: list[object]) -> Harbor:
    folder = tmp_path / "venv" / "bin"
    folder.mkdir(parents=True)
    for name, content in (("harbor", STAND_IN), ("docker-compose", ""), ("docker", "")):
        (folder / name).write_text(content)
        (folder / name).chmod(0o755)
    (folder / "results.json").write_text(json.dumps(results))
    return Harbor(path=folder.parent, docker=folder / "docker")


def test_phases_and_rewards_are_medians_over_trials(tmp_path: Path, task: Path):
    slower = json.loads(json.dumps(RESULT))
    slower["finished_at"] = "2026-11-29T23:45:32.000000Z"
    slower["verifier_result"] = None
    row = stand_in(tmp_path, [RESULT, slower]).run(task, trials=2, tuned=False)
    assert row.rewards == (1.0, None)
    assert row.phases_s == {
        "environment": 1.5,
        "agent_setup": 0.0,
        "agent_run": 0.5,
        "collect": 0.5,
        "grading": 0.75,
        "teardown": 11.25,
        "trial": 14.5,
    }
    assert row.trials_per_s == pytest.approx(2 / row.usage.wall_s)


def test_a_trial_that_died_early_has_the_phases_that_it_reached(tmp_path: Path, task: Path):
    died = {name: RESULT[name] for name in ("started_at", "finished_at", "environment_setup")}
    row = stand_in(tmp_path, [died]).run(task)
    assert row.phases_s == {"environment": 1.5, "trial": 13.5}
    assert row.rewards == (None,)


def test_tuning_leaves_the_task_alone_and_keeps_its_name(tmp_path: Path, task: Path):
    row = stand_in(tmp_path, [RESULT]).run(task, tuned=True)
    assert row.usage.output.split()[0] == "hello"
    assert str(task) not in row.usage.command
    assert list((task / "environment").iterdir()) == []


def test_tuning_never_replaces_a_compose_file(tmp_path: Path, task: Path):
    (task / "environment" / "docker-compose.yaml").write_text("services: {}\n")
    with pytest.raises(SetupError, match=r"docker-compose\.yaml exists already"):
        stand_in(tmp_path, [RESULT]).run(task, tuned=True)


def test_harbor_gets_the_chosen_docker_and_the_plugin_and_calls_nobody(tmp_path: Path, task: Path):
    name, docker, plugin, telemetry = stand_in(tmp_path, [RESULT]).run(task).usage.output.split()
    assert (name, plugin, telemetry) == ("hello", "True", "0")
    assert docker.startswith("/") and not Path(docker).exists()  # the link was for this command only


def test_a_missing_result_is_an_error_that_shows_the_output(tmp_path: Path, task: Path):
    with pytest.raises(SetupError, match=r"1 of 2 results:\nhello"):
        stand_in(tmp_path, [RESULT]).run(task, trials=2)


def test_no_task(tmp_path: Path):
    with pytest.raises(SetupError, match=r"no task\.toml"):
        stand_in(tmp_path, []).run(tmp_path)


def docker_cli(folder: Path, script: str) -> Path:
    folder.mkdir()
    path = folder / "docker"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_the_docker_of_the_engines_version_is_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    broken = docker_cli(tmp_path / "broken", "exit 1")
    newer = docker_cli(tmp_path / "newer", "echo 29.0.0 20.10.24")
    same = docker_cli(tmp_path / "same", "echo 20.10.24 20.10.24")
    monkeypatch.setenv("PATH", os.pathsep.join(str(path.parent) for path in (broken, newer, same)))
    assert find_docker() == same
    monkeypatch.setenv("PATH", os.pathsep.join(str(path.parent) for path in (broken, newer)))
    assert find_docker() == newer
    monkeypatch.setenv("PATH", str(broken.parent))
    with pytest.raises(SetupError, match="no docker CLI"):
        find_docker()
