"""Addresses that a sandbox must not reach, whatever name leads to them, and the dialling that keeps to this."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Protocol

import anyio
from anyio.abc import ByteStream

from harness.sandbox.allowlist import Address, AllowList, unmapped

METADATA = (
    IPv4Network("169.254.0.0/16"),  # link-local: the metadata service of most clouds
    IPv4Network("100.100.100.200/32"),  # Alibaba Cloud
    IPv4Network("168.63.129.16/32"),  # Azure
)
"""Where clouds tell a machine its credentials."""

UNUSABLE = (
    IPv4Network("0.0.0.0/8"),
    IPv4Network("127.0.0.0/8"),
    IPv4Network("224.0.0.0/4"),
    IPv4Network("240.0.0.0/4"),
)
"""Loopback, multicast, broadcast and reserved ranges: no server on the internet has such an address."""

PRIVATE = (
    IPv4Network("10.0.0.0/8"),
    IPv4Network("172.16.0.0/12"),
    IPv4Network("192.168.0.0/16"),
    IPv4Network("100.64.0.0/10"),
)
"""The networks around the host. The engine gives its bridges, which are addresses of the host, from these too."""

_NEVER_V6 = tuple(
    IPv6Network(text)
    for text in (
        "::/96",  # unspecified, loopback, and the obsolete form of IPv4 addresses
        "64:ff9b::/96",  # an IPv4 address behind a translator: judged as nothing, so refused
        "64:ff9b:1::/48",
        "2002::/16",  # 6to4: holds an IPv4 address
        "2001::/32",  # Teredo: holds one too
        "fe80::/10",
        "fec0::/10",
        "ff00::/8",
        "fd00:ec2::/32",  # a metadata service
    )
)
_PRIVATE_V6 = (IPv6Network("fc00::/7"),)


def host_addresses() -> frozenset[Address]:
    """All addresses of all interfaces of this host, now. They change: ask again for each sandbox."""
    import psutil

    return frozenset(
        unmapped(ip_address(entry.address.partition("%")[0]))
        for entries in psutil.net_if_addrs().values()
        for entry in entries
        if entry.family in (socket.AF_INET, socket.AF_INET6)
    )


def is_never(address: Address, host: frozenset[Address]) -> bool:
    """Whether no sandbox may reach it in any mode: the host itself, loopback, link-local, metadata and what is no server's."""
    never = _NEVER_V6 if isinstance(address, IPv6Address) else (*METADATA, *UNUSABLE)
    return address in host or any(address in covered for covered in never)


def is_private(address: Address) -> bool:
    """Whether it lies in the networks around the host."""
    return any(address in covered for covered in (_PRIVATE_V6 if isinstance(address, IPv6Address) else PRIVATE))


def refusal(address: Address, port: int, *, allow: AllowList, host: frozenset[Address]) -> str | None:
    """Why an address that a permitted name resolved to can't be dialled; None when it can.

    A name may lead only to the internet, unless the list names the address or its range itself: whoever serves a name's DNS records
    doesn't decide what the host's own network is open to.
    """
    if is_never(address, host):
        return "the address is the host's own, or link-local, or no server's"
    if is_private(address) and not allow.allows(address, port):
        return "the name leads to a private address, which the list doesn't name"
    return None


class Dialer(Protocol):
    """How the proxy reaches the outside."""

    async def resolve(self, name: str) -> Sequence[Address]:
        """Every address of a name. Raises OSError when there is none."""
        ...

    async def dial(self, address: Address, port: int) -> ByteStream:
        """A TCP connection. Raises OSError, also when it takes too long."""
        ...

    def own(self) -> frozenset[Address]:
        """The addresses of the host itself."""
        ...


@dataclass(frozen=True, slots=True)
class HostDialer:
    """Reaches the outside as the host does: its resolver, its routes."""

    connect_timeout_s: float = 10.0
    own: Callable[[], frozenset[Address]] = host_addresses

    async def resolve(self, name: str) -> Sequence[Address]:
        found = await anyio.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        return tuple(dict.fromkeys(unmapped(ip_address(str(entry[4][0]).partition("%")[0])) for entry in found))

    async def dial(self, address: Address, port: int) -> ByteStream:
        try:
            with anyio.fail_after(self.connect_timeout_s):
                return await anyio.connect_tcp(str(address), port)
        except TimeoutError as error:
            raise OSError(f"no answer from {address} port {port} within {self.connect_timeout_s:g} s") from error
