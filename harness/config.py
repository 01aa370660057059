"""The configuration of a run: a TOML file, and the environment variables that this project reads, all in one place.

The file is the one named by ``--config``, else by ``HARNESS_CONFIG``, else ``harness.toml`` in the working directory; without
any, the defaults. Exactly one file is read. Relative paths in it are relative to its folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Network
from pathlib import Path
from typing import Annotated, Any, Self, cast

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer

from harness.errors import ConfigError
from harness.task.fields import Size, Text, size
from harness.task.image import MAX_CONTEXT_BYTES, MAX_CONTEXT_FILES, ContextLimits
from harness.toml import Findings, Table, read_table, refuse, shown

CONFIG_NAME = "harness.toml"
_SECRET = re.compile(r"key|token|secret|passw|credential", re.IGNORECASE)

DISK_RESERVE_BYTES = 1024**3

MOST = 100_000
Count = Annotated[int, Field(gt=0, le=MOST)]
Retries = Annotated[int, Field(ge=0, le=100)]
Multiplier = Annotated[float, Field(gt=0, le=1_000)]


class TrustHost(StrEnum):
    """Whether images are given the host's own certificates."""

    ALWAYS = "true"
    NEVER = "false"
    AUTO = "auto"
    """Where the host has certificates that the public set doesn't."""


def _trust(value: Any) -> TrustHost:
    if isinstance(value, TrustHost):
        return value
    if isinstance(value, bool):
        return TrustHost.ALWAYS if value else TrustHost.NEVER
    if value != "auto":
        raise refuse(f'must be true, false or "auto", not {shown(value)}', 'Write true, false or "auto"')
    return TrustHost.AUTO


def _as_written(value: TrustHost) -> bool | str:
    return value.value if value is TrustHost.AUTO else value is TrustHost.ALWAYS


def _reference(value: str) -> str:
    if not value or any(character.isspace() or not character.isprintable() for character in value):
        raise refuse(f"{shown(value)} can't name an image", "Write name:tag or name@sha256:…, without spaces")
    return value


Reference = Annotated[str, AfterValidator(_reference)]


def _path(value: Any) -> Path:
    if isinstance(value, Path):
        return value
    if not isinstance(value, str) or not value or "\0" in value:
        raise refuse(
            f"{shown(value)} is not a path", "Write a path as text, relative to this file's folder or absolute"
        )
    try:
        return Path(value).expanduser()
    except RuntimeError as error:
        raise refuse(f"{shown(value)} names a home that can't be found", "Write the whole path") from error


FilePath = Annotated[Path, BeforeValidator(_path)]

Option = str | int | float | bool | list[str]


def _option(value: Any) -> Option:
    texts = isinstance(value, list) and all(isinstance(item, str) for item in cast("list[object]", value))
    if texts or isinstance(value, str | int | float | bool):
        return cast("Option", value)
    what = f"an option can't be {shown(cast('object', value))}"
    raise refuse(what, "Write text, a number, true, false or a list of texts")


class AgentConfig(Table):
    """``[agent]``. The agent itself knows which options it takes."""

    name: Text = "oracle"
    options: dict[str, Annotated[Option, BeforeValidator(_option)]] = {}


class BenchmarkConfig(Table):
    """``[benchmarks.NAME]``: what differs from the rest of the run."""

    n: Count | None = None


class ImagesConfig(Table):
    """``[images]``.

    map: pattern over image references → the reference to use instead; the first that fits, in the file's order.
    """

    map: dict[Reference, Reference] = {}
    trust_host_certificates: Annotated[TrustHost, BeforeValidator(_trust), PlainSerializer(_as_written)] = (
        TrustHost.AUTO
    )


class EngineConfig(Table):
    """``[engine]``. host: ``unix:///path`` or ``tcp://name:port``; None: DOCKER_HOST, else the engine's usual socket."""

    host: Text | None = None


def _range(value: Any) -> str:
    try:
        return str(IPv4Network(value))
    except (ValueError, TypeError) as error:
        raise refuse(f"{shown(value)} is not a range of IPv4 addresses", 'Write one such as "10.20.0.0/16"') from error


class NetworkConfig(Table):
    """``[network]``. reachable: private ranges that public sandboxes may reach, such as a package mirror's; otherwise none."""

    reachable: list[Annotated[str, BeforeValidator(_range)]] = []


