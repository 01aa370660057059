"""Room on the disk: what is kept free so that results stay writable, and the refusal to start anything once it is gone."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.errors import StartRefused

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True, slots=True)
class DiskReserve:
    """The free space below which nothing starts, on the file system of ``folder``, be it there or not. 0 bytes: anything may."""

    folder: Path
    reserve_bytes: int

    def check(self) -> None:
        """Raises StartRefused when the reserve is breached, or when the file system can't be asked."""
        if self.reserve_bytes == 0:
            return
        try:
            state = os.statvfs(next(path for path in (self.folder, *self.folder.absolute().parents) if path.exists()))
        except OSError as error:
            raise StartRefused(f"{self.folder}: {error.strerror}") from error
        free = state.f_bavail * state.f_frsize
        if free < self.reserve_bytes:
            raise StartRefused(
                f"{self.folder} has {_shown(free)} left on its disk, and the reserve is {_shown(self.reserve_bytes)} "
                "(disk_reserve in the configuration)"
            )


@contextmanager
def room_for(folder: Path, admit: Callable[[], None]) -> Generator[None]:
    """Make what belongs into a folder, if ``admit`` lets it start. What is refused leaves nothing behind.

    Raises StartRefused, also when the folder or its files can't be made.
    """
    made = folder.exists()
    try:
        admit()
        yield
    except (OSError, StartRefused) as error:
        if made:
            shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, StartRefused):
            raise
        raise StartRefused(f"{folder}: {error.strerror}") from error


def _shown(count: int) -> str:
    value, unit = float(count), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.4g} {_UNITS[unit]}"
