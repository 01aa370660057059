"""How a sandbox is attached to a network: what `DockerEngine` asks of what enforces a network mode.

The mode is enforced before the sandbox's container is created and until it is gone, across stops and starts: so it is the engine's
business at no other moment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

from harness.ports import SandboxSpec


@dataclass(frozen=True, slots=True)
class Attachment:
    """One sandbox's place in a network.

    mode: ``HostConfig.NetworkMode``: ``none``, a network's name or id, or ``container:<id>``.
    env: variables that every process of the sandbox gets, such as proxies; the task's own win.
    """

    mode: str
    env: Mapping[str, str] = field(default_factory=dict[str, str])


class Networking(Protocol):
    """What gives sandboxes their networks, and enforces the modes."""

    def attach(self, spec: SandboxSpec, labels: Mapping[str, str]) -> AbstractAsyncContextManager[Attachment]:
        """Make what one sandbox needs, and remove it at the end. Networks and containers that it makes bear ``labels``.

        Raises UnsupportedError when the mode can't be enforced on this host.
        """
        ...

    async def remove_unused(self, *, dry_run: bool) -> Sequence[str]:
        """Remove the networks that sandboxes share and that none is on now; gives their ids."""
        ...
