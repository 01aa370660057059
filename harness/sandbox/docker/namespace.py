"""A sandbox's network namespace: made, and closed by its firewall, before the sandbox starts in it.

An idle container holds it. The sandbox joins it by ``NetworkMode: container:<id>``, so there is no moment at which its code runs without
the rules, neither at its first start nor when it is started again on a file system that a policy has changed.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address

import anyio

from harness.errors import StartFailed, UnsupportedError
from harness.sandbox.docker.client import EngineClient
from harness.sandbox.docker.container import remove_container
from harness.sandbox.docker.firewall import HostPort, Ruleset
from harness.sandbox.docker.json import Json, member, number, text
from harness.sandbox.docker.owner import LEASE, ROLE

START_S = 60.0
LEASE_SLACK_S = 60
"""The namespace outlives its sandbox's lease by this."""

_READY = "harness: closed"
_HOLD = f"""\
restore() {{
  printf '%s' "$2" | "$1-restore" && return
  printf '%s' "$2" | "$1-legacy-restore"
}}
restore iptables "$RULES4" || exit 10
if ! restore ip6tables "$RULES6"; then
  [ -e /proc/net/if_inet6 ] && grep -qv ' lo$' /proc/net/if_inet6 && exit 11
fi
for port in $PORTS; do
  timeout 5 bash -c 'exec 3<>"/dev/tcp/$0"' "$port" || exit 12
done
echo '{_READY}'
exec sleep "$LIFETIME"
"""
"""The container's program. Its environment: RULES4, RULES6, PORTS (``address/port`` …) and LIFETIME (seconds)."""

_FAILURES = {
    10: "the kernel doesn't take the firewall rules",
    11: "the kernel doesn't take the rules for IPv6, which sandboxes have here",
    12: "the host's own firewall keeps sandboxes from the harness's port",
}


@dataclass(frozen=True, slots=True)
class Namespace:
    """A closed network namespace. ``container``: the id of what holds it. ``address``: the sandbox's."""

    container: str
    address: IPv4Address


@asynccontextmanager
async def hold(
    client: EngineClient,
    network: str,
    rules: Ruleset,
    ports: Sequence[HostPort],
    *,
    image: str,
    labels: Mapping[str, str],
) -> AsyncGenerator[Namespace]:
    """A namespace on the network with this id, in which the rules hold and the ports answer; removed at the end.

    Raises UnsupportedError when this host can't do it, StartFailed or another EngineError when the engine fails at it.
    """
    name = f"harness-network-{secrets.token_hex(6)}"
    try:
        body = _body(network, rules, ports, image, labels)
        # The engine goes on creating when its caller leaves: what nobody waits for would stay.
        with anyio.CancelScope(shield=True):
            await client.call("POST", "/containers/create", params={"name": name}, body=body, timeout_s=START_S)
        await client.call("POST", f"/containers/{name}/start", timeout_s=START_S)
        await _wait_until_closed(client, name)
        yield _namespace(await client.call("GET", f"/containers/{name}/json"), network)
    finally:
        await remove_container(client, name)


def _body(
    network: str, rules: Ruleset, ports: Sequence[HostPort], image: str, labels: Mapping[str, str]
) -> dict[str, Json]:
    lease = labels.get(LEASE, "")
    lifetime = max(0, int(lease) - int(time.time())) + LEASE_SLACK_S if lease.isdecimal() else 24 * 3600
    listed = " ".join(f"{port.address}/{port.port}" for port in ports)
    return {
        "Image": image,
        "User": "0:0",
        "Entrypoint": ["/bin/sh", "-c", _HOLD],
        "Env": [f"RULES4={rules.v4}", f"RULES6={rules.v6}", f"PORTS={listed}", f"LIFETIME={lifetime}"],
        "Labels": {**labels, ROLE: "network"},
        "Tty": True,  # its log is then plain text
        "HostConfig": {
            "NetworkMode": network,
            "CapDrop": ["ALL"],
            "CapAdd": ["NET_ADMIN", "NET_RAW"],  # the legacy interface of iptables is a raw socket
            "SecurityOpt": ["no-new-privileges"],
            "ReadonlyRootfs": True,
            "Tmpfs": {"/run": ""},  # iptables's lock
            "PidsLimit": 32,
            "Memory": 64 * 1024**2,
            "MemorySwap": 64 * 1024**2,
            "LogConfig": {"Type": "json-file", "Config": {"max-size": "64k", "max-file": "1"}},
        },
    }


async def _wait_until_closed(client: EngineClient, name: str) -> None:
    said = ""
    params = {"follow": "1", "stdout": "1", "stderr": "1"}
    try:
        with anyio.fail_after(START_S):
            async with client.open("GET", f"/containers/{name}/logs", params=params) as answer:
                async for chunk in answer.chunks():
                    said += chunk.decode("utf-8", "replace")
                    if _READY in said:
                        return
    except TimeoutError as error:
        raise StartFailed(f"the sandbox's firewall wasn't there within {START_S:g} s: {said[-500:]}") from error
    status = number(await client.call("GET", f"/containers/{name}/json"), "State", "ExitCode")
    said = " ".join(said.split())[-500:]
    known = _FAILURES.get(status or 0)
    if known is None:
        raise StartFailed(f"the sandbox's firewall could not be installed (exit status {status}): {said}")
    raise UnsupportedError(
        f"this network mode can't be enforced on this host: {known} ({said}). "
        "Use no-network, or a host whose kernel has nf_tables and whose firewall lets containers reach it"
    )


def _namespace(inspected: Json, network: str) -> Namespace:
    networks = member(inspected, "NetworkSettings", "Networks")
    endpoints: list[Json] = list(networks.values()) if isinstance(networks, Mapping) else []
    if len(endpoints) != 1 or text(endpoints[0], "NetworkID") != network:
        raise StartFailed("a sandbox's namespace isn't on the one network that it was made for")
    return Namespace(container=text(inspected, "Id"), address=IPv4Address(text(endpoints[0], "IPAddress")))
