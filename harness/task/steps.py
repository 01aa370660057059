"""A task's steps: for each its instruction, solution, agent and grader, with what it inherits from the task.

An ordinary task is one step without a name whose folder is the task's own. The folders of a multi-step task are
``steps/NAME``; tests of the task and of the step are both put at ``/tests``, the step's over the task's.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path

from harness.outcome import Integrity
from harness.task.environment import resolve_healthcheck
from harness.task.grader import resolve_grader
from harness.task.harbor import AgentTable, StepTable, TaskFile
from harness.task.integrity import resolve_artifacts, step_integrity
from harness.task.model import AgentOptions, Environment, Network, Step
from harness.task.network import resolve_network
from harness.task.reading import Reading
from harness.toml import read_text, shown

_UNPORTABLE = re.compile(r'[<>:"/\\|?*\x00-\x1f\x7f]')
_CANARY = re.compile(r"<!--.*canary.*-->|#.*canary.*", re.IGNORECASE)
"""A line by which a benchmark marks its text for filters of training data. It is not for the agent."""


@dataclass(frozen=True, slots=True)
class Whole:
    """The task that steps belong to."""

    file: TaskFile
    environment: Environment
    integrity: Integrity


def resolve_steps(reading: Reading, whole: Whole) -> tuple[Step, ...]:
    """Every step, in order; one without a name when the file declares none."""
    if not whole.file.steps:
        if (reading.folder / "steps").is_dir():
            reading.findings.warn("steps", "the folder steps/ is there, but the file declares no [[steps]]")
        return (_step(reading, whole, None, 0),)
    usable = _usable(reading, whole.file.steps)
    steps = tuple(_step(reading, whole, whole.file.steps[index], index) for index in usable)
    _refuse_changing_network(reading, whole, dict(zip(usable, steps, strict=True)))
    return steps


def _step(reading: Reading, whole: Whole, table: StepTable | None, index: int) -> Step:
    file = whole.file
    place = "" if table is None else f"steps[{index}]."
    folder = reading.folder if table is None else reading.folder / "steps" / table.name
    if (folder / "trajectory.json").exists():
        where = reading.name_of(folder / "trajectory.json")
        reading.findings.problem_at(
            where, "prior context: not supported yet", "Remove the file, or run this task with Harbor"
        )
    agent = _agent(reading, file.agent, None if table is None else table.agent, place)
    integrity = whole.integrity
    if table is not None:
        integrity = step_integrity(reading, table.verifier, f"{place}verifier", integrity)
    grader = resolve_grader(reading, file, table, integrity=integrity, place=place)
    if integrity is not Integrity.PRISTINE:
        _refuse_other_network(reading, whole.environment.network, agent, grader.network, place)
    artifacts = resolve_artifacts(reading, file.artifacts, "artifacts")
    if table is not None:
        artifacts += resolve_artifacts(reading, table.artifacts, f"{place}artifacts")
    setup = folder / "workdir"
    return Step(
        name=None if table is None else table.name,
        instruction=_instruction(reading, folder),
        solution=_solution(reading, folder),
        agent=agent,
        grader=grader,
        artifacts=artifacts,
        healthcheck=None if table is None else resolve_healthcheck(table.healthcheck),
        min_reward=None if table is None else table.min_reward,
        setup=setup if table is not None and setup.is_dir() else None,
        integrity=integrity if integrity is not whole.integrity else None,
    )


def _portable(name: str) -> bool:
    bad = not name.strip() or name in (".", "..") or name.endswith((".", " ")) or len(name.encode()) > 255
    return not bad and _UNPORTABLE.search(name) is None


def _usable(reading: Reading, tables: list[StepTable]) -> list[int]:
    """The steps that have a folder of their own; the others are problems."""
    seen: dict[str, str] = {}
    usable: list[int] = []
    for index, table in enumerate(tables):
        key = unicodedata.normalize("NFC", table.name).casefold()
        field, folder = f"steps[{index}].name", reading.folder / "steps" / table.name
        if not _portable(table.name):
            what = f"{shown(table.name)} can't be the name of a step's folder"
            reading.findings.problem(field, what, "Use letters, digits, hyphens, underscores and dots")
        elif key in seen:
            what = f"{shown(table.name)} is taken by another step ({shown(seen[key])})"
            reading.findings.problem(field, what, "Give each step its own name; upper and lower case count as equal")
        elif not folder.is_dir():
            reading.findings.problem_at(
                reading.name_of(folder), "this folder is missing", f"Make it, or correct {field}"
            )
        else:
            usable.append(index)
        seen.setdefault(key, table.name)
    return usable


def _agent(reading: Reading, task: AgentTable, step: AgentTable | None, place: str) -> AgentOptions:
    network = resolve_network(reading, task, "agent")
    if step is None:
        return AgentOptions(timeout_s=task.timeout_sec, user=task.user, network=network)
    return AgentOptions(
        timeout_s=step.timeout_sec or task.timeout_sec,
        user=step.user or task.user,
        network=resolve_network(reading, step, f"{place}agent") or network,
    )


def _instruction(reading: Reading, folder: Path) -> str:
    path = folder / "instruction.md"
    text = read_text(path, reading.findings, shown=reading.name_of(path))
    if text is None:
        return ""
    lines = text.split("\n")
    while lines and _CANARY.fullmatch(lines[0].strip()):
        lines.pop(0)
    instruction = "\n".join(lines).lstrip("\n")
    if not instruction.strip():
        reading.findings.problem_at(reading.name_of(path), "is empty", "Write what the agent is to do")
    return instruction


def _solution(reading: Reading, folder: Path) -> Path | None:
    """The step's own solution, else the task's; a task needs none."""
    for candidate in dict.fromkeys((folder / "solution", reading.folder / "solution")):
        if not candidate.is_dir():
            continue
        if not (candidate / "solve.sh").is_file():
            where = reading.name_of(candidate / "solve.sh")
            reading.findings.problem_at(where, "this file is missing", "Write it, or remove the folder")
        return candidate
    return None


def _refuse_other_network(
    reading: Reading, environment: Network, agent: AgentOptions, grader: Network | None, place: str
) -> None:
    """A grader in the agent's own sandbox can't have another network than the agent had."""
    working, grading = agent.network or environment, grader or environment
    if working != grading:
        field = f"{place}verifier.network_mode" if grader else f"{place}agent.network_mode"
        what = f"the agent has {working.mode} and the grader, in the same sandbox, {grading.mode}"
        reading.unsupported(field, what, 'Give both the same network, or set verifier.environment_mode = "separate"')


def _refuse_changing_network(reading: Reading, whole: Whole, steps: dict[int, Step]) -> None:
    """The steps, by their index in the file, share one sandbox and so one network."""
    first: Network | None = None
    for index, step in steps.items():
        network = step.agent.network or whole.environment.network
        first = first or network
        if network != first:
            what = f"the network changes from {first.mode} to {network.mode} between steps"
            reading.unsupported(f"steps[{index}].agent.network_mode", what, "Give every step the same network")
