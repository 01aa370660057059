"""Options that several commands share, and the configuration with what they say in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from harness.config import RunConfig, load_config

config_option = click.option(
    "--config", "config_path", type=click.Path(path_type=Path), help="A configuration file. [default: harness.toml]"
)
runs_dir_option = click.option(
    "--runs-dir", type=click.Path(path_type=Path, file_okay=False), help="Where runs are kept. [default: runs]"
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead.")


def read_config(path: Path | None, *, paths: Sequence[Path] = (), runs_dir: Path | None = None) -> RunConfig:
    """The configuration, with what the command line says before what it says. Raises ConfigError."""
    config = load_config(path)
    given = {"paths": list(paths) or config.paths, "runs_dir": (runs_dir or config.runs_dir).absolute()}
    return config.model_copy(update=given)
