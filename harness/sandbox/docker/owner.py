"""Who owns what is on the engine: labels, and whether the process that they name still lives."""

from __future__ import annotations

import json
import math
import os
import time
import uuid
from dataclasses import asdict, dataclass
from enum import Enum
from functools import cache
from pathlib import Path

import psutil

from harness.ports import Labels

RUN = "harness.run"
ATTEMPT = "harness.attempt"
ROLE = "harness.role"
OWNER = "harness.owner"
LEASE = "harness.lease"
"""Unix time after which anyone may remove it."""

START_TOLERANCE_S = 3.0
"""A process's start time is computed from the clock's, which may have been set since."""


class Life(Enum):
    """What is known about an owner."""

    ALIVE = "alive"
    DEAD = "dead"
    UNKNOWN = "unknown"
    """Another machine, or another container's process numbers: only the lease decides."""


@dataclass(frozen=True, slots=True)
class Owner:
    """A process, exactly: a number may be used again, and another machine may use the same engine.

    host, boot: ids of the machine and of its boot. pids: which process numbers ``pid`` belongs to (a container has its own).
    started: unix time. after_boot: the same in seconds from the machine's boot, which setting the clock doesn't change; it decides
    where it is known.
    """

    host: str
    boot: str
    pids: str
    pid: int
    started: float
    after_boot: float | None = None

    def label(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    def life(self) -> Life:
        here = this_process()
        if self.host != here.host:
            return Life.UNKNOWN
        if self.boot != here.boot:
            return Life.DEAD
        if self.pids != here.pids:
            return Life.UNKNOWN
        try:
            process = psutil.Process(self.pid)
            if process.status() == psutil.STATUS_ZOMBIE:
                return Life.DEAD
            if self.after_boot is not None and (after_boot := _after_boot(self.pid)) is not None:
                return Life.ALIVE if after_boot == self.after_boot else Life.DEAD
            started = process.create_time()
        except psutil.NoSuchProcess:
            return Life.DEAD
        except psutil.Error:
            return Life.UNKNOWN
        return Life.ALIVE if abs(started - self.started) <= START_TOLERANCE_S else Life.DEAD


def parse_owner(label: str) -> Owner | None:
    """None where the label isn't one of ours."""
    try:
        fields = json.loads(label)
        return Owner(
            host=str(fields["host"]),
            boot=str(fields["boot"]),
            pids=str(fields["pids"]),
            pid=int(fields["pid"]),
            started=float(fields["started"]),
            after_boot=None if fields.get("after_boot") is None else float(fields["after_boot"]),
        )
    except (ValueError, KeyError, TypeError):
        return None


def this_process() -> Owner:
    """The owner of whatever this process creates."""
    return owner_of(os.getpid())


@cache
def owner_of(pid: int) -> Owner:
    """What a process of this machine is known by. Raises psutil.NoSuchProcess."""
    return Owner(
        host=_read("/etc/machine-id") or f"{uuid.getnode():012x}",
        boot=_read("/proc/sys/kernel/random/boot_id") or f"{psutil.boot_time():.0f}",
        pids=_pid_namespace(),
        pid=pid,
        started=round(psutil.Process(pid).create_time(), 2),
        after_boot=_after_boot(pid),
    )


def _after_boot(pid: int) -> float | None:
    stat = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return int(stat[19]) / os.sysconf("SC_CLK_TCK") if len(stat) > 19 else None


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _pid_namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def labels_of(labels: Labels) -> dict[str, str]:
    """What everything that one attempt makes on the engine is labelled with."""
    return {
        RUN: labels.run,
        ATTEMPT: labels.attempt,
        ROLE: labels.role,
        OWNER: this_process().label(),
        LEASE: str(math.ceil(time.time() + labels.lease_s)),
    }
