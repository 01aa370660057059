"""Network modes, proven from inside real sandboxes: what each one reaches, and that it stays so."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

import pytest
from structlog.testing import capture_logs

from harness.ports import Command, SandboxSpec
from harness.sandbox.docker.client import EngineClient
from harness.sandbox.docker.engine import DockerEngine
from harness.sandbox.docker.network import DockerNetworking
from harness.sandbox.docker.networking import Attachment
from tests.sandbox.docker.reach import (
    ATTEMPT,
    LOOPBACK,
    RUN,
    TOOLBOX,
    bridge_gateways,
    host_service,
    image,
    internet,
    neighbour,
    probe,
    shell,
    spec,
)

pytestmark = pytest.mark.engine

NOWHERE = "198.18.0.1"
"""An address that no server has, outside every private range."""
RESOLVER = "127.0.0.11"


class Unguarded:
    """What a sandbox would get without this project: the engine's own network, and no rules."""

    def __init__(self, client: EngineClient) -> None:
        self.client = client

    @asynccontextmanager
    async def attach(self, spec: SandboxSpec, labels: Mapping[str, str]) -> AsyncGenerator[Attachment]:
        yield Attachment(mode="bridge")

    async def remove_unused(self, *, dry_run: bool) -> Sequence[str]:
        return ()


async def test_where_nothing_is_enforced_the_probes_reach_the_host_and_a_neighbour() -> None:
    """So the probes of the other tests can fail."""
    async with (
        DockerEngine(networking=Unguarded) as engine,
        host_service() as service,
        neighbour(engine) as near,
        engine.sandbox(spec(await image(engine), "public")) as sandbox,
    ):
        reached = await probe(sandbox, [*service.targets, (near, 8000)])
        assert (near, 8000) in reached
        assert set(reached) >= {t for t in service.targets if ":" not in t[0] and t[0] not in LOOPBACK}
    assert service.connections == len(reached) - 1 > 1
    assert service.datagrams >= service.connections


async def test_no_network_reaches_nothing_but_itself() -> None:
    async with (
        DockerEngine() as engine,
        host_service() as service,
        neighbour(engine) as near,
        engine.sandbox(spec(await image(engine), "no-network")) as sandbox,
    ):
        gateways = [(address, service.port) for address in await bridge_gateways(engine)]
        targets = [*service.targets, *gateways, (near, 8000), (NOWHERE, 80), ("169.254.169.254", 80), (RESOLVER, 53)]
        assert await probe(sandbox, targets) == []
        interfaces = await shell(sandbox, "tail -n +3 /proc/net/dev | cut -d: -f1")
        assert interfaces.stdout.text.split() == ["lo"]
        assert (await shell(sandbox, "getent hosts example.org")).exit_status != 0
    assert (service.connections, service.datagrams) == (0, 0)


async def test_public_reaches_neither_the_host_nor_a_neighbour_nor_metadata_nor_private_networks() -> None:
    async with (
        DockerEngine() as engine,
        host_service() as service,
        neighbour(engine) as near,
        engine.sandbox(spec(await image(engine), "public")) as sandbox,
    ):
        gateways = [(address, service.port) for address in await bridge_gateways(engine)]
        metadata = [("169.254.169.254", 80), ("100.100.100.200", 80)]
        private = [("10.0.0.1", 80), ("172.16.0.1", 80), ("192.168.255.254", 80)]
        assert await probe(sandbox, [*service.targets, *gateways, (near, 8000), *metadata, *private]) == []
        assert (await shell(sandbox, "grep -v ' lo$' /proc/net/if_inet6")).stdout.text == ""
        datagram = Command(argv=["bash", "-c", f"echo x >/dev/udp/{near}/8000"])
        assert (await sandbox.exec(datagram)).exit_status != 0
    assert (service.connections, service.datagrams) == (0, 0)


async def test_an_allow_list_reaches_the_listed_host_through_the_proxy_and_nothing_else() -> None:
    with capture_logs() as logs:
        async with (
            internet() as outside,
            DockerEngine(networking=partial(DockerNetworking, dialer=outside)) as engine,
            host_service() as service,
            neighbour(engine) as near,
            engine.sandbox(spec(await image(engine), "allowlist", "allowed.test")) as sandbox,
        ):
            assert (await shell(sandbox, "curl -s http://allowed.test/")).stdout.text == "welcome"
            refused = (
                "other.test",
                "203.0.113.5",
                f"{near}:8000",
                f"127.0.0.1:{service.port}",
                f"172.17.0.1:{service.port}",
            )
            for host in refused:
                answer = await shell(sandbox, f"curl -s --noproxy '' -o /dev/null -w '%{{http_code}}' http://{host}/")
                assert answer.stdout.text == "403", host
            gateways = [(address, service.port) for address in await bridge_gateways(engine)]
            direct = [("203.0.113.5", 80), (NOWHERE, 443), (near, 8000), (RESOLVER, 53), *gateways, *service.targets]
            assert await probe(sandbox, direct) == []
            assert (await shell(sandbox, "getent hosts allowed.test")).exit_status != 0
            query = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.11', 53))"
            assert (await sandbox.exec(Command(argv=["python3", "-c", query]))).exit_status != 0
    assert outside.dialled == ["203.0.113.5:80"]
    assert (service.connections, service.datagrams) == (0, 0)
    denied = [log for log in logs if log["event"] == "network_denied"]
    assert [f"{log['host']}:{log['port']}".removesuffix(":80") for log in denied] == list(refused)
    assert {(log["run"], log["attempt"]) for log in denied} == {(RUN, ATTEMPT)}


