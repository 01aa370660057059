"""One build for each identity: found by its tag, or built under a lock, with its log kept."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Generator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from harness.concurrency import file_lock
from harness.errors import BuildFailed, ConfigError, ContextError, HarnessError, ImageUnavailable
from harness.images.identity import IMAGE_LABEL
from harness.ports import BuildRequest, EngineImage, ImageEngine

Progress = Callable[[str], None]

_TAIL_BYTES = 4096
_MAX_LOG_BYTES = 64 * 1024**2
_STEP = re.compile(r"(?:\[[^\]]*\]|Step \d+/\d+ :)\s+([A-Z]+\s.*)$")


def default_cache(environ: Mapping[str, str] = os.environ) -> Path:
    """Where build logs and locks lie: ``$XDG_CACHE_HOME/harness``, else ``~/.cache/harness``."""
    base = environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "harness"


@dataclass(frozen=True, slots=True)
class Job:
    """One image to be found or built.

    identity: 64 hex digits. what: for people, as in "the image of tasks/a/environment/Dockerfile".
    context: makes the context's tar stream, as often as the engine needs it.
    """

    identity: str
    tag: str
    what: str
    dockerfile: str
    context: Callable[[], AsyncGenerator[bytes]]
    args: Mapping[str, str] = field(default_factory=dict[str, str])
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    target: str | None = None
    platform: str | None = None
    timeout_s: float = 600.0
    stands_in: Callable[[], str | None] | None = None
    """Asked when the build has succeeded: an image that gets the tag in place of what was built, which is then dropped."""


@dataclass(frozen=True, slots=True)
class Built:
    """``built``: whether this call ran the build. ``log``: the kept log, if there is one."""

    image: EngineImage
    built: bool
    log: Path | None


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why a build failed, whoever asked for it."""

    reason: str
    instruction: str
    tail: str
    error: HarnessError | None = None


class Builder:
    """Finds and builds images on one engine. One build per identity at a time, in this process and beside others.

    A build that failed isn't tried again by the same object: a hundred attempts fail with the one failure.
    cache: the folder for logs and locks.
    """

    def __init__(self, engine: ImageEngine, cache: Path) -> None:
        self.engine = engine
        self._folder = cache / "builds"
        self._locks: dict[str, anyio.Lock] = {}
        self._failures: dict[str, _Failure] = {}

    def log_path(self, identity: str) -> Path:
        return self._folder / f"{identity}.log"

    async def find(self, job: Job) -> Built | None:
        image = await self.engine.inspect_image(job.tag)
        if image is None:
            return None
        log = self.log_path(job.identity)
        return Built(image, built=False, log=log if log.exists() else None)

    async def ensure(self, job: Job, progress: Progress | None = None) -> Built:
        """The image of ``job``. Raises BuildFailed, ContextError (a file changed meanwhile) or EngineUnreachable."""
        if found := await self.find(job):
            return found
        async with self._locks.setdefault(job.identity, anyio.Lock()):
            if found := await self.find(job):
                return found
            if (failure := self._failures.get(job.identity)) is not None:
                raise self._failed(job, failure)
            async with self._file_lock(job.identity):
                if found := await self.find(job):
                    return found
                built = await self._build(job, progress)
            if isinstance(built, _Failure):
                self._failures[job.identity] = built
                raise self._failed(job, built) from built.error
            return built

    async def _build(self, job: Job, progress: Progress | None) -> Built | _Failure:
        if progress:
            progress(f"building {job.what}")
        context = _Watched(job.context)
        # What may be dropped again must not be found under its tag meanwhile.
        tag = job.tag if job.stands_in is None else f"{job.tag}-new"
        request = BuildRequest(
            context=context,
            dockerfile=job.dockerfile,
            tag=tag,
            args=job.args,
            labels={**job.labels, IMAGE_LABEL: job.identity},
            target=job.target,
            platform=job.platform,
        )
        path = self.log_path(job.identity)
        with _log(path) as log:

            def write(line: str) -> None:
                log.write(line)
                if progress:
                    progress(line)

            try:
                with anyio.move_on_after(job.timeout_s):
                    image = await self.engine.build_image(request, write)
                    return Built(await self._settled(job, image, tag), built=True, log=path)
            except HarnessError as error:
                if context.error is not None:
                    raise context.error from error
                if not isinstance(error, BuildFailed):
                    raise
                return _Failure(str(error), error.instruction or log.step, error.log_tail or log.tail, error)
            if context.error is not None:
                raise context.error
            reason = f"it took longer than {job.timeout_s:g} s and was stopped"
            return _Failure(reason, log.step, log.tail)

    async def _settled(self, job: Job, image: EngineImage, tag: str) -> EngineImage:
        """The image that gets the job's tag."""
        if job.stands_in is None:
            return image
        await self.engine.tag_image(job.stands_in() or image.id, job.tag)
        await self.engine.remove_image(tag)
        settled = await self.engine.inspect_image(job.tag)
        if settled is None:
            raise ImageUnavailable(f"{job.tag} was removed from the engine just after it had been made")
        return settled

    def _failed(self, job: Job, failure: _Failure) -> BuildFailed:
        """A failure for one caller: an exception that several tasks raise would mix up their tracebacks."""
        reason, instruction, log = failure.reason, failure.instruction, str(self.log_path(job.identity))
        where = f" (at {instruction!r})" if instruction and instruction not in reason else ""
        return BuildFailed(
            f"{job.what}: {reason}{where}. The build's log: {log}",
            instruction=instruction,
            log_tail=failure.tail,
            log_path=log,
        )

    @asynccontextmanager
    async def _file_lock(self, identity: str) -> AsyncGenerator[None]:
        """Held against other processes."""
        path = self._folder / f"{identity}.lock"
        async with AsyncExitStack() as stack:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                await stack.enter_async_context(file_lock(path))
            except OSError as error:
                raise _unwritable(path, error) from error
            yield


class _Watched(AsyncIterable[bytes]):
    """A context whose own error is kept, whatever the engine's client makes of it on the way."""

    def __init__(self, make: Callable[[], AsyncGenerator[bytes]]) -> None:
        self._make = make
        self.error: ContextError | None = None

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        stream = self._make()
        try:
            async for chunk in stream:
                yield chunk
        except ContextError as error:
            self.error = error
            raise
        finally:
            await stream.aclose()


class _BuildLog:
    """A build's log file, bounded, with its last lines and the step that runs at hand."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8", errors="replace", buffering=1)
        self._left = _MAX_LOG_BYTES
        self._lines: deque[str] = deque(maxlen=200)
        self.step = ""

    def write(self, line: str) -> None:
        self._lines.append(line)
        if found := _STEP.search(line):
            self.step = found[1]
        if self._left > 0:
            self._left -= len(line) + 1
            self._file.write(line + "\n" if self._left > 0 else "[the rest of the log is left out]\n")

    @property
    def tail(self) -> str:
        return "\n".join(self._lines).encode("utf-8", "replace")[-_TAIL_BYTES:].decode("utf-8", "replace")

    def close(self) -> None:
        self._file.close()


@contextmanager
def _log(path: Path) -> Generator[_BuildLog]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        log = _BuildLog(path)
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        yield log
    finally:
        log.close()


def _unwritable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"{path}: can't be written: {error.strerror}. Set XDG_CACHE_HOME to a folder that can be.")
