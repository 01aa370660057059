"""How a step is graded: tests, their sandbox, time and user, with what it inherits from the task."""

from __future__ import annotations

from pathlib import Path

from harness.outcome import Integrity
from harness.task.environment import build_of, refuse_compose, resolve_environment, resolve_image
from harness.task.harbor import EnvironmentTable, StepTable, TaskFile, VerifierTable
from harness.task.image import ImageRef, ImageSource
from harness.task.integrity import refuse_service
from harness.task.model import CollectCommand, Environment, GraderOptions, RewardSpec
from harness.task.network import resolve_network
from harness.task.places import RESULTS
from harness.task.reading import Reading
from harness.task.variables import resolve_variables

DEFAULT_TIMEOUT_S = 600.0


def resolve_grader(
    reading: Reading, file: TaskFile, step: StepTable | None, *, integrity: Integrity, place: str
) -> GraderOptions:
    """The grader of one step, or of a task without steps. ``place`` is what comes before ``verifier`` in messages."""
    tables = _tables(file, step, place)
    folders = [_tests_folder(reading, step), reading.folder / "tests"] if step else [reading.folder / "tests"]
    environment, holds_tests = None, False
    if integrity is Integrity.PRISTINE:
        environment, holds_tests = _sandbox(reading, file, tables, folders)
    tests: tuple[Path, ...] = ()
    if not holds_tests:
        tests = tuple(folder for folder in reversed(folders) if folder.is_dir())
        _require_script(reading, folders)
    networks = [resolve_network(reading, table, where) for table, where in tables]
    return GraderOptions(
        timeout_s=next((table.timeout_sec for table, _ in tables if table.timeout_sec), DEFAULT_TIMEOUT_S),
        env=_variables(reading, tables),
        user=next((table.user for table, _ in tables if table.user), None),
        tests=tests,
        environment=environment,
        network=next((network for network in networks if network), None),
        collect=_collect(reading, tables),
        rewards=_rewards(reading),
    )


Tables = list[tuple[VerifierTable, str]]
"""The step's table, if there is one, then the task's, each with its place: the first that says something decides."""


def _tables(file: TaskFile, step: StepTable | None, place: str) -> Tables:
    own: Tables = [(step.verifier, f"{place}verifier")] if step else []
    return [*own, (file.verifier, "verifier")]


def _tests_folder(reading: Reading, step: StepTable) -> Path:
    return reading.folder / "steps" / step.name / "tests"


def _sandbox(reading: Reading, file: TaskFile, tables: Tables, folders: list[Path]) -> tuple[Environment | None, bool]:
    """The grader's own sandbox (None: the task's image serves), and whether its image holds the tests.

    As in Harbor the image is the first of: ``docker_image`` of the step's verifier, a Dockerfile beside the step's tests, the
    same two of the task, the task's own image. In all but the last the tests are in the image and nothing is uploaded.
    """
    settings = next(((table.environment, where) for table, where in tables if table.environment), None)
    table, place = (settings[0], f"{settings[1]}.environment") if settings else (file.environment, "environment")
    for (verifier, where), folder in zip(tables, folders, strict=True):
        image = _own_image(reading, verifier.environment, f"{where}.environment", folder, table)
        if image is not None:
            return resolve_environment(reading, table, place, image), True
    if settings is None:
        return None, False
    image = resolve_image(reading, file.environment, reading.folder / "environment", "environment")
    return resolve_environment(reading, table, place, image), False


def _own_image(
    reading: Reading, own: EnvironmentTable | None, place: str, folder: Path, settings: EnvironmentTable
) -> ImageSource | None:
    if own is not None and own.docker_image is not None:
        if any(character.isspace() or character == "\0" for character in own.docker_image):
            reading.findings.problem(f"{place}.docker_image", "can't name an image", "Write name:tag or name@sha256:…")
        return ImageRef(ref=own.docker_image)
    refuse_compose(reading, folder)
    if (folder / "Dockerfile").is_file():
        return build_of(reading, settings, folder / "Dockerfile")
    return None


def _require_script(reading: Reading, folders: list[Path]) -> None:
    script = next((folder / "test.sh" for folder in folders if (folder / "test.sh").is_file()), None)
    if script is None:
        where = reading.name_of(folders[0] / "test.sh")
        remedy = f"Write it: it runs after the agent and writes the reward to {RESULTS}/reward.txt"
        reading.findings.problem_at(where, "this file is missing", remedy)


def _variables(reading: Reading, tables: Tables) -> dict[str, str]:
    variables: dict[str, str] = {}
    for table, place in reversed(tables):
        variables |= resolve_variables(reading, table.env, f"{place}.env")
    return variables


def _collect(reading: Reading, tables: Tables) -> tuple[CollectCommand, ...]:
    commands: list[CollectCommand] = []
    for table, place in reversed(tables):
        for index, collect in enumerate(table.collect):
            refuse_service(reading, collect.service, f"{place}.collect[{index}].service")
            commands.append(CollectCommand(command=collect.command, timeout_s=collect.timeout_sec, user=collect.user))
    return tuple(commands)


def _rewards(reading: Reading) -> dict[str, RewardSpec]:
    tables = reading.own.rewards if reading.own else {}
    for name, table in tables.items():
        if not name or "\0" in name:
            reading.findings.problem("harness.rewards", "a reward without a name", "Name it")
        if not table.low < table.high:
            what = f"low {table.low:g} is not below high {table.high:g}"
            reading.findings.problem(f"harness.rewards.{name}", what, "Give bounds that the reward lies within")
    if tables and not any(table.weight for table in tables.values()):
        reading.findings.problem("harness.rewards", "no reward carries weight", "Give at least one a weight above 0")
    return {name: RewardSpec(low=table.low, high=table.high, weight=table.weight) for name, table in tables.items()}
