"""Sensors on the machine that an engine runs on: its disk reserve, and its kernel's word on memory.

A sandbox can reach neither: its file system shows only its own use, and it has no device for the kernel's log. A sensor that can't be
read says so by None.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self

GIB = 1024**3
RESERVE_BYTES = GIB
"""Free space of the engine's disk below which nothing that fails on it can be told apart from the lack of it."""
RESERVE_FILES = 20_000
KERNEL_LOG = Path("/dev/kmsg")
VMSTAT = Path("/proc/vmstat")

_MAX_RECORD_BYTES = 8192
_MAX_RECORDS = 20_000
_GLOBAL_OOM = b"oom-kill:constraint=CONSTRAINT_NONE,"
"""How the kernel's record begins when the machine, not a control group, ran out. What a process can choose, its name, comes later in it."""
_FACILITY_SHIFT = 3


class Shortage(StrEnum):
    """What a disk lacks."""

    NOTHING = "nothing"
    BYTES = "bytes"
    FILES = "files"
    """Inodes: any number of empty files takes no bytes."""


@dataclass
class DiskReserve:
    """Free space below ``path``."""

    path: Path
    reserve_bytes: int = RESERVE_BYTES
    reserve_files: int = RESERVE_FILES

    def shortage(self) -> Shortage | None:
        """What is below its reserve now; None when it can't be read. One system call."""
        try:
            space = os.statvfs(self.path)
        except OSError:
            return None
        if space.f_bavail * space.f_frsize < self.reserve_bytes:
            return Shortage.BYTES
        # Some file systems have no fixed number of files, and say 0.
        return Shortage.FILES if space.f_files and space.f_favail < self.reserve_files else Shortage.NOTHING


@dataclass
class KernelLog:
    """Global out-of-memory kills since it was opened. Use as a context manager.

    A control group that reaches its own limit is recorded under another constraint and isn't counted here. Where the log can't
    be read, the kernel's counter of all kills still tells when there was none.
    """

    log: Path = KERNEL_LOG
    vmstat: Path = VMSTAT
    kills: list[float] = field(default_factory=list[float])
    """Seconds since boot, on the kernel's clock: `time.monotonic` to within a few seconds."""
    _file: int | None = None
    _lost: bool = False
    _count: int | None = None

    def __enter__(self) -> Self:
        self._count = self._killed()
        try:
            self._file = os.open(self.log, os.O_RDONLY | os.O_NONBLOCK)
            os.lseek(self._file, 0, os.SEEK_END)
        except OSError:
            self.__exit__(None, None, None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def global_oom_since(self, moment: float) -> bool | None:
        """Whether the machine as a whole ran out of memory since ``moment`` (`time.monotonic`). None when that can't be known."""
        self._read()
        if any(kill >= moment for kill in self.kills):
            return True
        if self._file is not None and not self._lost:
            return False
        count = self._killed()
        return False if count is not None and count == self._count else None

    def _read(self) -> None:
        if self._file is None:
            return
        for _ in range(_MAX_RECORDS):
            try:
                record = os.read(self._file, _MAX_RECORD_BYTES)
            except BlockingIOError:
                return
            except BrokenPipeError:
                self._lost = True  # the kernel's buffer went round: records are missing
                continue
            except OSError:
                self._lost = True
                return
            if not record:
                return
            for line in record.split(b"\n"):
                self._note(line)

    def _note(self, record: bytes) -> None:
        """``priority,sequence,microseconds,flags;text``; further lines of a record begin with a space, and the text's own line
        breaks are escaped by the kernel. What a program wrote there carries a facility of its own."""
        head, _, text = record.partition(b";")
        fields = head.split(b",")
        if len(fields) < 3 or not (fields[0].isdigit() and fields[2].isdigit()):
            return
        if int(fields[0]) >> _FACILITY_SHIFT == 0 and text.startswith(_GLOBAL_OOM):
            self.kills.append(int(fields[2]) / 1e6)

    def _killed(self) -> int | None:
        try:
            lines = self.vmstat.read_text().splitlines()
        except OSError:
            return None
        counts = [line.split()[1] for line in lines if line.startswith("oom_kill ")]
        return int(counts[0]) if counts and counts[0].isdigit() else None
