"""The sandbox that a task asks for: image, limits, variables, network, healthcheck."""

from __future__ import annotations

from pathlib import Path

from harness.task.harbor import EnvironmentTable, HealthcheckTable
from harness.task.image import DockerfileBuild, ImageRef, ImageSource
from harness.task.model import Environment, Healthcheck, Network, NetworkMode, Resources, Security
from harness.task.network import resolve_network
from harness.task.reading import Reading
from harness.task.variables import resolve_variables
from harness.toml import shown

MIB = 1024**2
COMPOSE_FILES = ("docker-compose.yaml", "docker-compose.yml", "compose.yaml", "compose.yml")


def resolve_environment(reading: Reading, table: EnvironmentTable, place: str, image: ImageSource) -> Environment:
    """An environment's table, checked, with this project's defaults or Harbor's."""
    _refuse_unsupported(reading, table, place)
    own = reading.own
    return Environment(
        image=image,
        env=resolve_variables(reading, table.env, f"{place}.env"),
        workdir=table.workdir,
        resources=_resources(reading, table, place),
        security=Security(capabilities=tuple(own.capabilities), allow_setuid=own.allow_setuid) if own else Security(),
        network=_network(reading, table, place),
        healthcheck=resolve_healthcheck(table.healthcheck),
    )


def resolve_image(reading: Reading, table: EnvironmentTable, folder: Path, place: str) -> ImageSource:
    """``docker_image``, else the Dockerfile in ``folder``; with neither, a problem."""
    refuse_compose(reading, folder)
    dockerfile = folder / "Dockerfile"
    if table.docker_image is not None:
        if any(character.isspace() or character == "\0" for character in table.docker_image):
            what = f"{shown(table.docker_image)} can't name an image"
            reading.findings.problem(
                f"{place}.docker_image", what, 'Write name:tag or name@sha256:…, such as "python:3.13-slim"'
            )
        elif not dockerfile.is_file() and folder.is_dir() and any(folder.iterdir()):
            # Harbor uploads these files to the working directory once the sandbox runs.
            what = f"{reading.name_of(folder)} holds files but no Dockerfile, beside docker_image"
            remedy = f"Write a Dockerfile there: FROM {table.docker_image}, then COPY . ."
            reading.unsupported(f"{place}.docker_image", what, remedy)
        return ImageRef(ref=table.docker_image)
    if not dockerfile.is_file():
        remedy = f"Write it, or set docker_image in [{place}]"
        reading.findings.problem_at(reading.name_of(dockerfile), "this file is missing", remedy)
    return build_of(reading, table, dockerfile)


def build_of(reading: Reading, table: EnvironmentTable, dockerfile: Path) -> DockerfileBuild:
    """The build of a task's Dockerfile, with the limits of its context."""
    own = reading.own
    return DockerfileBuild(
        dockerfile=dockerfile,
        root=reading.root,
        max_files=(own and own.max_context_files) or reading.limits.max_files,
        max_bytes=(own and own.max_context_bytes) or reading.limits.max_bytes,
        timeout_s=table.build_timeout_sec,
    )


def refuse_compose(reading: Reading, folder: Path) -> None:
    """Several services in one task are not served yet."""
    for name in COMPOSE_FILES:
        if (folder / name).exists():
            where = reading.name_of(folder / name)
            remedy = "Put everything into one image, or run this task with Harbor"
            reading.findings.problem_at(where, "compose services: not supported yet", remedy)


def resolve_healthcheck(table: HealthcheckTable | None) -> Healthcheck | None:
    """A healthcheck's table, in this project's units."""
    if table is None:
        return None
    return Healthcheck(
        command=table.command,
        interval_s=table.interval_sec,
        timeout_s=table.timeout_sec,
        start_period_s=table.start_period_sec,
        start_interval_s=table.start_interval_sec,
        retries=table.retries,
    )


def _resources(reading: Reading, table: EnvironmentTable, place: str) -> Resources:
    memory = _either(reading, (table.memory_mb, table.memory), place, ("memory_mb", "memory"))
    disk = _either(reading, (table.storage_mb, table.storage), place, ("storage_mb", "storage"))
    own = reading.own
    if own is None:
        return Resources(cpus=table.cpus, memory_bytes=memory, disk_bytes=disk, pids=None)
    if own.disk is not None and disk not in (None, own.disk):
        reading.findings.problem("harness.disk", f"is not what {place} says about storage", "Keep one of the two")
    default = Resources().memory_bytes
    return Resources(cpus=table.cpus, memory_bytes=memory or default, disk_bytes=own.disk or disk, pids=own.pids)


def _either(reading: Reading, values: tuple[int | None, int | None], place: str, names: tuple[str, str]) -> int | None:
    """Bytes from Harbor's field in MB or from its older spelling in text."""
    megabytes, size = values
    if megabytes is None:
        return size
    if size is not None and size // MIB != megabytes:
        what = f"and {place}.{names[1]} say different things: {megabytes} MB and {size // MIB} MB"
        reading.findings.problem(f"{place}.{names[0]}", what, f"Keep {names[0]} only")
    return megabytes * MIB


def _network(reading: Reading, table: EnvironmentTable, place: str) -> Network:
    network = resolve_network(reading, table, place)
    if network is not None:
        if table.allow_internet is not None and table.allow_internet == (network.mode is NetworkMode.NO_NETWORK):
            reading.findings.warn(f"{place}.allow_internet", f"ignored, because network_mode says {network.mode}")
        return network
    if table.allow_internet is not None:
        return Network(mode=NetworkMode.PUBLIC if table.allow_internet else NetworkMode.NO_NETWORK)
    return Network(mode=NetworkMode.PUBLIC if reading.own is None else NetworkMode.NO_NETWORK)


def _refuse_unsupported(reading: Reading, table: EnvironmentTable, place: str) -> None:
    if table.os.lower() == "windows":
        reading.unsupported(f"{place}.os", "Windows", "Use a Linux image")
    elif table.os.lower() != "linux":
        reading.findings.problem(f"{place}.os", f"{shown(table.os)} isn't one of its values", 'Write "linux"')
    if table.gpus:
        reading.unsupported(f"{place}.gpus", f"{table.gpus} GPUs", "Remove it, or run this task with Harbor")
    for name, value in (("gpu_types", table.gpu_types), ("tpu", table.tpu), ("mcp_servers", table.mcp_servers)):
        if value is not None and value != []:
            reading.unsupported(f"{place}.{name}", shown(value), "Remove it, or run this task with Harbor")
    if table.skills_dir is not None:
        reading.unsupported(f"{place}.skills_dir", shown(table.skills_dir), "Remove it, or run this task with Harbor")
