"""The Docker engine's HTTP API, asynchronously, over its socket: pooled requests, streams both ways, hijacked connections.

Connection failures become EngineUnreachable, the engine's own errors become `ApiError` with its status and message;
what those mean for a sandbox, an image or a network is decided where they are asked for.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self
from urllib.parse import urlencode

import aiohttp
import anyio

from harness.errors import EngineError, EngineUnreachable, UnsupportedError
from harness.sandbox.docker import hijack
from harness.sandbox.docker.address import EngineAddress, UnixAddress, address_from_environment
from harness.sandbox.docker.json import Json, text

API_VERSION = (1, 41)
"""What Docker 20.10 speaks. An engine that no longer does is spoken to in the oldest version that it still knows."""
CALL_TIMEOUT_S = 120.0
MAX_ANSWER_BYTES = 256 * 1024 * 1024
CHUNK_BYTES = 256 * 1024

Params = Mapping[str, str] | Sequence[tuple[str, str]]
NO_PARAMS: Params = ()


class ApiError(EngineError):
    """The engine answered with an error. ``status`` is HTTP's."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class StreamCut(EngineError):
    """The engine's answer ended before it was whole."""


class _Upload:
    """A body that remembers why it failed: the failure is the caller's, not the connection's."""

    def __init__(self, source: AsyncIterable[bytes]) -> None:
        self._source = source
        self.error: Exception | None = None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._source:
                yield chunk
        except Exception as error:
            self.error = error
            raise


class Answer:
    """An answer whose body is still to be read."""

    def __init__(self, response: aiohttp.ClientResponse, what: str) -> None:
        self._response = response
        self._what = what

    @property
    def status(self) -> int:
        """HTTP's, below 400."""
        return self._response.status

    def header(self, name: str) -> str:
        return self._response.headers.get(name, "")

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes. Raises StreamCut."""
        try:
            async for chunk in self._response.content.iter_chunked(CHUNK_BYTES):
                yield chunk
        except (aiohttp.ClientError, OSError) as error:
            raise StreamCut(f"the engine's answer to {self._what} was cut off: {error!r}") from error

    async def whole(self, max_bytes: int) -> bytes:
        """The whole body. Raises StreamCut, or EngineError where it is longer than ``max_bytes``."""
        data = bytearray()
        async for chunk in self.chunks():
            data += chunk
            if len(data) > max_bytes:
                raise EngineError(f"the engine's answer to {self._what} is longer than {max_bytes:,} bytes")
        return bytes(data)

    async def objects(self) -> AsyncIterator[Json]:
        """The JSON documents of a progress stream, one by one. Raises StreamCut, or EngineError where they aren't JSON."""
        decoder = json.JSONDecoder()
        pending = ""
        buffer = bytearray()
        async for chunk in self.chunks():
            buffer += chunk
            if b"\n" not in chunk:
                continue
            whole, _, rest = buffer.rpartition(b"\n")
            buffer = bytearray(rest)
            pending = whole.decode("utf-8", "replace").strip()
            while pending:
                try:
                    document, end = decoder.raw_decode(pending)
                except ValueError as error:
                    raise _not_json(self._what, pending.encode()) from error
                yield document
                pending = pending[end:].lstrip()
        if buffer.strip():
            yield _parsed(bytes(buffer), self._what)


