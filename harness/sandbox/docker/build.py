"""Image builds through the engine's API: BuildKit, and the classic builder where an engine has nothing else."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections import deque
from collections.abc import AsyncIterator, Callable

from harness.errors import BuildFailed
from harness.ports import BuildRequest
from harness.sandbox.docker.answer import StreamCut
from harness.sandbox.docker.client import ApiError, EngineClient
from harness.sandbox.docker.json import Json, member, text
from harness.sandbox.docker.trace import Trace

TAIL_BYTES = 4096
NO_BUILDKIT_STATUSES = (400, 404, 501)
_STAGE = re.compile(r"^\[[^\]]*\] ")
_CLASSIC_STEP = re.compile(r"^Step \d+/\d+ : (.*)")


class _Log:
    """Passes lines on and keeps the last of them."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._lines: deque[str] = deque()
        self._bytes = 0

    def __call__(self, line: str) -> None:
        self._log(line)
        self._lines.append(line)
        self._bytes += len(line.encode()) + 1
        while self._bytes > TAIL_BYTES and len(self._lines) > 1:
            self._bytes -= len(self._lines.popleft().encode()) + 1

    def tail(self) -> str:
        return "\n".join(self._lines).encode()[-TAIL_BYTES:].decode("utf-8", "replace")


class _Reader:
    """Reads a builder's progress stream: log lines, the failing instruction, the error."""

    def __init__(self, log: _Log) -> None:
        self._log = log
        self._trace = Trace()
        self._step = ""
        self.error = ""

    @property
    def instruction(self) -> str:
        failures = self._trace.failures
        causes = [name for name, error in failures if error in self.error] or [name for name, _ in failures]
        return _STAGE.sub("", causes[0]) if causes else self._step

    def read(self, event: Json) -> None:
        if text(event, "id") == "moby.buildkit.trace":
            try:
                message = base64.b64decode(text(event, "aux"))
            except binascii.Error:
                return
            for line in self._trace.lines(message):
                self._log(line)
        elif line := text(event, "stream").rstrip("\r\n"):
            if found := _CLASSIC_STEP.match(line):
                self._step = found.group(1)
            self._log(line)
        elif member(event, "error") is not None:
            self.error = text(event, "error") or "the builder gave no reason"

    def finish(self) -> None:
        for line in self._trace.rest():
            self._log(line)
        if self.error:
            self._log(f"ERROR: {self.error}")


async def build(
    client: EngineClient, request: BuildRequest, log: Callable[[str], None], *, buildkit: bool = True
) -> None:
    """Build and tag. Raises BuildFailed; what the context raises while it is read is passed on.

    buildkit: False asks for the classic builder at once. It is asked too where an engine refuses BuildKit and the context can be read
    again (an iterable that isn't its own iterator).
    """
    try:
        await _build(client, request, _Log(log), buildkit=buildkit)
    except ApiError as error:
        again = not isinstance(request.context, AsyncIterator)
        if not buildkit or not again or error.status not in NO_BUILDKIT_STATUSES:
            raise _failed(request, str(error), "", _Log(log)) from error
        log(f"BuildKit was refused ({error}); using the classic builder")
        await build(client, request, log, buildkit=False)


async def _build(client: EngineClient, request: BuildRequest, log: _Log, *, buildkit: bool) -> None:
    params = {
        "t": request.tag,
        "dockerfile": request.dockerfile,
        "buildargs": json.dumps(dict(request.args)),
        "labels": json.dumps(dict(request.labels)),
        "rm": "1",
        "forcerm": "1",
        "version": "2" if buildkit else "1",
    }
    if request.target:
        params["target"] = request.target
    if request.platform:
        params["platform"] = request.platform
    reader = _Reader(log)
    try:
        async with client.open("POST", "/build", params=params, content=request.context) as answer:
            async for event in answer.objects():
                reader.read(event)
    except StreamCut as error:
        reader.finish()
        raise _failed(request, str(error), reader.instruction, log) from error
    reader.finish()
    if reader.error:
        raise _failed(request, reader.error, reader.instruction, log)


def _failed(request: BuildRequest, reason: str, instruction: str, log: _Log) -> BuildFailed:
    where = f" at {instruction!r}" if instruction else ""
    return BuildFailed(
        f"the image {request.tag} can't be built{where}: {reason}", instruction=instruction, log_tail=log.tail()
    )
