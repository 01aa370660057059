"""Counts the bytes and members of a tar stream while it passes, so that caps hold before anything is stored."""

from __future__ import annotations

import re
from collections.abc import AsyncIterable, AsyncIterator

from harness.errors import CapExceeded, TransferFailed
from harness.ports import ArchiveCaps

BLOCK = 512
EXTENSIONS = frozenset(b"xgLK")
"""Types of headers that describe the next member and are none themselves."""
HAS_DATA = frozenset(b"\x00" + b"07") | EXTENSIONS
MAX_EXTENSION_BYTES = 1024 * 1024
PAX_SIZE = re.compile(rb"(?:^|\n)\d+ size=(\d+)\n")


class Meter:
    """Feed it a tar stream; it raises TransferFailed as soon as a cap is broken or the stream isn't a tar archive."""

    def __init__(self, caps: ArchiveCaps, what: str) -> None:
        self.members = 0
        self.bytes = 0
        self._caps = caps
        self._what = what
        self._header = bytearray()
        self._skip = 0
        self._extension = bytearray()
        self._wanted = 0

    def feed(self, data: bytes) -> None:
        self.bytes += len(data)
        if self.bytes > self._caps.max_bytes:
            raise CapExceeded(f"the archive of {self._what} is larger than {self._caps.max_bytes:,} bytes")
        view = memoryview(data)
        while view:
            if self._skip:
                taken, view = view[: self._skip], view[self._skip :]
                self._skip -= len(taken)
                self._extension += taken[: self._wanted]
                self._wanted -= min(self._wanted, len(taken))
                continue
            missing = BLOCK - len(self._header)
            self._header += view[:missing]
            view = view[missing:]
            if len(self._header) == BLOCK:
                self._member(bytes(self._header))
                self._header.clear()

    def _member(self, header: bytes) -> None:
        if not any(header):
            return
        kind = header[156]
        size = _number(header[124:136])
        checksum = _number(header[148:156])
        if size is None or checksum != sum(header) - sum(header[148:156]) + 8 * 0x20:
            raise TransferFailed(f"the archive of {self._what} is broken after {self.members} members")
        if kind in EXTENSIONS:
            if size > MAX_EXTENSION_BYTES:
                raise CapExceeded(f"the archive of {self._what} holds a header of {size:,} bytes")
            self._extension.clear()
            self._wanted = size if kind == ord("x") else 0
        else:
            found = PAX_SIZE.search(self._extension)
            size = int(found.group(1)) if found else size
            self._extension.clear()
            self._wanted = 0
            self.members += 1
            if self.members > self._caps.max_members:
                raise CapExceeded(f"the archive of {self._what} has more than {self._caps.max_members:,} members")
        self._skip = -(-size // BLOCK) * BLOCK if kind in HAS_DATA else 0


async def metered(chunks: AsyncIterable[bytes], caps: ArchiveCaps, what: str) -> AsyncIterator[bytes]:
    """The same chunks, watched. ``what`` names the archive in errors."""
    meter = Meter(caps, what)
    async for chunk in chunks:
        meter.feed(chunk)
        yield chunk


def _number(field: bytes) -> int | None:
    if field[0] & 0x80:
        return int.from_bytes(bytes([field[0] & 0x7F]) + field[1:], "big")
    digits = field.strip(b" \0") or b"0"
    try:
        return int(digits, 8)
    except ValueError:
        return None
