"""The script grader: runs the task's ``test.sh`` in one of the three integrity tiers and reads the result file.

- pristine: the agent's sandbox is stopped; the graded artifacts replace their counterparts in a fresh sandbox.
- restarted: the agent's sandbox is stopped and started again: same file system, no process of the agent's.
- live: the agent's sandbox as it is.

The harness's own commands in the last two come from the read-only toolbox, never from what the agent could have changed.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from harness.archive import Folder, Tree, keep, pack, read_file, regular_files
from harness.concurrency import in_thread
from harness.errors import CapExceeded, EngineError, GraderError, PathMissing, SandboxGone, TransferFailed
from harness.graders.artifacts import KeptArtifacts, collect_artifacts, graded_paths
from harness.graders.reward import MAX_REWARD_BYTES, REWARD_JSON, REWARD_TEXT, read_rewards
from harness.graders.tiers import HOLES, changed_system_paths, interpreter
from harness.outcome import Grade, GraderRun, GradingStatus, Integrity, RewardComponent, weighted_mean
from harness.ports import TOOLBOX, ArchiveCaps, Command, ExecResult, GradeRequest, Sandbox
from harness.task.places import ARTIFACTS, LOGS, RESULTS, TESTS

_REWARD_CAPS = ArchiveCaps(max_bytes=MAX_REWARD_BYTES + 64 * 1024, max_members=1)
_RESULT_CAPS = ArchiveCaps(max_bytes=256 * 1024**2, max_members=10_000)


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
        """Grade what was collected, in the task's tier."""
        began = time.monotonic()
        changed: tuple[str, ...] = ()
        components: tuple[RewardComponent, ...] = ()
        exit_status: int | None = None
        message = ""
        async with self._subject(request) as sandbox:
            try:
                changed = await changed_system_paths(request)
                result = await _run_tests(request, sandbox)
                exit_status = result.exit_status
                if result.timed_out:
                    raise GraderError(f"the grader did not end within {request.step.grader.timeout_s:g} s")
                components = await _read_result(request, sandbox)
            except (GraderError, SandboxGone, TransferFailed) as error:
                message = str(error)
            await _tidy(request)
        reward = weighted_mean(components)
        if components and reward is None:
            message = "no reward component carries weight, so there is nothing to grade by"
        status = GradingStatus.FAILED if reward is None else GradingStatus.GRADED
        run = GraderRun(
            subject="attempt",
            status=status,
            exit_status=exit_status,
            duration_s=time.monotonic() - began,
            message=message,
        )
        return Grade(
            status=status,
            reward=reward,
            components=components,
            integrity=request.integrity,
            runs=(run,),
            changed_paths=changed,
            holes=HOLES[request.integrity],
            message=message,
        )

    @asynccontextmanager
    async def _subject(self, request: GradeRequest) -> AsyncGenerator[Sandbox]:
        """The sandbox that the tests run in, with what is to be graded in place."""
        match request.integrity:
            case Integrity.PRISTINE:
                async with request.open_sandbox("grader") as sandbox:
                    yield sandbox
            case Integrity.RESTARTED:
                await request.sandbox.start()
                yield request.sandbox
            case Integrity.LIVE:
                # One whose first process was killed is graded too, on its file system. While it runs nothing happens here.
                await request.sandbox.start()
                yield request.sandbox


async def _run_tests(request: GradeRequest, sandbox: Sandbox) -> ExecResult:
    """Put artifacts and tests in place and run the test script; its output goes to the grader's log."""
    tier = request.integrity
    wiped = [RESULTS] if not request.step.grader.tests else [RESULTS, TESTS]
    if tier is Integrity.PRISTINE:
        artifacts = KeptArtifacts(request.folder)
        await _wipe(sandbox, [*graded_paths(request), *wiped], shell=["/bin/sh"])
        if artifacts.graded.exists():
            await sandbox.put("/", read_file(artifacts.graded))
    else:
        await _wipe(sandbox, wiped, shell=[f"{TOOLBOX}/busybox", "sh"])
    trees = [Tree(folder, TESTS, executable=("test.sh",)) for folder in request.step.grader.tests]
    await sandbox.put("/", pack([Folder(LOGS, 0o777), Folder(RESULTS, 0o777), Folder(ARTIFACTS, 0o777), *trees]))
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


async def _wipe(sandbox: Sandbox, paths: list[str], *, shell: list[str]) -> None:
    """Remove paths, and make their parents, as root, so that what enters replaces and never merges."""
    box = f"{TOOLBOX}/busybox " if shell[0].startswith(TOOLBOX) else ""
    script = _WIPE.format(box=box)
    result = await sandbox.exec(Command(argv=[*shell, "-c", script, "wipe", *paths], user="root", cwd="/"))
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


async def _tidy(request: GradeRequest) -> None:
    """Where the sandbox goes on to a next step, the tests must not be there. Failing to remove them fails nothing here."""
    if request.integrity is Integrity.PRISTINE or len(request.task.steps) == 1:
        return
    try:
        await _wipe(request.sandbox, [RESULTS, TESTS], shell=[f"{TOOLBOX}/busybox", "sh"])
    except (GraderError, EngineError) as error:
        await request.log(f"[harness] could not remove the tests after grading: {error}\n".encode())