async def test_a_sandbox_can_not_use_the_list_of_another() -> None:
    async with (
        internet() as outside,
        DockerEngine(networking=partial(DockerNetworking, dialer=outside)) as engine,
        engine.sandbox(spec(base := await image(engine), "allowlist", "other.test")) as other,
        engine.sandbox(spec(base, "allowlist", "allowed.test")) as listed,
        engine.sandbox(spec(base, "public")) as public,
    ):
        proxy = (await shell(other, "echo $http_proxy")).stdout.text.strip()
        assert (await shell(other, f"curl -s -x {proxy} http://other.test/")).stdout.text == "welcome"
        for foreign in (listed, public):
            assert (await shell(foreign, f"curl -s -x {proxy} http://other.test/")).exit_status == 7  # no connection
    assert outside.dialled == ["203.0.113.6:80"]


TAMPERING = (
    "iptables -F OUTPUT",
    "iptables -P OUTPUT ACCEPT",
    "iptables -I OUTPUT -j ACCEPT",
    "iptables-legacy -I OUTPUT -j ACCEPT",
    "ip6tables -P OUTPUT ACCEPT",
    "printf '*filter\nCOMMIT\n' | iptables-restore",
    "/toolbox/busybox ip address add 10.9.9.9/24 dev eth0",
    "/toolbox/busybox ip link set eth0 down",
    "/toolbox/busybox ip route add 10.9.9.0/24 dev eth0",
    "/toolbox/busybox arping -c 1 -I eth0 10.9.9.9",
    "/toolbox/busybox unshare -n /toolbox/busybox true",
)


@pytest.mark.parametrize("mode", ["public", "allowlist"])
async def test_root_can_not_change_the_rules(mode: str) -> None:
    async with (
        DockerEngine() as engine,
        host_service() as service,
        engine.sandbox(spec(await image(engine, TOOLBOX), mode)) as sandbox,
    ):
        assert (await shell(sandbox, "id -u")).stdout.text == "0\n"
        for attempt in TAMPERING:
            result = await shell(sandbox, attempt)
            assert result.exit_status not in (0, 126, 127), f"{attempt}: {result.stdout.text} {result.stderr.text}"
        for address, port in service.targets:
            if address not in LOOPBACK:
                connect = Command(argv=["bash", "-c", f"echo x >/dev/tcp/{address}/{port}"], deadline_s=5)
                assert (await sandbox.exec(connect)).exit_status == 1
    assert (service.connections, service.datagrams) == (0, 0)


@pytest.mark.parametrize("mode", ["public", "allowlist"])
async def test_packets_that_pass_by_the_rules_can_not_be_made(mode: str) -> None:
    script = """
import socket
for family, protocol in ((socket.AF_PACKET, 0x0300), (socket.AF_INET, socket.IPPROTO_RAW), (socket.AF_INET, socket.IPPROTO_ICMP)):
    try:
        socket.socket(family, socket.SOCK_RAW, protocol)
    except PermissionError:
        print("refused")
with socket.socket() as s:
    try:
        s.setsockopt(socket.IPPROTO_IP, 19, 1)  # IP_TRANSPARENT: any source address
    except PermissionError:
        print("refused")
"""
    async with DockerEngine() as engine, engine.sandbox(spec(await image(engine), mode)) as sandbox:
        result = await sandbox.exec(Command(argv=["python3", "-c", script]))
        assert result.stdout.text.split() == ["refused"] * 4, result.stderr.text


@pytest.mark.parametrize("mode", ["public", "allowlist"])
async def test_the_rules_are_there_before_the_first_process_even_when_that_is_the_policys(mode: str) -> None:
    """A sandbox that is started again runs whatever its file system holds by then."""
    async with (
        DockerEngine() as engine,
        host_service() as service,
        engine.sandbox(spec(await image(engine), mode)) as sandbox,
    ):
        outer = [target for target in service.targets if target[0] not in LOOPBACK]
        tries = "\n".join(f"(echo x >/dev/tcp/{address}/{port}) 2>&1" for address, port in outer)
        trojan = f'#!/bin/bash\n({tries}\necho tried) >/tried\nexec /bin/dash "$@"\n'
        plant = "cat >/tmp/sh && chmod 755 /tmp/sh && mv -f /tmp/sh /bin/sh"
        planted = await sandbox.exec(Command(argv=["bash", "-c", plant], stdin=trojan.encode()))
        assert planted.exit_status == 0, planted.stderr.text
        await sandbox.stop()
        await sandbox.start()
        said = (await sandbox.exec(Command(argv=["cat", "/tried"]))).stdout.text
        assert said.endswith("tried\n")
        assert said.count("/dev/tcp/") == len(outer)  # each was tried, and failed
        assert await probe(sandbox, outer) == []
    assert (service.connections, service.datagrams) == (0, 0)
