"""Small pieces on top of anyio: a fan-out that raises plain exceptions, and exceptions found inside groups."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

E = TypeVar("E", bound=BaseException)


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
        for inner in error.exceptions:  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
            if (found := find(inner, kind)) is not None:  # pyright: ignore[reportUnknownArgumentType]
                return found
    return None
