"""Finding the tasks that a path means: a task, a folder of tasks, or a benchmark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import Problem, TaskError, UsageError
from harness.task.benchmark import Benchmark, Split, load_benchmark, matches
from harness.task.image import ContextLimits
from harness.task.load import load_task
from harness.task.model import Task
from harness.task.reading import FILE_NAME
from harness.task.root import BENCHMARK_FILE, find_root

MAX_DEPTH = 4
"""How many levels below a folder are searched. A task's own folder is not searched for others."""


def find_tasks(*paths: Path, split: Split | None = None) -> list[Path]:
    """The folders of all tasks that the paths mean, sorted, each once.

    split: only the tasks of that part of their benchmark.
    Raises UsageError when a path holds no task, and TaskError when a benchmark's file is wrong.
    """
    found: dict[Path, Path] = {}
    for path in paths:
        folders = _below(path)
        if split is not None:
            folders = _of_split(path, folders, split)
        for folder in folders:
            found.setdefault(folder.resolve(), folder)
    return sorted(found.values())


def _below(path: Path) -> list[Path]:
    if path.name == FILE_NAME and path.is_file():
        return [path.parent]
    if not path.is_dir():
        what = "is a file" if path.exists() else "does not exist"
        raise UsageError(f"{path}: {what}. Name a task's folder, a folder of tasks or a benchmark.")
    folders = list(_search(path, MAX_DEPTH))
    if not folders:
        raise UsageError(_nothing(path))
    return folders


def _search(folder: Path, depth: int) -> Iterator[Path]:
    if (folder / FILE_NAME).is_file():
        yield folder
    elif depth > 0:
        for child in _subfolders(folder):
            yield from _search(child, depth - 1)


def _subfolders(folder: Path) -> list[Path]:
    try:
        return sorted(child for child in folder.iterdir() if child.is_dir() and not child.name.startswith("."))
    except OSError as error:
        raise UsageError(f"{folder}: can't be read: {error.strerror}. Mend its permissions.") from error


def _nothing(path: Path) -> str:
    message = f"{path}: no task here: found no {FILE_NAME} in it, nor in its folders down to {MAX_DEPTH} levels."
    almost = [folder for folder in (path, *_subfolders(path)) if (folder / "instruction.md").is_file()]
    if almost:
        return f"{message} {almost[0]} has an instruction.md: write a {FILE_NAME} beside it."
    if find_root(path) != path.resolve():
        return f"{message} The benchmark around it is {find_root(path)}."
    return f"{message} `harness init NAME` makes a task that passes as it is."


def _of_split(path: Path, folders: list[Path], split: Split) -> list[Path]:
    chosen: list[Path] = []
    checked: dict[Path, Benchmark] = {}
    for folder in folders:
        root = find_root(folder)
        if root not in checked:
            if not (root / BENCHMARK_FILE).is_file():
                raise UsageError(f"{folder}: belongs to no benchmark, so it has no {split} split. Leave the split out.")
            checked[root] = check_splits(root)
        if checked[root].holds(split, folder.resolve()):
            chosen.append(folder)
    if not chosen:
        raise UsageError(f"{path}: none of its {len(folders)} tasks is in the {split} split.")
    return chosen


def check_splits(root: Path) -> Benchmark:
    """The benchmark at ``root``, its splits held against the tasks that exist.

    Raises TaskError: a pattern that no task fits, or a task in both splits.
    """
    benchmark = load_benchmark(root)
    file = root / BENCHMARK_FILE
    if benchmark.train is None or benchmark.test is None:
        raise TaskError([Problem(f"{file}: splits", "this table is missing", "Write [splits] with train and test")])
    folders = [
        folder.resolve().relative_to(root)
        for folder in _search(root, MAX_DEPTH)
        if folder.resolve().is_relative_to(root)
    ]
    problems: list[Problem] = []
    for split, patterns in ((Split.TRAIN, benchmark.train), (Split.TEST, benchmark.test)):
        for index, pattern in enumerate(patterns):
            if not any(matches(folder, pattern) for folder in folders):
                remedy = "Correct it: patterns are over tasks' folders, relative to the root"
                problems.append(Problem(f"{file}: splits.{split}[{index}]", f'no task fits "{pattern}"', remedy))
    for folder in folders:
        if all(benchmark.holds(split, root / folder) for split in Split):
            problems.append(
                Problem(
                    f"{file}: splits", f"{folder} is in both train and test", "Make the patterns exclude each other"
                )
            )
    if problems:
        raise TaskError(problems)
    return benchmark


@dataclass(frozen=True, slots=True)
class Loaded:
    """Tasks that can run, and the folders of those that can't, with the reason."""

    tasks: tuple[Task, ...]
    failures: tuple[tuple[Path, UsageError], ...]
    warnings: tuple[str, ...] = ()
    """On several tasks at once; what a task alone is warned of is on the task."""


def load_tasks(
    folders: Sequence[Path], *, environ: Mapping[str, str] | None = None, limits: ContextLimits = ContextLimits()
) -> Loaded:
    """Load each; one that is wrong doesn't keep the others from running. Two tasks of one name in a benchmark are both wrong."""
    tasks: dict[Path, Task] = {}
    failures: list[tuple[Path, TaskError]] = []
    by_key: dict[tuple[Path | None, str], list[Path]] = {}
    for folder in folders:
        try:
            task = load_task(folder, environ=environ, limits=limits)
        except TaskError as error:
            failures.append((folder, error))
            continue
        tasks[folder] = task
        alone = task.root == task.path
        by_key.setdefault((None if alone else task.root, task.name), []).append(folder)
    for (_, name), same in by_key.items():
        for folder in same if len(same) > 1 else ():
            others = ", ".join(str(other) for other in same if other != folder)
            remedy = (
                "Give each its own name in [task]" if "/" in name else "Rename a folder, or name the tasks in [task]"
            )
            failures.append((folder, TaskError([Problem(str(folder), f"{others} has the same name, {name}", remedy)])))
            del tasks[folder]
    return Loaded(tuple(tasks.values()), tuple(failures))
