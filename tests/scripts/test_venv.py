"""The script that makes the environment says what is missing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "venv.sh"


def test_an_unusable_python_is_named() -> None:
    result = subprocess.run(
        ["sh", str(SCRIPT)], env={**os.environ, "PYTHON": "false"}, capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    assert "Python 3.11 or newer is needed, false isn't" in result.stderr
