"""What a sandbox reaches: probes that run inside, and services that they try to reach."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address

import anyio
from anyio.abc import ByteStream, SocketAttribute

from harness.ports import Command, ExecResult, Labels, Sandbox, SandboxSpec
from harness.sandbox.allowlist import Address
from harness.sandbox.docker.engine import DockerEngine
from harness.sandbox.docker.json import items, text
from harness.sandbox.egress import host_addresses
from harness.task.image import ResolvedImage
from harness.task.model import Network, NetworkMode, Security

BASE = "harness/base:bookworm"
TOOLBOX = "harness/toolbox:bookworm"
RUN = "test-network"
ATTEMPT = "test-network-1"
LOOPBACK = frozenset({"127.0.0.1", "::1"})

PROBE = """
import json, socket, sys
reached = []
for address, port in json.loads(sys.argv[1]):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as s:
        try:
            s.sendto(b"x", (address, port))
        except OSError:
            pass
    with socket.socket(family, socket.SOCK_STREAM) as s:
        s.settimeout(2)
        try:
            s.connect((address, port))
            reached.append([address, port])
        except OSError:
            pass
print(json.dumps(reached))
"""


def spec(image: ResolvedImage, mode: str, *hosts: str, capabilities: tuple[str, ...] = ()) -> SandboxSpec:
    return SandboxSpec(
        image=image,
        labels=Labels(run=RUN, attempt=ATTEMPT, role="agent", lease_s=300),
        network=Network(mode=NetworkMode(mode), allowed_hosts=hosts),
        security=Security(capabilities=capabilities),
    )


async def image(engine: DockerEngine, ref: str = BASE) -> ResolvedImage:
    found = await engine.inspect_image(ref)
    assert found is not None, f"{ref} is missing: harness images base"
    return ResolvedImage(id=found.id, ref=ref)


async def shell(sandbox: Sandbox, script: str) -> ExecResult:
    return await sandbox.exec(Command(argv=["/bin/sh", "-c", script], deadline_s=60))


async def probe(sandbox: Sandbox, targets: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """Which of the targets answer from within, over TCP. A datagram is sent to each as well."""
    result = await sandbox.exec(Command(argv=["python3", "-c", PROBE, json.dumps(targets)], deadline_s=120))
    assert result.exit_status == 0, result.stderr.text
    return [(address, port) for address, port in json.loads(result.stdout.text)]


async def bridge_gateways(engine: DockerEngine) -> set[str]:
    """The host's addresses on every network of the engine."""
    networks = items(await engine.client.call("GET", "/networks"))
    return {text(pool, "Gateway") for network in networks for pool in items(network, "IPAM", "Config")} - {""}


async def ours(engine: DockerEngine) -> list[str]:
    """The containers of these tests, by id."""
    params = {"all": "1", "filters": json.dumps({"label": [f"harness.run={RUN}"]})}
    return [text(found, "Id") for found in items(await engine.client.call("GET", "/containers/json", params=params))]


@dataclass
class HostService:
    """A TCP and UDP service on every address of the host, and who came."""

    port: int
    connections: int = 0
    datagrams: int = 0

    @property
    def targets(self) -> list[tuple[str, int]]:
        """Every address by which a sandbox could mean the host; link-local ones need an interface and so aren't among them."""
        own = [
            address for address in host_addresses() if not (isinstance(address, IPv6Address) and address.is_link_local)
        ]
        return [(str(address), self.port) for address in sorted(own, key=str)]


@asynccontextmanager
async def host_service() -> AsyncGenerator[HostService]:
    stream = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    port: int = stream.getsockname()[1]
    packets = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    packets.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    packets.bind(("::", port))
    service = HostService(port)

    async def accept() -> None:
        while True:
            await anyio.wait_readable(stream)
            stream.accept()[0].close()
            service.connections += 1

    async def receive() -> None:
        while True:
            await anyio.wait_readable(packets)
            packets.recv(100)
            service.datagrams += 1

    with stream, packets:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(accept)
            tasks.start_soon(receive)
            yield service
            await anyio.sleep(0.05)  # what is on its way arrives
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def neighbour(engine: DockerEngine, mode: str = "public") -> AsyncGenerator[str]:
    """Another sandbox, with a server on port 8000 that it reaches itself; gives its address."""
    async with engine.sandbox(spec(await image(engine), mode)) as other:
        serve = (
            "python3 -m http.server --bind 0.0.0.0 8000 >/dev/null 2>&1 & "
            "for i in $(seq 100); do (echo >/dev/tcp/$0/8000) && exit; sleep 0.1; done; exit 1"
        )
        address = (await shell(other, "tail -n 1 /etc/hosts")).stdout.text.split()[0]
        started = await other.exec(Command(argv=["bash", "-c", serve, address], deadline_s=30))
        assert started.exit_status == 0
        assert await probe(other, [(address, 8000)]) == [(address, 8000)]
        yield address


@dataclass
class Outside:
    """An internet of two names, with one server; a `Dialer`."""

    port: int = 0
    dialled: list[str] = field(default_factory=list[str])

    async def resolve(self, name: str) -> Sequence[Address]:
        return (IPv4Address({"allowed.test": "203.0.113.5", "other.test": "203.0.113.6"}[name]),)

    async def dial(self, address: Address, port: int) -> ByteStream:
        self.dialled.append(f"{address}:{port}")
        return await anyio.connect_tcp("127.0.0.1", self.port)

    def own(self) -> frozenset[Address]:
        return host_addresses()


@asynccontextmanager
async def internet() -> AsyncGenerator[Outside]:
    async def welcome(stream: ByteStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nwelcome")

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, welcome)
        yield Outside(port=listener.extra(SocketAttribute.local_port))
        tasks.cancel_scope.cancel()
