"""The ports of agents and graders, and what they are given."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from harness.outcome import Grade, Integrity
from harness.ports.sandbox import OutputSink, Sandbox
from harness.task.model import Step, Task


@dataclass(frozen=True, slots=True)
class AgentContext:
    """What an agent gets for one step.

    workdir, user: where and as whom its commands run; None: the image's user.
    log: appends to the attempt's agent log, bounded.
    """

    task: Task
    step: Step
    sandbox: Sandbox
    workdir: str
    user: str | None
    log: OutputSink


class Agent(Protocol):
    """Drives the policy against the sandbox."""

    @property
    def name(self) -> str: ...

    @property
    def uses_policy(self) -> bool:
        """Whether it must reach a model: an agent that does and made no call didn't run."""
        ...

    async def setup(self, context: AgentContext) -> None:
        """Install what it needs. Once per attempt, before the first step."""
        ...

    async def run(self, context: AgentContext) -> None:
        """Work on the step. Cancelled when the agent's deadline passes."""
        ...


@runtime_checkable
class Abortable(Protocol):
    """An agent that also runs something which cancelling it doesn't end: a process elsewhere, generation on a server."""

    async def abort(self) -> None:
        """End it, for all attempts at once; they are being cancelled at the same time. Must be quick: it is cut off after a while."""
        ...


@dataclass(frozen=True, slots=True)
class GradeRequest:
    """What a grader gets for one step.

    sandbox: the agent's; the grader stops, restarts or leaves it, as the task's integrity says.
    workdir: the agent's, absolute. grader_workdir: where the tests run.
    open_sandbox: a fresh, started sandbox of the grader's image, for a role (``grader``, ``control``).
    folder: where the step's artifacts are kept, on the host.
    log: appends to the attempt's grader log, bounded.
    """

    task: Task
    step: Step
    sandbox: Sandbox
    workdir: str
    grader_workdir: str
    open_sandbox: Callable[[str], AbstractAsyncContextManager[Sandbox]]
    folder: Path
    log: OutputSink

    @property
    def integrity(self) -> Integrity:
        """The tier of this step."""
        return tier(self.task, self.step)


def tier(task: Task, step: Step) -> Integrity:
    """The integrity tier of a step: its own where it declares one, else the task's."""
    return step.integrity or task.integrity


class Grader(Protocol):
    """Turns a finished sandbox into reward components."""

    async def collect(self, request: GradeRequest) -> None:
        """End what must not run on, and keep the artifacts. What isn't there isn't kept."""
        ...

    async def grade(self, request: GradeRequest) -> Grade:
        """Run the grader. A failure of the grader is a `Grade` with status failed, never a reward.

        Raises EngineError only for what failed before anything of the agent's entered the grader's sandbox.
        """
        ...
