"""A build context: what lies in a Dockerfile's folder after ``.dockerignore``, checked before the engine is asked.

Files and links count towards the limit of files, folders don't; a file with two hard links counts twice, as it is sent twice. Owners
and extended attributes aren't sent: everything in a context belongs to root.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from harness.errors import ContextError
from harness.images.ignore import FolderMatch, Governing, governing_rules
from harness.images.limits import Places, report
from harness.task.image import ContextLimits


class Kind(StrEnum):
    """What an entry of a context is."""

    FILE = "file"
    LINK = "link"
    FOLDER = "folder"


class Stamp(NamedTuple):
    """What tells whether a file is still the one that was listed. Times in nanoseconds."""

    device: int
    inode: int
    size: int
    modified: int
    changed: int

    @classmethod
    def of(cls, status: os.stat_result) -> Stamp:
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)

    def same_content(self, other: Stamp) -> bool:
        """Leaves out the change time: a new hard link or owner changes nothing that is sent."""
        return self[:4] == other[:4]


@dataclass(frozen=True, slots=True)
class Entry:
    """One member of a context. ``path``: relative to the context, with slashes. ``mode``: permission bits."""

    path: str
    kind: Kind
    mode: int
    stamp: Stamp
    target: str = ""
    """Where a link points, as it is written in the link."""


@dataclass(frozen=True, slots=True)
class Context:
    """A checked context: entries in the order of their paths."""

    folder: Path
    dockerfile: str
    """The Dockerfile's name in ``folder``; it is an entry too, whatever the ignore rules say."""
    entries: tuple[Entry, ...]
    passed_over: Path | None = None
    """The folder's own ignore file, where the benchmark's root has one too: that one decides."""

    @property
    def files(self) -> int:
        return sum(entry.kind is not Kind.FOLDER for entry in self.entries)

    @property
    def total_bytes(self) -> int:
        return sum(entry.stamp.size for entry in self.entries if entry.kind is Kind.FILE)


def scan_context(dockerfile: Path, *, root: Path | None, limits: ContextLimits) -> Context:
    """List and check the folder of ``dockerfile``. No file is read, and a folder that is left out isn't entered.

    root: where ``.dockerignore`` is read first, the folder itself or one above it; None means the folder. Links stay below it.

    Raises ContextError with every problem at once: limits, links that leave the root, what can't be sent or read.
    """
    dockerfile = Path(os.path.abspath(dockerfile))  # noqa: PTH100 - resolving a link would change the context
    folder = dockerfile.parent
    root = folder if root is None else Path(os.path.abspath(root))  # noqa: PTH100
    if not dockerfile.is_file():
        raise ContextError(f"{dockerfile}: no such Dockerfile. Write one there, or mend the path.")
    if not folder.is_relative_to(root):  # perhaps only one of them is named through a link
        folder, root = folder.resolve(), root.resolve()
    if not folder.is_relative_to(root):
        raise ContextError(
            f"{dockerfile}: it isn't below the benchmark's root {root}. Move it there, or name another root."
        )
    governing = governing_rules(root, folder, dockerfile.name)
    scan = _Scan(folder, root, dockerfile.name, governing)
    entries = tuple(sorted(scan.entries(), key=lambda entry: entry.path))
    context = Context(folder=folder, dockerfile=dockerfile.name, entries=entries, passed_over=governing.passed_over)
    sizes = [
        (entry.path, entry.stamp.size if entry.kind is Kind.FILE else 0)
        for entry in entries
        if entry.kind is not Kind.FOLDER
    ]
    places = Places(folder=folder, root=root, ignore_file=governing.file)
    if problem := report(places, sizes=sizes, limits=limits, problems=scan.problems):
        raise ContextError(problem)
    return context


