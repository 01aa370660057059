"""Addresses that no name may lead to."""

from __future__ import annotations

from ipaddress import ip_address

import psutil
import pytest

from harness.sandbox.allowlist import AllowList
from harness.sandbox.egress import host_addresses, is_never, refusal

HOST = frozenset({ip_address("198.51.100.4"), ip_address("2001:db8::4")})


@pytest.mark.parametrize(
    "address",
    [
        *(
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "169.254.169.254",
            "100.100.100.200",
            "168.63.129.16",
            "224.0.0.1",
            "255.255.255.255",
        ),
        *("::", "::1", "::7f00:1", "fe80::1", "ff02::1", "64:ff9b::7f00:1", "2002:7f00:1::", "fd00:ec2::254"),
        *("198.51.100.4", "2001:db8::4"),
    ],
)
def test_the_host_and_metadata_are_never_reached_even_when_listed(address: str) -> None:
    listed = AllowList.parse([address, "0.0.0.0/0", "::/0"])
    assert is_never(ip_address(address), HOST)
    assert refusal(ip_address(address), 443, allow=listed, host=HOST) is not None


@pytest.mark.parametrize("address", ["10.1.2.3", "172.17.0.2", "192.168.1.1", "100.64.0.1", "fd12::1"])
def test_a_private_address_must_be_listed_itself(address: str) -> None:
    assert refusal(ip_address(address), 443, allow=AllowList.parse(["example.org"]), host=HOST) is not None
    assert refusal(ip_address(address), 443, allow=AllowList.parse([address]), host=HOST) is None
    assert refusal(ip_address(address), 22, allow=AllowList.parse([address]), host=HOST) is not None


@pytest.mark.parametrize("address", ["203.0.113.80", "1.1.1.1", "172.15.0.1", "172.32.0.1", "2606:4700::1"])
def test_the_internet_is_reached(address: str) -> None:
    assert refusal(ip_address(address), 443, allow=AllowList.parse([]), host=HOST) is None


def test_the_host_knows_all_its_addresses() -> None:
    found = {str(address) for address in host_addresses()}
    assert "127.0.0.1" in found
    for entries in psutil.net_if_addrs().values():
        for entry in entries:
            if entry.family.name == "AF_INET":
                assert entry.address in found
