"""The product as a user runs it: a process, its exit status, and what it printed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "tasks"
COMMAND = [sys.executable, "-c", "from harness.cli import main; main()"]


@dataclass(frozen=True, slots=True)
class Ran:
    """A finished command."""

    status: int
    stdout: str
    stderr: str

    @property
    def document(self) -> dict[str, Any]:
        return json.loads(self.stdout)

    @property
    def rewards(self) -> dict[str, float | None]:
        return {row["task"]: row["reward"] for row in self.document["attempts"]}


@pytest.fixture
def harness(tmp_path: Path) -> Callable[..., Ran]:
    """Runs the command line with its runs in a folder of the test's own."""

    def call(*arguments: object, runs_dir: Path = tmp_path / "runs") -> Ran:
        words = [str(argument) for argument in arguments]
        if words[0] == "run" and "--retries" not in words:
            words += ["--retries", "0"]  # these tests look at single attempts
        if words[0] in ("run", "resume", "cancel", "show", "runs", "report", "compare"):
            words += ["--runs-dir", str(runs_dir)]
        done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, check=False, cwd=tmp_path)
        return Ran(done.returncode, done.stdout, done.stderr)

    return call
