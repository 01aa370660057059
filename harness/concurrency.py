"""Small pieces on top of anyio: threads, locks between processes, tasks beside a block, plain exceptions out of groups."""

from __future__ import annotations

import fcntl
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple, cast

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)
Arguments = TypeVarTuple("Arguments")

THREADS = 8
"""For blocking calls of one event loop: they read and write local files, which more threads don't make faster."""
_LOCK_POLL_S = 0.2
_threads: RunVar[anyio.CapacityLimiter] = RunVar("harness.threads")


async def in_thread(
    call: Callable[[*Arguments], T],
    *arguments: *Arguments,
    limiter: anyio.CapacityLimiter | None = None,
    abandon: bool = False,
) -> T:
    """Run a blocking call in a thread; the one way in which this project does.

    limiter: for calls that have a bound of their own; None: at most `THREADS` at a time.
    abandon: a cancellation doesn't wait for the call, whose result is then dropped: only for what changes nothing.
    """
    if limiter is None:
        limiter = _threads.get(None)
    if limiter is None:
        limiter = anyio.CapacityLimiter(THREADS)
        _threads.set(limiter)
    return await anyio.to_thread.run_sync(call, *arguments, limiter=limiter, abandon_on_cancel=abandon)


@asynccontextmanager
async def file_lock(path: Path) -> AsyncGenerator[None]:
    """Hold the lock of a file, which is made, against other processes and other holders in this one. Its folder must exist.

    The operating system frees it when its holder dies. Raises OSError when the file can't be opened.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await anyio.sleep(_LOCK_POLL_S)
        yield
    finally:
        os.close(descriptor)


async def shielded(call: Callable[[*Arguments], Awaitable[T]], *arguments: *Arguments) -> T:
    """Let a call come to its end though its caller is cancelled: what it makes would stay, and nobody would know of it."""
    with anyio.CancelScope(shield=True):
        return await call(*arguments)
    raise RuntimeError("nothing cancels a shield from inside")


async def together(*calls: Callable[[], Awaitable[object]]) -> None:
    """Run the calls at the same time and wait for all. The first failure cancels the others and is raised by itself."""
    failures: list[Exception] = []

    async def guarded(call: Callable[[], Awaitable[object]], scope: anyio.CancelScope) -> None:
        try:
            await call()
        except Exception as error:  # noqa: BLE001 - carried to the caller, where it is raised
            failures.append(error)
            scope.cancel()

    async with anyio.create_task_group() as tasks:
        for call in calls:
            tasks.start_soon(guarded, call, tasks.cancel_scope)
    if failures:
        raise failures[0]


def find(error: BaseException, kind: type[E]) -> E | None:
    """The first exception of a kind in an exception or, however deep, in an exception group."""
    if isinstance(error, kind):
        return error
    if isinstance(error, BaseExceptionGroup):
        for inner in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            if (found := find(inner, kind)) is not None:
                return found
    return None


@asynccontextmanager
async def background(*tasks: Callable[[], Coroutine[Any, Any, object]]) -> AsyncGenerator[None]:
    """Run tasks beside the block and end them with it. What the block raises comes out as it is, not in a group."""
    failure: Exception | None = None
    async with anyio.create_task_group() as group:
        for task in tasks:
            group.start_soon(task)
        try:
            yield
        except Exception as error:  # noqa: BLE001 - carried out of the task group, where it is raised
            failure = error
        group.cancel_scope.cancel()
    if failure is not None:
        raise failure
