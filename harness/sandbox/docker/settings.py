"""A sandbox's specification as the engine's settings: limits, capabilities, mounts, network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from harness.ports import TOOLBOX, SandboxSpec
from harness.sandbox.docker import first
from harness.sandbox.docker.json import Json
from harness.sandbox.docker.networking import Attachment

DROPPED_CAPABILITIES = ("MKNOD", "NET_RAW", "SETPCAP")
"""Of Docker's default set: what a sandbox doesn't get unless its task asks."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a container is created with.

    cpus, nofile: the limits (cpus None: none); never more than the engine can grant, for it would refuse that.
    toolbox: the volume that holds the toolbox, where the sandbox asked for it.
    disk_bytes: None where it isn't asked for or the engine can't enforce it.
    """

    spec: SandboxSpec
    labels: Mapping[str, str]
    network: Attachment
    cpus: float | None
    nofile: int
    toolbox: str | None
    disk_bytes: int | None

    @property
    def workdir(self) -> str:
        return self.spec.workdir or self.spec.image.workdir or "/"

    def body(self) -> dict[str, Json]:
        """The body of ``POST /containers/create``."""
        spec = self.spec
        argv = first.command(lease_s=spec.labels.lease_s, workdir=self.workdir, toolbox=spec.toolbox)
        environment = {**self.network.env, **spec.env}
        body: dict[str, Json] = {
            "Image": spec.image.id,
            # The first process needs nothing that the sandbox's own file system says: neither a user's name nor a folder.
            "User": "0:0",
            "WorkingDir": "/",
            "Entrypoint": list(argv[:1]),
            "Cmd": list(argv[1:]),
            "Env": [f"{name}={value}" for name, value in environment.items()],
            "Labels": dict(self.labels),
            "AttachStdout": True,
            "AttachStderr": True,
            "Healthcheck": {"Test": ["NONE"]},
            "HostConfig": self._host_config(),
        }
        if self.network.mode == "none":
            # The namespace is the same, empty one; without the engine's network hook a start takes half the time.
            body["NetworkDisabled"] = True
        return body

    def _host_config(self) -> dict[str, Json]:
        limits = self.spec.resources
        security = self.spec.security
        given = set(security.capabilities)
        config: dict[str, Json] = {
            "NetworkMode": self.network.mode,
            "Init": True,
            "LogConfig": {"Type": "none", "Config": {}},
            "Memory": limits.memory_bytes or 0,
            "MemorySwap": limits.memory_bytes or 0,
            "NanoCpus": round((self.cpus or 0) * 1e9),
            "PidsLimit": limits.pids or 0,
            "Ulimits": [
                {"Name": "nofile", "Soft": self.nofile, "Hard": self.nofile},
                {"Name": "core", "Soft": 0, "Hard": 0},
            ],
            "CapDrop": [name for name in DROPPED_CAPABILITIES if name not in given],
            "CapAdd": sorted(given.difference(DROPPED_CAPABILITIES)),
            "SecurityOpt": [] if security.allow_setuid else ["no-new-privileges"],
            "Privileged": False,
            "Mounts": [_read_only(self.toolbox, TOOLBOX)] if self.toolbox else [],
        }
        if self.disk_bytes is not None:
            config["StorageOpt"] = {"size": str(self.disk_bytes)}
        return config


def _read_only(volume: str, target: str) -> Json:
    return {
        "Type": "volume",
        "Source": volume,
        "Target": target,
        "ReadOnly": True,
        "VolumeOptions": {"NoCopy": True},
    }
