"""`harness init`: a new task that passes as it is."""

from __future__ import annotations

from pathlib import Path

import click

from harness.task.template import create_task


@click.command()
@click.argument("name", type=click.Path(path_type=Path))
def init(name: Path) -> None:
    """Make the folder NAME with a task that its own solution passes and that doing nothing fails."""
    folder = create_task(name)
    click.echo(f"made {folder}. Next: harness run {folder} --agent oracle, then edit its files")
