"""One execution of a task's test script: what it runs on, what it needs in place, and what it found."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import assert_never

from harness.archive import Folder, Tree, keep, pack, read_file, regular_files
from harness.concurrency import in_thread
from harness.errors import CapExceeded, EngineError, EngineUnreachable, GraderError, PathMissing, TransferFailed
from harness.graders.artifacts import KeptArtifacts, graded_paths
from harness.graders.reward import MAX_REWARD_BYTES, REWARD_JSON, REWARD_TEXT, read_rewards
from harness.graders.tiers import Changed, changed_system_paths, interpreter
from harness.outcome import GraderRun, GradingStatus, Integrity, RewardComponent, weighted_mean
from harness.ports import TOOLBOX, ArchiveCaps, Command, ExecResult, GradeRequest, Sandbox
from harness.task.places import ARTIFACTS, LOGS, RESULTS, TESTS

_REWARD_CAPS = ArchiveCaps(max_bytes=MAX_REWARD_BYTES + 64 * 1024, max_members=1)
_RESULT_CAPS = ArchiveCaps(max_bytes=256 * 1024**2, max_members=10_000)


class Subject(StrEnum):
    """What the test script runs on."""

    ATTEMPT = "attempt"
    """What the agent left."""
    REGRADE = "regrade"
    """The same, once more: in another fresh sandbox (pristine), after another restart (restarted), or again in place (live)."""
    CONTROL = "control"
    """An untouched sandbox of the task's image."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one execution found. ``reward`` is None when it left no valid result."""

    run: GraderRun
    reward: float | None
    components: tuple[RewardComponent, ...]
    changed: Changed


async def execute(request: GradeRequest, subject: Subject) -> Finding:
    """Run the tests on a subject. Raises EngineError only for what failed before anything of the agent's was near.

    A sandbox of the agent's that can't be restarted is not such a failure: the agent may have seen to it.
    """
    began = time.monotonic()
    changed = Changed()
    components: tuple[RewardComponent, ...] = ()
    exit_status: int | None = None
    message = ""
    async with _opened(request, subject) as sandbox:
        try:
            if request.integrity is not Integrity.PRISTINE and subject is not Subject.CONTROL:
                if request.integrity is Integrity.RESTARTED:
                    await sandbox.stop()
                # One of the live tier that runs stays as it is; one whose first process was killed is graded on its file system.
                await sandbox.start()
            if subject is Subject.ATTEMPT:
                changed = await changed_system_paths(request)
            result = await _run_tests(request, sandbox, subject)
            exit_status = result.exit_status
            if result.timed_out:
                raise GraderError(f"the grader did not end within {request.step.grader.timeout_s:g} s")
            components = await _read_result(request, sandbox)
        except EngineUnreachable:
            raise
        except (GraderError, EngineError) as error:  # from here on the agent's files may be the reason
            message = str(error)
    reward = weighted_mean(components)
    if components and reward is None:
        message = "no reward component carries weight, so there is nothing to grade by"
    run = GraderRun(
        subject=subject,
        status=GradingStatus.FAILED if reward is None else GradingStatus.GRADED,
        exit_status=exit_status,
        duration_s=time.monotonic() - began,
        message=message,
    )
    return Finding(run, reward, components if reward is not None else (), changed)


@asynccontextmanager
async def _opened(request: GradeRequest, subject: Subject) -> AsyncGenerator[Sandbox]:
    """The sandbox that the tests run in."""
    match subject, request.integrity:
        case (Subject.CONTROL, _) | (_, Integrity.PRISTINE):
            role = "grader" if subject is Subject.ATTEMPT else subject.value
            async with request.open_sandbox(role) as sandbox:
                yield sandbox
        case _, Integrity.RESTARTED | Integrity.LIVE:
            yield request.sandbox
        case _ as never:
            assert_never(never)


async def _run_tests(request: GradeRequest, sandbox: Sandbox, subject: Subject) -> ExecResult:
    """Put artifacts and tests in place and run the test script; its output goes to the grader's log."""
    wiped = [RESULTS] if not request.step.grader.tests else [RESULTS, TESTS]
    shell = ["/bin/sh"] if request.integrity is Integrity.PRISTINE else [f"{TOOLBOX}/busybox", "sh"]
    if request.integrity is Integrity.PRISTINE and subject is not Subject.CONTROL:
        artifacts = KeptArtifacts(request.folder)
        await wipe(sandbox, [*graded_paths(request), *wiped], shell=shell)
        if artifacts.graded.exists():
            await sandbox.put("/", read_file(artifacts.graded))
    else:
        await wipe(sandbox, wiped, shell=shell)
    trees = [Tree(folder, TESTS, executable=("test.sh",)) for folder in request.step.grader.tests]
    await sandbox.put("/", pack([Folder(LOGS, 0o777), Folder(RESULTS, 0o777), Folder(ARTIFACTS, 0o777), *trees]))
    await request.log(f"[harness] grading: {subject}\n".encode())
    return await sandbox.exec(
        Command(
            argv=interpreter(request),
            user=request.step.grader.user,
            cwd=request.grader_workdir,
            env=request.step.grader.env,
            deadline_s=request.step.grader.timeout_s,
            keep_bytes=0,
        ),
        request.log,
    )


_WIPE = """
for path do
    {box}rm -rf -- "$path"
    case "$path" in */*/*) {box}mkdir -p -- "${{path%/*}}" ;; esac
done
if [ -f /tests/test.sh ]; then {box}chmod a+rx /tests/test.sh; fi
"""
"""The last line is for tests that the image holds: they need not be executable there."""


async def wipe(sandbox: Sandbox, paths: list[str], *, shell: list[str]) -> None:
    """Remove paths, and make their parents, as root, so that what enters replaces and never merges."""
    box = f"{TOOLBOX}/busybox " if shell[0].startswith(TOOLBOX) else ""
    script = _WIPE.format(box=box)
    result = await sandbox.exec(Command(argv=[*shell, "-c", script, "wipe", *paths], user="0", cwd="/"))
    if result.exit_status != 0:
        raise GraderError(f"could not clear {', '.join(paths)} before grading: {result.stderr.text.strip()[-300:]}")


async def _read_result(request: GradeRequest, sandbox: Sandbox) -> tuple[RewardComponent, ...]:
    """The reward files, and everything else that the tests left at `RESULTS`, which is kept beside the artifacts."""
    try:
        files = await _result_files(request, sandbox, RESULTS, _RESULT_CAPS)
    except CapExceeded:
        # The tests left a lot there: then only what counts is read.
        files: dict[str, bytes] = {}
        for name in (REWARD_JSON, REWARD_TEXT):
            files |= await _result_files(request, sandbox, f"{RESULTS}/{name}", _REWARD_CAPS)
    return read_rewards(files, request.step.grader.rewards)


async def _result_files(request: GradeRequest, sandbox: Sandbox, path: str, caps: ArchiveCaps) -> dict[str, bytes]:
    raw = request.folder / "verifier.tar"
    try:
        async with sandbox.get(path, caps) as stream:
            await keep(stream, raw)
        return await in_thread(partial(regular_files, raw, (REWARD_JSON, REWARD_TEXT), max_bytes=MAX_REWARD_BYTES))
    except PathMissing:
        return {}
    except CapExceeded as error:
        if path == RESULTS:
            raise
        raise GraderError(f"the reward can't be read: {error}") from error
    except TransferFailed as error:
        raise GraderError(f"the reward can't be read: {error}") from error
