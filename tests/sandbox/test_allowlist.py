"""What an allow-list's entries mean, and how strictly a request is held against them."""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import ConfigError
from harness.sandbox.allowlist import AllowList, read_authority, read_host

LABELS = st.from_regex(r"[a-z]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
NAMES = st.lists(LABELS, min_size=2, max_size=4).map(".".join)


def allows(entries: list[str], authority: str) -> bool:
    where = read_authority(authority, default_port=443)
    return where is not None and AllowList.parse(entries).allows(*where)


@pytest.mark.parametrize(
    ("entry", "asked", "expected"),
    [
        ("example.org", "example.org", True),
        ("example.org", "EXAMPLE.org.", True),
        ("Example.ORG.", "example.org", True),
        ("example.org", "example.org:80", True),
        ("example.org", "example.org:22", False),
        ("example.org", "www.example.org", False),
        ("example.org", "example.org.evil.net", False),
        ("example.org", "badexample.org", False),
        ("example.org:8443", "example.org:8443", True),
        ("example.org:8443", "example.org:443", False),
        ("*.example.org", "a.example.org", True),
        ("*.example.org", "a.b.example.org", True),
        ("*.example.org", "example.org", False),
        ("*.example.org", "badexample.org", False),
        ("bücher.example", "xn--bcher-kva.example", True),
        ("203.0.113.7", "203.0.113.7", True),
        ("203.0.113.7", "203.0.113.8", False),
        ("203.0.113.7", "[::ffff:203.0.113.7]", True),
        ("203.0.113.7:53", "203.0.113.7:53", True),
        ("203.0.113.7:53", "203.0.113.7:443", False),
        ("203.0.113.0/24", "203.0.113.255", True),
        ("203.0.113.0/24", "203.0.114.0", False),
        ("2001:db8::1", "[2001:db8::1]", True),
        ("[2001:db8::1]:99", "[2001:db8:0::1]:99", True),
        ("2001:db8::/32", "[2001:db8:1::]", True),
        ("2001:db8::/32", "203.0.113.7", False),
    ],
)
def test_entries_mean_exactly_what_they_say(entry: str, asked: str, expected: bool) -> None:
    assert allows([entry], asked) is expected


@pytest.mark.parametrize(
    "entry",
    [
        *("", "*", "*.", "*.*.org", "a.*.org", "a*.org", "*.203.0.113.7", "http://example.org", "example.org/path"),
        *(
            "exa mple.org",
            "-a.org",
            "a-.org",
            "a..org",
            "203.0.113.7/24",
            "203.0.113.999",
            "example.org:",
            "example.org:0",
        ),
        *(
            "example.org:65536",
            "example.org:http",
            "[example.org]",
            "user@example.org",
            "fe80::1%eth0",
            "127.1",
            "1.2.3",
        ),
        *("a" * 64 + ".org", ".".join(["a" * 60] * 5)),
    ],
)
def test_a_wrong_entry_is_an_error_that_names_it(entry: str) -> None:
    with pytest.raises(ConfigError, match="allowed host") as caught:
        AllowList.parse(["example.org", entry])
    assert repr(entry) in str(caught.value)


@pytest.mark.parametrize("spelling", ["127.1", "0x7f000001", "2130706433", "017700000001", "0x7f.0.0.1", "127.0.0.01"])
def test_an_address_that_only_a_c_library_reads_is_no_host(spelling: str) -> None:
    assert socket.gethostbyname(spelling).startswith("127.")
    assert read_host(spelling) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "..",
        "a..b",
        "exa_mple.org:x",
        "a b",
        "a\x00b",
        "ä.org",
        "[::1",
        "::1]",
        "[127.0.0.1]",
        "fe80::1%lo",
        "a@b",
    ],
)
def test_what_is_no_host_is_nothing(text: str) -> None:
    assert read_authority(text, default_port=80) is None


@given(name=NAMES, other=NAMES)
def test_a_name_allows_itself_in_any_spelling_and_no_other(name: str, other: str) -> None:
    listed = AllowList.parse([name])
    for spelling in (name, name.upper(), name + "."):
        read = read_host(spelling)
        assert read is not None
        assert listed.allows(read, 443)
    assert listed.allows(other, 443) is (other == name)


@given(name=NAMES, asked=NAMES)
def test_a_wildcard_allows_whole_labels_only(name: str, asked: str) -> None:
    listed = AllowList.parse([f"*.{name}"])
    assert listed.allows(asked, 443) is (asked != name and asked.split(".")[-len(name.split(".")) :] == name.split("."))
    assert listed.allows(f"{asked}.{name}", 443)
    assert not listed.allows(f"{asked}{name}", 443) or asked.endswith(".")


@given(st.text(max_size=40) | st.from_regex(r"[0-9a-fx.:\[\]]{1,20}", fullmatch=True))
def test_whatever_is_read_as_an_address_or_a_name_is_canonical(text: str) -> None:
    """A name that a resolver would take for an address is never a name."""
    read = read_host(text)
    if isinstance(read, str):
        assert read == read.lower()
        assert read_host(read) == read
        with pytest.raises(OSError):
            socket.inet_aton(read)
        with pytest.raises(ValueError):
            ip_address(read)
    elif read is not None:
        assert read_host(f"[{read}]" if isinstance(read, IPv6Address) else str(read)) == read


@given(st.ip_addresses(v=4))
def test_an_address_allows_only_itself(address: IPv4Address) -> None:
    listed = AllowList.parse([str(address)])
    assert listed.allows(address, 443)
    assert not listed.allows(IPv4Address(int(address) ^ 1), 443)
    assert not listed.allows(address, 22)
    assert not AllowList.parse([]).allows(address, 443)


def test_only_an_entry_with_a_port_makes_it_raw() -> None:
    listed = AllowList.parse(["example.org", "example.org:22", "203.0.113.0/24", "203.0.113.7:443"])
    assert listed.is_raw("example.org", 22)
    assert not listed.is_raw("example.org", 443)
    assert listed.is_raw(IPv4Address("203.0.113.7"), 443)
    assert not listed.is_raw(IPv4Address("203.0.113.8"), 443)
