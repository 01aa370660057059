"""A task's network fields as a `Network`: the mode, and an allow-list's hosts checked and in one spelling."""

from __future__ import annotations

import ipaddress
import re

from harness.task.harbor import NetworkFields
from harness.task.model import Network, NetworkMode
from harness.task.reading import Reading
from harness.toml import shown

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_REMEDY = "Write a host name, *.name, an IP address or a CIDR range, without scheme, port or path"


def resolve_network(reading: Reading, fields: NetworkFields, place: str) -> Network | None:
    """The network that these fields ask for; None when they don't name a mode."""
    hosts = _hosts(reading, fields.allowed_hosts or [], f"{place}.allowed_hosts")
    if fields.allowed_hosts and fields.network_mode is not NetworkMode.ALLOWLIST:
        what = "is there, but the network mode is not allowlist"
        reading.findings.problem(f"{place}.allowed_hosts", what, 'Set network_mode = "allowlist", or remove the hosts')
    if fields.network_mode is None:
        return None
    return Network(
        mode=fields.network_mode, allowed_hosts=hosts if fields.network_mode is NetworkMode.ALLOWLIST else ()
    )


def normal_host(entry: str) -> str | None:
    """An allow-list's entry in lower case and canonical form; None when it isn't one."""
    host = entry.strip().lower().rstrip(".")
    if "%" in host:
        return None
    try:
        return (
            ipaddress.ip_network(host, strict=True).compressed if "/" in host else ipaddress.ip_address(host).compressed
        )
    except ValueError:
        pass
    name = host.removeprefix("*.")
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in name.split(".")) or _is_address(name):
        return None
    return host


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _hosts(reading: Reading, entries: list[str], place: str) -> tuple[str, ...]:
    hosts: dict[str, None] = {}
    for index, entry in enumerate(entries):
        host = normal_host(entry)
        if host is None:
            reading.findings.problem(f"{place}[{index}]", f"{shown(entry)} can't be in an allow-list", _REMEDY)
        else:
            hosts[host] = None
    return tuple(hosts)
