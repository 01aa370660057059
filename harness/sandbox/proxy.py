"""The forward proxy through which a sandbox with an allow-list reaches what the list names.

One listener per sandbox, and the sandbox's own firewall lets it reach only that one: no sandbox can use another's list. Requests are
``CONNECT host:port`` for tunnels and ``GET http://host/…`` for plain HTTP. Names are resolved here, so a sandbox needs no DNS.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import IPv4Address

import anyio
import structlog
from anyio.abc import ByteStream, SocketAttribute, SocketListener, TaskGroup

from harness.sandbox.allowlist import Address, AllowList
from harness.sandbox.egress import Dialer, HostDialer, refusal
from harness.sandbox.exchange import GONE, BadRequest, Exchange, Target
from harness.sandbox.tunnel import NotPermitted, check_greeting, tunnel

_log = structlog.get_logger()

MAX_CONNECTIONS = 64
"""Connections of one sandbox at a time. More wait: a sandbox can't use up the harness's own file descriptors."""

MAX_LOGGED = 100
"""Denials of one sandbox that are logged singly; later ones are only counted."""

ACCEPT_PAUSE_S = 0.2

IDLE_S = 120.0
"""How long a connection may wait for its next request."""


class Denial(StrEnum):
    """Why the proxy refused a request."""

    NOT_LISTED = "not_listed"
    """No entry names the host on this port."""
    ADDRESS = "address"
    """The name leads to an address that it may not lead to."""
    TLS_NAME = "tls_name"
    """What was spoken in the tunnel isn't TLS, or asked for a name that the list doesn't hold."""
    BAD_REQUEST = "bad_request"
    """Not a proxy request that can be read in one way only."""
    FOREIGN = "foreign"
    """The connection didn't come from this sandbox."""


@dataclass(frozen=True, slots=True)
class _Denied(Exception):
    denial: Denial
    reason: str


@dataclass(slots=True)
class Proxy:
    """One sandbox's way out.

    peer: the sandbox's address; connections from others are closed. None until it is known: all are.
    denied: how many requests were refused, by reason.
    """

    allow: AllowList
    port: int
    labels: Mapping[str, str]
    dialer: Dialer
    peer: IPv4Address | None = None
    allowed: int = 0
    denied: Counter[Denial] = field(default_factory=Counter[Denial])

    async def serve(self, listener: SocketListener, tasks: TaskGroup) -> None:
        """Accept until cancelled."""
        limit = anyio.CapacityLimiter(MAX_CONNECTIONS)
        while True:
            borrower = object()
            await limit.acquire_on_behalf_of(borrower)
            try:
                client = await listener.accept()
            except OSError as error:  # no file descriptors left, most likely
                _log.warning("proxy_accept_failed", error=str(error), **self.labels)
                limit.release_on_behalf_of(borrower)
                await anyio.sleep(ACCEPT_PAUSE_S)
                continue
            tasks.start_soon(self._connection, client, limit, borrower)

    async def _connection(self, client: ByteStream, limit: anyio.CapacityLimiter, borrower: object) -> None:
        try:
            async with client:
                await self._requests(client)
        except GONE:
            pass  # one side went away; there is no one to tell
        except Exception:  # noqa: BLE001 - the boundary of a request: a fault of ours must not end the sandbox that is served
            _log.exception("proxy_connection_failed", **self.labels)
        finally:
            limit.release_on_behalf_of(borrower)

    async def _requests(self, client: ByteStream) -> None:
        remote = client.extra(SocketAttribute.remote_address)
        if self.peer is None:
            return  # the namespace's own probe
        if remote[0] != str(self.peer):
            self._deny(Denial.FOREIGN, Target("-", 0, connect=False), f"connection from {remote[0]}")
            return
        exchange = Exchange(client)
        while True:
            target = Target("-", 0, connect=False)
            try:
                found = None
                with anyio.move_on_after(IDLE_S):
                    found = await exchange.next_request()
                if found is None:
                    return
                target = found
                await self._answer(exchange, target)
            except BadRequest as error:
                self._deny(Denial.BAD_REQUEST, target, str(error))
                await exchange.refuse(400, str(error))
            except _Denied as denied:
                self._deny(denied.denial, target, denied.reason)
                await exchange.refuse(403, f"{target.host} port {target.port}: {denied.reason}")
            except OSError as error:
                await exchange.refuse(502, f"{target.host} port {target.port}: {error}")
            if not exchange.reusable:
                await exchange.finish()
                return

    async def _answer(self, exchange: Exchange, target: Target) -> None:
        if not self.allow.allows(target.host, target.port):
            raise _Denied(Denial.NOT_LISTED, "the allow-list of this sandbox doesn't name it")
        upstream = await self._dial(target.host, target.port)
        self.allowed += 1
        async with upstream:
            if not target.connect:
                await exchange.forward(upstream)
                return
            greeting = await exchange.accept_tunnel()
            if not self.allow.is_raw(target.host, target.port):
                try:
                    greeting = await check_greeting(exchange.client, greeting, target, self.allow)
                except NotPermitted as error:
                    self._deny(Denial.TLS_NAME, target, str(error))
                    return
            await tunnel(exchange.client, upstream, greeting)

    async def _dial(self, host: str | Address, port: int) -> ByteStream:
        """The first address that answers. All of a name's addresses must be permitted, not only the one that is used."""
        own = self.dialer.own()
        addresses = (await self.dialer.resolve(host)) if isinstance(host, str) else (host,)
        for address in addresses:
            reason = refusal(address, port, allow=self.allow, host=own)
            if reason is not None:
                raise _Denied(Denial.ADDRESS, reason)
        failure: OSError = OSError("the name has no address")
        for address in addresses:
            try:
                return await self.dialer.dial(address, port)
            except OSError as error:
                failure = error
        raise failure

    def _deny(self, denial: Denial, target: Target, reason: str) -> None:
        self.denied[denial] += 1
        if self.denied.total() <= MAX_LOGGED:
            where = {"host": str(target.host), "port": target.port}
            _log.warning("network_denied", denial=denial.value, reason=reason[:200], **where, **self.labels)


async def listen(address: IPv4Address) -> SocketListener:
    """A listener on a free port of this address. Raises OSError when the address isn't this host's."""
    (listener,) = (await anyio.create_tcp_listener(local_host=str(address), backlog=MAX_CONNECTIONS)).listeners
    if not isinstance(listener, SocketListener):
        raise TypeError(f"a listener that can't accept: {listener!r}")
    return listener


@asynccontextmanager
async def open_proxy(
    listener: SocketListener, allow: AllowList, *, labels: Mapping[str, str], dialer: Dialer | None = None
) -> AsyncGenerator[Proxy]:
    """A proxy on this listener until the block is left; its connections and the listener end with it."""
    port: int = listener.extra(SocketAttribute.local_port)
    proxy = Proxy(allow=allow, port=port, labels=labels, dialer=dialer or HostDialer())
    failure: Exception | None = None
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(proxy.serve, listener, tasks)
        try:
            yield proxy
        except Exception as error:  # noqa: BLE001 - raised again below: the task group would wrap the caller's exception
            failure = error
        tasks.cancel_scope.cancel()
    if proxy.denied:
        counts = {f"denied_{denial.value}": count for denial, count in proxy.denied.items()}
        _log.info("network_denials", allowed=proxy.allowed, **counts, **labels)
    if failure is not None:
        raise failure
