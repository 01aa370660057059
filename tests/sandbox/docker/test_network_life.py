"""What network modes refuse, and what they leave behind: nothing."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from ipaddress import IPv4Address, IPv4Network

import anyio
import pytest

from harness.errors import ConfigError, UnsupportedError
from harness.sandbox.docker.bridges import SHARED, Bridge, BridgeNetwork, find_or_make, remove_unused
from harness.sandbox.docker.client import EngineClient
from harness.sandbox.docker.engine import DockerEngine
from harness.sandbox.docker.firewall import HostPort, Ruleset, closed
from harness.sandbox.docker.json import items, text
from harness.sandbox.docker.namespace import hold
from harness.sandbox.docker.network import DockerNetworking, NetworkOptions
from harness.task.model import NetworkMode
from tests.sandbox.docker.reach import RUN, TOOLBOX, image, ours, shell, spec

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("capability", ["NET_ADMIN", "CAP_NET_RAW", "sys_admin", "ALL"])
async def test_capabilities_that_undo_a_mode_are_refused_with_it(capability: str) -> None:
    async with DockerEngine() as engine:
        for mode in ("public", "allowlist"):
            with pytest.raises(UnsupportedError, match=capability.upper().removeprefix("CAP_")):
                async with engine.sandbox(spec(await image(engine), mode, capabilities=(capability,))):
                    pass
        assert await ours(engine) == []


async def test_without_the_image_that_enforces_a_mode_it_is_refused() -> None:
    options = NetworkOptions(toolbox="harness/toolbox:none")
    async with DockerEngine(networking=partial(DockerNetworking, options=options)) as engine:
        base = await image(engine)
        for mode in ("public", "allowlist"):
            with pytest.raises(UnsupportedError, match="harness images base"):
                async with engine.sandbox(spec(base, mode)):
                    pass
        assert await ours(engine) == []
        async with engine.sandbox(spec(base, "no-network")) as sandbox:
            assert (await shell(sandbox, "true")).exit_status == 0


async def test_a_wrong_list_is_refused() -> None:
    async with DockerEngine() as engine:
        with pytest.raises(ConfigError, match="allowed host 'http:"):
            async with engine.sandbox(spec(await image(engine), "allowlist", "http://example.org")):
                pass
        assert await ours(engine) == []


async def test_rules_that_the_kernel_refuses_and_ports_that_do_not_answer_are_unsupported() -> None:
    async with EngineClient() as client:
        bridge = await find_or_make(client, Bridge.CLOSED)
        dead = (HostPort(bridge.gateway, 9),)
        for rules, ports, reason in (
            (Ruleset("*filter\n-A OUTPUT -m nonsense\nCOMMIT\n", ""), (), "firewall rules"),
            (closed(dead), dead, "host's own firewall"),
        ):
            with pytest.raises(UnsupportedError, match=reason):
                async with hold(client, bridge.id, rules, ports, image=TOOLBOX, labels={"harness.run": RUN}):
                    pass


def test_an_engine_on_another_machine_is_recognised() -> None:
    subnet = IPv4Network("172.17.0.0/16")
    assert BridgeNetwork("", subnet[1], subnet, "docker0").is_here()
    assert not BridgeNetwork("", IPv4Address("172.17.0.9"), subnet, "docker0").is_here()
    assert not BridgeNetwork("", subnet[1], subnet, "br-000000000000").is_here()


@pytest.mark.parametrize(("mode", "bridge"), [("public", Bridge.OPEN), ("allowlist", Bridge.CLOSED)])
async def test_nothing_is_left_and_what_a_dead_harness_leaves_is_reaped(mode: str, bridge: Bridge) -> None:
    async with DockerEngine() as engine:
        base = await image(engine)
        async with engine.sandbox(spec(base, mode)) as sandbox:
            both = await ours(engine)
            assert len(both) == 2  # the sandbox, and what holds its namespace
            assert sandbox.id in both
            reaped = await engine.reap(run=RUN, dry_run=True)
            assert set(reaped.sandboxes) == set(both)
            used = (await find_or_make(engine.client, bridge)).id
            assert used not in (await engine.reap(dry_run=True)).networks
        assert await ours(engine) == []
        async with engine.sandbox(spec(base, mode)):
            assert len((await engine.reap(run=RUN)).sandboxes) == 2
        assert await ours(engine) == []


@pytest.mark.parametrize("delay_s", [0.02, 0.08, 0.15, 0.25])
async def test_cancelling_a_start_leaves_nothing(delay_s: float) -> None:
    async with DockerEngine() as engine:
        base = await image(engine)
        with anyio.move_on_after(delay_s):
            async with engine.sandbox(spec(base, "allowlist", "allowed.test")):
                await anyio.sleep_forever()
        assert await ours(engine) == []


@pytest.mark.parametrize("mode", ["public", "allowlist"])
async def test_a_shared_network_that_goes_just_after_it_was_found_is_made_anew(mode: str) -> None:
    class Raced(DockerNetworking):
        gone = False

        async def _bridge(self, bridge: Bridge, mode: NetworkMode) -> BridgeNetwork:
            found = await super()._bridge(bridge, mode)
            if not self.gone:
                self.gone = True
                return replace(found, id="0" * 64)
            return found

    async with DockerEngine(networking=Raced) as engine, engine.sandbox(spec(await image(engine), mode)) as sandbox:
        assert (await shell(sandbox, "true")).exit_status == 0


async def test_shared_networks_are_the_same_for_all_and_go_when_unused() -> None:
    async with EngineClient() as client:
        found: list[str] = []

        async def find() -> None:
            found.append((await find_or_make(client, Bridge.CLOSED)).id)

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(find)
        assert len(set(found)) == 1
        unused = await client.call(
            "POST",
            "/networks/create",
            body={"Name": "harness-test-unused", "Labels": {SHARED: "test"}, "Internal": True},
        )
        assert text(unused, "Id") in await remove_unused(client)
        assert "harness-test-unused" not in [
            text(found, "Name") for found in items(await client.call("GET", "/networks"))
        ]
