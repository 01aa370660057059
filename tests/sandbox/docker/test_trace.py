"""BuildKit's messages as lines. The messages are written by hand: field number and wire type, length, content."""

from __future__ import annotations

from harness.sandbox.docker.trace import Trace


def field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


def vertex(digest: str, name: str, *extra: bytes) -> bytes:
    return field(1, field(1, digest.encode()) + field(3, name.encode()) + b"".join(extra))


def output(digest: str, stream: int, text: str) -> bytes:
    return field(3, field(1, digest.encode()) + bytes([3 << 3, stream]) + field(4, text.encode()))


STARTED, COMPLETED, CACHED = field(5, b""), field(6, b""), bytes([4 << 3, 1])


def test_lines_of_two_streams_are_not_mixed() -> None:
    trace = Trace()
    message = (
        vertex("a", "RUN x", STARTED) + output("a", 2, "er") + output("a", 1, "out\n") + output("a", 2, "ror\nend")
    )
    assert list(trace.lines(message)) == ["#1 RUN x", "#1 out", "#1 error"]
    assert list(trace.lines(vertex("a", "RUN x", STARTED, COMPLETED))) == ["#1 end", "#1 DONE"]
    assert list(trace.rest()) == []


def test_each_state_is_said_once_and_failures_are_kept() -> None:
    trace = Trace()
    said = [
        *trace.lines(vertex("a", "FROM b") + vertex("c", "RUN d")),
        *trace.lines(vertex("a", "FROM b", CACHED, STARTED, COMPLETED)),
        *trace.lines(vertex("a", "FROM b", CACHED, STARTED, COMPLETED) + vertex("c", "RUN d", STARTED)),
        *trace.lines(vertex("c", "RUN d", STARTED, COMPLETED, field(7, b"exit code: 1"))),
    ]
    assert said == ["#1 FROM b", "#1 CACHED", "#2 RUN d", "#2 ERROR: exit code: 1"]
    assert trace.failures == [("RUN d", "exit code: 1")]
