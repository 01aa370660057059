"""What the engine answers: bytes as they come, whole and bounded, or the documents of a progress stream."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator

import aiohttp
import anyio

from harness.errors import EngineError
from harness.sandbox.docker.json import Json

CHUNK_BYTES = 256 * 1024


class StreamCut(EngineError):
    """The engine's answer ended before it was whole."""


class Answer:
    """An answer whose body is still to be read."""

    def __init__(self, response: aiohttp.ClientResponse, what: str, patience_s: float = math.inf) -> None:
        self._response = response
        self._what = what
        self._patience_s = patience_s

    @property
    def status(self) -> int:
        """HTTP's, below 400."""
        return self._response.status

    def header(self, name: str) -> str:
        return self._response.headers.get(name, "")

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes. Raises StreamCut, and EngineError when nothing comes for as long as the caller is patient."""
        while True:
            try:
                with anyio.fail_after(self._patience_s):
                    chunk = await self._response.content.read(CHUNK_BYTES)
            except TimeoutError as error:
                raise silent(self._what, self._patience_s) from error
            except (aiohttp.ClientError, OSError) as error:
                raise StreamCut(f"the engine's answer to {self._what} was cut off: {error!r}") from error
            if not chunk:
                return
            yield chunk

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
            yield parsed(bytes(buffer), self._what)


def silent(what: str, patience_s: float) -> EngineError:
    """What is raised when the engine neither takes nor sends anything."""
    return EngineError(f"the engine was silent for {patience_s:g} s during {what}")


def parsed(data: bytes, what: str) -> Json:
    """``data`` as JSON. Raises EngineError."""
    try:
        return json.loads(data)
    except ValueError as error:
        raise _not_json(what, data) from error


def _not_json(what: str, data: bytes) -> EngineError:
    return EngineError(f"the engine's answer to {what} isn't JSON: {data[:40]!r}. Does a Docker engine listen there?")
