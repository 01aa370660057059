"""The bridge networks that sandboxes share, one per network mode: found or made, and removed when unused.

They are the same for every process that uses the engine, and stay between runs: making one costs more than everything else here.
Sandboxes on one don't reach each other: the engine doesn't forward between them, and each one's own firewall refuses it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network

from harness.errors import EngineError
from harness.sandbox.docker.client import ApiError, EngineClient
from harness.sandbox.docker.json import Json, items, member, text

SHARED = "harness.network"
"""Label of a shared network; its value is the `Bridge`."""


class Bridge(StrEnum):
    """What a shared network is for; its name on the engine is ``harness-`` and this."""

    OPEN = "open"
    """Has a way out to the internet."""
    CLOSED = "closed"
    """Ends at the host."""


@dataclass(frozen=True, slots=True)
class BridgeNetwork:
    """A shared network as the engine made it.

    interface: its name among the host's network interfaces.
    """

    id: str
    gateway: IPv4Address
    subnet: IPv4Network
    interface: str

    def is_here(self) -> bool:
        """Whether this process sees the bridge: only then are the addresses of its host the ones of the engine's host."""
        import psutil

        entries = psutil.net_if_addrs().get(self.interface, ())
        return any(entry.address == str(self.gateway) for entry in entries)


async def find_or_make(client: EngineClient, bridge: Bridge) -> BridgeNetwork:
    """The shared network, the same one for all who ask at the same time. Raises EngineError."""
    found = await _oldest(client, bridge)
    if found is None:
        await _make(client, bridge)
        found = await _oldest(client, bridge)
    if found is None:
        raise EngineError(f"the engine made the network harness-{bridge} and doesn't list it")
    return _read(found, bridge)


async def remove_unused(client: EngineClient, *, dry_run: bool = False) -> tuple[str, ...]:
    """Remove the shared networks that no container is on, running or not; their ids."""
    removed: list[str] = []
    for network in await _list(client, SHARED):
        identity = text(network, "Id")
        filters = json.dumps({"network": [identity]})
        if items(await client.call("GET", "/containers/json", params={"all": "1", "filters": filters})):
            continue
        if not dry_run:
            try:
                await client.call("DELETE", f"/networks/{identity}")
            except ApiError as error:
                if error.status in (403, 404):  # in use by now, or gone
                    continue
                raise
        removed.append(identity)
    return tuple(removed)


async def _list(client: EngineClient, label: str) -> list[Json]:
    answer = await client.call("GET", "/networks", params={"filters": json.dumps({"label": [label]})})
    return sorted(items(answer), key=lambda network: (text(network, "Created"), text(network, "Id")))


async def _oldest(client: EngineClient, bridge: Bridge) -> Json:
    """Two processes may have made one each, at the same time: both then take the older."""
    return next(iter(await _list(client, f"{SHARED}={bridge}")), None)


async def _make(client: EngineClient, bridge: Bridge) -> None:
    body: Mapping[str, Json] = {
        "Name": f"harness-{bridge}",
        "CheckDuplicate": True,
        "Driver": "bridge",
        "Internal": bridge is Bridge.CLOSED,
        "EnableIPv6": False,
        "Labels": {SHARED: bridge.value},
        "Options": {"com.docker.network.bridge.enable_icc": "false"},
    }
    try:
        await client.call("POST", "/networks/create", body=body)
    except ApiError as error:
        if error.status != 409:  # another process was quicker
            raise


def _read(network: Json, bridge: Bridge) -> BridgeNetwork:
    name, identity = text(network, "Name"), text(network, "Id")
    pools = [pool for pool in items(network, "IPAM", "Config") if ":" not in text(pool, "Subnet")]
    as_made = (
        text(network, "Driver") == "bridge"
        and member(network, "Internal") is (bridge is Bridge.CLOSED)
        and not member(network, "EnableIPv6")
        and text(network, "Options", "com.docker.network.bridge.enable_icc") == "false"
        and len(pools) == 1
    )
    if not as_made:
        raise EngineError(
            f"the network {name} ({identity[:12]}) isn't as this version makes it: docker network rm {name}"
        )
    subnet = IPv4Network(text(pools[0], "Subnet"))
    gateway = text(pools[0], "Gateway").partition("/")[0]
    return BridgeNetwork(
        id=identity,
        gateway=IPv4Address(gateway) if gateway else subnet[1],
        subnet=subnet,
        interface=text(network, "Options", "com.docker.network.bridge.name") or f"br-{identity[:12]}",
    )