class EngineClient:
    """A client of one engine. Open it with ``async with``; nothing is sent before the first request.

    Methods raise EngineUnreachable when nothing answers, ApiError when the engine refuses, EngineError when it answers too late.
    """

    def __init__(self, address: EngineAddress | None = None) -> None:
        self.address = address or address_from_environment()
        self._session: aiohttp.ClientSession | None = None
        self._version = ""
        self._negotiating = anyio.Lock()

    async def __aenter__(self) -> Self:
        connector = (
            aiohttp.UnixConnector(self.address.path, limit=0)
            if isinstance(self.address, UnixAddress)
            else aiohttp.TCPConnector(limit=0)
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=hijack.CONNECT_TIMEOUT_S),
            auto_decompress=False,
            # The engine would compress archives on their way over a local socket.
            headers={"Accept-Encoding": "identity"},
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            with anyio.CancelScope(shield=True):
                await self._session.close()

    async def call(
        self,
        method: str,
        path: str,
        *,
        params: Params = NO_PARAMS,
        body: Json = None,
        timeout_s: float = CALL_TIMEOUT_S,
        max_bytes: int = MAX_ANSWER_BYTES,
    ) -> Json:
        """One request and its whole answer: a JSON value, None where the answer is empty, a string where it isn't JSON.

        max_bytes: of the answer; one that is longer raises EngineError.
        """
        try:
            with anyio.fail_after(timeout_s):
                async with self.open(method, path, params=params, body=body) as answer:
                    data = await answer.whole(max_bytes)
                    is_json = answer.header("Content-Type").startswith("application/json")
        except TimeoutError as error:
            raise EngineError(f"the engine didn't answer {method} {path} within {timeout_s:g} s") from error
        if not data:
            return None
        return _parsed(data, f"{method} {path}") if is_json else data.decode("utf-8", "replace")

    @asynccontextmanager
    async def open(
        self,
        method: str,
        path: str,
        *,
        params: Params = NO_PARAMS,
        body: Json = None,
        content: AsyncIterable[bytes] | None = None,
    ) -> AsyncGenerator[Answer]:
        """A request whose answer is read as a stream. ``content`` is sent as the body, in chunks; its own failure is raised as it is.

        No time limit: give it one with a cancel scope.
        """
        url = self._base + await self._prefix() + path
        async with self._send(method, url, params, body, content) as response:
            answer = Answer(response, f"{method} {path}")
            if response.status >= 400:
                raise _api_error(method, path, response.status, await answer.whole(MAX_ANSWER_BYTES))
            yield answer

    async def hijack(self, path: str, *, params: Params = NO_PARAMS, body: Json = None) -> hijack.Hijacked:
        """POST, and take over the connection."""
        target = await self._prefix() + path + ("?" + urlencode(params) if params else "")
        try:
            return await hijack.hijack(self.address, target, body)
        except hijack.Refused as refused:
            raise _api_error("POST", path, refused.status, refused.body) from refused

    @property
    def _base(self) -> str:
        return (
            "http://docker"
            if isinstance(self.address, UnixAddress)
            else f"http://{self.address.host}:{self.address.port}"
        )

    async def _prefix(self) -> str:
        if not self._version:
            async with self._negotiating:
                if not self._version:
                    self._version = await self._negotiate()
        return self._version

    async def _negotiate(self) -> str:
        async with self._send("GET", self._base + "/version", NO_PARAMS, None, None) as response:
            data = await Answer(response, "GET /version").whole(MAX_ANSWER_BYTES)
            if response.status >= 400:
                raise _api_error("GET", "/version", response.status, data)
        answer = _parsed(data, "GET /version")
        newest, oldest = _version(text(answer, "ApiVersion")), _version(text(answer, "MinAPIVersion"))
        if newest < API_VERSION:
            raise UnsupportedError(
                f"the engine at {self.address} speaks API {text(answer, 'ApiVersion')!r}; at least {_dotted(API_VERSION)} "
                "(Docker 20.10) is needed. Update the engine"
            )
        return "/v" + _dotted(max(API_VERSION, oldest))

    @asynccontextmanager
    async def _send(
        self, method: str, url: str, params: Params, body: Json, content: AsyncIterable[bytes] | None
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        if self._session is None:
            raise RuntimeError("EngineClient is used outside of its `async with` block")
        upload = _Upload(content) if content is not None else None
        headers = {"Content-Type": "application/x-tar"} if upload else {}
        request = self._session.request(
            method, url, params=params, json=body, data=aiter(upload) if upload else None, headers=headers
        )
        try:
            response = await request
        except (aiohttp.ClientError, OSError) as error:
            if upload and upload.error:
                raise upload.error from error
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or repr(error)
            raise EngineUnreachable(f"nothing answers at {self.address}: {reason}. Is the engine running?") from error
        try:
            yield response
        finally:
            # Bodies that were read to their end give their connection back to the pool; the others are closed.
            response.release()


def _api_error(method: str, path: str, status: int, body: bytes) -> ApiError:
    try:
        message = text(json.loads(body), "message")
    except ValueError:
        message = ""
    message = message or body[:500].decode("utf-8", "replace").strip() or "no message"
    return ApiError(f"{message} ({method} {path}: {status})", status=status)


def _parsed(data: bytes, what: str) -> Json:
    try:
        return json.loads(data)
    except ValueError as error:
        raise _not_json(what, data) from error


def _not_json(what: str, data: bytes) -> EngineError:
    return EngineError(f"the engine's answer to {what} isn't JSON: {data[:40]!r}. Does a Docker engine listen there?")


def _version(value: str) -> tuple[int, int]:
    major, _, minor = value.partition(".")
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else (0, 0)


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
