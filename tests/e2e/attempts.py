"""Attempts on a real engine, inside of the test's own process: so that what stands between it and the engine can be broken."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from harness.agents.scripted import ScriptedAgent
from harness.attempt import AttemptPlan, Workshop, run_attempt
from harness.canary import Canaries
from harness.evidence import BlindWitness, Witness
from harness.graders.script import ScriptGrader
from harness.images.mapping import ImageMap
from harness.images.resolve import ImageResolver
from harness.outcome import Integrity
from harness.ports import Agent, AgentContext
from harness.record import AttemptRecord
from harness.sandbox.docker.engine import DockerEngine
from harness.task.image import BASE_IMAGE, ImageRef, ImageSource, ResolvedImage
from harness.task.model import AgentOptions, CollectCommand, Environment, GraderOptions, Resources, Step, Task

TEST = """#!/bin/sh
if [ "$(cat /app/answer 2>/dev/null)" = 42 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""
SOLVE = "echo 42 > /app/answer"


@dataclass
class Doing:
    """An agent that is a function."""

    work: Callable[[AgentContext], Awaitable[None]]
    name: str = "doing"
    uses_policy: bool = False

    async def setup(self, context: AgentContext) -> None:
        """Nothing to install."""

    async def run(self, context: AgentContext) -> None:
        await self.work(context)


@dataclass(frozen=True)
class PlainImages:
    """Images as they are found or pulled, with nothing built on top of them."""

    resolver: ImageResolver

    async def ensure(self, source: ImageSource) -> ResolvedImage:
        return await self.resolver.ensure(source)

    async def with_repositories(
        self,
        image: ResolvedImage,
        *,
        repositories: Sequence[str],
        users: Sequence[str | None],
        workdir: str | None = None,
    ) -> ResolvedImage:
        return image


@dataclass
class Attempts:
    """Makes attempts at one small task: ``/app/answer`` must hold 42."""

    engine: DockerEngine
    folder: Path
    witness: Witness = field(default_factory=BlindWitness)
    image: str = BASE_IMAGE
    canaries: Canaries = field(default_factory=Canaries)

    def __post_init__(self) -> None:
        tests = self.folder / "tests"
        tests.mkdir()
        (tests / "test.sh").write_text(TEST)

    def task(
        self,
        *,
        tier: Integrity = Integrity.PRISTINE,
        resources: Resources = Resources(),
        timeout_s: float = 60.0,
        collect: tuple[str, ...] = (),
    ) -> Task:
        commands = tuple(CollectCommand(command=command) for command in collect)
        grader = GraderOptions(timeout_s=30.0, tests=(self.folder / "tests",), collect=commands)
        step = Step(instruction="Do it.", agent=AgentOptions(timeout_s=timeout_s), grader=grader)
        environment = Environment(image=ImageRef(ref=self.image), workdir="/app", resources=resources)
        return Task(
            name="look-alike",
            path=self.folder,
            benchmark="evidence",
            root=self.folder,
            digest="sha256:0",
            environment=environment,
            steps=(step,),
            integrity=tier,
        )

    async def commands(self, name: str, *commands: str, task: Task | None = None) -> AttemptRecord:
        """An attempt whose agent runs these commands."""
        return await self.attempt(name, ScriptedAgent(commands), task=task)

    async def doing(
        self, name: str, work: Callable[[AgentContext], Awaitable[None]], *, task: Task | None = None
    ) -> AttemptRecord:
        """An attempt whose agent does this."""
        return await self.attempt(name, Doing(work), task=task)

    async def attempt(self, name: str, agent: Agent, *, task: Task | None = None) -> AttemptRecord:
        async def commit(_: AttemptRecord) -> None: ...

        workshop = Workshop(
            engine=self.engine,
            images=PlainImages(ImageResolver(self.engine, image_map=ImageMap({}), certificates=())),
            agent=agent,
            grader=ScriptGrader(),
            place=anyio.CapacityLimiter(1),
            commit=commit,
            witness=self.witness,
            canaries=self.canaries,
        )
        plan = AttemptPlan(
            id=name.replace(" ", "-")[:40], run="evidence", task=task or self.task(), index=0, folder=self.folder / name
        )
        return await run_attempt(plan, workshop)
