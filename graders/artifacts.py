"""Artifacts: what is read from the agent's sandbox, kept in the attempt's folder, and graded from there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

from harness.archive import Source, clean, keep
from harness.concurrency import in_thread, together
from harness.errors import PathMissing, TransferFailed
from harness.outcome import Integrity
from harness.ports import GradeRequest
from harness.task.places import LOGS


@dataclass(frozen=True, slots=True)
class KeptArtifacts:
    """The files of a step's artifacts on the host: tar archives, never extracted.

    graded: what is graded in the pristine tier, rooted at ``/``.
    kept: everything that was declared, and ``/logs``, rooted at ``/``.
    """

    folder: Path

    @property
    def graded(self) -> Path:
        return self.folder / "graded.tar"

    @property
    def kept(self) -> Path:
        return self.folder / "kept.tar"


def graded_paths(request: GradeRequest) -> tuple[str, ...]:
    """Absolute paths that are graded: the declared ones, else the working directory. Paths below another are dropped."""
    declared = request.task.graded_artifacts
    paths = declared if declared is not None else (request.workdir,)
    return _outermost(paths)


def _outermost(paths: tuple[str, ...]) -> tuple[str, ...]:
    pure = [PurePosixPath(path) for path in dict.fromkeys(paths)]
    return tuple(str(path) for path in pure if not any(other in path.parents for other in pure))


async def collect_artifacts(request: GradeRequest) -> None:
    """Read what is graded and what is declared from the agent's sandbox into the step's folder.

    Raises EngineError where what is graded can't be read. What is only kept decides nothing: it is left out, and the log says why.
    """
    files = KeptArtifacts(request.folder)
    graded = graded_paths(request) if request.integrity is Integrity.PRISTINE else ()
    declared = {artifact.source: artifact.exclude for artifact in request.step.artifacts}
    wanted = dict.fromkeys((*graded, *declared, LOGS))
    raw: dict[str, Path] = {}

    async def fetch(number: int, path: str) -> None:
        target = request.folder / f"raw-{number}.tar"
        try:
            async with request.sandbox.get(path) as stream:
                await keep(stream, target)
            raw[path] = target
        except PathMissing:
            await _not_kept(request, path, "it is not there")
        except TransferFailed as error:
            if path in graded:
                raise
            await _not_kept(request, path, str(error))
        finally:
            if path not in raw:
                target.unlink(missing_ok=True)

    def sources(paths: Iterable[str]) -> list[Source]:
        return [Source(raw[path], path, declared.get(path, ())) for path in paths if path in raw]

    try:
        await together(*(partial(fetch, number, path) for number, path in enumerate(wanted)))
        left_out = await in_thread(clean, sources(graded), files.graded) if graded else ()
        for line in left_out:
            await request.log(f"[harness] left out of what is graded: {line}\n".encode())
        await _keep_the_rest(request, sources(path for path in wanted if path not in graded), files.kept)
    finally:
        for path in raw.values():
            path.unlink(missing_ok=True)


async def _keep_the_rest(request: GradeRequest, sources: list[Source], target: Path) -> None:
    try:
        await in_thread(clean, sources, target)
    except TransferFailed as error:  # in the live tier, files are written to while they are read
        target.unlink(missing_ok=True)
        await _not_kept(request, "what was declared", str(error))


async def _not_kept(request: GradeRequest, path: str, reason: str) -> None:
    await request.log(f"[harness] {path} is not kept: {reason}\n".encode())
