"""Harbor's own templates, where its package is installed: they are templates, so what is left open in them is filled in first."""

from __future__ import annotations

import os
import shutil
import sysconfig
from importlib.util import find_spec
from pathlib import Path

import pytest

from harness.task.load import load_task


def _package() -> Path | None:
    """The folder of the package, from HARBOR_PACKAGE or from this environment."""
    named = os.environ.get("HARBOR_PACKAGE")
    if named:
        return Path(named)
    spec = find_spec("harbor") if Path(sysconfig.get_path("purelib"), "harbor").is_dir() else None
    return Path(spec.origin).parent if spec and spec.origin else None


PACKAGE = _package()
TEMPLATES = sorted(path.parent for path in PACKAGE.rglob("task.toml")) if PACKAGE else []


@pytest.mark.skipif(not TEMPLATES, reason="Harbor's package is not installed")
@pytest.mark.parametrize("template", TEMPLATES, ids=str)
def test_harbors_templates_load(template: Path, tmp_path: Path) -> None:
    folder = tmp_path / "task"
    shutil.copytree(template, folder)
    config = folder / "task.toml"
    config.write_text(config.read_text().replace("{{ADAPTER_ID}}__{task_id}", "adapter__1"))
    instruction = folder / "instruction.md"
    instruction.write_text((instruction.read_text() if instruction.exists() else "") + "\nDo it.\n")
    task = load_task(folder)
    assert task.warnings == ()
    assert not task.integrity_declared
