"""What breaks the limits of a build context, and the one message that names everything wrong with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.task.image import ContextLimits

_SHOWN_FOLDERS = 5
_SHOWN_PROBLEMS = 20


@dataclass(frozen=True, slots=True)
class Places:
    """Where a context lies, what its links must not leave, and the file that leaves things out of it (or could)."""

    folder: Path
    root: Path
    ignore_file: Path


def report(
    places: Places, *, sizes: Sequence[tuple[str, int]], limits: ContextLimits, problems: Sequence[str]
) -> str | None:
    """What is wrong with a context, and how to mend it; None when nothing is.

    sizes: path and bytes of each file and link. problems: what else was found, a phrase each.
    """
    files, total = len(sizes), sum(size for _, size in sizes)
    too_large = files > limits.max_files or total > limits.max_bytes
    if not too_large and not problems:
        return None
    lines = [
        f"{places.folder}: this build context can't be used.",
        f"  {files:,} files, at most {limits.max_files:,} are allowed{_over(files, limits.max_files, 'many')}",
        f"  {_bytes(total)}, at most {_bytes(limits.max_bytes)} are allowed{_over(total, limits.max_bytes, 'much')}",
        *(f"  {problem}" for problem in problems[:_SHOWN_PROBLEMS]),
    ]
    if len(problems) > _SHOWN_PROBLEMS:
        lines.append(f"  and {len(problems) - _SHOWN_PROBLEMS} more")
    if too_large:
        lines.extend(_largest(sizes))
    lines.append("To mend it:")
    if too_large:
        lines.append("  - put the Dockerfile into a narrower folder: its folder is the context")
        lines.append(
            f"  - leave out what the image doesn't need in {places.ignore_file} (patterns relative to that folder)"
        )
        lines.append("  - keep many files as one archive: COPY data.tar.gz /tmp/ and RUN tar -xzf /tmp/data.tar.gz")
    if problems:
        lines.append(
            f"  - links must be relative and end below {places.root}; other entries must be readable files or folders; "
            "what the image doesn't need can be left out in .dockerignore"
        )
    return "\n".join(lines)


def _largest(sizes: Sequence[tuple[str, int]]) -> list[str]:
    by_files: Counter[str] = Counter()
    by_bytes: Counter[str] = Counter()
    for path, size in sizes:
        parts = path.split("/")[:-1]
        for depth in range(1, len(parts) + 1):
            parent = "/".join(parts[:depth])
            by_files[parent] += 1
            by_bytes[parent] += size
    if not by_files:
        return ["Largest folders: all files lie in the context's own folder"]
    lines = ["Largest folders by files: " + ", ".join(f"{path} ({count:,})" for path, count in _top(by_files))]
    if largest := _top(by_bytes):  # none where all files in folders are empty
        lines.append("Largest folders by bytes: " + ", ".join(f"{path} ({_bytes(count)})" for path, count in largest))
    return lines


def _top(folders: Counter[str]) -> list[tuple[str, int]]:
    """The largest folders, without those that hold nothing beside one folder that is itself among them."""
    sums = Counter({path: count for path, count in folders.items() if count})
    for path, count in folders.items():
        parent = path.rpartition("/")[0]
        if sums.get(parent) == count:
            del sums[parent]
    return sums.most_common(_SHOWN_FOLDERS)


def _over(value: int, limit: int, too: str) -> str:
    return f"  <- too {too}" if value > limit else ""


def _bytes(count: int) -> str:
    for unit, size in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if count >= size:
            return f"{count / size:.2f} {unit} ({count:,} bytes)"
    return f"{count:,} bytes"
