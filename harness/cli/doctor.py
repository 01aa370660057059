"""`harness doctor`: is everything here that a run needs, and if not, what to do."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

import anyio
import click

from harness.cli import NOT_GRADED, text
from harness.cli.options import config_option, read_config, runs_dir_option
from harness.config import RunConfig
from harness.errors import EngineError, UsageError
from harness.task.image import BASE_IMAGE, TOOLBOX_IMAGE
from harness.wiring import open_engine

_DISK_RESERVE_BYTES = 5 * 1024**3


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. ``remedy`` is empty when all is well; ``fatal`` when a run can't work without it."""

    what: str
    found: str
    remedy: str = ""
    fatal: bool = True


@click.command()
@config_option
@runs_dir_option
def doctor(config_path: Path | None, runs_dir: Path | None) -> int:
    """Check the engine, the disk, permissions and base images. Each problem comes with its remedy.

    Exit status: 0 when a run can work here, 1 when something is missing.
    """
    return anyio.run(_examine, read_config(config_path, runs_dir=runs_dir))


async def _examine(config: RunConfig) -> int:
    broken = False
    async for finding in _findings(config):
        mark = "ok" if not finding.remedy else "MISSING" if finding.fatal else "note"
        click.echo(f"{mark:8}{finding.what:14}{text.printable(finding.found)}")
        if finding.remedy:
            click.echo(f"{'':22}→ {finding.remedy}")
            broken = broken or finding.fatal
    return NOT_GRADED if broken else 0


async def _findings(config: RunConfig) -> AsyncGenerator[Finding]:
    yield Finding("python", f"{sys.version.split()[0]} on {os.uname().machine}")
    async for finding in _engine(config):
        yield finding
    yield _runs_folder(config.runs_dir)


async def _engine(config: RunConfig) -> AsyncGenerator[Finding]:
    try:
        async with open_engine(config) as engine:
            info = await engine.info()
            memory = f"{info.memory_bytes / 1024**3:.0f} GiB"
            yield Finding("engine", f"{info.name} {info.version}, {info.cpus} cores, {memory}, {info.architecture}")
            if info.root_dir is not None:
                yield _disk("engine's disk", Path(info.root_dir))
            for ref in (BASE_IMAGE, TOOLBOX_IMAGE):
                image = await engine.inspect_image(ref)
                remedy = "" if image else "run `harness images base`; only tasks that use it need it"
                yield Finding("image", ref if image else f"{ref} is not here", remedy, fatal=False)
    except EngineError as error:
        yield Finding("engine", str(error), _remedy(config))
    except UsageError as error:
        yield Finding("engine", str(error), "unset DOCKER_HOST and [engine] host to use the engine's usual socket")


def _remedy(config: RunConfig) -> str:
    if config.engine.host is not None:
        return f"start the engine at {config.engine.host}, or unset DOCKER_HOST and [engine] host to use the usual one"
    socket = Path("/var/run/docker.sock")
    if socket.exists() and not os.access(socket, os.W_OK):
        return "add yourself to the group of the socket (`sudo usermod -aG docker $USER`) and log in again"
    if shutil.which("dockerd"):
        return "start it: `sudo systemctl start docker`, or `sudo dockerd` where there is no systemd"
    return "install Docker (`sudo apt-get install docker.io`) and start it"


def _disk(what: str, path: Path) -> Finding:
    existing = next((place for place in (path, *path.parents) if place.exists()), Path("/"))
    free = shutil.disk_usage(existing).free
    remedy = "" if free >= _DISK_RESERVE_BYTES else "free some space: `docker system prune` removes what is unused"
    return Finding(what, f"{free / 1024**3:.1f} GiB free at {existing}", remedy, fatal=False)


def _runs_folder(path: Path) -> Finding:
    existing = next((place for place in (path, *path.parents) if place.exists()), Path("/"))
    if not os.access(existing, os.W_OK) or not existing.is_dir():
        return Finding("runs folder", f"{path} can't be written", "choose another with --runs-dir or HARNESS_RUNS_DIR")
    return _disk("runs folder", path)
