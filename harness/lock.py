"""The lock on a run's folder: one run has one owner, and whoever comes second is told who that is.

The lock is the operating system's own (flock) on a file that stays: it ends with its process, however that dies. The epoch in the
store fences the writes of an owner that lost it all the same, such as one on a file system without locks.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from harness.errors import RunHeld, StoreError
from harness.outcome import Record

LOCK = "owner.json"
_PATIENCE_S = 0.4
"""Somebody who only asks whether the lock is held holds it for an instant."""
_PAUSE_S = 0.02


class Holder(Record):
    """The process that owns, or owned, a run. since: seconds since the epoch."""

    pid: int
    host: str
    since: float

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return f"process {self.pid} on {self.host}, since {since}"


@contextmanager
def own_run(folder: Path) -> Generator[Holder]:
    """Own the run in ``folder``, which is made if need be, until the body ends.

    Raises RunHeld, within a second, naming the holder; StoreError where the lock's file can't be used.
    """
    descriptor = _locked(folder)
    try:
        holder = Holder(pid=os.getpid(), host=socket.gethostname(), since=time.time())
        with _translated(folder):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, holder.model_dump_json().encode() + b"\n", 0)
        yield holder
    finally:
        os.close(descriptor)


def is_held(folder: Path) -> bool:
    """Whether a process owns the run in ``folder`` now. On a machine that doesn't share the locks: False."""
    try:
        descriptor = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def last_holder(folder: Path) -> Holder | None:
    """Who owns the run, or owned it last; None where that can't be read."""
    try:
        return Holder.model_validate_json((folder / LOCK).read_bytes())
    except (OSError, ValidationError):
        return None


def _locked(folder: Path) -> int:
    """A descriptor that holds the lock."""
    deadline = time.monotonic() + _PATIENCE_S
    path = folder / LOCK
    while True:
        with _translated(folder):
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            with _translated(folder):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _still_there(path, descriptor):
                    return descriptor
        except BlockingIOError as error:
            if time.monotonic() >= deadline:
                os.close(descriptor)
                who = last_holder(folder)
                raise RunHeld(
                    f"run {folder.name} is owned by {who or 'another process'}. Wait for it, or stop it: "
                    f"`harness cancel {folder.name}`"
                ) from error
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        time.sleep(_PAUSE_S)


def _still_there(path: Path, descriptor: int) -> bool:
    """Whether the locked file is the one at its path: a lock on a file that was removed keeps nobody out."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


@contextmanager
def _translated(folder: Path) -> Generator[None]:
    try:
        yield
    except BlockingIOError:
        raise
    except OSError as error:
        raise StoreError(f"{folder}: the run's lock can't be taken: {error.strerror}") from error
