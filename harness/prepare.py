"""Preparing a sandbox: its health checks, and what a later step of a task brings."""

from __future__ import annotations

from dataclasses import dataclass

from harness.archive import Tree, pack
from harness.healthcheck import wait_until_healthy
from harness.ports import Command, OutputSink, Sandbox
from harness.task.model import Step, Task


async def first_healthchecks(sandbox: Sandbox, task: Task, *, workdir: str) -> None:
    """The environment's check, then the first step's. Raises StartFailed when one doesn't pass in time."""
    for check in (task.environment.healthcheck, task.steps[0].healthcheck):
        if check is not None:
            await wait_until_healthy(sandbox, check, cwd=workdir)


@dataclass(frozen=True, slots=True)
class StepPreparation:
    """What a step needs before its agent works.

    later: whether a step came before it: the sandbox is then started again, if grading stopped it, and checked.
    """

    sandbox: Sandbox
    step: Step
    workdir: str
    later: bool
    log: OutputSink

    async def run(self) -> str | None:
        """Start again, copy the step's files, run its ``setup.sh``, check. Gives what went wrong in the sandbox; raises EngineError."""
        if self.later:
            await self.sandbox.start()
        if self.step.setup is not None:
            await self.sandbox.put("/", pack([Tree(self.step.setup, self.workdir, executable=("setup.sh",))]))
            if (self.step.setup / "setup.sh").exists():
                setup = Command(argv=["/bin/sh", "-c", "./setup.sh"], user=self.step.agent.user, cwd=self.workdir)
                result = await self.sandbox.exec(setup, self.log)
                if result.exit_status != 0:
                    return f"step {self.step.name}: setup.sh exited with status {result.exit_status}"
        if self.later and self.step.healthcheck is not None:
            await wait_until_healthy(self.sandbox, self.step.healthcheck, cwd=self.workdir)
        return None
