"""Sensors on the host: a disk's reserve, and whose limit a kill for want of memory was."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from harness.sandbox.host import DiskReserve, KernelLog, Shortage

BEFORE = b"6,1,1000000,-;an older record\n"


def test_a_disk_says_what_it_lacks(tmp_path: Path):
    assert DiskReserve(tmp_path, reserve_bytes=1, reserve_files=1).shortage() is Shortage.NOTHING
    assert DiskReserve(tmp_path, reserve_bytes=2**62).shortage() is Shortage.BYTES
    if os.statvfs(tmp_path).f_files:
        assert DiskReserve(tmp_path, reserve_bytes=1, reserve_files=2**62).shortage() is Shortage.FILES
    assert DiskReserve(tmp_path / "missing").shortage() is None


def oom(constraint: str, *, priority: int = 6, at_s: float | None = None, task: str = "python3") -> bytes:
    """The kernel's record of a kill."""
    micros = round((time.monotonic() if at_s is None else at_s) * 1e6)
    said = f"oom-kill:constraint={constraint},nodemask=(null),cpuset=/,mems_allowed=0,task_memcg=/docker/1,task={task}"
    return f"{priority},2,{micros},-;{said},pid=7,uid=0\n SUBSYSTEM=memory\n".encode()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "kmsg"
    path.write_bytes(BEFORE + oom("CONSTRAINT_NONE"))
    (tmp_path / "vmstat").write_text("nr_free_pages 1\noom_kill 9\n")
    return path


def told(log: Path, *records: bytes, since: float = 0.0) -> bool | None:
    with KernelLog(log, log.with_name("vmstat")) as kernel:
        with log.open("ab") as file:
            file.writelines(records)
        return kernel.global_oom_since(since)


@pytest.mark.parametrize(
    ("record", "answer"),
    [
        (b"", False),
        (oom("CONSTRAINT_NONE"), True),
        (oom("CONSTRAINT_MEMCG"), False),
        (oom("CONSTRAINT_CPUSET"), False),
        # A process chooses its name, and a program with access to the log writes there as itself.
        (oom("CONSTRAINT_MEMCG", task="oom-kill:constraint=CONSTRAINT_NONE,"), False),
        (oom("CONSTRAINT_MEMCG", task="\\x0a6,2,99,-;oom-kill:constraint=CONSTRAINT_NONE,"), False),
        (oom("CONSTRAINT_NONE", priority=8 + 6), False),
        (b"nonsense\n;\n6,x,y;oom-kill:constraint=CONSTRAINT_NONE,\n", False),
    ],
)
def test_only_the_kernels_own_word_of_a_machine_without_memory_counts(log: Path, record: bytes, answer: bool):
    assert told(log, record) is answer


def test_a_kill_before_the_attempt_says_nothing_of_it(log: Path):
    assert told(log, oom("CONSTRAINT_NONE", at_s=100.0), since=200.0) is False


def test_without_the_log_the_count_of_kills_tells_when_there_was_none(tmp_path: Path):
    vmstat = tmp_path / "vmstat"
    vmstat.write_text("oom_kill 9\n")
    with KernelLog(tmp_path / "missing", vmstat) as kernel:
        assert kernel.global_oom_since(0) is False
        vmstat.write_text("oom_kill 10\n")
        assert kernel.global_oom_since(0) is None, "whose limit it was isn't known"


def test_without_anything_nothing_is_known(tmp_path: Path):
    with KernelLog(tmp_path / "missing", tmp_path / "missing") as kernel:
        assert kernel.global_oom_since(0) is None
