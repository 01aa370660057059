"""Looking over a task's folder: what in it can't be used, and one digest over all of it.

The digest is the task's identity: relative paths, contents, execute bits and links; not times, owners or where the folder lies.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from harness.task.reading import Reading

IGNORE_FILE = ".harborignore"
RUNS_FILE = "runs.sqlite"
"""Marks a folder of runs. A run that is started in a task's own folder makes one there; it is no part of the task."""


def survey(reading: Reading) -> str:
    """``sha256:…`` over the folder. Links that leave the benchmark's root and files of odd kinds become problems."""
    whole = hashlib.sha256()
    pending, seen = [reading.folder], {reading.folder}
    while pending:
        top = pending.pop(0)
        for path in _walk(reading, top):
            name = os.path.relpath(path, reading.folder)
            try:
                kind, content, target = _content(reading, path)
            except OSError as error:
                remedy = "Mend the file or its permissions"
                reading.findings.problem_at(_named(reading, path), f"can't be read: {error.strerror}", remedy)
                continue
            encoded = os.fsencode(name)
            whole.update(f"{kind} {len(encoded)} {len(content)} ".encode() + encoded + content)
            if target is not None and target not in seen and not target.is_relative_to(reading.folder):
                # What a link takes in from elsewhere in the benchmark is part of the task too.
                seen.add(target)
                pending.append(target)
    return f"sha256:{whole.hexdigest()}"


def _named(reading: Reading, path: Path) -> str:
    return os.path.relpath(path, reading.folder) if not path.is_relative_to(reading.folder) else reading.name_of(path)


def _walk(reading: Reading, top: Path) -> Iterator[Path]:
    """Everything below, or the path itself when it isn't a folder; sorted, links not followed."""
    if top.is_symlink() or not top.is_dir():
        yield top
        return
    for folder, folders, files in os.walk(top, onerror=lambda error: _unreadable(reading, error)):
        folders.sort()
        if Path(folder) == reading.folder:
            folders[:] = [name for name in folders if not Path(folder, name, RUNS_FILE).is_file()]
        linked = [name for name in folders if Path(folder, name).is_symlink()]
        for name in sorted([*files, *linked]):
            yield Path(folder, name)
        if not folders and not files:
            yield Path(folder)


def _unreadable(reading: Reading, error: OSError) -> None:
    reading.findings.problem_at(str(error.filename), f"can't be read: {error.strerror}", "Mend its permissions")


def _content(reading: Reading, path: Path) -> tuple[str, bytes, Path | None]:
    """Kind, content (a file's digest, a link's text) and, for a good link, what it points to."""
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return "link", os.fsencode(path.readlink()), _target(reading, path)
    if stat.S_ISDIR(mode):
        return "folder", b"", None
    if not stat.S_ISREG(mode):
        remedy = "Remove it: a task consists of files, folders and links"
        reading.findings.problem_at(_named(reading, path), "is neither a file, a folder nor a link", remedy)
        return "other", b"", None
    if path.name == IGNORE_FILE:
        reading.findings.problem_at(
            _named(reading, path), "is not read yet", "Remove it, and the files that it excludes"
        )
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").digest()
    return ("program" if mode & stat.S_IXUSR else "file"), digest, None


def _target(reading: Reading, link: Path) -> Path | None:
    target = Path(os.path.realpath(link))
    if not target.is_relative_to(reading.root):
        what = f"links to {link.readlink()}, which is outside {reading.root}"
        reading.findings.problem_at(_named(reading, link), what, "Copy what it points to into the benchmark")
        return None
    return target if target.exists() else None
