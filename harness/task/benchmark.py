"""A benchmark: a named, versioned set of tasks with a train/test split, described by ``benchmark.toml`` at its root."""

from __future__ import annotations

import fnmatch
from enum import StrEnum
from pathlib import Path, PurePosixPath

from harness.errors import TaskError
from harness.outcome import Record
from harness.task.root import BENCHMARK_FILE
from harness.toml import Findings, Table, read_table, shown


class Split(StrEnum):
    """Which part of a benchmark."""

    TRAIN = "train"
    TEST = "test"


class SplitsTable(Table):
    """``[splits]``: glob patterns over the tasks' folders, relative to the root; ``*`` crosses slashes."""

    train: list[str] = []
    test: list[str] = []


class BenchmarkFile(Table):
    """``benchmark.toml`` as it is written."""

    name: str
    version: str = ""
    description: str = ""
    splits: SplitsTable | None = None


class Benchmark(Record):
    """A benchmark's own words about itself.

    root: its folder, absolute. train, test: patterns; both None where the benchmark isn't split.
    """

    name: str
    version: str = ""
    description: str = ""
    root: Path
    train: tuple[str, ...] | None = None
    test: tuple[str, ...] | None = None

    def holds(self, split: Split, folder: Path) -> bool:
        """Whether the task in ``folder`` belongs to the split."""
        patterns = (self.train if split is Split.TRAIN else self.test) or ()
        return any(matches(folder.relative_to(self.root), pattern) for pattern in patterns)


def matches(folder: Path, pattern: str) -> bool:
    """Whether a task's folder, relative to the root, fits a pattern of a split."""
    return fnmatch.fnmatchcase(folder.as_posix(), PurePosixPath(pattern).as_posix())


def load_benchmark(root: Path) -> Benchmark:
    """The benchmark at ``root``, which holds a ``benchmark.toml``. Raises TaskError."""
    file = root / BENCHMARK_FILE
    findings = Findings(str(file))
    benchmark = read_benchmark(root, findings)
    if benchmark is None:
        raise TaskError(findings.problems)
    return benchmark


def read_benchmark(root: Path, findings: Findings) -> Benchmark | None:
    """As `load_benchmark`, but what is wrong goes to ``findings``, which name the file."""
    table = read_table(root / BENCHMARK_FILE, BenchmarkFile, findings)
    if table is None:
        return None
    before = len(findings.problems)
    if not table.name.strip() or "/" in table.name or not table.name.isprintable():
        findings.problem(
            "name", f"{shown(table.name)} can't be a benchmark's name", "Write a short name without slashes"
        )
    splits = table.splits
    for split in Split if splits else ():
        for index, pattern in enumerate(getattr(splits, split)):
            if pattern.startswith("/") or ".." in pattern.split("/") or not pattern:
                what = f"{shown(pattern)} is not a pattern below the benchmark's root"
                findings.problem(
                    f"splits.{split}[{index}]", what, 'Write it relative to the root, such as "tasks/easy-*"'
                )
    if len(findings.problems) > before:
        return None
    return Benchmark(
        name=table.name,
        version=table.version,
        description=table.description,
        root=root.resolve(),
        train=tuple(splits.train) if splits else None,
        test=tuple(splits.test) if splits else None,
    )
