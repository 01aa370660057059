"""Bytes both ways between a sandbox and a permitted host, and the check of how a tunnel begins."""

from __future__ import annotations

import anyio
from anyio.abc import ByteStream

from harness.sandbox.allowlist import AllowList, read_host
from harness.sandbox.exchange import Target
from harness.sandbox.tls import HelloReader

GREETING_S = 30.0
"""How long a tunnel's TLS greeting may take to arrive."""


class NotPermitted(Exception):
    """What the tunnel begins with isn't TLS for a permitted name."""


async def check_greeting(client: ByteStream, begun: bytes, target: Target, allow: AllowList) -> bytes:
    """Read the TLS greeting and check the name in it; returns all bytes read, to be passed on.

    Many names share one address of a content network, which looks only at the name in the greeting: without this check a tunnel to a
    permitted host would reach every other customer of its network. A greeting without a name is fine. Raises NotPermitted.
    """
    reader = HelloReader()
    held = begun
    fresh = begun
    try:
        with anyio.fail_after(GREETING_S):
            while True:
                found = reader.feed(fresh) if fresh else None
                if found is not None:
                    break
                fresh = await client.receive()
                held += fresh
    except ValueError as error:
        raise NotPermitted(f"{error}; another protocol needs an entry with its port") from error
    except TimeoutError as error:
        raise NotPermitted(f"no TLS greeting within {GREETING_S:g} s") from error
    if found.name is not None:
        name = read_host(found.name)
        if name is None or (name != target.host and not allow.allows(name, target.port)):
            raise NotPermitted(f"the TLS greeting asks for {found.name!r}, which the list doesn't hold")
    return held


async def tunnel(client: ByteStream, upstream: ByteStream, greeting: bytes) -> None:
    """Pass bytes both ways until both sides have closed, or one of them broke."""
    if greeting:
        await upstream.send(greeting)
    async with anyio.create_task_group() as tasks:

        async def pump(source: ByteStream, sink: ByteStream) -> None:
            try:
                async for chunk in source:
                    await sink.send(chunk)
                await sink.send_eof()
            except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
                tasks.cancel_scope.cancel()

        tasks.start_soon(pump, client, upstream)
        await pump(upstream, client)
