"""The oracle on tasks that have no solution."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.agents.oracle import OracleAgent
from harness.errors import ConfigError
from harness.ports import AgentContext, Labels, SandboxSpec
from harness.sandbox.fake import FakeEngine
from harness.task.image import BASE_IMAGE, ResolvedImage
from harness.task.load import load_task
from harness.task.template import create_task


async def discard(_: bytes) -> None:
    pass


async def test_a_task_without_a_solution_is_refused_before_the_start(tmp_path: Path):
    folder = create_task(tmp_path / "mine")
    with_one = load_task(folder)
    without = with_one.model_copy(
        update={"steps": tuple(step.model_copy(update={"solution": None}) for step in with_one.steps)}
    )
    engine = FakeEngine()
    found = await engine.inspect_image(BASE_IMAGE)
    assert found is not None
    image = ResolvedImage(id=found.id, ref=BASE_IMAGE)
    spec = SandboxSpec(image=image, labels=Labels(run="r", attempt="a", role="agent", lease_s=60))
    async with engine.sandbox(spec) as sandbox:
        for task in (with_one, without):
            context = AgentContext(task=task, step=task.steps[0], sandbox=sandbox, workdir="/", user=None, log=discard)
            if task is with_one:
                await OracleAgent().setup(context)
            else:
                with pytest.raises(ConfigError, match="has no solution"):
                    await OracleAgent().setup(context)
