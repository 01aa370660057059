"""The rules inside a sandbox's own network namespace, as ``iptables-restore`` reads them.

They are there before the sandbox starts (`harness.sandbox.docker.namespace`). The sandbox has no NET_ADMIN, so it can't change them, and
no NET_RAW, so it can't send packets that pass by them or bear another address. The host's own firewall isn't touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from harness.sandbox.egress import METADATA, PRIVATE, UNUSABLE

RESOLVER = IPv4Address("127.0.0.11")
"""The engine's resolver, which it puts into the namespace of each sandbox on a network of its own."""


@dataclass(frozen=True, slots=True)
class HostPort:
    """One TCP port of the host that a sandbox may reach: its proxy's, or the model gateway's."""

    address: IPv4Address
    port: int


@dataclass(frozen=True, slots=True)
class Ruleset:
    """What ``iptables-restore`` and ``ip6tables-restore`` get."""

    v4: str
    v6: str


def closed(ports: Sequence[HostPort]) -> Ruleset:
    """Nothing goes out but connections to these ports of the host; no name is resolved."""
    lines = [_refuse(IPv4Network(RESOLVER)), "-A OUTPUT -o lo -j ACCEPT"]
    lines += [_accept_tcp(port) for port in ports]
    lines.append("-A OUTPUT -j REFUSE")
    return Ruleset(_table(lines), _V6)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What lies around a sandbox that reaches the internet.

    host: every address of the host.
    bridge: the network that the sandboxes share.
    nameservers: reached on port 53, wherever they are.
    reachable: private ranges that aren't closed.
    """

    host: frozenset[IPv4Address]
    bridge: IPv4Network
    nameservers: Sequence[IPv4Address] = ()
    reachable: Sequence[IPv4Network] = ()


def public(around: Surroundings, ports: Sequence[HostPort] = ()) -> Ruleset:
    """The internet, but neither the host, nor other sandboxes, nor link-local and metadata addresses, nor private networks.

    Private networks are closed because the engine's bridges, each an address of the host, come and go in them while a sandbox runs.
    A public address that the host is given later isn't known here.
    """
    lines = ["-A OUTPUT -o lo -j ACCEPT"]
    lines += [_accept_tcp(port) for port in ports]
    for server in around.nameservers:
        lines += [f"-A OUTPUT -d {server} -p {protocol} --dport 53 -j ACCEPT" for protocol in ("udp", "tcp")]
    lines += [_refuse(IPv4Network(address)) for address in sorted(around.host)]
    lines += [_refuse(covered) for covered in (around.bridge, *METADATA, *UNUSABLE)]
    lines += [f"-A OUTPUT -d {covered} -j ACCEPT" for covered in around.reachable]
    lines += [_refuse(covered) for covered in PRIVATE]
    lines += ["-A OUTPUT -j ACCEPT"]
    return Ruleset(_table(lines), _V6)


def _accept_tcp(port: HostPort) -> str:
    return f"-A OUTPUT -d {port.address} -p tcp --dport {port.port} -j ACCEPT"


def _refuse(covered: IPv4Network) -> str:
    return f"-A OUTPUT -d {covered} -j REFUSE"


def _table(output: Iterable[str]) -> str:
    return "\n".join(
        (
            "*filter",
            ":INPUT DROP [0:0]",
            ":FORWARD DROP [0:0]",
            ":OUTPUT DROP [0:0]",
            # Refused and not dropped: a program learns it at once. (A connect() that waits doesn't hear ICMP before its first retry.)
            ":REFUSE - [0:0]",
            "-A REFUSE -p tcp -j REJECT --reject-with tcp-reset",
            "-A REFUSE -j REJECT --reject-with icmp-admin-prohibited",
            "-A INPUT -i lo -j ACCEPT",
            "-A INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT",
            *output,
            "COMMIT\n",
        )
    )


_V6 = """*filter
:INPUT DROP [0:0]
:FORWARD DROP [0:0]
:OUTPUT DROP [0:0]
-A INPUT -i lo -j ACCEPT
-A OUTPUT -o lo -j ACCEPT
COMMIT
"""
"""IPv6 stays within the sandbox: the networks have none."""
