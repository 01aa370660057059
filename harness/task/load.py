"""Reading a task's folder in Harbor's format: every problem at once, each with its place and how to mend it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from harness.errors import TaskError
from harness.task.benchmark import read_benchmark
from harness.task.environment import resolve_environment, resolve_image
from harness.task.harbor import SCHEMA_VERSION, PackageTable, TaskFile
from harness.task.image import ContextLimits
from harness.task.integrity import graded_artifacts, task_integrity
from harness.task.model import Repository, Step, StepReward, Task
from harness.task.reading import FILE_NAME, Reading
from harness.task.root import BENCHMARK_FILE, find_root
from harness.task.steps import Whole, resolve_steps
from harness.task.survey import survey
from harness.task.variables import resolve_variables
from harness.toml import Findings, is_text, read_table, shown

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")


def load_task(path: Path, *, environ: Mapping[str, str] | None = None, limits: ContextLimits = ContextLimits()) -> Task:
    """The task in the folder ``path`` (or whose ``task.toml`` it is).

    environ: the host's variables that the task may ask for; None: this process's own.
    limits: of build contexts, where the task sets none.
    Raises TaskError with every problem that was found.
    """
    folder = path.parent if path.name == FILE_NAME and not path.is_dir() else path
    findings = Findings(str(folder / FILE_NAME))
    task = None
    try:
        if folder.is_dir():
            file = read_table(folder / FILE_NAME, TaskFile, findings)
            reading = Reading(
                folder=folder.resolve(),
                shown=folder,
                root=find_root(folder),
                own=None if file is None else file.harness,
                environ=os.environ if environ is None else environ,
                limits=limits,
                findings=findings,
            )
            if not is_text(str(reading.folder)):
                findings.problem_at(folder, "its path isn't valid UTF-8", "Rename the folder")
            digest = survey(reading)
            task = None if file is None else _task(reading, file, digest)
        else:
            what = "is a file, not a task's folder" if folder.exists() else "this folder is missing"
            findings.problem_at(folder, what, "Name a folder that holds a task.toml")
    except OSError as error:
        what = f"can't be read: {error.strerror}"
        findings.problem_at(error.filename or folder, what, "Mend the file or its permissions")
    if task is None or findings.problems:
        raise TaskError(tuple(dict.fromkeys(findings.problems)))
    return task


def _task(reading: Reading, file: TaskFile, digest: str) -> Task:
    image = resolve_image(reading, file.environment, reading.folder / "environment", "environment")
    environment = resolve_environment(reading, file.environment, "environment", image)
    tier = task_integrity(reading, file.verifier)
    steps = resolve_steps(reading, Whole(file, environment, tier.integrity))
    tiers = frozenset(step.integrity or tier.integrity for step in steps)
    name = _name(reading, file.task)
    _check_version(reading, file)
    _check_rewards(reading, file, steps)
    own, package = reading.own, file.task
    return Task(
        name=name,
        path=reading.folder,
        benchmark=_benchmark(reading) or name,
        root=reading.root,
        digest=digest,
        environment=environment,
        steps=steps,
        step_reward=file.multi_step_reward_strategy or StepReward.MEAN,
        integrity=tier.integrity,
        integrity_declared=tier.declared,
        graded_artifacts=graded_artifacts(reading, file, tiers),
        repositories=tuple(Repository(path=path) for path in dict.fromkeys(own.repositories)) if own else (),
        solution_env=resolve_variables(reading, file.solution.env, "solution.env", required=False),
        version=package.version if package else None,
        description=package.description if package else "",
        authors=tuple(f"{a.name} <{a.email}>" if a.email else a.name for a in package.authors) if package else (),
        keywords=tuple(package.keywords) if package else (),
        metadata=file.metadata,
        warnings=tuple(dict.fromkeys(reading.findings.warnings)),
    )


def _name(reading: Reading, package: PackageTable | None) -> str:
    if package is None:
        return reading.folder.name
    if not _NAME.fullmatch(package.name) or ".." in package.name:
        remedy = "Write org/name, of letters, digits, hyphens, underscores and dots"
        reading.findings.problem("task.name", f"{shown(package.name)} can't be a task's name", remedy)
    return package.name


def _benchmark(reading: Reading) -> str | None:
    """The name of the benchmark that the task belongs to; None: it stands alone."""
    if not (reading.root / BENCHMARK_FILE).is_file():
        return None
    findings = Findings(str(reading.root / BENCHMARK_FILE), problems=reading.findings.problems)
    benchmark = read_benchmark(reading.root, findings)
    return None if benchmark is None else benchmark.name


def _check_version(reading: Reading, file: TaskFile) -> None:
    version = file.schema_version or file.version or "1.0"
    match = re.fullmatch(r"([0-9]{1,4})(?:\.([0-9]{1,4}))?(?:\.[0-9]+)*", version)
    if match is None or (int(match[1]), int(match[2] or 0)) > SCHEMA_VERSION:
        known = ".".join(map(str, SCHEMA_VERSION))
        reading.findings.warn("schema_version", f"{shown(version)} is not known; read as {known}")


def _check_rewards(reading: Reading, file: TaskFile, steps: tuple[Step, ...]) -> None:
    """What only matters to a task with several steps, and names of rewards that nothing declares."""
    if file.multi_step_reward_strategy is not None and not file.steps:
        reading.findings.warn("multi_step_reward_strategy", "has no meaning for a task without steps")
    declared = reading.own.rewards if reading.own else {}
    for index, step in enumerate(steps):
        asked = step.min_reward if isinstance(step.min_reward, dict) else {}
        for name in asked if declared else ():
            if name not in declared:
                what = f"the reward {shown(name)} is not declared in harness.rewards"
                reading.findings.problem(f"steps[{index}].min_reward", what, f"Known: {', '.join(declared)}")
