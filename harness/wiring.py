"""Where ports meet their adapters: the only place that knows them all."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Generator, Iterable, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from ipaddress import IPv4Network
from pathlib import Path

import anyio

from harness.attempt import AttemptPlan, Workshop
from harness.config import RunConfig, TimeoutsConfig, TrustHost
from harness.errors import ConfigError, ContextError, UsageError
from harness.graders.script import ScriptGrader
from harness.images.build import default_cache
from harness.images.mapping import ImageMap
from harness.images.resolve import ImageResolver, check_build
from harness.images.sweep import images_in_use
from harness.planning import PlannedSlot
from harness.ports import Agent
from harness.record import RunRecord, new_attempt_id
from harness.sandbox.docker.address import EngineAddress, address_from_environment
from harness.sandbox.docker.engine import DockerEngine
from harness.sandbox.docker.network import DockerNetworking, NetworkOptions
from harness.sandbox.docker.witness import watch_engine
from harness.slots import attempt_folder
from harness.space import DiskReserve
from harness.specs import image_requests
from harness.store.ledger import Ledger
from harness.store.owned import OwnedRun
from harness.task.discover import Loaded, find_tasks, load_tasks
from harness.task.image import DockerfileBuild
from harness.task.model import Environment, Step, Task


def engine_address(config: RunConfig) -> EngineAddress:
    """Where the engine listens. Raises UnsupportedError for what can't be used."""
    return address_from_environment(host=config.engine.host)


@asynccontextmanager
async def open_engine(config: RunConfig) -> AsyncGenerator[DockerEngine]:
    """The engine that the configuration names. Opening it asks it nothing."""
    ranges = tuple(IPv4Network(entry) for entry in config.network.reachable)
    networking = partial(DockerNetworking, options=NetworkOptions(reachable=ranges))
    async with DockerEngine(engine_address(config), networking=networking) as engine:
        yield engine


@contextmanager
def open_images(config: RunConfig, engine: DockerEngine) -> Generator[ImageResolver]:
    """The images of a run: the engine's, under the configuration's map and trust. Until it is closed, none is swept away."""
    trusted = config.images.trust_host_certificates is not TrustHost.NEVER
    cache = default_cache()
    with images_in_use(cache):
        image_map = ImageMap(config.images.map)
        yield ImageResolver(engine, image_map=image_map, certificates=None if trusted else (), cache=cache)


@asynccontextmanager
async def open_workshop(config: RunConfig, agent: Agent, owned: OwnedRun) -> AsyncGenerator[Workshop]:
    """What the attempts of a run work with, on the Docker engine. Their verdicts go to ``owned``."""
    async with open_engine(config) as engine, watch_engine(engine) as witness:
        with open_images(config, engine) as images:
            yield Workshop(
                engine=engine,
                images=images,
                agent=agent,
                grader=ScriptGrader(),
                place=anyio.CapacityLimiter(config.concurrency or os.cpu_count() or 1),
                commit=Ledger(owned).commit,
                admit=DiskReserve(config.runs_dir, config.disk_reserve).check,
                witness=witness,
            )


def load(config: RunConfig) -> Loaded:
    """The tasks that the configuration names, with its timeouts. A bad task, or a bad build context, is a failure beside the others.

    Raises ConfigError when it names none.
    """
    if not config.paths:
        raise ConfigError("no task was named. Give the path of a task, or set paths in the configuration file")
    loaded = load_tasks(find_tasks(*config.paths), limits=config.context_limits())
    sound: list[Task] = []
    failures = list(loaded.failures)
    passed_over: dict[Path, list[Path]] = {}
    for task in loaded.tasks:
        try:
            for request in image_requests(task):
                if isinstance(request.source, DockerfileBuild):
                    context, _ = check_build(request.source)
                    if context.passed_over is not None:
                        passed_over.setdefault(task.root, []).append(context.passed_over)
        except ContextError as error:
            failures.append((task.path, error))
        else:
            sound.append(with_timeouts(task, config.timeouts))
    warnings = [_ignore_files(root, files) for root, files in passed_over.items()]
    return Loaded(tuple(sound), tuple(failures), tuple(warnings))


def _ignore_files(root: Path, files: Sequence[Path]) -> str:
    """What to say where a benchmark's root and folders of its tasks both say what stays out of images."""
    names = [os.path.relpath(file, root) for file in dict.fromkeys(files)]
    named = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return (
        f"{root / '.dockerignore'} decides what stays out of images; {named} below it: not read. Move its lines there"
    )


def load_again(config: RunConfig) -> Loaded:
    """As `load`, for a run that goes on: a path where no task is any more is a failure beside the others."""
    there: list[Path] = []
    gone: list[tuple[Path, UsageError]] = []
    for path in config.paths:
        try:
            find_tasks(path)
        except UsageError as error:
            gone.append((path, error))
        else:
            there.append(path)
    if not there:
        return Loaded((), tuple(gone))
    loaded = load(config.model_copy(update={"paths": there}))
    return Loaded(loaded.tasks, (*gone, *loaded.failures), loaded.warnings)


def plan_attempts(run: RunRecord, ready: Iterable[tuple[PlannedSlot, Task]]) -> tuple[AttemptPlan, ...]:
    """A new attempt for each slot. Where a slot has a verdict already, it is a retry of the attempt that has it."""
    plans: list[AttemptPlan] = []
    for slot, task in ready:
        identifier = new_attempt_id()
        folder = attempt_folder(run.folder, task, slot.index, identifier)
        plan = AttemptPlan(id=identifier, run=run.id, task=task, index=slot.index, folder=folder, retry_of=slot.attempt)
        plans.append(plan)
    return tuple(plans)


def with_timeouts(task: Task, factors: TimeoutsConfig) -> Task:
    """The task with the deadlines of its agent, its grader and its builds multiplied."""

    def built(environment: Environment) -> Environment:
        image = environment.image
        if isinstance(image, DockerfileBuild):
            image = image.model_copy(update={"timeout_s": image.timeout_s * factors.build})
        return environment.model_copy(update={"image": image})

    def scaled(step: Step) -> Step:
        agent = step.agent
        if agent.timeout_s is not None:
            agent = agent.model_copy(update={"timeout_s": agent.timeout_s * factors.agent})
        own = step.grader.environment
        changes = {"timeout_s": step.grader.timeout_s * factors.grader, "environment": own and built(own)}
        grader = step.grader.model_copy(update=changes)
        return step.model_copy(update={"agent": agent, "grader": grader})

    steps = tuple(scaled(step) for step in task.steps)
    return task.model_copy(update={"environment": built(task.environment), "steps": steps})
