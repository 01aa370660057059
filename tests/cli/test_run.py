"""What `harness run` says before and after the attempts, where no engine is needed to hear it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from harness.cli import cli
from harness.cli.view import LiveView, PlainView, make_view
from harness.errors import UnsupportedError
from harness.task.template import create_task


def run(folder: Path, *arguments: str) -> Result:
    words = ["run", *arguments, "--runs-dir", str(folder / "runs")]
    return CliRunner().invoke(cli, words, standalone_mode=False)


def test_an_address_that_cant_be_used_is_bad_use_and_leaves_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    create_task(tmp_path / "mine")
    monkeypatch.setenv("DOCKER_HOST", "ssh://somewhere")
    ran = run(tmp_path, str(tmp_path / "mine"))
    assert isinstance(ran.exception, UnsupportedError)
    assert "ssh://somewhere" in str(ran.exception)
    assert not (tmp_path / "runs").exists()


def test_a_benchmark_in_the_configuration_that_no_task_belongs_to_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    create_task(tmp_path / "mine")
    (tmp_path / "config.toml").write_text("[benchmarks.mien]\nn = 3\n[benchmarks.mine]\nn = 1\n")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing")
    ran = run(tmp_path, str(tmp_path / "mine"), "--config", str(tmp_path / "config.toml"))
    assert ran.return_value == 1
    assert "warning: [benchmarks.mien] has no effect" in ran.stderr
    assert "[benchmarks.mine]" not in ran.stderr


def test_the_last_line_says_how_many_tasks_cant_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("sound", "spoiled"):
        create_task(tmp_path / name)
    (tmp_path / "spoiled" / "task.toml").write_text("[agent\n")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing")
    ran = run(tmp_path, str(tmp_path / "sound"), str(tmp_path / "spoiled"))
    assert ran.return_value == 2
    assert ran.stderr.rstrip().endswith("error: 1 task can't run: the messages are above")


@pytest.mark.parametrize(("terminal", "kind"), [("xterm-256color", LiveView), ("dumb", PlainView)])
def test_a_terminal_that_cant_move_its_cursor_gets_plain_lines(
    monkeypatch: pytest.MonkeyPatch, terminal: str, kind: type
):
    monkeypatch.setenv("TERM", terminal)
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    assert isinstance(make_view(1), kind)
