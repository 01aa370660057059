"""A task as every other part sees it: resolved, validated, immutable.

`harness.task.load` makes these from a task directory in Harbor's format. A task always has at least one step; an ordinary
task has exactly one, without a name.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import field_validator

from harness.outcome import Integrity, Record
from harness.task.image import ImageSource

GIB = 1024**3


class NetworkMode(StrEnum):
    """What a sandbox reaches."""

    PUBLIC = "public"
    """The internet, but neither other sandboxes nor the host."""
    NO_NETWORK = "no-network"
    """Nothing but its own loopback."""
    ALLOWLIST = "allowlist"
    """The listed hosts only."""


class Network(Record):
    """A network mode, with the hosts of an allow-list: ``host``, ``*.host``, an IP address or a CIDR range."""

    mode: NetworkMode = NetworkMode.NO_NETWORK
    allowed_hosts: tuple[str, ...] = ()


class Resources(Record):
    """Limits of one sandbox. None means: no limit.

    memory_bytes is memory plus swap. disk_bytes is the space that the sandbox may use on top of its image.
    """

    cpus: float | None = None
    memory_bytes: int | None = 2 * GIB
    disk_bytes: int | None = None
    pids: int | None = 512
    nofile: int = 65_536


class Security(Record):
    """Opt-outs from the sandbox's defaults (DESIGN §9).

    capabilities: added to Docker's default set minus NET_RAW, MKNOD and SETPCAP; ``("NET_RAW",)`` gives that one back.
    allow_setuid: drop ``no-new-privileges``, for tasks that need sudo.
    """

    capabilities: tuple[str, ...] = ()
    allow_setuid: bool = False

    @field_validator("capabilities")
    @classmethod
    def _in_one_spelling(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        """``cap_net_raw`` is ``NET_RAW``: what is dropped, given and refused is compared by name."""
        return tuple(name.upper().removeprefix("CAP_") for name in names)


class Healthcheck(Record):
    """A command that says when the sandbox is ready. Times in seconds, with Docker's meaning."""

    command: str
    interval_s: float = 5.0
    timeout_s: float = 30.0
    start_period_s: float = 0.0
    start_interval_s: float = 5.0
    retries: int = 3


class Environment(Record):
    """The sandbox that the agent works in."""

    image: ImageSource
    env: dict[str, str] = {}
    workdir: str | None = None
    """None means the image's own."""
    resources: Resources = Resources()
    security: Security = Security()
    network: Network = Network()
    healthcheck: Healthcheck | None = None


class AgentOptions(Record):
    """What the task says about the agent. ``timeout_s`` None: no limit. ``user`` None: the image's."""

    timeout_s: float | None = None
    user: str | None = None
    network: Network | None = None
    """None: the environment's."""


class CollectCommand(Record):
    """A command that is run in the agent's sandbox before its artifacts are collected."""

    command: str
    timeout_s: float = 60.0
    user: str | None = None


class RewardSpec(Record):
    """Declared bounds and weight of one reward component."""

    low: float = 0.0
    high: float = 1.0
    weight: float = 1.0


class GraderOptions(Record):
    """How the task is graded. Paths are on the host.

    environment: the grader's own sandbox; None: the task's image.
    network: what the grader reaches while it grades; None: what its sandbox reaches.
    """

    timeout_s: float = 600.0
    env: dict[str, str] = {}
    user: str | None = None
    tests: tuple[Path, ...] = ()
    """The folders that are put at ``/tests`` when grading starts, a later one over an earlier one; ``test.sh`` in the result is run.

    Empty: the grader's image holds ``/tests/test.sh``.
    """
    environment: Environment | None = None
    network: Network | None = None
    collect: tuple[CollectCommand, ...] = ()
    rewards: dict[str, RewardSpec] = {}


class Artifact(Record):
    """A file or folder of the agent's sandbox that is kept. ``exclude``: glob patterns below it.

    destination: its name in the attempt's folder; None: made from the source.
    """

    source: str
    destination: str | None = None
    exclude: tuple[str, ...] = ()


class Repository(Record):
    """A git repository in the image that agent and grader must be able to use."""

    path: str


class Step(Record):
    """One stage of a task. An ordinary task has one, whose name is None.

    min_reward: the score, or the score by component, below which later steps don't run.
    setup: folder (Harbor's ``workdir/``) that is copied to the working directory before the step; ``setup.sh`` in it is then run.
    integrity: where the step declares another tier than the task; None: the task's.
    """

    name: str | None = None
    instruction: str
    solution: Path | None = None
    """The folder with ``solve.sh``."""
    agent: AgentOptions = AgentOptions()
    grader: GraderOptions = GraderOptions()
    artifacts: tuple[Artifact, ...] = ()
    healthcheck: Healthcheck | None = None
    min_reward: float | dict[str, float] | None = None
    setup: Path | None = None
    integrity: Integrity | None = None


class StepReward(StrEnum):
    """How the steps' rewards become the task's."""

    MEAN = "mean"
    FINAL = "final"


class Task(Record):
    """One problem: instruction, image, grader, limits."""

    name: str
    """``org/name`` from the file, else the folder's name; unique within its benchmark."""
    path: Path
    benchmark: str
    root: Path
    """The benchmark's root: the nearest folder upwards with a ``benchmark.toml``, else the task's own folder."""
    digest: str
    """``sha256:…`` over the task's files: its identity, whatever its place in a list."""
    environment: Environment
    steps: tuple[Step, ...]
    step_reward: StepReward = StepReward.MEAN
    integrity: Integrity = Integrity.PRISTINE
    integrity_declared: bool = True
    """False where a Harbor task leaves its environment mode unset, so that Harbor's own default was taken."""
    graded_artifacts: tuple[str, ...] | None = None
    """Absolute paths that are graded in the pristine tier; None: the image's working directory."""
    repositories: tuple[Repository, ...] = ()
    solution_env: dict[str, str] = {}
    version: str | None = None
    description: str = ""
    authors: tuple[str, ...] = ()
    """``name`` or ``name <address>``."""
    keywords: tuple[str, ...] = ()
    metadata: dict[str, Any] = {}
    warnings: tuple[str, ...] = ()
    """What was read but not understood: unknown fields and the like."""

    @property
    def key(self) -> str:
        """``benchmark/name``, for people; the digest is the identity."""
        return task_key(self.benchmark, self.name)


def task_key(benchmark: str, name: str) -> str:
    """``benchmark/name``, without saying twice what the name says already."""
    return name if name == benchmark or name.startswith(f"{benchmark}/") else f"{benchmark}/{name}"
