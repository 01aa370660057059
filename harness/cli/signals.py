"""Signals: the first asks the run to stop, later ones are told that the cleaning up goes on. None of them cuts it short."""

from __future__ import annotations

import signal
import socket
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress

import anyio

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def until_signalled(work: Callable[[], Awaitable[None]], say: Callable[[str], None]) -> int | None:
    """Run the work; a signal cancels it. Returns the number of the first signal, or None when the work ended by itself.

    After a signal, further ones are ignored until the process ends: what is left to do is to say what was kept. What the work
    raises is raised as it is, not in a group.
    """
    received: list[int] = []
    failures: list[Exception] = []

    async def listen(signals: socket.socket, scope: anyio.CancelScope) -> None:
        while True:
            await anyio.wait_readable(signals)
            for number in signals.recv(64):
                received.append(number)
                if len(received) == 1:
                    say("stopping: sandboxes are being removed, verdicts that stand are kept …")
                    scope.cancel()
                else:
                    say("still removing sandboxes; this ends by itself")

    with _caught() as signals:
        async with anyio.create_task_group() as tasks:
            with anyio.CancelScope() as scope:
                tasks.start_soon(listen, signals, scope)
                try:
                    await work()
                except Exception as error:  # noqa: BLE001 - raised below, outside of the task group
                    failures.append(error)
            tasks.cancel_scope.cancel()
    if failures:
        raise failures[0]
    return received[0] if received else None


@contextmanager
def _caught() -> Generator[socket.socket]:
    """A socket that gets a byte, its number, for every signal that would stop the process.

    The event loop's own receiver is no use here: when it closes it puts the default back, and a Ctrl-C in that moment kills the
    process half way through its summary. Under ``nohup`` a hang-up stays ignored.
    """
    reading, writing = socket.socketpair()
    reading.setblocking(False)
    writing.setblocking(False)
    caught = False

    def note(number: int, _: object) -> None:
        nonlocal caught
        caught = True
        with suppress(BlockingIOError):  # thousands wait already; one more says nothing new
            writing.send(bytes([number]))

    nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    before = {number: signal.signal(number, note) for number in _STOPPING if number != signal.SIGHUP or not nohup}
    try:
        yield reading
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if caught else handler)
        reading.close()
        writing.close()
