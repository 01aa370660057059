"""The process behind the engine's socket, where that is a process of this machine.

Docker's API says neither when the engine was started nor what it may do; its process does. A socket that another program listens
on (systemd's socket activation, a forwarded socket) leads to that program: its start says nothing about the engine's.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

import psutil

from harness.sandbox.docker.address import EngineAddress, UnixAddress
from harness.sandbox.docker.owner import START_TOLERANCE_S, this_process

ENGINES = frozenset({"dockerd", "podman"})
CONNECT_S = 1.0


@dataclass(frozen=True, slots=True)
class EngineProcess:
    """One life of an engine. started: unix time. boot: the machine's boot id."""

    name: str
    pid: int
    started: float
    boot: str

    def same(self, other: EngineProcess) -> bool:
        """Whether it is still that process. A start is computed from the clock, which may have been set since."""
        near = abs(self.started - other.started) <= START_TOLERANCE_S
        return near and (self.pid, self.boot) == (other.pid, other.boot)


def peer_pid(address: EngineAddress) -> int | None:
    """Who listens at the address; None where that can't be known. Raises OSError when nobody does."""
    if not isinstance(address, UnixAddress) or not hasattr(socket, "SO_PEERCRED"):
        return None
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(CONNECT_S)
        peer.connect(address.path)
        credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", credentials)[0] or None


def engine_process(address: EngineAddress) -> EngineProcess | None:
    """The engine's own process; None where it is another program that listens, another machine, or nobody."""
    try:
        pid = peer_pid(address)
        if pid is None:
            return None
        process = psutil.Process(pid)
        name = process.name()
        if name not in ENGINES:
            return None
        return EngineProcess(name, pid, process.create_time(), this_process().boot)
    except (OSError, psutil.Error):
        return None
