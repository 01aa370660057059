"""Which hosts a sandbox may reach: the patterns of an allow-list, and the strict matching of what it asks for.

An entry is a host name (``example.org``), all names below one (``*.example.org``, not ``example.org`` itself), an IP address or a
CIDR range. Each means ports 80 and 443; ``host:port`` and ``[address]:port`` mean that port instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Self

from harness.errors import ConfigError

Address = IPv4Address | IPv6Address
AddressRange = IPv4Network | IPv6Network

WEB_PORTS = frozenset({80, 443})
"""What an entry without a port means."""

_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
_NUMERIC = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Name:
    """``name`` itself, or with ``below`` every name that ends with ``.name``."""

    name: str
    below: bool
    ports: frozenset[int]

    def covers(self, host: str, port: int) -> bool:
        return port in self.ports and (host.endswith("." + self.name) if self.below else host == self.name)


@dataclass(frozen=True, slots=True)
class _Range:
    range: AddressRange
    ports: frozenset[int]

    def covers(self, address: Address, port: int) -> bool:
        return port in self.ports and address.version == self.range.version and address in self.range


def read_host(text: str) -> str | Address | None:
    """A host as a program asks for it: a lower-case name without its final dot, or an address; None for anything else.

    Addresses in the spellings that only a C library reads (``127.1``, ``0x7f000001``, ``017700000001``) are nothing here: a check
    and a resolver must never read one text in two ways. IPv4 addresses mapped into IPv6 are the IPv4 address.
    """
    host = text[:-1] if text.endswith(".") else text
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        if ":" not in host:
            return None
    address = _address(host)
    if address is not None:
        return address
    host = host.lower()
    labels = host.split(".")
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels) or _NUMERIC.fullmatch(labels[-1]):
        return None
    return host


def read_authority(text: str, *, default_port: int | None = None) -> tuple[str | Address, int] | None:
    """``host:port`` or ``[address]:port`` as it stands in a request; None when it is neither, or has no port and no default."""
    host, port = _split_port(text)
    where = read_host(host)
    port = default_port if port is None else port
    return None if where is None or port is None or not 0 < port < 65536 else (where, port)


@dataclass(frozen=True, slots=True)
class AllowList:
    """The hosts, addresses and ports that a sandbox may reach through the proxy."""

    names: tuple[_Name, ...] = ()
    ranges: tuple[_Range, ...] = ()

    @classmethod
    def parse(cls, entries: Iterable[str]) -> Self:
        """Raises ConfigError that names the entry, what is wrong with it, and the forms that exist."""
        names: list[_Name] = []
        ranges: list[_Range] = []
        for entry in entries:
            match _read_entry(entry):
                case _Name() as name:
                    names.append(name)
                case _Range() as covered:
                    ranges.append(covered)
        return cls(tuple(names), tuple(ranges))

    def allows(self, host: str | Address, port: int) -> bool:
        """Whether the list names this host, as `read_host` reads it, on this port."""
        if isinstance(host, str):
            return any(name.covers(host, port) for name in self.names)
        return any(covered.covers(host, port) for covered in self.ranges)

    def is_raw(self, host: str | Address, port: int) -> bool:
        """Whether an entry gave this very port for the host, so that what is spoken on it is the task's business."""
        if isinstance(host, str):
            return any(name.covers(host, port) and name.ports != WEB_PORTS for name in self.names)
        return any(covered.covers(host, port) and covered.ports != WEB_PORTS for covered in self.ranges)


def _read_entry(entry: str) -> _Name | _Range:
    text = entry.strip()
    if "/" in text:
        return _Range(_read_range(entry, text), WEB_PORTS)
    host, port = _split_port(text)
    ports = WEB_PORTS if port is None else frozenset({port})
    if port is not None and not 0 < port < 65536:
        raise _wrong(entry, f"{port} is no port")
    below = host.startswith("*.")
    read = read_host(_ascii(entry, host[2:] if below else host))
    match read:
        case None:
            raise _wrong(entry, "it is neither a host name nor an address")
        case str():
            return _Name(read, below, ports)
        case IPv4Address() | IPv6Address():
            if below:
                raise _wrong(entry, "a wildcard stands before a host name, not before an address")
            return _Range(ip_network(read), ports)


def _read_range(entry: str, text: str) -> AddressRange:
    try:
        return ip_network(text, strict=True)
    except ValueError as error:
        raise _wrong(entry, str(error)) from error


def _split_port(text: str) -> tuple[str, int | None]:
    """``a:1`` → a, 1; ``[::1]:1`` → [::1], 1; ``::1`` → [::1], None. A port that isn't digits becomes 0, which no one allows."""
    if text.count(":") > 1 and not text.startswith("["):
        return f"[{text}]", None
    host, colon, port = text.rpartition(":")
    if not colon or "]" in port:
        return text, None
    return host, int(port) if re.fullmatch(r"[0-9]{1,5}", port, re.ASCII) else 0


def _address(host: str) -> Address | None:
    if "%" in host:
        return None
    try:
        address = ip_address(host)
    except ValueError:
        return None
    return unmapped(address)


def unmapped(address: Address) -> Address:
    """The IPv4 address that an IPv6 one stands for, where it does."""
    return address.ipv4_mapped or address if isinstance(address, IPv6Address) else address


def _ascii(entry: str, host: str) -> str:
    """The form that travels in requests: international names in their ``xn--`` spelling."""
    if host.isascii():
        return host
    import idna

    try:
        return idna.encode(host, uts46=True).decode()
    except idna.IDNAError as error:
        raise _wrong(entry, str(error)) from error


def _wrong(entry: str, what: str) -> ConfigError:
    return ConfigError(
        f"allowed host {entry!r}: {what}. "
        "Write a host name, *.name, an IP address or a CIDR range; name:port for another port than 80 and 443; no URL and no path"
    )
