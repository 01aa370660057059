"""The disk reserve: nothing starts below it, and what it would take to start is said."""

import os
from pathlib import Path

import pytest

from harness.errors import StartRefused
from harness.space import DiskReserve


def free(folder: Path) -> int:
    state = os.statvfs(folder)
    return state.f_bavail * state.f_frsize


def test_nothing_starts_below_the_reserve(tmp_path: Path):
    with pytest.raises(StartRefused, match=r"has .* left on its disk, and the reserve is .* \(disk_reserve"):
        DiskReserve(tmp_path, free(tmp_path) * 2).check()


def test_above_it_anything_may(tmp_path: Path):
    DiskReserve(tmp_path, free(tmp_path) // 2).check()


def test_a_folder_that_is_still_to_be_made_lies_on_its_parents_disk(tmp_path: Path):
    DiskReserve(tmp_path / "not" / "there", 1).check()
    with pytest.raises(StartRefused):
        DiskReserve(tmp_path / "not" / "there", free(tmp_path) * 2).check()


def test_no_reserve_is_never_asked_for(tmp_path: Path):
    DiskReserve(tmp_path, 0).check()
