"""A new task is whole, and never written over anything."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.outcome import Integrity
from harness.task.load import load_task
from harness.task.template import create_task


def test_a_new_task_loads_without_a_word(tmp_path: Path) -> None:
    folder = create_task(tmp_path / "tasks/my-task")
    task = load_task(folder)
    assert task.warnings == ()
    assert (task.name, task.integrity, task.graded_artifacts) == ("my-task", Integrity.PRISTINE, ("/app",))
    for script in ("tests/test.sh", "solution/solve.sh"):
        assert os.access(folder / script, os.X_OK)


@pytest.mark.parametrize("solved", [True, False])
def test_its_scripts_agree(solved: bool, tmp_path: Path) -> None:
    folder, app = create_task(tmp_path / "t"), tmp_path / "app"
    app.mkdir()
    if solved:
        subprocess.run([folder / "solution/solve.sh"], cwd=app, check=True)
    script = (folder / "tests/test.sh").read_text().replace("/logs/verifier", str(tmp_path / "logs"))
    subprocess.run(["bash", "-c", script], cwd=app, check=True)
    assert (tmp_path / "logs/reward.txt").read_text() == f"{int(solved)}\n"


@pytest.mark.parametrize("name", ["", "..", "a b", ".hidden", "-n", "a\nb", "é", "x" * 101, "end."])
def test_names_that_can_not_be(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"can't be a task's name|exists already"):
        create_task(tmp_path / name if name else Path())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["file", "folder", "task", "dangling link"])
def test_nothing_is_overwritten(kind: str, tmp_path: Path) -> None:
    target = tmp_path / "there"
    match kind:
        case "file":
            target.write_text("mine")
        case "folder":
            target.mkdir()
        case "task":
            create_task(target)
            (target / "instruction.md").write_text("mine")
        case _:
            target.symlink_to("nowhere")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match="exists already"):
        create_task(target)
    assert sorted(tmp_path.rglob("*")) == before
    assert kind != "task" or (target / "instruction.md").read_text() == "mine"


def test_a_parent_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError):
        create_task(tmp_path / "file/task")
