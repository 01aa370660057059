"""`harness gc`: remove what a dead run left behind."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import anyio
import click

from harness.cli import NOT_GRADED, logs
from harness.cli.options import config_option
from harness.config import RunConfig, load_config
from harness.images.build import default_cache
from harness.images.sweep import sole_use, sweep_images
from harness.ports import Reaped
from harness.wiring import open_engine


@click.command()
@click.option("--run", help="Remove everything of this run, also what another machine's process left.")
@click.option("--images", is_flag=True, help="Also images that builds left and no container uses.")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@config_option
def gc(run: str | None, images: bool, dry_run: bool, config_path: Path | None) -> int:
    """Remove sandboxes and networks whose run has died or whose lease has ended. Those of live runs stay.

    With --images also what builds made: a task's image is then built again when it is needed. Base images, the toolbox, and
    images that were pulled or that you made stay.
    """
    logs.configure()
    config = load_config(config_path)
    alone = sole_use(default_cache()) if images and not dry_run else nullcontext()
    with alone:
        reaped = anyio.run(_reap, config, run, images, dry_run)
    verb = "would remove" if dry_run else "removed"
    for kind, names in (
        ("sandbox", reaped.sandboxes),
        ("network", reaped.networks),
        ("volume", reaped.volumes),
        ("image", reaped.images),
    ):
        for name in names:
            click.echo(f"{verb} {kind} {name}")
    for name in reaped.spared:
        click.echo(f"kept sandbox {name}: its run still goes on here. Stop that first (Ctrl-C, or SIGTERM)", err=True)
    if not reaped and not reaped.spared:
        click.echo("nothing to remove")
    return NOT_GRADED if reaped.spared else 0


async def _reap(config: RunConfig, run: str | None, images: bool, dry_run: bool) -> Reaped:
    async with open_engine(config) as engine:
        reaped = await engine.reap(run=run, dry_run=dry_run, spare_living=True)
        if not images:
            return reaped
        swept = await sweep_images(engine, dry_run=dry_run)
        volumes = await engine.remove_old_tools(dry_run=dry_run)
        return replace(reaped, images=swept, volumes=(*reaped.volumes, *volumes))
