"""`harness build` and `harness images`: images before a run needs them."""

from __future__ import annotations

import time
from pathlib import Path

import anyio
import click

from harness.cli import BAD_USE, NOT_GRADED, logs, text
from harness.cli.options import config_option, read_config
from harness.config import RunConfig, TrustHost, load_config
from harness.errors import BuildFailed, ContextError, EngineError
from harness.specs import find_image, image_requests
from harness.task.model import Task
from harness.wiring import load, make_images, open_engine


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@config_option
def build(paths: tuple[Path, ...], config_path: Path | None) -> int:
    """Build the images of the tasks at PATHS. One that is unchanged is found, not built."""
    logs.configure()
    config = read_config(config_path, paths=paths)
    loaded = load(config)
    for _, failure in loaded.failures:
        click.echo(f"error: {failure}", err=True)
    failed, refused = anyio.run(_build, config, loaded.tasks)
    if refused or loaded.failures:
        return BAD_USE
    return NOT_GRADED if failed else 0


async def _build(config: RunConfig, tasks: tuple[Task, ...]) -> tuple[int, int]:
    """How many images failed, and how many contexts were refused."""
    failed = refused = 0
    async with open_engine(config) as engine:
        images = make_images(config, engine)
        for task in tasks:
            for request in image_requests(task):
                began = time.monotonic()
                try:
                    image = await find_image(images, request)
                except ContextError as error:
                    refused += 1
                    click.echo(f"{task.key}: error: {error}", err=True)
                except EngineError as error:
                    failed += 1
                    click.echo(f"{task.key}: {text.printable(_explained(error))}", err=True)
                else:
                    how = "built" if image.built else "found"
                    spent = text.seconds(time.monotonic() - began)
                    click.echo(f"{task.key}: {how} {image.ref} {image.id[:19]} in {spent}")
    return failed, refused


def _explained(error: EngineError) -> str:
    if isinstance(error, BuildFailed):
        log = f"\nthe whole log is in {error.log_path}" if error.log_path else ""
        return f"build failed: {error}\n{error.log_tail.rstrip()}{log}"
    return str(error)


@click.group()
def images() -> None:
    """The images that this project makes itself."""


@images.command()
@click.option("--rebuild", is_flag=True, help="Make them anew, for newer packages.")
@config_option
def base(rebuild: bool, config_path: Path | None) -> None:
    """Make harness/base:bookworm, which tasks can start from, and the toolbox that graders use.

    From a registry where one answers, else from Debian's packages. The host's own certificates go in where it has any
    ([images] trust_host_certificates in the configuration).
    """
    anyio.run(_base, load_config(config_path), rebuild)


async def _base(config: RunConfig, rebuild: bool) -> None:
    from harness.images.base import ensure_base
    from harness.images.trust import extra_certificates

    trusted = config.images.trust_host_certificates is not TrustHost.NEVER
    certificates = extra_certificates() if trusted else ()
    async with open_engine(config) as engine:
        made = await ensure_base(engine, certificates=certificates, progress=click.echo, rebuild=rebuild)
    for image in made:
        click.echo(f"{image.tag}: {image.id[:19]} ({image.way})")
