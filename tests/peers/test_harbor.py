"""Harbor beside us, in an environment of its own: its templates load, and tasks get the reward that it gives them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bench.harbor_baseline import Harbor
from bench.harbor_environment import ensure, find_docker
from harness.task.load import load_task

pytestmark = [pytest.mark.harbor, pytest.mark.network]

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "tasks"


@pytest.fixture(scope="session")
def harbor() -> Path:
    """Harbor's environment, made once (a minute)."""
    return ensure(ROOT / ".cache" / "harbor-0.26.0")


def test_harbors_templates_load(harbor: Path, tmp_path: Path):
    templates = sorted(path.parent for path in harbor.glob("lib/python*/site-packages/harbor/**/task.toml"))
    assert templates
    for number, template in enumerate(templates):
        folder = tmp_path / f"task-{number}"
        shutil.copytree(template, folder)
        config = folder / "task.toml"
        # They are templates: what is left open in them is filled in first.
        config.write_text(config.read_text().replace("{{ADAPTER_ID}}__{task_id}", "adapter__1"))
        instruction = folder / "instruction.md"
        instruction.write_text((instruction.read_text() if instruction.exists() else "") + "\nDo it.\n")
        task = load_task(folder)
        assert task.warnings == ()
        assert not task.integrity_declared


def our_rewards(task: Path, agent: str, runs: Path) -> list[float | None]:
    command = [
        sys.executable,
        "-c",
        "from harness.cli import main; main()",
        "run",
        str(task),
        "--agent",
        agent,
        "--json",
    ]
    done = subprocess.run([*command, "--runs-dir", str(runs)], capture_output=True, text=True, check=False)
    return [row["reward"] for row in json.loads(done.stdout)["attempts"]]


@pytest.mark.engine
@pytest.mark.parametrize("agent", ["oracle", "nop"])
@pytest.mark.parametrize("name", ["hello", "two-step"])
def test_our_examples_get_the_same_reward_from_harbor(harbor: Path, tmp_path: Path, name: str, agent: str):
    theirs = Harbor(path=harbor, docker=find_docker()).run(EXAMPLES / name, agent=agent)
    assert our_rewards(EXAMPLES / name, agent, tmp_path) == list(theirs.rewards)


TEST = """#!/bin/bash
[ -e /tmp/done ] && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt
"""


@pytest.fixture(params=[0, 2], ids=["one step", "two steps"])
def scaffold(request: pytest.FixtureRequest, harbor: Path, tmp_path: Path) -> Path:
    """A task that Harbor's own command made, with what it leaves open filled in, on our base image."""
    command = [
        harbor / "bin" / "harbor",
        "init",
        "them/their-task",
        "--task",
        "--verifier-mode",
        "shared",
        "--no-pytest",
    ]
    subprocess.run([*command, "--steps", str(request.param)], cwd=tmp_path, check=True, stdin=subprocess.DEVNULL)
    made = next(path.parent for path in tmp_path.rglob("task.toml"))
    for path in made.rglob("*"):
        match path.name:
            case "Dockerfile":
                path.write_text("FROM harness/base:bookworm\nWORKDIR /app\n")
            case "instruction.md":
                path.write_text("Do it.\n")
            case "test.sh":
                path.write_text(TEST)
            case "solve.sh":
                path.write_text("#!/bin/bash\ntouch /tmp/done\n")
            case _:
                pass
    return made


@pytest.mark.engine
@pytest.mark.parametrize("agent", ["oracle", "nop"])
def test_a_task_made_by_harbors_own_command_gets_the_same_reward(
    harbor: Path, scaffold: Path, tmp_path: Path, agent: str
):
    theirs = Harbor(path=harbor, docker=find_docker()).run(scaffold, agent=agent)
    assert theirs.rewards == (1.0 if agent == "oracle" else 0.0,)
    assert our_rewards(scaffold, agent, tmp_path / "runs") == list(theirs.rewards)
