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
from harness.wiring import load, open_engine, open_images


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@config_option
def build(paths: tuple[Path, ...], config_path: Path | None) -> int:
    """Build the images of the tasks at PATHS. One that is unchanged is found, not built."""
    logs.configure()
    config = read_config(config_path, paths=paths)
    loaded = load(config)
    for _, failure in loaded.failures:
        click.echo(f"error: {text.printable(str(failure))}", err=True)
    for warning in loaded.warnings:
        click.echo(f"warning: {text.printable(warning)}", err=True)
    failed, refused = anyio.run(_build, config, loaded.tasks)
    if refused or loaded.failures:
        return BAD_USE
    return NOT_GRADED if failed else 0


async def _build(config: RunConfig, tasks: tuple[Task, ...]) -> tuple[int, int]:
    """How many images failed, and how many contexts were refused."""
    failed = refused = 0
    failures: dict[str, list[str]] = {}
    async with open_engine(config) as engine:
        with open_images(config, engine) as images:
            for key, request in [(task.key, request) for task in tasks for request in image_requests(task)]:
                began = time.monotonic()
                try:
                    image = await find_image(images, request)
                except ContextError as error:
                    refused += 1
                    click.echo(f"{text.printable(key)}: error: {text.printable(str(error))}", err=True)
                except EngineError as error:
                    failed += 1
                    click.echo(f"{key}: {text.printable(_explained(error, failures))}", err=True)
                else:
                    how = "built" if image.built else "found"
                    spent = text.seconds(time.monotonic() - began)
                    click.echo(f"{text.printable(key)}: {how} {image.ref} {image.id[:19]} in {spent}")
                    for warning in image.warnings:
                        click.echo(f"{key}: warning: {text.printable(warning)}", err=True)
    for keys in failures.values():
        if len(keys) > 1:
            click.echo(f"one failed build keeps {len(keys)} tasks from running: {', '.join(keys)}", err=True)
    return failed, refused


def _explained(error: EngineError, failures: dict[str, list[str]]) -> str:
    """What to print. The tasks of each failed build are added to ``failures``, by its log; only the first gets the log's end."""
    if not isinstance(error, BuildFailed):
        return str(error)
    known = failures.setdefault(error.log_path or str(error), [])
    first = known[0] if known else None
    known.extend(key for key in error.tasks if key not in known)
    if first is not None:
        return f"build failed, as for {first}: it is the same image"
    log = f"\nthe whole log is in {error.log_path}" if error.log_path else ""
    return f"build failed: {error}\n{error.log_tail.rstrip()}{log}"


@click.group()
def images() -> None:
    """The images that this project makes itself."""


@images.command(short_help="Make harness/base:bookworm and the toolbox, where they are missing.")
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
