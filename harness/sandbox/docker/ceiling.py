"""How many open files an engine can grant: a process without CAP_SYS_RESOURCE can't raise a limit above its own.

An engine inside of a container, or a rootless one, is such a process; asked for more it fails every start. The engine doesn't say,
but where its socket is on this machine, the process behind it can be looked at.
"""

from __future__ import annotations

import re
from pathlib import Path

from harness.sandbox.docker.address import EngineAddress
from harness.sandbox.docker.peer import peer_pid

SYS_RESOURCE = 1 << 24
WHOLE_USER_NAMESPACE = 0xFFFF_FFFF
_HARD_NOFILE = re.compile(r"^Max open files\s+\S+\s+(\d+)", re.MULTILINE)
_EFFECTIVE = re.compile(r"^CapEff:\s*([0-9a-f]+)", re.MULTILINE)


def nofile_ceiling(address: EngineAddress) -> int | None:
    """The most that the engine can grant; None where it can grant anything, or can't be looked at."""
    try:
        pid = peer_pid(address)
        if pid is None:
            return None
        process = Path("/proc") / str(pid)
        limits, status = (process / "limits").read_text(), (process / "status").read_text()
        users = (process / "uid_map").read_text().split()
    except OSError:
        return None
    hard, effective = _HARD_NOFILE.search(limits), _EFFECTIVE.search(status)
    if hard is None or effective is None:
        return None
    initial = len(users) == 3 and int(users[2]) == WHOLE_USER_NAMESPACE
    powerful = initial and bool(int(effective.group(1), 16) & SYS_RESOURCE)
    return None if powerful else int(hard.group(1))
