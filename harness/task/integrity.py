"""Which integrity tier a task declares, and what it hands to a pristine grader (DESIGN §7)."""

from __future__ import annotations

from dataclasses import dataclass

from harness.outcome import Integrity
from harness.task.harbor import ArtifactTable, TaskFile, VerifierMode, VerifierTable
from harness.task.model import Artifact
from harness.task.places import ARTIFACTS, RESULTS, SOLUTION, TESTS
from harness.task.reading import Reading
from harness.toml import shown

_GRADERS_OWN = (TESTS, SOLUTION, RESULTS, "/proc", "/sys", "/dev")
"""What the agent's side may never bring into a grader's sandbox."""
_TIERS = {VerifierMode.SHARED: Integrity.LIVE, VerifierMode.SEPARATE: Integrity.PRISTINE}


@dataclass(frozen=True, slots=True)
class Declared:
    """A tier, and whether the task said it itself."""

    integrity: Integrity
    declared: bool


def verifier_mode(reading: Reading, table: VerifierTable, place: str) -> VerifierMode | None:
    """Harbor's mode as it is declared here: an environment of the verifier's own means separate."""
    if table.environment_mode is VerifierMode.SHARED and table.environment is not None:
        what = f'is "shared", and [{place}.environment] is there too'
        reading.findings.problem(f"{place}.environment_mode", what, "Remove one of the two")
    if table.environment_mode is not None:
        return table.environment_mode
    return VerifierMode.SEPARATE if table.environment is not None else None


def task_integrity(reading: Reading, verifier: VerifierTable) -> Declared:
    """The task's tier: ``harness.integrity``, else Harbor's mode, else this project's default or Harbor's."""
    mode = verifier_mode(reading, verifier, "verifier")
    own = reading.own
    if own is not None and own.integrity is not None:
        _refuse_unused_environment(reading, verifier, "verifier", own.integrity)
        return Declared(own.integrity, declared=True)
    if mode is not None:
        return Declared(_TIERS[mode], declared=True)
    return Declared(Integrity.PRISTINE, declared=True) if own is not None else Declared(Integrity.LIVE, declared=False)


def step_integrity(reading: Reading, verifier: VerifierTable, place: str, inherited: Integrity) -> Integrity:
    """A step's tier: ``harness.integrity`` decides for every step, else the step's own mode, else the task's."""
    mode = verifier_mode(reading, verifier, place)
    if reading.own is not None and reading.own.integrity is not None:
        _refuse_unused_environment(reading, verifier, place, inherited)
        return inherited
    return inherited if mode is None else _TIERS[mode]


def _refuse_unused_environment(reading: Reading, verifier: VerifierTable, place: str, integrity: Integrity) -> None:
    if integrity is not Integrity.PRISTINE and verifier.environment is not None:
        what = f'is "{integrity}", but [{place}.environment] asks for a sandbox of the grader\'s own'
        reading.findings.problem("harness.integrity", what, 'Remove that table, or write integrity = "pristine"')


def resolve_artifacts(reading: Reading, tables: list[ArtifactTable], place: str) -> tuple[Artifact, ...]:
    """What is kept of a sandbox."""
    artifacts: list[Artifact] = []
    for index, table in enumerate(tables):
        refuse_service(reading, table.service, f"{place}[{index}].service")
        artifacts.append(Artifact(source=table.source, destination=table.destination, exclude=tuple(table.exclude)))
    return tuple(artifacts)


def refuse_service(reading: Reading, service: str | None, place: str) -> None:
    """Only Harbor's main service exists here."""
    if service not in (None, "main"):
        reading.unsupported(place, f"the service {shown(service)}", 'Remove it: the only service is "main"')


def graded_artifacts(reading: Reading, file: TaskFile, tiers: frozenset[Integrity]) -> tuple[str, ...] | None:
    """The paths that a pristine grader gets; None: the image's working directory.

    Our own list decides. A task of Harbor's that asks for a separate verifier hands over its kept artifacts and `ARTIFACTS`.
    """
    own = reading.own
    if own is not None and own.artifacts is not None:
        if not own.artifacts:
            reading.findings.problem(
                "harness.artifacts", "is empty", "List what is graded, or remove it: the working directory is"
            )
        _refuse_graders_own(
            reading, [(f"harness.artifacts[{index}]", path) for index, path in enumerate(own.artifacts)]
        )
        return tuple(dict.fromkeys(own.artifacts))
    if Integrity.PRISTINE not in tiers:
        return None
    sources = [(f"artifacts[{index}]", table.source) for index, table in enumerate(file.artifacts)]
    for number, step in enumerate(file.steps):
        sources += [(f"steps[{number}].artifacts[{index}]", table.source) for index, table in enumerate(step.artifacts)]
    separate = [file.verifier, *(step.verifier for step in file.steps)]
    asked = any(table.environment_mode is VerifierMode.SEPARATE or table.environment is not None for table in separate)
    if asked and (own is None or sources):
        _refuse_graders_own(reading, sources)
        return tuple(dict.fromkeys([ARTIFACTS, *(path for _, path in sources)]))
    if file.environment.workdir == "/":
        what = 'is "/", which is what a pristine grading would replace'
        reading.findings.problem("environment.workdir", what, "List what is graded in harness.artifacts")
    return None


def _refuse_graders_own(reading: Reading, paths: list[tuple[str, str]]) -> None:
    for place, path in paths:
        if any(_overlap(path, kept) for kept in _GRADERS_OWN):
            what = f"{shown(path)} would bring the agent's files into the grader's own places"
            remedy = f"Name a narrower path, apart from {', '.join(_GRADERS_OWN)}"
            reading.findings.problem(place, what, remedy)


def _overlap(one: str, other: str) -> bool:
    first, second = one.rstrip("/") + "/", other.rstrip("/") + "/"
    return first.startswith(second) or second.startswith(first)
