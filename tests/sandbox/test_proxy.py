"""The proxy of an allow-list, against servers on this machine."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Address, ip_address

import anyio
import h11
import pytest
from anyio.abc import ByteStream, SocketAttribute
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from harness.errors import EngineError
from harness.sandbox.allowlist import Address, AllowList
from harness.sandbox.proxy import MAX_CONNECTIONS, MAX_LOGGED, Denial, Proxy, listen, open_proxy
from tests.sandbox.greeting import hello

LOOPBACK = IPv4Address("127.0.0.1")
PUBLIC = "203.0.113.7"
OWN = "198.51.100.4"


@dataclass
class Outside:
    """The world as the proxy sees it: names, and one server that stands for every address."""

    names: dict[str, list[str]] = field(default_factory=lambda: {"example.org": [PUBLIC], "www.example.org": [PUBLIC]})
    port: int = 0
    resolved: list[str] = field(default_factory=list[str])
    dialled: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    received: bytearray = field(default_factory=bytearray)

    async def resolve(self, name: str) -> Sequence[Address]:
        self.resolved.append(name)
        if name not in self.names:
            raise OSError("no such name")
        return tuple(ip_address(text) for text in self.names[name])

    async def dial(self, address: Address, port: int) -> ByteStream:
        self.dialled.append((str(address), port))
        return await anyio.connect_tcp("127.0.0.1", self.port)

    def own(self) -> frozenset[Address]:
        return frozenset({ip_address(OWN)})


Answer = Callable[[ByteStream, Outside], Awaitable[None]]


async def reply(stream: ByteStream, outside: Outside) -> None:
    """Reads one request with its body and answers it."""
    reader = h11.Connection(h11.SERVER)
    while (event := reader.next_event()) is h11.NEED_DATA or not isinstance(event, h11.EndOfMessage):
        if event is h11.NEED_DATA:
            chunk = await stream.receive()
            outside.received += chunk
            reader.receive_data(chunk)
    await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Kept: yes\r\nKeep-Alive: 9\r\n\r\nhello")


async def echo(stream: ByteStream, outside: Outside) -> None:
    async for chunk in stream:
        outside.received += chunk
        await stream.send(chunk)


@asynccontextmanager
async def proxied(
    *entries: str, outside: Outside | None = None, answer: Answer = reply
) -> AsyncGenerator[tuple[Proxy, Outside]]:
    outside = outside or Outside()

    async def serve(stream: ByteStream) -> None:
        async with stream:
            await answer(stream, outside)

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as origin, anyio.create_task_group() as tasks:
        outside.port = origin.extra(SocketAttribute.local_port)
        tasks.start_soon(origin.serve, serve)
        allow = AllowList.parse(entries or ("example.org", "*.example.org"))
        async with open_proxy(await listen(LOOPBACK), allow, labels={"attempt": "a"}, dialer=outside) as proxy:
            proxy.peer = LOOPBACK
            yield proxy, outside
        tasks.cancel_scope.cancel()


async def ask(proxy: Proxy, *parts: bytes) -> bytes:
    """Send the parts, one after each answer's first bytes, and read to the end."""
    with anyio.fail_after(10):
        async with await anyio.connect_tcp("127.0.0.1", proxy.port) as stream:
            answer = b""
            for part in parts[:-1]:
                await stream.send(part)
                answer += await stream.receive()
            await stream.send(parts[-1])
            await stream.send_eof()
            async for chunk in stream:
                answer += chunk
            return answer


def connect(authority: str) -> bytes:
    return f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode()


async def test_plain_http_is_passed_on_in_the_form_that_a_server_expects() -> None:
    async with proxied() as (proxy, outside):
        answer = await ask(
            proxy,
            b"GET http://example.org/a?b=1 HTTP/1.1\r\nHost: other.net\r\nProxy-Authorization: x\r\nConnection: X-Hop\r\nX-Hop: 1\r\n"
            b"X-Mine: 2\r\n\r\n",
        )
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\nhello")
    assert b"x-kept: yes" in answer.lower()
    assert b"keep-alive" not in answer.lower()
    head = bytes(outside.received).lower()
    assert head.startswith(b"get /a?b=1 http/1.1\r\nhost: example.org\r\n")
    assert b"x-mine: 2" in head
    assert not any(word in head for word in (b"other.net", b"x-hop", b"proxy-"))
    assert outside.dialled == [(PUBLIC, 80)]


async def test_bodies_pass_in_both_framings() -> None:
    for head, sent in (
        (b"Content-Length: 4\r\n\r\n", b"BODY"),
        (b"Transfer-Encoding: chunked\r\n\r\n", b"4\r\nBODY\r\n0\r\n\r\n"),
    ):
        async with proxied() as (proxy, outside):
            answer = await ask(proxy, b"POST http://example.org/ HTTP/1.1\r\nHost: example.org\r\n" + head + sent)
            assert answer.endswith(b"hello")
            assert bytes(outside.received).endswith(sent)


