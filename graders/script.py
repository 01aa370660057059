"""The script grader: runs the task's ``test.sh`` in one of the three integrity tiers and reads the result file.

- pristine: the agent's sandbox is stopped; the graded artifacts replace their counterparts in a fresh sandbox.
- restarted: the agent's sandbox is stopped and started again: same file system, no process of the agent's.
- live: the agent's sandbox as it is.

The harness's own commands in the last two come from the read-only toolbox, never from what the agent could have changed.

A policy can break a grader to escape a low score. So when the tests leave no valid result, they run again on the same artifacts, and
if that fails too, on an untouched image. Only then is it known whose fault it is; a control that passed earlier convicts nobody.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.errors import EngineError, GraderError
from harness.graders.artifacts import collect_artifacts
from harness.graders.execution import Finding, Subject, execute, wipe
from harness.graders.tiers import HOLES
from harness.outcome import Attribution, Grade, GradingStatus, Integrity
from harness.ports import TOOLBOX, Command, GradeRequest
from harness.task.places import RESULTS, TESTS


@dataclass(frozen=True, slots=True)
class ScriptGrader:
    """Implements `harness.ports.Grader` for tasks with ``tests/test.sh``."""

    async def collect(self, request: GradeRequest) -> None:
        """Run the task's collect commands, end the agent's processes (not in the live tier), keep the artifacts."""
        for command in request.step.grader.collect:
            result = await request.sandbox.exec(
                Command(
                    argv=["/bin/sh", "-c", command.command],
                    user=command.user,
                    cwd=request.workdir,
                    deadline_s=command.timeout_s,
                    keep_bytes=0,
                ),
                request.log,
            )
            await request.log(f"[harness] collect command ended with status {result.exit_status}\n".encode())
        if request.integrity is not Integrity.LIVE:
            await request.sandbox.stop()
        await collect_artifacts(request)

    async def grade(self, request: GradeRequest) -> Grade:
        """Grade what was collected, in the task's tier, and attribute a failure to do so."""
        findings = [await execute(request, Subject.ATTEMPT)]
        broken: EngineError | None = None
        try:
            for subject in (Subject.REGRADE, Subject.CONTROL):
                if findings[-1].reward is None:
                    findings.append(await execute(request, subject))
        except EngineError as error:
            broken = error
        await _tidy(request)
        return _graded(request, findings, broken)


def _graded(request: GradeRequest, findings: list[Finding], broken: EngineError | None) -> Grade:
    """The grade from every execution. ``broken``: what kept a regrade or the control from running."""
    first, last = findings[0], findings[-1]
    attribution: Attribution | None = None
    reward, components, message = last.reward, last.components, first.run.message
    if broken is not None:
        attribution, message = Attribution.INFRASTRUCTURE, f"{message}; and then: {broken}"
    elif last.run.subject == Subject.CONTROL and last.reward is not None:
        # The control grades normally: what the agent left broke it.
        attribution, reward, components = Attribution.POLICY, 0.0, ()
        message = f"what the agent left broke the grader: {message}"
    elif last.reward is None:
        attribution, message = Attribution.GRADER, f"the grader fails on an untouched image too: {last.run.message}"
    return Grade(
        status=GradingStatus.FAILED if reward is None else GradingStatus.GRADED,
        reward=reward,
        components=components,
        integrity=request.integrity,
        attribution=attribution,
        runs=tuple(finding.run for finding in findings),
        changed_paths=first.changed.paths,
        holes=HOLES[request.integrity] + first.changed.hole,
        message=message,
    )


async def _tidy(request: GradeRequest) -> None:
    """Where the sandbox goes on to a next step, the tests must not be there. Failing to remove them fails nothing here."""
    if request.integrity is Integrity.PRISTINE or len(request.task.steps) == 1:
        return
    try:
        await wipe(request.sandbox, [RESULTS, TESTS], shell=[f"{TOOLBOX}/busybox", "sh"])
    except (GraderError, EngineError) as error:
        await request.log(f"[harness] could not remove the tests after grading: {error}\n".encode())
