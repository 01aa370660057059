"""One attempt: image, sandbox, agent, collection, grading, verdict.

Phases follow each other as `harness.phases` says and are stamped as they begin. Whatever happens in them becomes a
verdict here, and the verdict is committed before the sandboxes are removed.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.lowlevel
import structlog

from harness.agent_run import AgentRun
from harness.archive import Folder, pack
from harness.canary import Canaries
from harness.concurrency import find
from harness.diagnostic import Diagnostic, diagnose
from harness.errors import BuildFailed, EngineError, StartFailed, UsageError
from harness.evidence import BlindWitness, Gateway, NoGateway, Witness
from harness.faults import Failed, classify
from harness.grading import Stands, StepGrading
from harness.inquest import Inquest, Place
from harness.logfile import LogFile
from harness.outcome import (
    Attribution,
    Ending,
    Grade,
    GradingStatus,
    InfraAbort,
    Integrity,
    Verdict,
    settle,
)
from harness.phases import Phase, PhaseClock, PhaseListener
from harness.ports import Agent, AgentContext, Engine, Grader, GradeRequest, Images, Sandbox, SandboxSpec, tier
from harness.prepare import StepPreparation, first_healthchecks
from harness.record import AttemptRecord, BuildFailure, StepRecord
from harness.sandboxes import Opening, Sandboxes, open_sandboxes
from harness.space import room_for
from harness.specs import Owner, agent_image, agent_spec, find_image, grader_image, grader_spec
from harness.steps import combine, reaches
from harness.task.image import ResolvedImage
from harness.task.model import Step, Task
from harness.task.places import LOG_FOLDERS

_log = structlog.get_logger()
_LOG_FOLDERS = tuple(Folder(path, 0o777) for path in LOG_FOLDERS)


@dataclass(frozen=True, slots=True)
class AttemptPlan:
    """Which attempt this is, and where its files go."""

    id: str
    run: str
    task: Task
    index: int
    folder: Path
    retry_of: str | None = None
    group: str | None = None


@dataclass(frozen=True, slots=True)
class Workshop:
    """What every attempt of a run works with.

    place: how many attempts run at the same time.
    commit: keeps a record durably; called when the verdict stands, and again when everything is cleaned up.
    witness, canaries: what is asked when something has failed. gateway: what it recorded of the attempts' model calls.
    admit: called before an attempt starts; raises StartRefused when the host has no room for it.
    """

    engine: Engine
    images: Images
    agent: Agent
    grader: Grader
    place: anyio.CapacityLimiter
    commit: Callable[[AttemptRecord], Awaitable[None]]
    witness: Witness = field(default_factory=BlindWitness)
    gateway: Gateway = field(default_factory=NoGateway)
    canaries: Canaries = field(default_factory=Canaries)
    admit: Callable[[], None] = lambda: None


async def run_attempt(plan: AttemptPlan, workshop: Workshop, listener: PhaseListener | None = None) -> AttemptRecord:
    """Run one attempt to its verdict. A cancelled attempt is recorded as such.

    Raises nothing but cancellation, StoreError where its record can't be kept, and, before anything of it has begun, StartRefused.
    """
    clock = PhaseClock(plan.folder / "phases.jsonl", listener)
    with room_for(plan.folder, workshop.admit):
        plan.folder.mkdir(parents=True)
    with clock.phase(Phase.QUEUE):
        await workshop.place.acquire()
    try:
        with room_for(plan.folder, workshop.admit):
            logs = LogFile(plan.folder / "agent.log"), LogFile(plan.folder / "grader.log")
        with logs[0] as agent_log, logs[1] as grader_log:
            attempt = _Attempt(plan, workshop, clock, agent_log, grader_log)
            async with open_sandboxes(workshop.engine) as sandboxes:
                await attempt.settle(sandboxes)
        record = attempt.record(finished_at=time.time())
        with anyio.CancelScope(shield=True):
            await workshop.commit(record)
        return record
    finally:
        workshop.place.release()


class _Attempt:
    """The state of one attempt while it runs."""

    def __init__(
        self, plan: AttemptPlan, workshop: Workshop, clock: PhaseClock, agent_log: LogFile, grader_log: LogFile
    ) -> None:
        self.plan = plan
        self.task = plan.task
        self.workshop = workshop
        self.clock = clock
        self.agent_log = agent_log
        self.grader_log = grader_log
        self.started_at = time.time()
        self.verdict: Verdict | None = None
        self.image: ResolvedImage | None = None
        self.grader_images: dict[str | None, ResolvedImage] = {}
        self.steps: list[StepRecord] = []
        self.notes: list[str] = []
        self.build_failure: BuildFailure | None = None
        self.sandbox_warnings: tuple[str, ...] = ()
        self.diagnostic: Diagnostic | None = None
        self.inquest = Inquest(plan.id, workshop.engine, workshop.witness, workshop.gateway, workshop.canaries)
        self.agent_run = AgentRun(plan.id, workshop.agent, workshop.gateway, self.inquest, agent_log, self.notes)

    # --- the verdict --------------------------------------------------------------------------------------------

    async def settle(self, sandboxes: Sandboxes) -> None:
        """Work through the phases, commit the verdict, remove the sandboxes."""
        try:
            self.verdict = await self._judged(sandboxes)
        except anyio.get_cancelled_exc_class():
            self.verdict = Verdict(ending=Ending.CANCELLED, detail=f"cancelled in phase {self.clock.current}")
            raise
        finally:
            self.sandbox_warnings = sandboxes.warnings
            with anyio.CancelScope(shield=True):
                await self.workshop.commit(self.record())
                with self.clock.phase(Phase.TEARDOWN):
                    await sandboxes.aclose()
                if self.verdict and self.verdict.ending is Ending.CANCELLED:
                    await self.workshop.commit(self.record(finished_at=time.time()))

    async def _judged(self, sandboxes: Sandboxes) -> Verdict:
        try:
            return await self._worked(sandboxes)
        except Exception as error:  # noqa: BLE001 - the attempt recorder: every failure becomes a verdict
            # Where the attempt is being cancelled, its sandbox may have gone first: what then fails is no failure.
            await anyio.lowlevel.checkpoint_if_cancelled()
            if (abort := find(error, InfraAbort)) is not None:
                if isinstance(abort.__cause__, BuildFailed):
                    self.build_failure = BuildFailure.of(abort.__cause__)
                await self.agent_run.save_trajectory()
                return Verdict(ending=Ending.ABORTED, cause=abort.cause, detail=_one_line(abort.detail))
            self.agent_log.note("".join(traceback.format_exception(error)))
            _log.error("attempt_failed_in_our_code", attempt=self.plan.id, phase=self.clock.current, error=repr(error))
            self.diagnostic = diagnose(error, agent_log=self.agent_log.path, grader_log=self.grader_log.path)
            detail = f"{type(error).__name__} in phase {self.clock.current}: {_one_line(str(error))}"
            return Verdict(ending=Ending.HARNESS_FAILED, detail=detail)

    def record(self, *, finished_at: float | None = None) -> AttemptRecord:
        """What is known by now. Needs a verdict."""
        assert self.verdict is not None
        grade = self.verdict.grade
        return AttemptRecord(
            id=self.plan.id,
            run=self.plan.run,
            benchmark=self.task.benchmark,
            task=self.task.name,
            task_digest=self.task.digest,
            task_path=self.task.path,
            agent=self.workshop.agent.name,
            index=self.plan.index,
            retry_of=self.plan.retry_of,
            group=self.plan.group,
            ending=self.verdict.ending,
            cause=self.verdict.cause,
            detail=self.verdict.detail,
            reward=self.verdict.reward,
            grading=self.verdict.grading,
            integrity=self.task.integrity,
            attribution=grade.attribution if grade else None,
            grade=grade,
            steps=tuple(self.steps) if len(self.task.steps) > 1 else (),
            image=self.image,
            build_failure=self.build_failure,
            warnings=self._warnings(),
            evidence=tuple(self.inquest.examinations),
            diagnostic=self.diagnostic,
            phases=self.clock.stamps,
            started_at=self.started_at,
            finished_at=finished_at,
            folder=self.plan.folder,
        )

    def _warnings(self) -> tuple[str, ...]:
        images = [image for image in (self.image, *self.grader_images.values()) if image is not None]
        return tuple(dict.fromkeys([*(said for image in images for said in image.warnings), *self.sandbox_warnings]))

    # --- the phases ---------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _before_the_start(self, phase: Phase) -> AsyncGenerator[None]:
        """A phase in which whatever fails on the host's side is infrastructure."""
        with self.clock.phase(phase):
            try:
                yield
            except Exception as error:
                if find(error, InfraAbort) is None and (known := _host_error(error)) is not None:
                    await self.inquest.enforce(classify(known), Place(phase), known)
                raise

    async def _worked(self, sandboxes: Sandboxes) -> Verdict:
        async with self._before_the_start(Phase.IMAGE):
            await self._find_images()
        assert self.image is not None
        spec = agent_spec(self._owner, self.task, self.image)
        async with self._before_the_start(Phase.SANDBOX):
            opening = sandboxes.begin(spec)
            sandbox = await opening.ready()
            await sandbox.put("/", pack(_LOG_FOLDERS))
        self.inquest.watch(sandbox, spec, keep_running=Integrity.LIVE in self._tiers())
        if self.task.environment.healthcheck or self.task.steps[0].healthcheck:
            async with self._before_the_start(Phase.HEALTHCHECK):
                await first_healthchecks(sandbox, self.task, workdir=self._workdir())
        async with self._before_the_start(Phase.AGENT_SETUP):
            await self.workshop.agent.setup(self._agent_context(sandbox, self.task.steps[0]))
        endings: list[Ending] = []
        for step in self.task.steps:
            ending, grade = await self._step(Stands(sandboxes), opening, sandbox, step)
            endings.append(ending)
            self.steps.append(StepRecord(name=step.name or "", ending=ending, grade=grade))
            if grade.status is not GradingStatus.GRADED or not reaches(grade, step.min_reward):
                break
        return self._concluded(endings)

    def _concluded(self, endings: list[Ending]) -> Verdict:
        grade = combine(self.steps, self.task.step_reward) if len(self.task.steps) > 1 else self.steps[0].grade
        assert grade is not None
        if grade.status is not GradingStatus.GRADED or grade.attribution is Attribution.POLICY:
            self.notes.insert(0, grade.message)
            endings.append(Ending.ERROR)
        return Verdict(ending=settle(*endings), detail=_one_line("; ".join(filter(None, self.notes))), grade=grade)

    async def _find_images(self) -> None:
        self.image = await find_image(self.workshop.images, agent_image(self.task))
        if Integrity.PRISTINE in self._tiers() and self.task.graded_artifacts is None and self._workdir() == "/":
            raise UsageError(
                f"{self.task.path}: the image's working directory is /, so there is nothing narrower to grade. "
                "Set WORKDIR in the Dockerfile, or name the files in [harness] artifacts"
            )
        for step in self.task.steps:
            if (request := grader_image(self.task, step)) is not None:
                self.grader_images[step.name] = await find_image(self.workshop.images, request)

    async def _step(self, stands: Stands, opening: Opening, sandbox: Sandbox, step: Step) -> tuple[Ending, Grade]:
        name = step.name
        folder = self.plan.folder / "artifacts" / (name or "")
        folder.mkdir(parents=True, exist_ok=True)
        (self.plan.folder / f"instruction{f'.{name}' if name else ''}.md").write_text(
            step.instruction, encoding="utf-8"
        )
        with self.clock.phase(Phase.AGENT_RUN, name):
            ready = await self._prepare_step(sandbox, step)
            context = self._agent_context(sandbox, step)
            ending = await self.agent_run.run(context) if ready else Ending.ENV_DONE
        request = self._grade_request(stands, sandbox, step, folder)
        grading = StepGrading(request, self.workshop.grader, self.inquest, opening)
        with self.clock.phase(Phase.COLLECT, name):
            if tier(self.task, step) is Integrity.PRISTINE:
                # It takes as long to start as the artifacts take to be read.
                stands.prestart(self._grader_spec(step, "grader"))
            await self.agent_run.collect_trajectory(step)
            grade = await grading.collect()
        with self.clock.phase(Phase.GRADING, name):
            grade = grade or await grading.grade()
        if grade.reward is not None and grade.attribution is None and not grade.runs:
            self.notes.append(grade.message)
        return ending, grade

    async def _prepare_step(self, sandbox: Sandbox, step: Step) -> bool:
        """False when a later step can't be prepared: the policy may have caused it, so the step is graded as it stands."""
        later = bool(self.steps)
        preparation = StepPreparation(sandbox, step, self._workdir(), later, self.agent_log.write)
        try:
            problem = await preparation.run()
        except EngineError as error:
            await self.inquest.enforce(classify(error), Place(Phase.AGENT_RUN, step.name, started=later), error)
            problem = f"step {step.name} could not be prepared: {error}"
        if problem is not None and not later:
            # Nothing but the task itself has been in this sandbox.
            place = Place(Phase.AGENT_RUN, step.name)
            await self.inquest.enforce(Failed.ENGINE_REFUSED, place, StartFailed(problem))
        if problem is not None:
            self.notes.append(problem)
        return problem is None

    # --- what the phases need ------------------------------------------------------------------------------------

    @property
    def _owner(self) -> Owner:
        return Owner(run=self.plan.run, attempt=self.plan.id)

    def _grader_spec(self, step: Step, role: str) -> SandboxSpec:
        image = self.grader_images.get(step.name, self.image)
        assert image is not None
        return grader_spec(self._owner, self.task, step, image, role)

    def _tiers(self) -> set[Integrity]:
        return {tier(self.task, step) for step in self.task.steps}

    def _workdir(self) -> str:
        assert self.image is not None
        return self.task.environment.workdir or self.image.workdir or "/"

    def _agent_context(self, sandbox: Sandbox, step: Step) -> AgentContext:
        return AgentContext(
            task=self.task,
            step=step,
            sandbox=sandbox,
            workdir=self._workdir(),
            user=step.agent.user,
            log=self.agent_log.write,
        )

    def _grade_request(self, stands: Stands, sandbox: Sandbox, step: Step, folder: Path) -> GradeRequest:
        grader_workdir = self._workdir()
        if (own := step.grader.environment) is not None:
            grader_workdir = own.workdir or self.grader_images[step.name].workdir or "/"

        def open_sandbox(role: str) -> AbstractAsyncContextManager[Sandbox]:
            return stands.open(self._grader_spec(step, role), fresh=role != "grader")

        return GradeRequest(
            task=self.task,
            step=step,
            sandbox=sandbox,
            workdir=self._workdir(),
            grader_workdir=grader_workdir,
            open_sandbox=open_sandbox,
            folder=folder,
            log=self.grader_log.write,
        )


def _host_error(error: Exception) -> EngineError | UsageError | None:
    return find(error, EngineError) or find(error, UsageError)


def _one_line(text: str, limit: int = 500) -> str:
    return " ".join(text.split())[:limit]
