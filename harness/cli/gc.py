"""`harness gc`: remove what a dead run left behind."""

from __future__ import annotations

from pathlib import Path

import anyio
import click

from harness.cli import logs
from harness.cli.options import config_option
from harness.config import RunConfig, load_config
from harness.ports import Reaped
from harness.wiring import open_engine


@click.command()
@click.option("--run", help="Remove everything of this run, dead or alive.")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@config_option
def gc(run: str | None, dry_run: bool, config_path: Path | None) -> None:
    """Remove sandboxes and networks whose run has died or whose lease has ended. Those of live runs stay."""
    logs.configure()
    reaped = anyio.run(_reap, load_config(config_path), run, dry_run)
    verb = "would remove" if dry_run else "removed"
    for kind, names in (("sandbox", reaped.sandboxes), ("network", reaped.networks), ("volume", reaped.volumes)):
        for name in names:
            click.echo(f"{verb} {kind} {name}")
    if not reaped:
        click.echo("nothing to remove")


async def _reap(config: RunConfig, run: str | None, dry_run: bool) -> Reaped:
    async with open_engine(config) as engine:
        return await engine.reap(run=run, dry_run=dry_run)
