"""The lock on a run: one owner; whoever comes second hears within a second who that is; it ends with its process."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.errors import RunHeld, StoreError
from harness.lock import LOCK, is_held, last_holder, own_run

HOLD = "import sys, time; from pathlib import Path; from harness.lock import own_run\n"
HOLD += "with own_run(Path(sys.argv[1])):\n    print('held', flush=True)\n    sys.stdin.read()"


def hold_elsewhere(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLD, str(folder)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_owner_is_refused_within_a_second_and_told_who_holds_it(tmp_path: Path):
    process = hold_elsewhere(tmp_path / "r")
    try:
        began = time.monotonic()
        with (
            pytest.raises(RunHeld, match=rf"run r is owned by process {process.pid} on \S+, since 20"),
            own_run(tmp_path / "r"),
        ):
            pass
        assert time.monotonic() - began < 1
        assert is_held(tmp_path / "r")
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_lock_ends_with_its_process(tmp_path: Path, number: int):
    process = hold_elsewhere(tmp_path)
    os.kill(process.pid, number)
    process.communicate()
    assert not is_held(tmp_path)
    holder = last_holder(tmp_path)
    assert holder is not None
    assert holder.pid == process.pid
    with own_run(tmp_path) as holder:
        assert holder.pid == os.getpid()
        assert is_held(tmp_path)
    assert not is_held(tmp_path)


def test_a_holder_in_the_same_process_counts_too(tmp_path: Path):
    with own_run(tmp_path), pytest.raises(RunHeld), own_run(tmp_path):
        pass


def test_asking_keeps_nobody_out(tmp_path: Path):
    code = "import sys; from pathlib import Path; from harness.lock import is_held\nprint(flush=True)\n"
    code += "while True: is_held(Path(sys.argv[1]))"
    asking = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
    try:
        assert asking.stdout is not None
        asking.stdout.readline()
        for _ in range(50):
            with own_run(tmp_path):
                pass
    finally:
        asking.kill()
        asking.communicate()


def test_a_lock_file_that_was_removed_is_made_anew(tmp_path: Path):
    with own_run(tmp_path):
        (tmp_path / LOCK).unlink()
        with own_run(tmp_path):
            assert is_held(tmp_path)


def test_a_folder_without_a_lock_is_not_held(tmp_path: Path):
    assert not is_held(tmp_path / "none")
    assert last_holder(tmp_path / "none") is None
    (tmp_path / LOCK).write_text("{")
    assert last_holder(tmp_path) is None


def test_a_folder_that_cant_be_made_is_one_clear_error(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="lock can't be taken"), own_run(tmp_path / "file" / "r"):
        pass