async def test_a_client_that_waits_for_leave_to_send_its_body_gets_it() -> None:
    async with proxied() as (proxy, outside):
        head = b"POST http://example.org/ HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n"
        answer = await ask(proxy, head, b"BODY")
        assert answer.startswith(b"HTTP/1.1 100 ")
        assert answer.endswith(b"hello")
        assert b"expect" not in bytes(outside.received).lower()


async def test_requests_follow_each_other_and_each_is_checked() -> None:
    async with proxied() as (proxy, outside):
        one = b"GET http://example.org/ HTTP/1.1\r\nHost: example.org\r\n\r\n"
        other = b"GET http://other.net/ HTTP/1.1\r\nHost: example.org\r\n\r\n"
        answer = await ask(proxy, one + one + other + one)
    assert answer.count(b"200 OK") == 2
    assert answer.count(b"403 Forbidden") == 1
    assert proxy.denied == {Denial.NOT_LISTED: 1}
    assert len(outside.dialled) == 2


async def test_a_tunnel_carries_tls_for_a_listed_name() -> None:
    async with proxied(answer=echo) as (proxy, outside):
        answer = await ask(proxy, connect("example.org:443"), hello("www.example.org") + b"more")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b"more")
    assert bytes(outside.received).startswith(b"\x16\x03")
    assert outside.dialled == [(PUBLIC, 443)]


@pytest.mark.parametrize("begins", [hello("evil.net"), b"GET / HTTP/1.1\r\nHost: evil.net\r\n\r\n", b"SSH-2.0-x\r\n"])
@pytest.mark.parametrize("at_once", [True, False])
async def test_a_tunnel_that_does_not_begin_with_tls_for_a_listed_name_carries_nothing(
    begins: bytes, at_once: bool
) -> None:
    async with proxied(answer=echo) as (proxy, outside):
        parts = [connect("example.org:443") + begins] if at_once else [connect("example.org:443"), begins]
        answer = await ask(proxy, *parts)
        assert answer.count(b"\r\n") == 2  # the tunnel was opened, and nothing came through it
        assert proxy.denied == {Denial.TLS_NAME: 1}
        assert not outside.received


async def test_an_entry_with_a_port_carries_any_protocol_there_and_only_there() -> None:
    async with proxied("example.org:22", answer=echo) as (proxy, outside):
        answer = await ask(proxy, connect("example.org:22"), b"SSH-2.0-x\r\n")
        assert answer.endswith(b"SSH-2.0-x\r\n")
        assert b" 403 " in await ask(proxy, connect("example.org:443"))
        assert outside.dialled == [(PUBLIC, 22)]


@pytest.mark.parametrize(
    "authority",
    ["other.net:443", "example.org:22", "203.0.113.9:443", "[2001:db8::1]:443", "127.0.0.1:80", "localhost:80"],
)
async def test_what_is_not_listed_is_refused_before_it_is_looked_up(authority: str) -> None:
    async with proxied() as (proxy, outside):
        with capture_logs() as logs:
            answer = await ask(proxy, connect(authority))
            assert b"allow-list" in await ask(proxy, f"GET http://{authority}/ HTTP/1.1\r\nHost: h\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 403 ")
        assert proxy.denied == {Denial.NOT_LISTED: 2}
        assert (outside.resolved, outside.dialled) == ([], [])
        assert [(log["event"], log["denial"], log["attempt"]) for log in logs] == [
            ("network_denied", "not_listed", "a")
        ] * 2


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.1", "169.254.169.254", OWN, "::1", "fd12::1"])
async def test_a_listed_name_that_leads_inside_is_refused(address: str) -> None:
    outside = Outside(names={"example.org": [PUBLIC, address]})
    async with proxied(outside=outside) as (proxy, _):
        assert b" 403 " in await ask(proxy, connect("example.org:443"))
        assert proxy.denied == {Denial.ADDRESS: 1}
        assert outside.dialled == []


async def test_a_listed_range_is_reached_by_address_and_by_name_but_never_the_host() -> None:
    outside = Outside(names={"mirror.test": ["10.1.1.1"]})
    async with proxied("10.0.0.0/8", "mirror.test", OWN, "127.0.0.0/8", outside=outside) as (proxy, _):
        for authority in ("10.2.2.2:80", "mirror.test:80"):
            assert b"200 OK" in await ask(proxy, f"GET http://{authority}/ HTTP/1.1\r\nHost: h\r\n\r\n".encode())
            outside.received.clear()
        for authority in (f"{OWN}:80", "127.0.0.1:80"):
            assert b" 403 " in await ask(proxy, connect(authority))
        assert outside.dialled == [("10.2.2.2", 80), ("10.1.1.1", 80)]


async def test_another_sandbox_is_not_served() -> None:
    async with proxied() as (proxy, outside):
        for peer in (None, IPv4Address("127.0.0.2")):
            proxy.peer = peer
            assert await ask(proxy, connect("example.org:443")) == b""
        assert proxy.denied == {Denial.FOREIGN: 1}
        assert outside.dialled == []


