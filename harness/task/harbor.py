"""``task.toml`` as it is written: Harbor's tables up to schema 1.4, and our own `[harness]`.

The tables hold what the file says and nothing more. What they mean together is worked out by the modules beside this one.
Fields whose type is ``Any`` are those that we don't serve yet: any use of them is refused, whatever it looks like.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from harness.outcome import Integrity
from harness.task.fields import (
    AbsolutePath,
    Capability,
    Command,
    Destination,
    LegacySize,
    Mebibytes,
    MinReward,
    Seconds,
    SecondsOrNone,
    ShorthandArtifact,
    Size,
    Text,
    User,
    Variables,
)
from harness.task.model import NetworkMode, StepReward
from harness.toml import ForeignTable, Table

SCHEMA_VERSION = (1, 4)
"""The newest schema of Harbor that these tables know."""


class VerifierMode(StrEnum):
    """Where Harbor's verifier runs."""

    SHARED = "shared"
    """In the agent's sandbox."""
    SEPARATE = "separate"
    """In a sandbox of its own."""


class AuthorTable(ForeignTable):
    name: str
    email: str | None = None


class PackageTable(ForeignTable):
    """``[task]``: who the task is."""

    name: str
    version: Text | None = None
    description: str = ""
    authors: list[AuthorTable] = []
    keywords: list[str] = []


class NetworkFields(ForeignTable):
    """The network fields of ``[agent]``, ``[verifier]`` and every environment."""

    network_mode: Annotated[NetworkMode, Field(strict=False)] | None = None
    allowed_hosts: list[str] | None = None


class AgentTable(NetworkFields):
    timeout_sec: Seconds | None = None
    user: User | None = None


class HealthcheckTable(ForeignTable):
    command: Command
    interval_sec: SecondsOrNone = 5.0
    timeout_sec: Seconds = 30.0
    start_period_sec: SecondsOrNone = 0.0
    start_interval_sec: SecondsOrNone = 5.0
    retries: Annotated[int, Field(ge=0, le=10**6)] = 3


class EnvironmentTable(NetworkFields):
    """``[environment]`` and ``[verifier.environment]``."""

    build_timeout_sec: Seconds = 600.0
    docker_image: Text | None = None
    cpus: Annotated[float, Field(gt=0, le=10_000)] | None = None
    memory_mb: Mebibytes | None = None
    storage_mb: Mebibytes | None = None
    memory: LegacySize | None = None
    storage: LegacySize | None = None
    env: Variables = {}
    healthcheck: HealthcheckTable | None = None
    workdir: AbsolutePath | None = None
    allow_internet: bool | None = None
    os: str = "linux"
    gpus: Annotated[int, Field(ge=0)] | None = None
    gpu_types: Any = None
    tpu: Any = None
    mcp_servers: Any = None
    skills_dir: str | None = None


class CollectTable(ForeignTable):
    """``[[verifier.collect]]``."""

    command: Command
    service: str = "main"
    timeout_sec: Seconds = 60.0
    user: User | None = None


class VerifierTable(NetworkFields):
    timeout_sec: Seconds | None = None
    env: Variables = {}
    user: User | None = None
    environment_mode: Annotated[VerifierMode, Field(strict=False)] | None = None
    environment: EnvironmentTable | None = None
    collect: list[CollectTable] = []


class ArtifactTable(ForeignTable):
    source: AbsolutePath
    destination: Destination | None = None
    exclude: list[str] = []
    service: str | None = None


Artifacts = list[Annotated[ArtifactTable, ShorthandArtifact]]


class SolutionTable(ForeignTable):
    env: Variables = {}


class StepTable(ForeignTable):
    """``[[steps]]``."""

    name: str
    agent: AgentTable = AgentTable()
    verifier: VerifierTable = VerifierTable()
    min_reward: MinReward | None = None
    healthcheck: HealthcheckTable | None = None
    artifacts: Artifacts = []


class RewardTable(Table):
    """``[harness.rewards.NAME]``."""

    low: float = 0.0
    high: float = 1.0
    weight: Annotated[float, Field(ge=0)] = 1.0


class OwnTable(Table):
    """``[harness]``: what this project adds to Harbor's format."""

    integrity: Annotated[Integrity, Field(strict=False)] | None = None
    artifacts: list[AbsolutePath] | None = None
    repositories: list[AbsolutePath] = []
    capabilities: list[Capability] = []
    allow_setuid: bool = False
    pids: Annotated[int, Field(gt=0, le=4_194_304)] = 512
    disk: Size | None = None
    rewards: dict[str, RewardTable] = {}
    max_context_files: Annotated[int, Field(gt=0)] | None = None
    max_context_bytes: Size | None = None


class TaskFile(ForeignTable):
    """A whole ``task.toml``. ``version`` is the older name of ``schema_version``."""

    schema_version: str | None = None
    version: str | None = None
    source: str | None = None
    multi_step_reward_strategy: Annotated[StepReward, Field(strict=False)] | None = None
    artifacts: Artifacts = []
    steps: list[StepTable] = []
    metadata: dict[str, Any] = {}
    task: PackageTable | None = None
    agent: AgentTable = AgentTable()
    verifier: VerifierTable = VerifierTable()
    environment: EnvironmentTable = EnvironmentTable()
    solution: SolutionTable = SolutionTable()
    harness: OwnTable | None = None
