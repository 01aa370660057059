"""The name in a TLS greeting."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.sandbox.tls import MAX_HELLO_BYTES, HelloReader, ServerName
from tests.sandbox.greeting import hello


@pytest.mark.parametrize("name", ["example.org", "a.very-long-name.example.org", None])
def test_the_name_is_read(name: str | None) -> None:
    assert HelloReader().feed(hello(name)) == ServerName(name)


def test_a_greeting_in_pieces_is_read_when_it_is_whole() -> None:
    data = hello("example.org")
    reader = HelloReader()
    assert all(reader.feed(data[index : index + 1]) is None for index in range(len(data) - 1))
    assert reader.feed(data[-1:]) == ServerName("example.org")


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\n\r\n", b"SSH-2.0-x\r\n", b"\x16\x03\x01\x00\x05hello", b"\x80\x2e\x01\x03\x01"]
)
def test_what_is_no_greeting_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="TLS"):
        HelloReader().feed(data)


def test_an_endless_greeting_is_refused() -> None:
    reader = HelloReader()
    with pytest.raises(ValueError, match=r"too long|can't be read"):
        for _ in range(MAX_HELLO_BYTES // 1024 + 2):
            reader.feed(b"\x16\x03\x01\x40\x00\x01\x00\xff\xff" + b"\0" * 1015)


@given(st.binary(min_size=1, max_size=200), st.integers(0, 600))
def test_garbage_is_refused_or_awaited_and_never_hides_the_name(garbage: bytes, at: int) -> None:
    data = hello("example.org")
    try:
        found = HelloReader().feed(data[:at] + garbage)
    except ValueError:
        assert at < len(data)
    else:
        assert at < len(data) or found == ServerName("example.org")