@pytest.mark.parametrize(
    "request_line",
    [
        *(
            "GET / HTTP/1.1",
            "GET https://example.org/ HTTP/1.1",
            "GET ftp://example.org/ HTTP/1.1",
            "GET //example.org/ HTTP/1.1",
        ),
        *(
            "CONNECT example.org HTTP/1.1",
            "CONNECT example.org:443:443 HTTP/1.1",
            "CONNECT user@example.org:443 HTTP/1.1",
        ),
        *(
            "GET http://user@example.org/ HTTP/1.1",
            "GET http://example.org\\@evil.net/ HTTP/1.1",
            "GET http:///a HTTP/1.1",
        ),
        *(
            "CONNECT example.org:0 HTTP/1.1",
            "CONNECT example.org:99999 HTTP/1.1",
            "GET http://0x7f.1/ HTTP/1.1",
            "nonsense",
        ),
    ],
)
async def test_what_can_be_read_in_two_ways_is_refused(request_line: str) -> None:
    async with proxied() as (proxy, outside):
        answer = await ask(proxy, f"{request_line}\r\nHost: example.org\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert proxy.denied == {Denial.BAD_REQUEST: 1}
        assert outside.dialled == []


@settings(max_examples=60)
@given(
    st.binary(max_size=300), st.sampled_from([b"", b"CONNECT example.org:443 HTTP/1.1\r\n", b"GET http://example.org"])
)
def test_no_bytes_make_the_proxy_fail_or_reach_what_is_not_listed(data: bytes, begins: bytes) -> None:
    async def attempt() -> None:
        async with proxied(answer=echo) as (proxy, outside):
            with capture_logs() as logs:
                await ask(proxy, begins + data)
            assert not [log for log in logs if log["event"] == "proxy_connection_failed"]
            assert {address for address, _ in outside.dialled} <= {PUBLIC}

    anyio.run(attempt)


async def test_a_server_that_breaks_off_ends_the_answer() -> None:
    async def half(stream: ByteStream, outside: Outside) -> None:
        await stream.receive()
        await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")

    async def nothing(stream: ByteStream, outside: Outside) -> None:
        await stream.receive()

    request = b"GET http://example.org/ HTTP/1.1\r\nHost: h\r\n\r\n"
    async with proxied(answer=half) as (proxy, _):
        assert (await ask(proxy, request)).endswith(b"half")
    async with proxied(answer=nothing) as (proxy, _):
        assert (await ask(proxy, request)).startswith(b"HTTP/1.1 502 ")
    async with proxied(outside=Outside(names={"example.org": []})) as (proxy, _):
        assert (await ask(proxy, connect("example.org:443"))).startswith(b"HTTP/1.1 502 ")
    async with proxied(outside=Outside(names={})) as (proxy, _):
        assert (await ask(proxy, connect("example.org:443"))).startswith(b"HTTP/1.1 502 ")


async def test_a_server_may_answer_before_it_has_read_everything() -> None:
    async def early(stream: ByteStream, outside: Outside) -> None:
        await stream.receive()
        await stream.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        async for _ in stream:
            pass

    async with proxied(answer=early) as (proxy, _):
        body = b"x" * 300_000
        head = b"POST http://example.org/ HTTP/1.1\r\nHost: h\r\nContent-Length: 99000000\r\n\r\n"
        assert b" 413 " in await ask(proxy, head, body)


async def test_denials_are_counted_always_and_logged_up_to_a_bound() -> None:
    with capture_logs() as logs:
        async with proxied() as (proxy, _):
            for _ in range(MAX_LOGGED + 5):
                await ask(proxy, connect("other.net:443"))
    assert proxy.denied.total() == MAX_LOGGED + 5
    assert sum(log["event"] == "network_denied" for log in logs) == MAX_LOGGED
    assert logs[-1]["event"] == "network_denials"
    assert logs[-1]["denied_not_listed"] == MAX_LOGGED + 5


async def test_more_connections_than_the_bound_wait_their_turn() -> None:
    async with proxied() as (proxy, _):
        held = [await anyio.connect_tcp("127.0.0.1", proxy.port) for _ in range(MAX_CONNECTIONS)]
        waiting = await anyio.connect_tcp("127.0.0.1", proxy.port)
        await waiting.send(connect("other.net:443"))
        with anyio.move_on_after(0.2) as scope:
            await waiting.receive()
        assert scope.cancelled_caught
        await held.pop().aclose()
        with anyio.fail_after(5):
            assert b" 403 " in await waiting.receive()
        for stream in (*held, waiting):
            await stream.aclose()


async def test_what_its_user_raises_comes_out_as_it_is_and_the_port_is_free_again() -> None:
    listener = await listen(LOOPBACK)
    port: int = listener.extra(SocketAttribute.local_port)
    with pytest.raises(EngineError, match="mine"):
        async with open_proxy(listener, AllowList(), labels={}):
            raise EngineError("mine")
    with pytest.raises(OSError):
        await anyio.connect_tcp("127.0.0.1", port)


async def test_an_address_of_another_machine_can_not_be_listened_on() -> None:
    with pytest.raises(OSError):
        await listen(IPv4Address("203.0.113.1"))
