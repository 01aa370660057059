import os
import sys

import pytest

from bench.measure import measure

BURN = "import time\nend = time.process_time() + {seconds}\nwhile time.process_time() < end: pass"


def test_own_and_children_cpu_are_told_apart():
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BURN.format(seconds=0.3)!r}])"
    usage = measure([sys.executable, "-c", f"{child}\n{BURN.format(seconds=0.1)}"])
    assert usage.exit_status == 0
    assert usage.children_cpu_s >= 0.28
    assert 0.08 <= usage.own_cpu_s < usage.children_cpu_s
    assert usage.wall_s >= 0.35
    assert usage.machine_cpu_s >= 0.3


def test_exit_status_output_and_environment_are_reported():
    usage = measure(["sh", "-c", "echo out $WORD; echo err >&2; exit 3"], env={**os.environ, "WORD": "here"})
    assert usage.exit_status == 3
    assert usage.output == "out here\nerr\n"


def test_death_by_signal_is_a_negative_status():
    assert measure(["sh", "-c", "kill -9 $$"]).exit_status == -9


def test_peak_memory():
    usage = measure([sys.executable, "-c", "block = b'x' * (200 << 20)"])
    assert 200 << 20 <= usage.peak_rss_bytes < 400 << 20


def test_a_command_that_does_not_exist():
    with pytest.raises(FileNotFoundError):
        measure(["/no/such/command"])
