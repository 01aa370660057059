"""A test that is skipped where it must run fails the session."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SKIPS = "import pytest\n@pytest.mark.{mark}\ndef test_a():\n    pytest.skip('reason-a')\n"
WHOLE_MODULE = "import pytest\npytest.importorskip('no_such_module')\n"
SETTINGS = "[pytest]\nmarkers =\n  engine\n  network\n  gpu\n"


def session(folder: Path, source: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A pytest session of its own over one test file, with this project's conftest."""
    shutil.copy(Path(__file__).with_name("conftest.py"), folder)
    (folder / "pytest.ini").write_text(SETTINGS)
    (folder / "test_source.py").write_text(source)
    (folder / "test_other.py").write_text("def test_b():\n    pass\n")
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("HARNESS_", "COV_", "PYTEST_"))
    }
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:cov", str(folder)],
        cwd=folder,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("source", "environment", "passes"),
    [
        (SKIPS.format(mark="network"), {"HARNESS_REQUIRE_ALL": "1"}, False),
        (SKIPS.format(mark="network"), {}, True),
        (SKIPS.format(mark="gpu"), {"HARNESS_REQUIRE_ALL": "1"}, True),
        (WHOLE_MODULE, {"HARNESS_REQUIRE_ALL": "1"}, False),
        ("def test_a():\n    pass\n", {"HARNESS_REQUIRE_ALL": "1"}, True),
    ],
    ids=["required", "not-required", "gpu", "whole-module", "nothing-skipped"],
)
def test_exit_status(tmp_path: Path, source: str, environment: dict[str, str], passes: bool) -> None:
    assert session(tmp_path, source, **environment).returncode == (0 if passes else 1)


def test_skipped_test_is_named_with_its_reason(tmp_path: Path) -> None:
    result = session(tmp_path, SKIPS.format(mark="network"), HARNESS_REQUIRE_ALL="1")
    assert "test_source.py::test_a: Skipped: reason-a" in result.stdout
    assert result.stdout.rstrip().splitlines()[-1].startswith("=") and "1 skipped" in result.stdout.splitlines()[-1]


def test_an_unmet_need_skips(tmp_path: Path) -> None:
    source = "import pytest\n@pytest.mark.network\ndef test_a():\n    raise AssertionError\n"
    result = session(tmp_path, source, HARNESS_OFFLINE="1")
    assert result.returncode == 0
    assert "HARNESS_OFFLINE is set" in result.stdout
