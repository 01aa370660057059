"""How a sandbox is attached to a network: the hook between `DockerEngine` and what enforces a network mode.

`DockerEngine` calls, per sandbox::

    async with networking.attach(spec, labels) as attachment:           # before the container is created
        create(... attachment.config ...)
        start()
        await attachment.after_start(container_id)                      # after every start, before any command runs
        ...                                                             # the sandbox lives
        remove()
    # leaving the block: the container is gone already

No code of a task or policy runs between a start and the end of `after_start`: the first process only sleeps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

from harness.ports import SandboxSpec
from harness.sandbox.docker.json import Json


@dataclass(frozen=True, slots=True)
class NetworkConfig:
    """What the container is created with.

    mode: ``HostConfig.NetworkMode``: ``none``, a network's name or id, or ``container:<id>``.
    host_config: more fields of ``HostConfig`` (``Dns``, ``ExtraHosts`` …). Fields that limit the sandbox can't be overridden.
    endpoint: the endpoint's settings on the network named by ``mode`` (``NetworkingConfig.EndpointsConfig[mode]``).
    env: variables that every process of the sandbox gets, such as proxies; the task's own win.
    mounts: entries for ``HostConfig.Mounts``.
    """

    mode: str
    host_config: Mapping[str, Json] = field(default_factory=dict[str, Json])
    endpoint: Mapping[str, Json] = field(default_factory=dict[str, Json])
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    mounts: Sequence[Mapping[str, Json]] = ()


class Attachment(Protocol):
    """One sandbox's place in a network."""

    @property
    def config(self) -> NetworkConfig: ...

    async def after_start(self, container_id: str) -> None:
        """Enforce the mode on a container that has just been started, or started again (its address may differ).

        Raises EngineError or UnsupportedError when that fails; the sandbox is then removed, or stopped again.
        """
        ...


class Networking(Protocol):
    """What gives sandboxes their networks, and enforces the modes."""

    def attach(self, spec: SandboxSpec, labels: Mapping[str, str]) -> AbstractAsyncContextManager[Attachment]:
        """Make what one sandbox needs and remove it at the end. Networks and containers that it makes bear ``labels``.

        Raises UnsupportedError when the mode can't be enforced on this host.
        """
        ...

    async def remove_unused(self, *, dry_run: bool) -> Sequence[str]:
        """Remove the networks that sandboxes share and that none is on now; gives their ids."""
        ...
