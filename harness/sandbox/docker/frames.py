"""The engine's framing of a command's two output streams: 8 bytes of header (stream, length), then the payload."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

from harness.errors import EngineError

HEADER_BYTES = 8


class Stream(IntEnum):
    """What a frame's first byte says."""

    STDIN = 0
    STDOUT = 1
    STDERR = 2
    SYSTEM = 3


class Frames:
    """Takes bytes as they come and gives payloads as they come: a frame is never held until it is whole."""

    def __init__(self) -> None:
        self._header = bytearray()
        self._stream = Stream.STDOUT
        self._left = 0

    def feed(self, data: bytes) -> Iterator[tuple[Stream, bytes]]:
        """Pieces of payload, in order. Raises EngineError when the bytes aren't frames."""
        view = memoryview(data)
        while view:
            if self._left:
                piece, view = view[: self._left], view[self._left :]
                self._left -= len(piece)
                yield self._stream, bytes(piece)
                continue
            missing = HEADER_BYTES - len(self._header)
            self._header += view[:missing]
            view = view[missing:]
            if len(self._header) == HEADER_BYTES:
                if self._header[0] > Stream.SYSTEM or any(self._header[1:4]):
                    raise EngineError(f"the engine sent {bytes(self._header)!r} where a frame of output should begin")
                self._stream = Stream(self._header[0])
                self._left = int.from_bytes(self._header[4:], "big")
                self._header.clear()
