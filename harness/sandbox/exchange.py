"""One client's HTTP requests to the proxy: reading them strictly, answering, and passing plain ones on.

h11 reads and writes both legs, so that what was checked is what is sent: nothing is copied through unread.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

import anyio
import h11
from anyio.abc import ByteStream

from harness.sandbox.allowlist import Address, read_authority

MAX_HEAD_BYTES = 64 * 1024
GONE = (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream)
"""How a stream says that the other side went away."""
_CHUNK = 64 * 1024
_LINGER_S = 1.0
_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"upgrade",
    }
)


class BadRequest(Exception):
    """Not a request that a proxy can read in exactly one way."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a request wants to go. ``connect``: through a tunnel; otherwise as plain HTTP."""

    host: str | Address
    port: int
    connect: bool
    authority: str = ""
    path: str = "/"


def read_target(method: str, target: str) -> Target:
    """The host and port of a request line. Raises BadRequest."""
    if method == "CONNECT":
        where = read_authority(target)
        if where is None:
            raise BadRequest("CONNECT needs host:port")
        return Target(where[0], where[1], connect=True, authority=target)
    try:
        url = urlsplit(target)
    except ValueError as error:
        raise BadRequest("the URL can't be read") from error
    if url.scheme != "http":
        raise BadRequest("this is a proxy: it takes CONNECT host:port and http:// URLs")
    where = read_authority(url.netloc, default_port=80)
    if where is None:
        raise BadRequest("the URL's host can't be read")
    path = (url.path or "/") + (f"?{url.query}" if "?" in target else "")
    return Target(where[0], where[1], connect=False, authority=url.netloc, path=path)


class Exchange:
    """The requests on one client connection, one after another."""

    def __init__(self, client: ByteStream) -> None:
        self.client = client
        self._server = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._request: h11.Request | None = None
        self._target: Target | None = None

    async def next_request(self) -> Target | None:
        """The next request's target; None when the client is done. Raises BadRequest."""
        if self._request is not None:
            self._server.start_next_cycle()
            self._request = None
        event = await self._read()
        if not isinstance(event, h11.Request):
            return None
        self._request = event
        try:
            self._target = read_target(event.method.decode("ascii"), event.target.decode("ascii"))
        except UnicodeDecodeError as error:
            raise BadRequest("the request can't be read") from error
        return self._target

    @property
    def reusable(self) -> bool:
        """Whether another request may follow on this connection."""
        return self._server.our_state is h11.DONE and self._server.their_state is h11.DONE

    async def refuse(self, status: int, reason: str) -> None:
        """Answer with a line for people, after which the connection is to be closed. Nothing, where an answer has begun."""
        if self._server.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        body = f"harness: {reason}\n".encode()
        headers = [
            ("content-type", "text/plain; charset=utf-8"),
            ("content-length", str(len(body))),
            ("connection", "close"),
        ]
        await self._send(h11.Response(status_code=status, headers=headers, reason=_REASONS[status]))
        await self._send(h11.Data(data=body))
        await self._send(h11.EndOfMessage())

    async def finish(self) -> None:
        """Let the answer arrive: closing while the client still sends would take it back."""
        if self._server.our_state is h11.SWITCHED_PROTOCOL:
            return
        await self.client.send_eof()
        with anyio.move_on_after(_LINGER_S):
            async for _ in self.client:
                pass

    async def accept_tunnel(self) -> bytes:
        """Say that the tunnel is open; returns what the client has sent already. Raises BadRequest."""
        if not isinstance(await self._read(), h11.EndOfMessage):
            raise BadRequest("CONNECT takes no body")
        await self._send(h11.Response(status_code=200, headers=[], reason=b"Connection established"))
        return self._server.trailing_data[0]

    async def forward(self, upstream: ByteStream) -> None:
        """Send the request on, with its body, and the response back.

        Raises OSError when either side goes away, or the server's answer can't be read.
        """
        if self._request is None or self._target is None:
            raise RuntimeError("there is no request to forward")
        leg = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
        headers = [
            (b"host", self._target.authority.encode("ascii")),
            *_end_to_end(self._request.headers, also=frozenset({b"host", b"expect"})),
            (b"connection", b"close"),
        ]
        await _write(leg, upstream, h11.Request(method=self._request.method, target=self._target.path, headers=headers))
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._send_body, leg, upstream, tasks.cancel_scope)
            try:
                await self._send_response(leg, upstream)
            except (h11.ProtocolError, *GONE) as error:
                failure = error
            tasks.cancel_scope.cancel()  # a server may answer before it has read everything
        if failure is not None:
            raise OSError("the server's answer can't be read, or broke off") from failure

    async def _send_body(self, leg: h11.Connection, upstream: ByteStream, whole: anyio.CancelScope) -> None:
        try:
            if self._server.they_are_waiting_for_100_continue:
                await self._send(h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue"))
            while isinstance(event := await self._read(), h11.Data):
                if not await _written(leg, upstream, event):
                    return  # the server may have answered already, and then closed
            await _written(leg, upstream, h11.EndOfMessage())
        except (BadRequest, *GONE):
            whole.cancel()  # the client is gone

    async def _send_response(self, leg: h11.Connection, upstream: ByteStream) -> None:
        while True:
            event = await _next(leg, upstream)
            match event:
                case h11.Response():
                    headers = _end_to_end(event.headers)
                    await self._send(h11.Response(status_code=event.status_code, headers=headers, reason=event.reason))
                case h11.Data():
                    await self._send(event)
                case h11.EndOfMessage():
                    await self._send(h11.EndOfMessage())
                    return
                case h11.InformationalResponse():
                    pass
                case _:
                    raise OSError("the server closed before its answer was complete")

    async def _read(self) -> h11.Event | type[h11.PAUSED]:
        try:
            return await _next(self._server, self.client)
        except h11.RemoteProtocolError as error:
            raise BadRequest("the request can't be read") from error

    async def _send(self, event: h11.Event) -> None:
        await _write(self._server, self.client, event)


_REASONS = {400: b"Bad Request", 403: b"Forbidden", 502: b"Bad Gateway"}


def _end_to_end(
    headers: Iterable[tuple[bytes, bytes]], also: frozenset[bytes] = frozenset()
) -> list[tuple[bytes, bytes]]:
    """Without the headers that concern one leg only, the ones that Connection names among them."""
    pairs = [(bytes(name), bytes(value)) for name, value in headers]
    named = {token.strip().lower() for name, value in pairs if name == b"connection" for token in value.split(b",")}
    # Framing isn't up to the sender: what h11 framed the message by is kept.
    drop = (_HOP_BY_HOP | also | named) - {b"content-length", b"transfer-encoding"}
    return [(name, value) for name, value in pairs if name not in drop]


async def _next(connection: h11.Connection, stream: ByteStream) -> h11.Event | type[h11.PAUSED]:
    """The next event of a leg, reading as much as it takes. Raises h11.RemoteProtocolError."""
    while True:
        event = connection.next_event()
        if event is not h11.NEED_DATA:
            return event  # pyright: ignore[reportReturnType]
        try:
            connection.receive_data(await stream.receive(_CHUNK))
        except anyio.EndOfStream:
            connection.receive_data(b"")


async def _write(connection: h11.Connection, stream: ByteStream, event: h11.Event) -> None:
    data = connection.send(event)
    if data:
        await stream.send(data)


async def _written(connection: h11.Connection, stream: ByteStream, event: h11.Event) -> bool:
    """Whether it could be sent."""
    try:
        await _write(connection, stream, event)
    except (h11.LocalProtocolError, *GONE):
        return False
    return True
