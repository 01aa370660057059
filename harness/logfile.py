"""A log of bounded size for what a command writes."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

DEFAULT_CAP_BYTES = 16 * 1024 * 1024


class LogFile:
    """Appends bytes up to a cap, then counts what it leaves out and says so once it is closed. Use as a context manager.

    Writes go straight to the file system's cache: they don't block for long enough to need a thread. What a full disk doesn't take is
    left out too: a log never decides how an attempt ends.
    """

    def __init__(self, path: Path, *, cap_bytes: int = DEFAULT_CAP_BYTES) -> None:
        self.path = path
        self._room = cap_bytes
        self._left_out = 0
        self._file = path.open("ab", buffering=0)

    async def write(self, chunk: bytes) -> None:
        """An `OutputSink`."""
        kept = chunk[: self._room]
        if kept:
            written = self._append(kept)
            self._room -= written
            self._left_out += len(kept) - written
        self._left_out += len(chunk) - len(kept)

    def note(self, line: str) -> None:
        """A line of the harness's own, whatever the cap."""
        self._append(f"[harness] {line}\n".encode("utf-8", "replace"))

    def _append(self, data: bytes) -> int:
        """How much of it was taken."""
        try:
            return self._file.write(data)
        except OSError:
            return 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._left_out:
            self.note(f"{self._left_out} bytes more were left out")
        self._file.close()
