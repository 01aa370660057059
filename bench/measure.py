"""What one command costs: wall time, its own and its children's CPU time, the engine's, and peak memory."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

ENGINE_PROCESSES = frozenset({"dockerd", "containerd"})
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Usage:
    """One run of one command. Times in seconds; CPU times have the kernel's resolution of a clock tick (10 ms).

    own_cpu_s: the command's process alone. children_cpu_s: every descendant that was waited for.
    engine_cpu_s: dockerd and containerd with the helpers they waited for; the containers' shims and runc are not in it.
    machine_cpu_s: everything that this machine did meanwhile, shims, containers and strangers included.
    peak_rss_bytes: of the largest single process, the command or a descendant.
    """

    command: tuple[str, ...]
    exit_status: int
    wall_s: float
    own_cpu_s: float
    children_cpu_s: float
    engine_cpu_s: float
    machine_cpu_s: float
    peak_rss_bytes: int
    output: str
    """Standard output and error, as they came."""

    @property
    def cpu_s(self) -> float:
        """The command's with its children's."""
        return self.own_cpu_s + self.children_cpu_s


def measure(command: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> Usage:
    """Run a command to its end. Its exit status is reported, never raised.

    Raises OSError when the command can't be started.
    """
    with tempfile.TemporaryFile() as output:
        engine_before, machine_before, begin = _engine_cpu_s(), _machine_cpu_s(), time.perf_counter()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=env, cwd=cwd)
        try:
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        except BaseException:
            process.kill()
            process.wait()
            raise
        wall_s = time.perf_counter() - begin
        own_cpu_s, children_cpu_s = _zombie_cpu_s(process.pid)
        _, status, resources = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        engine_after, machine_after = _engine_cpu_s(), _machine_cpu_s()
        output.seek(0)
        text = output.read().decode("utf-8", "replace")
    return Usage(
        command=tuple(command),
        exit_status=process.returncode,
        wall_s=wall_s,
        own_cpu_s=own_cpu_s,
        children_cpu_s=children_cpu_s,
        engine_cpu_s=engine_after - engine_before,
        machine_cpu_s=machine_after - machine_before,
        peak_rss_bytes=resources.ru_maxrss * 1024,
        output=text,
    )


def _zombie_cpu_s(pid: int) -> tuple[float, float]:
    """Own and waited-for children's CPU time of a process that has ended but hasn't been reaped."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system, children_user, children_system = (int(field) * TICK_S for field in fields[11:15])
    return user + system, children_user + children_system


def _engine_cpu_s() -> float:
    total = 0.0
    for process in psutil.process_iter(["name", "cpu_times"]):
        if process.info["name"] in ENGINE_PROCESSES and (times := process.info["cpu_times"]) is not None:
            total += times.user + times.system + times.children_user + times.children_system
    return total


def _machine_cpu_s() -> float:
    times = psutil.cpu_times()
    return sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0)
