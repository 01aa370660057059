"""A socket in front of an engine that can be cut, broken, silenced, or made to answer with an error. The engine itself is left alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
from anyio.abc import SocketStream

from harness.concurrency import background
from harness.sandbox.docker.address import DEFAULT_SOCKET, UnixAddress

BODY = b'{"message": "out of service"}'
ERROR = b"\r\n".join(
    [
        b"HTTP/1.1 500 Internal Server Error",
        b"Content-Type: application/json",
        b"Content-Length: %d" % len(BODY),
        b"Connection: close",
        b"",
        BODY,
    ]
)
BROKEN = (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream)


class Forwarder:
    """Passes everything on until it is told otherwise.

    refused: which requests, by their first bytes (``POST /v1.41/containers/create…``), are answered with status 500.
    """

    def __init__(self, path: Path, target: str = DEFAULT_SOCKET) -> None:
        self.path = path
        self.address = UnixAddress(str(path))
        self.refused: Callable[[bytes], bool] = lambda _: False
        self.silent = False
        self._target = target
        self._open: set[SocketStream] = set()

    async def cut(self) -> None:
        """As if the engine had been stopped: nobody listens, and what was connected is closed."""
        self.path.unlink(missing_ok=True)
        await self.reset()

    async def reset(self) -> None:
        """Close what is connected; whoever connects again is served."""
        for stream in tuple(self._open):
            await anyio.aclose_forcefully(stream)

    async def connection(self, client: SocketStream) -> None:
        """One client's, until either side has closed it."""
        async with client, await anyio.connect_unix(self._target) as engine:
            self._open |= {client, engine}
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._pass, client, engine, True)
                    await self._pass(engine, client, False)
                    tasks.cancel_scope.cancel()
            finally:
                self._open -= {client, engine}

    async def _pass(self, source: SocketStream, sink: SocketStream, requests: bool) -> None:
        try:
            while True:
                data = await source.receive(256 * 1024)
                if self.silent:
                    await anyio.sleep_forever()
                if requests and self.refused(data):
                    await source.send(ERROR)
                    await anyio.aclose_forcefully(source)
                    return
                await sink.send(data)
        except anyio.EndOfStream:
            try:
                await sink.send_eof()
            except BROKEN:
                return
        except BROKEN:
            return


@asynccontextmanager
async def forwarder(folder: Path) -> AsyncIterator[Forwarder]:
    """One that listens below the folder until the end of the block."""
    forwarding = Forwarder(folder / "engine.sock")
    async with (
        await anyio.create_unix_listener(forwarding.path) as listener,
        background(partial(listener.serve, forwarding.connection)),
    ):
        yield forwarding
