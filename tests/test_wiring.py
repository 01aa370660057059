"""From a configuration to the tasks of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.config import RunConfig, TimeoutsConfig
from harness.errors import ConfigError
from harness.task.image import DockerfileBuild
from harness.task.load import load_task
from harness.wiring import load

HELLO = Path(__file__).resolve().parents[1] / "examples" / "tasks" / "hello"


def test_timeouts_are_factors_on_the_tasks_own() -> None:
    factors = TimeoutsConfig(agent=2.0, grader=3.0, build=4.0)
    (scaled,) = load(RunConfig.model_validate({"paths": [str(HELLO)], "timeouts": factors})).tasks
    task = load_task(HELLO)
    before, after = task.environment.image, scaled.environment.image
    assert isinstance(before, DockerfileBuild)
    assert isinstance(after, DockerfileBuild)
    assert after.timeout_s == 4 * before.timeout_s
    assert task.steps[0].agent.timeout_s is not None
    assert scaled.steps[0].agent.timeout_s == 2 * task.steps[0].agent.timeout_s
    assert scaled.steps[0].grader.timeout_s == 3 * task.steps[0].grader.timeout_s
    assert scaled.digest == task.digest


def test_no_task_named() -> None:
    with pytest.raises(ConfigError, match="no task was named"):
        load(RunConfig())
