"""Where ports meet their adapters: the only place that knows them all."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from ipaddress import IPv4Network

import anyio

from harness.attempt import AttemptPlan, Workshop
from harness.concurrency import in_thread
from harness.config import RunConfig, TimeoutsConfig, TrustHost
from harness.errors import ContextError
from harness.graders.script import ScriptGrader
from harness.images import ImageMap, ImageResolver
from harness.images.resolve import check_build
from harness.ports import Agent
from harness.record import AttemptRecord, RunRecord, new_attempt_id
from harness.sandbox.docker.address import parse_address
from harness.sandbox.docker.engine import DockerEngine
from harness.sandbox.docker.network import DockerNetworking, NetworkOptions
from harness.sandbox.docker.witness import watch_engine
from harness.specs import image_requests
from harness.store.sql import SqlStore
from harness.task.discover import Loaded, find_tasks, load_tasks
from harness.task.image import DockerfileBuild
from harness.task.model import Step, Task


@asynccontextmanager
async def open_engine(config: RunConfig) -> AsyncGenerator[DockerEngine]:
    """The engine that the configuration names. Opening it asks it nothing."""
    address = parse_address(config.engine.host) if config.engine.host else None
    ranges = tuple(IPv4Network(entry) for entry in config.network.reachable)
    networking = partial(DockerNetworking, options=NetworkOptions(reachable=ranges))
    async with DockerEngine(address, networking=networking) as engine:
        yield engine


def make_images(config: RunConfig, engine: DockerEngine) -> ImageResolver:
    """The images of a run: the engine's, under the configuration's map and trust."""
    trusted = config.images.trust_host_certificates is not TrustHost.NEVER
    return ImageResolver(engine, image_map=ImageMap(config.images.map), certificates=None if trusted else ())


@asynccontextmanager
async def open_workshop(config: RunConfig, agent: Agent, store: SqlStore) -> AsyncGenerator[Workshop]:
    """What the attempts of a run work with, on the Docker engine."""
    writer = anyio.CapacityLimiter(1)

    async def commit(record: AttemptRecord) -> None:
        await in_thread(store.save_attempt, record, limiter=writer)

    async with open_engine(config) as engine, watch_engine(engine) as witness:
        yield Workshop(
            engine=engine,
            images=make_images(config, engine),
            agent=agent,
            grader=ScriptGrader(),
            place=anyio.CapacityLimiter(config.concurrency or os.cpu_count() or 1),
            commit=commit,
            witness=witness,
        )


def load(config: RunConfig) -> Loaded:
    """The tasks that the configuration names. A bad task, or a bad build context, is a failure beside the others."""
    loaded = load_tasks(find_tasks(*config.paths), limits=config.context_limits())
    sound: list[Task] = []
    failures = list(loaded.failures)
    for task in loaded.tasks:
        try:
            for request in image_requests(task):
                if isinstance(request.source, DockerfileBuild):
                    check_build(request.source)
        except ContextError as error:
            failures.append((task.path, error))
        else:
            sound.append(task)
    return Loaded(tuple(sound), tuple(failures))


def plan_attempts(run: RunRecord, tasks: tuple[Task, ...], config: RunConfig) -> tuple[AttemptPlan, ...]:
    """Every attempt of a run: each task as often as its benchmark asks, the first of all tasks before the second of any."""
    wanted = [(index, task) for task in tasks for index in range(config.attempts_for(task.benchmark))]
    plans: list[AttemptPlan] = []
    for index, task in sorted(wanted, key=lambda pair: pair[0]):
        identifier = new_attempt_id()
        folder = run.folder / f"{task.path.name}-{index}-{identifier}"
        scaled = with_timeouts(task, config.timeouts)
        plans.append(AttemptPlan(id=identifier, run=run.id, task=scaled, index=index, folder=folder))
    return tuple(plans)


def with_timeouts(task: Task, factors: TimeoutsConfig) -> Task:
    """The task with its agent's and grader's deadlines multiplied."""

    def scaled(step: Step) -> Step:
        agent = step.agent
        if agent.timeout_s is not None:
            agent = agent.model_copy(update={"timeout_s": agent.timeout_s * factors.agent})
        grader = step.grader.model_copy(update={"timeout_s": step.grader.timeout_s * factors.grader})
        return step.model_copy(update={"agent": agent, "grader": grader})

    return task.model_copy(update={"steps": tuple(scaled(step) for step in task.steps)})
