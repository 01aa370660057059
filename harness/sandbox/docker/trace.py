"""The build log that BuildKit sends: protobuf messages about vertexes (build steps), and what those wrote.

The messages are ``moby.buildkit.v1.StatusResponse``; only the fields that a log needs are described here, the rest is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

_PACKAGE = "harness.buildkit"
_VERTEX = ((1, "digest", "string"), (3, "name", "string"), (4, "cached", "bool"), (7, "error", "string"))
_LOG = ((1, "vertex", "string"), (3, "stream", "int64"), (4, "msg", "bytes"))
_TIMES = ((5, "started"), (6, "completed"))


@cache
def _status_response() -> Any:
    """The message class, made from a description in code. The import takes a while, and only builds need it."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    types: Any = descriptor_pb2.FieldDescriptorProto
    kinds = {"string": types.TYPE_STRING, "bool": types.TYPE_BOOL, "bytes": types.TYPE_BYTES, "int64": types.TYPE_INT64}
    file: Any = descriptor_pb2.FileDescriptorProto(name=f"{_PACKAGE}.proto", package=_PACKAGE, syntax="proto3")

    def message(name: str, fields: Sequence[tuple[int, str, str]]) -> Any:
        made = file.message_type.add(name=name)
        for position, label, kind in fields:
            made.field.add(name=label, number=position, type=kinds[kind], label=types.LABEL_OPTIONAL)
        return made

    message("Timestamp", ())
    vertex = message("Vertex", _VERTEX)
    for position, label in _TIMES:
        vertex.field.add(
            name=label,
            number=position,
            type=types.TYPE_MESSAGE,
            type_name=f".{_PACKAGE}.Timestamp",
            label=types.LABEL_OPTIONAL,
        )
    message("VertexLog", _LOG)
    response = message("StatusResponse", ())
    for position, label, kind in ((1, "vertexes", "Vertex"), (3, "logs", "VertexLog")):
        response.field.add(
            name=label,
            number=position,
            type=types.TYPE_MESSAGE,
            type_name=f".{_PACKAGE}.{kind}",
            label=types.LABEL_REPEATED,
        )
    pool: Any = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.StatusResponse"))


@dataclass(slots=True)
class _Step:
    number: int
    name: str
    said: set[str] = field(default_factory=set[str])
    partial: dict[int, str] = field(default_factory=dict[int, str])
    """By stream, what was written of a line that has no end yet."""

    def rest(self) -> Iterator[str]:
        yield from (f"#{self.number} {line}" for line in self.partial.values() if line)
        self.partial.clear()


class Trace:
    """Turns trace messages into lines for a reader, as ``docker build --progress=plain`` does.

    failures: the steps that failed, by name such as ``[2/3] RUN make``, with the error that each ended with. Steps that were cancelled
    because another failed are among them; the build's own error is the cause's.
    """

    def __init__(self) -> None:
        self._steps: dict[str, _Step] = {}
        self.failures: list[tuple[str, str]] = []

    def lines(self, message: bytes) -> Iterator[str]:
        """The lines that one message adds."""
        status = _status_response().FromString(message)
        for vertex in status.vertexes:
            yield from self._vertex(vertex)
        for entry in status.logs:
            yield from self._log(str(entry.vertex), int(entry.stream), bytes(entry.msg).decode("utf-8", "replace"))

    def rest(self) -> Iterator[str]:
        """Lines that never got their end."""
        for step in self._steps.values():
            yield from step.rest()

    def _vertex(self, vertex: Any) -> Iterator[str]:
        step = self._steps.get(vertex.digest)
        if step is None:
            step = self._steps[vertex.digest] = _Step(len(self._steps) + 1, str(vertex.name))
        if vertex.cached or vertex.HasField("started"):
            yield from self._once(step, "started", step.name)
        if vertex.cached:
            yield from self._once(step, "ended", "CACHED")
        if vertex.error:
            self.failures.append((step.name, str(vertex.error)))
            yield from self._once(step, "ended", f"ERROR: {vertex.error}")
        elif vertex.HasField("completed"):
            yield from self._once(step, "ended", "DONE")

    def _once(self, step: _Step, what: str, line: str) -> Iterator[str]:
        if what not in step.said:
            step.said.add(what)
            if what == "ended":
                yield from step.rest()
            yield f"#{step.number} {line}"

    def _log(self, digest: str, stream: int, text: str) -> Iterator[str]:
        step = self._steps.get(digest)
        if step is None:
            step = self._steps[digest] = _Step(len(self._steps) + 1, digest)
        *whole, step.partial[stream] = (step.partial.get(stream, "") + text).split("\n")
        for line in whole:
            yield f"#{step.number} {line.rstrip()}"
