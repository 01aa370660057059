"""A hijacked connection: after its response head, the engine speaks raw bytes both ways on it.

Ordinary requests go through a pool (`EngineClient`); commands and attached streams need the bytes and their exact end.
"""

from __future__ import annotations

import json
from types import TracebackType

import anyio
import h11
from anyio.abc import SocketStream

from harness.errors import EngineUnreachable
from harness.sandbox.docker.address import EngineAddress, UnixAddress
from harness.sandbox.docker.json import Json

RECEIVE_BYTES = 256 * 1024
CONNECT_TIMEOUT_S = 10.0
LOST = (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError)


class Refused(Exception):
    """The engine answered with an ordinary response: its status and body. Translated by the caller."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(status)
        self.status = status
        self.body = body


async def connect(address: EngineAddress) -> SocketStream:
    """A new connection. Raises EngineUnreachable."""
    try:
        with anyio.fail_after(CONNECT_TIMEOUT_S):
            if isinstance(address, UnixAddress):
                return await anyio.connect_unix(address.path)
            return await anyio.connect_tcp(address.host, address.port)
    except (OSError, TimeoutError) as error:
        reason = error.strerror or str(error) or "timed out"
        raise EngineUnreachable(f"nothing answers at {address}: {reason}. Is the engine running?") from error


class Hijacked:
    """A connection that the engine handed over. Use with ``async with``."""

    def __init__(self, stream: SocketStream, leftover: bytes) -> None:
        self._stream = stream
        self._leftover = leftover

    async def receive(self) -> bytes:
        """The next bytes, at most `RECEIVE_BYTES`; empty at the end. Raises EngineUnreachable when the connection breaks."""
        if self._leftover:
            data, self._leftover = self._leftover, b""
            return data
        try:
            return await self._stream.receive(RECEIVE_BYTES)
        except anyio.EndOfStream:
            return b""
        except LOST as error:
            raise EngineUnreachable(f"the engine's connection broke: {error!r}") from error

    async def send(self, data: bytes) -> None:
        """Write to the process's standard input. Nothing happens when nobody reads it any more."""
        try:
            for start in range(0, len(data), RECEIVE_BYTES):
                await self._stream.send(data[start : start + RECEIVE_BYTES])
            await self._stream.send_eof()
        except LOST:
            return

    async def aclose(self) -> None:
        await anyio.aclose_forcefully(self._stream)

    async def __aenter__(self) -> Hijacked:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


async def hijack(address: EngineAddress, target: str, body: Json = None) -> Hijacked:
    """POST ``body`` to ``target`` and take the connection over. Raises Refused or EngineUnreachable."""
    stream = await connect(address)
    try:
        return await _upgrade(stream, target, body)
    except (h11.RemoteProtocolError, *LOST) as error:
        await anyio.aclose_forcefully(stream)
        raise EngineUnreachable(f"the engine closed the connection of {target}: {error!r}") from error
    except BaseException:
        await anyio.aclose_forcefully(stream)
        raise


async def _upgrade(stream: SocketStream, target: str, body: Json) -> Hijacked:
    connection = h11.Connection(h11.CLIENT)
    payload = b"" if body is None else json.dumps(body).encode()
    headers = [
        ("Host", "docker"),
        ("Connection", "Upgrade"),
        ("Upgrade", "tcp"),
        ("Content-Type", "application/json"),
        ("Content-Length", str(len(payload))),
    ]
    request = connection.send(h11.Request(method="POST", target=target, headers=headers)) or b""
    data = connection.send(h11.Data(data=payload)) or b""
    await stream.send(request + data + (connection.send(h11.EndOfMessage()) or b""))
    status = 0
    refusal = bytearray()
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await _received(stream))
        elif isinstance(event, h11.InformationalResponse) and event.status_code == 101:
            return Hijacked(stream, connection.trailing_data[0])
        elif isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            refusal += event.data
        elif isinstance(event, h11.EndOfMessage):
            raise Refused(status, bytes(refusal))


async def _received(stream: SocketStream) -> bytes:
    try:
        return await stream.receive(RECEIVE_BYTES)
    except anyio.EndOfStream:
        return b""
