"""Collecting and grading one step: what fails in it is judged, and what can be graded is graded.

Both are tried twice where the host saw nothing wrong: a connection that broke once must not become a zero.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from harness.canary import CANARY_S, Operation
from harness.errors import CapExceeded, EngineError, SandboxGone, UsageError
from harness.faults import Failed, NothingLeft, Scored, classify
from harness.inquest import Inquest, Place
from harness.outcome import Attribution, Grade, GradingStatus, Integrity
from harness.phases import Phase
from harness.ports import Grader, GradeRequest, Sandbox, SandboxSpec
from harness.sandboxes import Opening, Sandboxes


class FreshSandboxFailed(EngineError):
    """A sandbox to grade in could not be had. Nothing of the agent's was in it."""


@dataclass
class Stands:
    """Fresh sandboxes to grade in, of one attempt.

    prestarted: one that is being started while artifacts are read: nothing of the agent's is near it.
    """

    sandboxes: Sandboxes
    prestarted: Opening | None = None

    def prestart(self, spec: SandboxSpec) -> None:
        self.prestarted = self.sandboxes.begin(spec)

    @asynccontextmanager
    async def open(self, spec: SandboxSpec, *, fresh: bool) -> AsyncGenerator[Sandbox]:
        """fresh: the prestarted one won't do. Raises FreshSandboxFailed."""
        opening, self.prestarted = self.prestarted, None
        if opening is None or fresh:
            opening = self.sandboxes.begin(spec)
        try:
            try:
                sandbox = await opening.ready()
            except (EngineError, UsageError) as error:
                raise FreshSandboxFailed(f"the grader's sandbox: {error}") from error
            yield sandbox
        finally:
            opening.close()


@dataclass(frozen=True, slots=True)
class StepGrading:
    """One step of a started attempt. Raises InfraAbort, and what our own code raises.

    agents: the agent's sandbox, to be removed where it may be in the way of another.
    """

    request: GradeRequest
    grader: Grader
    inquest: Inquest
    agents: Opening

    async def collect(self) -> Grade | None:
        """Keep the artifacts. None when there is something to grade, else the grade: 0 where nothing is left."""
        place = Place(Phase.COLLECT, self.request.step.name, started=True)
        for last in (False, True):
            try:
                await self.grader.collect(self.request)
                return None
            except EngineError as error:
                unreadable = last or isinstance(error, CapExceeded)
                failed = Failed.FILES_UNREADABLE if unreadable else classify(error)
                operation = Operation(self._collect_from) if unreadable else None
                judgement = await self.inquest.enforce(failed, place, error, operation=operation)
                if isinstance(judgement, NothingLeft):
                    return self._zero(f"nothing of what the agent left can be graded: {error}")
                if isinstance(error, SandboxGone):
                    # The same file system, without the policy's processes: for the task's own collect commands.
                    with suppress(EngineError):
                        await self.request.sandbox.start()
            except Exception as error:  # noqa: BLE001 - our own code: judged, and raised again unless the policy is the reason
                return await self._own_code(place, error, Operation(self._collect_from))
        raise AssertionError("an unreadable file system is either lost or nothing")

    async def _own_code(self, place: Place, error: Exception, control: Operation) -> Grade:
        """Code of ours failed while it read what the policy may have made: what it does on an untouched sandbox decides."""
        judgement = await self.inquest.enforce(Failed.OWN_CODE, place, error, operation=control)
        if isinstance(judgement, NothingLeft):
            return self._zero(f"what the agent left can't be read: {error!r}", attribution=Attribution.POLICY)
        raise error

    async def _collect_from(self, sandbox: Sandbox) -> None:
        """The same collection, from a sandbox that no policy was in."""
        with self._untouched(sandbox) as request:
            await self.grader.collect(request)

    async def _grade_untouched(self, sandbox: Sandbox) -> None:
        """The same grading, of a sandbox that no policy was in."""
        with self._untouched(sandbox) as request:
            await self.grader.collect(request)
            await self.grader.grade(request)

    @contextmanager
    def _untouched(self, sandbox: Sandbox) -> Generator[GradeRequest]:
        with TemporaryDirectory(prefix="harness-canary-") as folder:
            yield replace(self.request, sandbox=sandbox, folder=Path(folder), log=_unheard)

    async def grade(self) -> Grade:
        """Run the grader. A grading that fails for no reason that the host saw is a failed grade, never a reward."""
        place = Place(Phase.GRADING, self.request.step.name, started=True)
        for last in (False, True):
            try:
                grade = await self.grader.grade(self.request)
            except FreshSandboxFailed as error:
                if not last and await self._made_room(error):
                    continue
                await self.inquest.enforce(Failed.GRADER_SANDBOX, place, error)
                return self._zero(f"the attempt left no room to grade it: {error}")
            except EngineError as error:
                own = last and self.request.integrity is not Integrity.PRISTINE
                judgement = await self.inquest.enforce(
                    Failed.FILES_UNREADABLE if own else classify(error), place, error
                )
                if isinstance(judgement, NothingLeft):
                    return self._zero(f"what the agent left can't be graded: {error}")
                if last:
                    return Grade(status=GradingStatus.FAILED, integrity=self.request.integrity, message=str(error))
            except Exception as error:  # noqa: BLE001 - our own code: judged, and raised again unless the policy is the reason
                limit_s = 2 * self.request.step.grader.timeout_s + CANARY_S
                return await self._own_code(place, error, Operation(self._grade_untouched, limit_s))
            else:
                if grade.attribution is not None:
                    # It failed. A restart of the engine in the midst of it looks like an agent's sandbox that breaks its grader.
                    await self.inquest.check(place)
                if grade.attribution is not Attribution.INFRASTRUCTURE:
                    return grade
                error = FreshSandboxFailed(grade.message)
                if not last and await self._made_room(error):
                    continue
                room = await self.inquest.judge(Failed.GRADER_SANDBOX, place, error)
                return self._zero(f"the attempt left no room to grade it: {error}") if room == Scored() else grade
        raise AssertionError("the second try returns")

    async def _made_room(self, error: FreshSandboxFailed) -> bool:
        """Remove the agent's sandbox, where what is graded is kept on the host and no step follows: nothing of the policy's can be in
        the way of a fresh one any more."""
        if self.request.integrity is not Integrity.PRISTINE or self.request.step is not self.request.task.steps[-1]:
            return False
        await self.request.log(f"[harness] {error}; tried again without the agent's sandbox\n".encode())
        self.agents.close()
        await self.agents.removed()
        return True

    def _zero(self, message: str, *, attribution: Attribution | None = None) -> Grade:
        return Grade(
            status=GradingStatus.GRADED,
            reward=0.0,
            integrity=self.request.integrity,
            attribution=attribution,
            message=message,
        )


async def _unheard(chunk: bytes) -> None:
    """A canary's collection says nothing."""
