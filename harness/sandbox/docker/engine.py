"""The Docker engine: sandboxes, images, and the sweep of what is left."""

from __future__ import annotations

import secrets
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from types import TracebackType
from typing import Self

import anyio

from harness.concurrency import shielded
from harness.errors import StartFailed
from harness.ports import EngineInfo, Reaped, SandboxSpec
from harness.sandbox.docker import first, owner
from harness.sandbox.docker.address import EngineAddress
from harness.sandbox.docker.ceiling import nofile_ceiling
from harness.sandbox.docker.client import ApiError, EngineClient
from harness.sandbox.docker.container import Container, remove_container
from harness.sandbox.docker.images import DockerImages
from harness.sandbox.docker.json import Json, number, text, texts
from harness.sandbox.docker.network import DockerNetworking
from harness.sandbox.docker.networking import Attachment, Networking
from harness.sandbox.docker.sandbox import DockerSandbox
from harness.sandbox.docker.settings import Settings
from harness.sandbox.docker.sweep import sweep
from harness.sandbox.docker.toolbox import Toolbox
from harness.task.model import Resources

STARTS_AT_ONCE = 6
CREATE_S = 60.0


class DockerEngine(DockerImages):
    """Sandboxes and images on one Docker engine (`ports.Engine`, `ports.ImageEngine`). Open it with ``async with``.

    address: where it listens; None: what DOCKER_HOST says, else Docker's own socket.
    networking: what enforces network modes, given the engine's client.
    starts_at_once: how many sandboxes are created and started at the same time.
    """

    def __init__(
        self,
        address: EngineAddress | None = None,
        *,
        networking: Callable[[EngineClient], Networking] = DockerNetworking,
        starts_at_once: int = STARTS_AT_ONCE,
    ) -> None:
        super().__init__(EngineClient(address))
        self._networking = networking(self.client)
        self._starts = anyio.CapacityLimiter(starts_at_once)
        self._toolbox = Toolbox(self.client)
        self._info: EngineInfo | None = None
        self._limits_disk = True
        self._nofile: int | None = None

    async def __aenter__(self) -> Self:
        await self.client.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.client.__aexit__(kind, error, trace)

    async def info(self) -> EngineInfo:
        """Asked once, then remembered."""
        if self._info is None:
            answer = await self.client.call("GET", "/info")
            self._info = EngineInfo(
                name=text(answer, "Name"),
                version=text(answer, "ServerVersion"),
                id=text(answer, "ID"),
                architecture=text(answer, "Architecture"),
                cpus=number(answer, "NCPU") or 1,
                memory_bytes=number(answer, "MemTotal") or 0,
                root_dir=text(answer, "DockerRootDir") or None,
            )
        return self._info

    async def reap(self, *, run: str | None = None, dry_run: bool = False, spare_living: bool = False) -> Reaped:
        reaped = await sweep(self.client, run=run, dry_run=dry_run, spare_living=spare_living)
        if run is not None:
            return reaped
        unused = await self._networking.remove_unused(dry_run=dry_run)
        return replace(reaped, networks=(*reaped.networks, *unused))

    @asynccontextmanager
    async def sandbox(self, spec: SandboxSpec) -> AsyncGenerator[DockerSandbox]:
        """A started sandbox. Whatever interrupts this, a cancellation half-way too, leaves no container."""
        labels = owner.labels_of(spec.labels)
        async with self._networking.attach(spec, labels) as attachment:
            name = f"harness-{spec.labels.role}-{secrets.token_hex(6)}"
            try:
                async with self._starts:
                    sandbox = await self._create(name, spec, labels, attachment)
                    await sandbox.start()
                yield sandbox
            finally:
                await remove_container(self.client, name)

    async def _create(
        self, name: str, spec: SandboxSpec, labels: Mapping[str, str], attachment: Attachment
    ) -> DockerSandbox:
        limits = spec.resources
        cpus, warnings = limits.cpus, list[str]()
        if cpus is not None and cpus > (available := (await self.info()).cpus):
            warnings.append(f"the task asks for {cpus:g} CPUs, the engine has {available}")
            cpus = available
        nofile = min(limits.nofile, self._nofile_ceiling())
        if nofile < limits.nofile != Resources().nofile:  # nobody asked for the default
            warnings.append(f"the task asks for {limits.nofile:,} open files, the engine can grant {nofile:,}")
        settings = Settings(
            spec=spec,
            labels=labels,
            network=attachment,
            cpus=cpus,
            nofile=nofile,
            toolbox=await self._toolbox.volume() if spec.toolbox else None,
            disk_bytes=limits.disk_bytes if self._limits_disk else None,
        )
        try:
            # The engine goes on creating when its caller leaves: an id that nobody waits for would stay.
            answer, disk_enforced = await shielded(self._post_create, name, settings)
        except ApiError as error:
            raise StartFailed(f"a sandbox of {spec.image.ref} can't be created: {error}") from error
        if limits.disk_bytes is not None and not disk_enforced:
            warnings.append(f"the engine's storage can't limit a sandbox to {limits.disk_bytes:,} bytes of disk")
        container = Container(
            client=self.client,
            id=text(answer, "Id"),
            user=spec.image.user or "0:0",
            workdir=settings.workdir,
            env={**spec.image.env, **spec.env},
            shell=first.shell(spec.toolbox),
        )
        return DockerSandbox(container, (*warnings, *texts(answer, "Warnings")), disk_enforced)

    def _nofile_ceiling(self) -> int:
        if self._nofile is None:
            self._nofile = nofile_ceiling(self.client.address) or sys.maxsize
        return self._nofile

    async def _post_create(self, name: str, settings: Settings) -> tuple[Json, bool]:
        """Create it, without the disk limit where the engine's storage knows none. Gives whether the limit is enforced."""
        params = {"name": name}
        try:
            answer = await self.client.call(
                "POST", "/containers/create", params=params, body=settings.body(), timeout_s=CREATE_S
            )
        except ApiError:
            if settings.disk_bytes is None:
                raise
            body = replace(settings, disk_bytes=None).body()
            answer = await self.client.call("POST", "/containers/create", params=params, body=body, timeout_s=CREATE_S)
            # The same request is fine without the limit: it was the limit.
            self._limits_disk = False
            return answer, False
        return answer, settings.disk_bytes is not None
