"""Signals: the first asks the run to stop, later ones are told that the cleaning up goes on. None of them cuts it short."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable

import anyio

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def until_signalled(work: Callable[[], Awaitable[None]], say: Callable[[str], None]) -> int | None:
    """Run the work; a signal cancels it. Returns the number of the first signal, or None when the work ended by itself."""
    received: list[int] = []

    async def listen(scope: anyio.CancelScope, listening: anyio.CancelScope) -> None:
        with listening, anyio.open_signal_receiver(*_STOPPING) as signals:
            async for number in signals:
                received.append(number)
                if len(received) == 1:
                    say("stopping: sandboxes are being removed, verdicts that stand are kept …")
                    scope.cancel()
                else:
                    say("still removing sandboxes; this ends by itself")

    async with anyio.create_task_group() as tasks:
        listening = anyio.CancelScope()
        with anyio.CancelScope() as scope:
            tasks.start_soon(listen, scope, listening)
            await work()
        listening.cancel()
    return received[0] if received else None