class TimeoutsConfig(Table):
    """``[timeouts]``: factors on what tasks say."""

    agent: Multiplier = 1.0
    grader: Multiplier = 1.0
    build: Multiplier = 1.0


def _reserve(value: Any) -> int:
    return 0 if type(value) is int and value == 0 else size(value)


class RunConfig(Table):
    """Everything a run can be told.

    paths: tasks, folders of tasks, benchmarks. n: attempts of each task. retries: of an attempt that ends aborted or ungraded.
    concurrency: attempts at a time; None: by the machine.
    disk_reserve: free space below which no attempt starts, in bytes; 0: never mind.
    max_context_files, max_context_bytes: limits of build contexts, where a task has none of its own; None: the defaults.
    """

    paths: list[FilePath] = []
    agent: AgentConfig = AgentConfig()
    n: Count = 1
    retries: Retries = 1
    benchmarks: dict[str, BenchmarkConfig] = {}
    concurrency: Count | None = None
    runs_dir: FilePath = Path("runs")
    images: ImagesConfig = ImagesConfig()
    engine: EngineConfig = EngineConfig()
    network: NetworkConfig = NetworkConfig()
    timeouts: TimeoutsConfig = TimeoutsConfig()
    max_context_files: Count | None = None
    max_context_bytes: Size | None = None
    disk_reserve: Annotated[int, BeforeValidator(_reserve)] = DISK_RESERVE_BYTES

    def attempts_for(self, benchmark: str) -> int:
        """How many attempts each task of a benchmark gets."""
        own = self.benchmarks.get(benchmark)
        return own.n if own is not None and own.n is not None else self.n

    def context_limits(self) -> ContextLimits:
        """Limits of build contexts for tasks that set none."""
        return ContextLimits(
            max_files=self.max_context_files or MAX_CONTEXT_FILES, max_bytes=self.max_context_bytes or MAX_CONTEXT_BYTES
        )

    def kept(self) -> Self:
        """As it is put on record: paths that hold from anywhere, and no option of the agent that looks like a secret."""
        options = {name: value for name, value in self.agent.options.items() if not _SECRET.search(name)}
        agent = self.agent.model_copy(update={"options": options})
        return self.model_copy(update={"agent": agent, "paths": [path.absolute() for path in self.paths]})

    def anchored(self, folder: Path) -> Self:
        """With relative paths taken from ``folder``."""
        paths = [folder / path for path in self.paths]
        return self.model_copy(update={"paths": paths, "runs_dir": folder / self.runs_dir})


@dataclass(frozen=True, slots=True)
class HostVariables:
    """The environment variables that this project reads. An empty one counts as unset.

    HARNESS_CONFIG, HARNESS_RUNS_DIR; DOCKER_HOST, which the engine's own tools read too.
    """

    config: Path | None = None
    runs_dir: Path | None = None
    docker_host: str | None = None


def read_variables(environ: Mapping[str, str] | None = None) -> HostVariables:
    """The variables of this process, or of ``environ``."""
    source = os.environ if environ is None else environ
    config, runs_dir = source.get("HARNESS_CONFIG"), source.get("HARNESS_RUNS_DIR")
    return HostVariables(
        config=Path(config) if config else None,
        runs_dir=Path(runs_dir) if runs_dir else None,
        docker_host=source.get("DOCKER_HOST") or None,
    )


def load_config(
    path: Path | None = None, *, environ: Mapping[str, str] | None = None, folder: Path | None = None
) -> RunConfig:
    """The configuration of a run: variables win over the file, the file over the defaults.

    path: the file that the user named. folder: where ``harness.toml`` is looked for; None: the working directory.
    Raises ConfigError with everything that is wrong.
    """
    variables = read_variables(environ)
    here = Path.cwd() if folder is None else folder
    named = path or variables.config
    file = named or here / CONFIG_NAME
    found = named is not None or file.exists()
    config = _read(file) if found else RunConfig()
    config = config.anchored(file.absolute().parent)
    if variables.runs_dir is not None:
        config = config.model_copy(update={"runs_dir": here / variables.runs_dir})
    if config.engine.host is None and variables.docker_host is not None:
        config = config.model_copy(update={"engine": EngineConfig(host=variables.docker_host)})
    return config


def _read(file: Path) -> RunConfig:
    findings = Findings(str(file))
    config = read_table(file, RunConfig, findings)
    if config is None:
        raise ConfigError("\n".join(str(problem) for problem in findings.problems))
    return config
