"""What the sandboxes of an attempt are to be."""

from __future__ import annotations

from dataclasses import dataclass

from harness.outcome import Integrity
from harness.ports import Labels, SandboxSpec, tier
from harness.task.image import ResolvedImage
from harness.task.model import Step, Task

_UNLIMITED_S = 24 * 3600.0
_LEASE_MARGIN_S = 3600.0


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose sandbox it is."""

    run: str
    attempt: str


def _labels(owner: Owner, task: Task, role: str) -> Labels:
    """The lease covers every step's agent, and its grader three times (the grading, a regrade and a control)."""
    spans = [(step.agent.timeout_s or _UNLIMITED_S) + 3 * step.grader.timeout_s for step in task.steps]
    return Labels(run=owner.run, attempt=owner.attempt, role=role, lease_s=sum(spans) + _LEASE_MARGIN_S)


def agent_spec(owner: Owner, task: Task, image: ResolvedImage) -> SandboxSpec:
    """The sandbox that the agent works in. Tiers that grade in it get the toolbox."""
    environment = task.environment
    return SandboxSpec(
        image=image,
        labels=_labels(owner, task, "agent"),
        env=environment.env,
        workdir=environment.workdir,
        network=task.steps[0].agent.network or environment.network,
        resources=environment.resources,
        security=environment.security,
        toolbox=any(tier(task, step) is not Integrity.PRISTINE for step in task.steps),
    )


def grader_spec(owner: Owner, task: Task, step: Step, image: ResolvedImage, role: str) -> SandboxSpec:
    """A fresh sandbox for grading: the grader's own environment where the task has one, else the task's."""
    environment = step.grader.environment or task.environment
    return SandboxSpec(
        image=image,
        labels=_labels(owner, task, role),
        env=environment.env,
        workdir=environment.workdir,
        network=step.grader.network or environment.network,
        resources=environment.resources,
        security=environment.security,
    )
