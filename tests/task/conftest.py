"""A task folder to spoil, one way at a time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Files = dict[str, str | bytes | None]
MakeTask = Callable[..., Path]

GOOD: Files = {
    "task.toml": "[harness]\n",
    "instruction.md": "Do it.\n",
    "environment/Dockerfile": "FROM harness/base:bookworm\nWORKDIR /app\n",
    "tests/test.sh": "#!/bin/bash\necho 1 > /logs/verifier/reward.txt\n",
    "solution/solve.sh": "#!/bin/bash\ntrue\n",
}


@pytest.fixture
def make_task(tmp_path: Path) -> MakeTask:
    """Writes a good task, with the given task.toml and files over it; a file that is None is left out."""

    def make(toml: str | bytes | None = None, files: Files | None = None, folder: str = "sample") -> Path:
        task = tmp_path / folder
        wanted = GOOD | ({} if toml is None else {"task.toml": toml}) | (files or {})
        for name, content in wanted.items():
            if content is not None:
                path = task / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content.encode() if isinstance(content, str) else content)
        return task

    return make