class _Scan:
    """One walk through a context."""

    def __init__(self, folder: Path, root: Path, dockerfile: str, governing: Governing) -> None:
        self._folder = folder
        self._real_root = os.path.realpath(root)
        self._dockerfile = dockerfile
        self._rules = governing.rules
        top = governing.folder
        self._prefix = "" if folder == top else f"{folder.relative_to(top).as_posix()}/"
        """Of the context's paths, in the patterns."""
        self.problems: list[str] = []

    def entries(self) -> Iterator[Entry]:
        top = self._rules.root
        enter = True
        path = ""
        for part in self._prefix.split("/")[:-1]:
            path = f"{path}/{part}" if path else part
            top = self._rules.folder(path, top)
            enter = enter and (not top.ignored or self._rules.reopens(path))
        if not enter:  # the whole folder is left out; the Dockerfile goes in all the same
            yield self._dockerfile_entry()
            return
        pending: list[tuple[str, FolderMatch]] = [("", top)]
        while pending:
            prefix, match = pending.pop()
            try:
                with os.scandir(self._folder / prefix) as found:
                    listing = list(found)
            except OSError as error:
                self.problems.append(f"the folder {prefix or '.'} can't be read: {error.strerror}")
                continue
            for item in listing:
                path = prefix + item.name
                if path == self._dockerfile:
                    yield self._dockerfile_entry()
                elif not item.is_dir(follow_symlinks=False):
                    if not self._rules.ignores(self._prefix + path, match):
                        yield from self._leaf(path, item)
                else:
                    below = self._rules.folder(self._prefix + path, match)
                    if not below.ignored:
                        yield self._entry(path, Kind.FOLDER, item.stat(follow_symlinks=False))
                    if not below.ignored or self._rules.reopens(self._prefix + path):
                        pending.append((path + "/", below))

    def _dockerfile_entry(self) -> Entry:
        """Through a link too: the builder gets the Dockerfile's text as a file."""
        path = self._folder / self._dockerfile
        if not _within(os.path.realpath(path), self._real_root):
            self.problems.append(f"the Dockerfile {self._dockerfile} is a link that leaves the root")
        return self._entry(self._dockerfile, Kind.FILE, path.stat())

    def _leaf(self, path: str, item: os.DirEntry[str]) -> Iterator[Entry]:
        try:
            status = item.stat(follow_symlinks=False)
        except OSError as error:
            self.problems.append(f"{path} can't be read: {error.strerror}; it may have just gone")
            return
        if stat.S_ISREG(status.st_mode):
            if not os.access(item.path, os.R_OK, effective_ids=os.access in os.supports_effective_ids):
                self.problems.append(f"the file {path} can't be read: permission denied")
            yield self._entry(path, Kind.FILE, status)
        elif stat.S_ISLNK(status.st_mode):
            target = os.readlink(item.path)  # noqa: PTH115 - a Path would tidy what the link says
            self._check_link(path, item.path, target)
            yield self._entry(path, Kind.LINK, status, target)
        else:
            self.problems.append(f"{path} is {_special(status.st_mode)}, which can't be sent")

    def _check_link(self, path: str, absolute: str, target: str) -> None:
        if target.startswith("/"):
            self.problems.append(f"the link {path} is absolute: it points to {target}")
            return
        try:
            real = os.path.realpath(absolute, strict=True)
        except OSError as error:
            self.problems.append(f"the link {path} leads nowhere: it points to {target} ({error.strerror})")
            return
        if not _within(real, self._real_root):
            self.problems.append(f"the link {path} leaves the root: it points to {target}")

    def _entry(self, path: str, kind: Kind, status: os.stat_result, target: str = "") -> Entry:
        return Entry(path=path, kind=kind, mode=stat.S_IMODE(status.st_mode), stamp=Stamp.of(status), target=target)


def _within(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


def _special(mode: int) -> str:
    for test, name in ((stat.S_ISFIFO, "a named pipe"), (stat.S_ISSOCK, "a socket")):
        if test(mode):
            return name
    return "a device"
