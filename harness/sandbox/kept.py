"""The head and the tail of a stream, in bounded memory."""

from __future__ import annotations

from harness.ports import Output


class Kept:
    """Keeps the first ``keep_bytes`` and the last ``keep_bytes`` of what it is fed."""

    def __init__(self, keep_bytes: int) -> None:
        self._keep = keep_bytes
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def feed(self, data: bytes) -> None:
        self._total += len(data)
        room = self._keep - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data[-self._keep :] if self._keep else b""
        # Cut only now and then: cutting moves the whole tail.
        if len(self._tail) > 2 * self._keep:
            del self._tail[: -self._keep]

    def output(self) -> Output:
        return Output(bytes(self._head), bytes(self._tail[-self._keep :]) if self._keep else b"", self._total)
