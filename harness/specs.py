"""What the images and the sandboxes of an attempt are to be."""

from __future__ import annotations

from dataclasses import dataclass

from harness.errors import BuildFailed
from harness.outcome import Integrity
from harness.ports import Images, Labels, SandboxSpec, tier
from harness.task.image import ImageSource, ResolvedImage
from harness.task.model import Step, Task

_UNLIMITED_S = 24 * 3600.0
_LEASE_MARGIN_S = 3600.0


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose sandbox it is."""

    run: str
    attempt: str


@dataclass(frozen=True, slots=True)
class ImageRequest:
    """An image that a task needs, and who runs git on which repositories in it. ``task``: the task's key, for people."""

    task: str
    source: ImageSource
    workdir: str | None = None
    repositories: tuple[str, ...] = ()
    users: tuple[str | None, ...] = (None,)


def agent_image(task: Task) -> ImageRequest:
    """The task's image. Agent and grader run git in it, each as its own user."""
    users = dict.fromkeys(user for step in task.steps for user in (step.agent.user, step.grader.user))
    repositories = tuple(repository.path for repository in task.repositories)
    return ImageRequest(task.key, task.environment.image, task.environment.workdir, repositories, tuple(users))


def grader_image(task: Task, step: Step) -> ImageRequest | None:
    """The image of a grader that has its own; None: the task's."""
    if step.grader.environment is None:
        return None
    repositories = tuple(repository.path for repository in task.repositories)
    environment = step.grader.environment
    return ImageRequest(task.key, environment.image, environment.workdir, repositories, (step.grader.user,))


async def find_image(images: Images, request: ImageRequest) -> ResolvedImage:
    """The image on the engine, with its repositories usable. A BuildFailed names the task."""
    try:
        image = await images.ensure(request.source)
        return await images.with_repositories(
            image, repositories=request.repositories, users=request.users, workdir=request.workdir
        )
    except BuildFailed as error:
        error.tasks = tuple(dict.fromkeys([*error.tasks, request.task]))
        raise


def image_requests(task: Task) -> tuple[ImageRequest, ...]:
    """Every image that a task needs, each once."""
    distinct: list[ImageRequest] = []
    for request in (agent_image(task), *(grader_image(task, step) for step in task.steps)):
        if request is not None and request not in distinct:
            distinct.append(request)
    return tuple(distinct)


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
        toolbox=tier(task, step) is not Integrity.PRISTINE,
    )
