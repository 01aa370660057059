"""One attempt: image, sandbox, agent, collection, grading, verdict.

Phases follow each other as `harness.phases` says and are stamped as they begin. Whatever happens in them becomes a
verdict here, and the verdict is committed before the sandboxes are removed.
"""

from __future__ import annotations

import math
import shutil
import time
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.lowlevel
import structlog

from harness.archive import Folder, Tree, pack
from harness.concurrency import find
from harness.errors import (
    BuildFailed,
    CapExceeded,
    EngineError,
    EngineUnreachable,
    SandboxGone,
    StartRefused,
    UsageError,
)
from harness.healthcheck import wait_until_healthy
from harness.logfile import LogFile
from harness.outcome import (
    Attribution,
    Cause,
    Ending,
    Grade,
    GradingStatus,
    InfraAbort,
    Integrity,
    Verdict,
    settle,
)
from harness.phases import Phase, PhaseClock, PhaseListener
from harness.ports import (
    Agent,
    AgentContext,
    Command,
    Engine,
    Grader,
    GradeRequest,
    Images,
    Sandbox,
    SandboxSpec,
    tier,
)
from harness.record import AttemptRecord, BuildFailure, StepRecord
from harness.sandboxes import Opening, Sandboxes, open_sandboxes
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
    admit: called before an attempt starts; raises StartRefused when the host has no room for it.
    """

    engine: Engine
    images: Images
    agent: Agent
    grader: Grader
    place: anyio.CapacityLimiter
    commit: Callable[[AttemptRecord], Awaitable[None]]
    admit: Callable[[], None] = lambda: None


async def run_attempt(plan: AttemptPlan, workshop: Workshop, listener: PhaseListener | None = None) -> AttemptRecord:
    """Run one attempt to its verdict. A cancelled attempt is recorded as such.

    Raises nothing but cancellation, StoreError where its record can't be kept, and, before anything of it has begun, StartRefused.
    """
    clock = PhaseClock(plan.folder / "phases.jsonl", listener)
    with _room_for(plan, workshop):
        plan.folder.mkdir(parents=True)
    with clock.phase(Phase.QUEUE):
        await workshop.place.acquire()
    try:
        with _room_for(plan, workshop):
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


@contextmanager
def _room_for(plan: AttemptPlan, workshop: Workshop) -> Generator[None]:
    """There is room for an attempt when the workshop says so and its files can be made. One that is refused leaves nothing."""
    made = plan.folder.exists()
    try:
        workshop.admit()
        yield
    except (OSError, StartRefused) as error:
        if made:
            shutil.rmtree(plan.folder, ignore_errors=True)
        if isinstance(error, StartRefused):
            raise
        raise StartRefused(f"{plan.folder}: {error.strerror}") from error


@contextmanager
def _infrastructure(cause: Cause) -> Generator[None]:
    """Before the start, whatever fails on the host's side is infrastructure."""
    try:
        yield
    except (EngineError, UsageError) as error:
        raise InfraAbort(cause, str(error)) from error


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
        self.prestarted: Opening | None = None

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
                return Verdict(ending=Ending.ABORTED, cause=abort.cause, detail=_one_line(abort.detail))
            self.agent_log.note("".join(traceback.format_exception(error)))
            _log.error("attempt_failed_in_our_code", attempt=self.plan.id, phase=self.clock.current, error=repr(error))
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
            phases=self.clock.stamps,
            started_at=self.started_at,
            finished_at=finished_at,
            folder=self.plan.folder,
        )

    def _warnings(self) -> tuple[str, ...]:
        images = [image for image in (self.image, *self.grader_images.values()) if image is not None]
        return tuple(dict.fromkeys([*(said for image in images for said in image.warnings), *self.sandbox_warnings]))

    # --- the phases ---------------------------------------------------------------------------------------------

    async def _worked(self, sandboxes: Sandboxes) -> Verdict:
        with self.clock.phase(Phase.IMAGE), _infrastructure(Cause.SANDBOX_UNAVAILABLE):
            await self._find_images()
        assert self.image is not None
        with self.clock.phase(Phase.SANDBOX), _infrastructure(Cause.SANDBOX_UNAVAILABLE):
            sandbox = await sandboxes.begin(agent_spec(self._owner, self.task, self.image)).ready()
            await sandbox.put("/", pack(_LOG_FOLDERS))
        await self._first_healthchecks(sandbox)
        with self.clock.phase(Phase.AGENT_SETUP), _infrastructure(Cause.AGENT_SETUP_FAILED):
            await self.workshop.agent.setup(self._agent_context(sandbox, self.task.steps[0]))
        endings: list[Ending] = []
        for step in self.task.steps:
            ending, grade = await self._step(sandboxes, sandbox, step)
            endings.append(ending)
            self.steps.append(StepRecord(name=step.name or "", ending=ending, grade=grade))
            if grade.status is not GradingStatus.GRADED or not reaches(grade, step.min_reward):
                break
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

    async def _first_healthchecks(self, sandbox: Sandbox) -> None:
        checks = [check for check in (self.task.environment.healthcheck, self.task.steps[0].healthcheck) if check]
        if not checks:
            return
        with self.clock.phase(Phase.HEALTHCHECK), _infrastructure(Cause.SANDBOX_UNAVAILABLE):
            for check in checks:
                await wait_until_healthy(sandbox, check, cwd=self._workdir())

    async def _step(self, sandboxes: Sandboxes, sandbox: Sandbox, step: Step) -> tuple[Ending, Grade]:
        name = step.name
        folder = self.plan.folder / "artifacts" / (name or "")
        folder.mkdir(parents=True, exist_ok=True)
        (self.plan.folder / f"instruction{f'.{name}' if name else ''}.md").write_text(
            step.instruction, encoding="utf-8"
        )
        with self.clock.phase(Phase.AGENT_RUN, name):
            ready = await self._prepare_step(sandbox, step)
            ending = await self._run_agent(sandbox, step) if ready else Ending.ENV_DONE
        request = self._grade_request(sandboxes, sandbox, step, folder)
        with self.clock.phase(Phase.COLLECT, name):
            if tier(self.task, step) is Integrity.PRISTINE:
                # It takes as long to start as the artifacts take to be read, and nothing of the agent's is near it.
                self.prestarted = sandboxes.begin(self._grader_spec(step, "grader"))
            lost = await self._collect(request)
        with self.clock.phase(Phase.GRADING, name):
            grade = lost or await self._grade(request)
        return ending, grade

    async def _prepare_step(self, sandbox: Sandbox, step: Step) -> bool:
        """A later step: start the sandbox again if grading stopped it, copy the step's files, run its ``setup.sh``.

        False when that fails: after the start the policy may have caused it, so the step is graded as it stands.
        """
        try:
            if self.steps:
                await sandbox.start()
            if step.setup is not None:
                await sandbox.put("/", pack([Tree(step.setup, self._workdir(), executable=("setup.sh",))]))
                if (step.setup / "setup.sh").exists():
                    setup = Command(argv=["/bin/sh", "-c", "./setup.sh"], user=step.agent.user, cwd=self._workdir())
                    result = await sandbox.exec(setup, self.agent_log.write)
                    if result.exit_status != 0:
                        self.notes.append(f"step {step.name}: setup.sh exited with status {result.exit_status}")
                        return False
            if self.steps and step.healthcheck is not None:
                await wait_until_healthy(sandbox, step.healthcheck, cwd=self._workdir())
        except EngineUnreachable as error:
            raise InfraAbort(Cause.SANDBOX_LOST, str(error)) from error
        except EngineError as error:
            self.notes.append(f"step {step.name} could not be prepared: {error}")
            return False
        return True

    async def _run_agent(self, sandbox: Sandbox, step: Step) -> Ending:
        """The agent's turn. What it raises after the start keeps what it did, and that is graded."""
        timeout_s = step.agent.timeout_s if step.agent.timeout_s is not None else math.inf
        with anyio.move_on_after(timeout_s) as deadline:
            try:
                await self.workshop.agent.run(self._agent_context(sandbox, step))
            except Exception as error:  # plug-in code: an agent may raise anything
                if find(error, InfraAbort) is not None:
                    raise
                if (unreachable := find(error, EngineUnreachable)) is not None:
                    raise InfraAbort(Cause.SANDBOX_LOST, str(unreachable)) from error
                self.agent_log.note("".join(traceback.format_exception(error)))
                self.notes.append(f"the agent raised {type(error).__name__}: {error}")
        if deadline.cancelled_caught:
            self.notes.append(f"the agent's deadline of {timeout_s:g} s passed")
            return Ending.TIMEOUT
        return Ending.ENV_DONE

    async def _collect(self, request: GradeRequest) -> Grade | None:
        """None when there is something to grade.

        A sandbox that is gone, or whose artifacts are too large, leaves nothing to grade: 0. An archive that can't be read
        for another reason may be the harness's fault or the engine's: the grading has failed, and there is no reward.
        """
        try:
            await self.workshop.grader.collect(request)
        except EngineUnreachable as error:
            raise InfraAbort(Cause.SANDBOX_LOST, str(error)) from error
        except (SandboxGone, CapExceeded) as error:
            message = f"nothing of what the agent left can be graded: {error}"
            self.notes.append(message)
            return Grade(status=GradingStatus.GRADED, reward=0.0, integrity=request.integrity, message=message)
        except EngineError as error:
            message = f"what the agent left could not be read: {error}"
            return Grade(status=GradingStatus.FAILED, integrity=request.integrity, message=message)
        return None

    async def _grade(self, request: GradeRequest) -> Grade:
        try:
            return await self.workshop.grader.grade(request)
        except EngineError as error:
            raise InfraAbort(Cause.SANDBOX_UNAVAILABLE, f"the grader's sandbox: {error}") from error

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

    def _grade_request(self, sandboxes: Sandboxes, sandbox: Sandbox, step: Step, folder: Path) -> GradeRequest:
        @asynccontextmanager
        async def open_sandbox(role: str) -> AsyncGenerator[Sandbox]:
            opening, self.prestarted = self.prestarted, None
            if opening is None or role != "grader":
                opening = sandboxes.begin(self._grader_spec(step, role))
            try:
                yield await opening.ready()
            finally:
                opening.close()

        grader_workdir = self._workdir()
        if (own := step.grader.environment) is not None:
            grader_workdir = own.workdir or self.grader_images[step.name].workdir or "/"
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


def _one_line(text: str, limit: int = 500) -> str:
    return " ".join(text.split())[:limit]
