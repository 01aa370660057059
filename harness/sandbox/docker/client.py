"""The Docker engine's HTTP API, asynchronously, over its socket: pooled requests, streams both ways, hijacked connections.

Connection failures become EngineUnreachable, the engine's own errors become `ApiError` with its status and message;
what those mean for a sandbox, an image or a network is decided where they are asked for.
"""

from __future__ import annotations

import json
import math
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self
from urllib.parse import urlencode

import aiohttp
import anyio

from harness.errors import EngineError, EngineUnreachable, UnsupportedError
from harness.sandbox.docker import hijack
from harness.sandbox.docker.address import EngineAddress, UnixAddress, address_from_environment
from harness.sandbox.docker.answer import Answer, parsed, silent
from harness.sandbox.docker.json import Json, text

API_VERSION = (1, 41)
"""What Docker 20.10 speaks. An engine that no longer does is spoken to in the oldest version that it still knows."""
CALL_TIMEOUT_S = 120.0
MAX_ANSWER_BYTES = 256 * 1024 * 1024

Params = Mapping[str, str] | Sequence[tuple[str, str]]
NO_PARAMS: Params = ()


class ApiError(EngineError):
    """The engine answered with an error. ``status`` is HTTP's."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class _Upload:
    """A body that remembers why it failed: the failure is the caller's, not the connection's.

    taken: called when the engine has taken a piece.
    """

    def __init__(self, source: AsyncIterable[bytes]) -> None:
        self._source = source
        self.error: Exception | None = None
        self.taken: Callable[[], None] = lambda: None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._source:
                yield chunk
                self.taken()
        except Exception as error:
            self.error = error
            raise


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
        return parsed(data, f"{method} {path}") if is_json else data.decode("utf-8", "replace")

    @asynccontextmanager
    async def open(
        self,
        method: str,
        path: str,
        *,
        params: Params = NO_PARAMS,
        body: Json = None,
        content: AsyncIterable[bytes] | None = None,
        patience_s: float = math.inf,
    ) -> AsyncGenerator[Answer]:
        """A request whose answer is read as a stream. ``content`` is sent as the body, in chunks; its own failure is raised as it is.

        patience_s: how long the engine may neither take nor send anything; then it's an EngineError. No other time limit: give it
        one with a cancel scope.
        """
        url = self._base + await self._prefix() + path
        async with self._send(method, url, params, body, content, patience_s) as response:
            answer = Answer(response, f"{method} {path}", patience_s)
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
        async with self._send("GET", self._base + "/version", NO_PARAMS, None, None, CALL_TIMEOUT_S) as response:
            data = await Answer(response, "GET /version").whole(MAX_ANSWER_BYTES)
            if response.status >= 400:
                raise _api_error("GET", "/version", response.status, data)
        answer = parsed(data, "GET /version")
        newest, oldest = _version(text(answer, "ApiVersion")), _version(text(answer, "MinAPIVersion"))
        if newest < API_VERSION:
            raise UnsupportedError(
                f"the engine at {self.address} speaks API {text(answer, 'ApiVersion')!r}; at least {_dotted(API_VERSION)} "
                "(Docker 20.10) is needed. Update the engine"
            )
        return "/v" + _dotted(max(API_VERSION, oldest))

    @asynccontextmanager
    async def _send(
        self,
        method: str,
        url: str,
        params: Params,
        body: Json,
        content: AsyncIterable[bytes] | None,
        patience_s: float = math.inf,
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        if self._session is None:
            raise RuntimeError("EngineClient is used outside of its `async with` block")
        upload = _Upload(content) if content is not None else None
        headers = {"Content-Type": "application/x-tar"} if upload else {}
        request = self._session.request(
            method, url, params=params, json=body, data=aiter(upload) if upload else None, headers=headers
        )
        response: aiohttp.ClientResponse | None = None
        try:
            with anyio.move_on_after(patience_s) as silence:
                if upload:
                    upload.taken = lambda: setattr(silence, "deadline", anyio.current_time() + patience_s)
                response = await request
        except (aiohttp.ClientError, OSError) as error:
            if upload and upload.error:
                raise upload.error from error
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or repr(error)
            raise EngineUnreachable(f"nothing answers at {self.address}: {reason}. Is the engine running?") from error
        if response is None:
            raise silent(f"{method} {url.removeprefix(self._base)}", patience_s)
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


def _version(value: str) -> tuple[int, int]:
    major, _, minor = value.partition(".")
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else (0, 0)


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
