"""A new task from the template: it passes as it is with the reference solution, and fails with no work done."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from harness.errors import UsageError
from harness.toml import shown

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def create_task(target: Path) -> Path:
    """Make a task's folder at ``target``, whose last part is the task's name. Returns the folder.

    Raises UsageError when the name can't be a task's or something lies there already; nothing is ever overwritten.
    """
    name = target.name
    if not _NAME.fullmatch(name) or name.endswith("."):
        raise UsageError(
            f"{shown(name)} can't be a task's name. Use letters, digits, hyphens, underscores and dots: my-task."
        )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.mkdir()
        for source, relative in _template(files("harness.task") / "template_files", Path()):
            path = target / relative
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(source.read_bytes())
            if path.suffix == ".sh":
                # An installed package may have lost the bit.
                path.chmod(0o755)
    except FileExistsError as error:
        raise UsageError(f"{error.filename or target} exists already. Choose another name, or remove it.") from error
    except OSError as error:
        raise UsageError(f"{error.filename or target} can't be written: {error.strerror}.") from error
    return target


def _template(folder: Traversable, below: Path) -> Iterator[tuple[Traversable, Path]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _template(entry, below / entry.name)
        else:
            yield entry, below / entry.name
