"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path

import click

runs_dir_option = click.option(
    "--runs-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("runs"),
    envvar="HARNESS_RUNS_DIR",
    show_default=True,
    help="Where runs are kept.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead.")
