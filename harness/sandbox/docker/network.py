"""Network modes on a Docker engine, enforced: by an empty namespace, or by a firewall inside the sandbox's own one.

- ``no-network``: the namespace holds nothing but its loopback.
- ``public``: the internet through a shared bridge; the firewall refuses the host, other sandboxes, metadata services and private networks.
- ``allowlist``: a shared bridge without a way out; the firewall leaves one port of the host, where this process runs the sandbox's proxy.

A mode that can't be enforced is refused before the sandbox is created.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, ip_address
from pathlib import Path
from typing import assert_never

import anyio

from harness.errors import UnsupportedError
from harness.ports import SandboxSpec
from harness.sandbox.allowlist import AllowList
from harness.sandbox.docker.bridges import Bridge, BridgeNetwork, find_or_make, remove_unused
from harness.sandbox.docker.client import ApiError, EngineClient
from harness.sandbox.docker.firewall import HostPort, Ruleset, Surroundings, closed, public
from harness.sandbox.docker.json import text
from harness.sandbox.docker.namespace import Namespace, hold
from harness.sandbox.docker.networking import Attachment
from harness.sandbox.docker.owner import ATTEMPT, ROLE, RUN
from harness.sandbox.egress import Dialer, host_addresses
from harness.sandbox.proxy import listen, open_proxy
from harness.task.image import TOOLBOX_IMAGE
from harness.task.model import NetworkMode, Security

RUNTIMES = frozenset({"runc", "crun", "youki", "nvidia", "io.containerd.runc.v2"})
"""Runtimes whose containers use the host's kernel, so that a rule in a namespace holds. Others bring a network stack of their own."""

UNDOING = frozenset({"ALL", "NET_ADMIN", "NET_RAW", "SYS_ADMIN", "SYS_MODULE", "SYS_RAWIO", "BPF", "DAC_READ_SEARCH"})
"""Capabilities with which a sandbox could change the rules, or send packets past them."""

STARTS_AT_ONCE = 6

_PROXY_VARIABLES = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
_NO_PROXY = "localhost,127.0.0.1,::1"


@dataclass(frozen=True, slots=True)
class NetworkOptions:
    """What the configuration says about networks.

    toolbox: image that has iptables.
    reachable: private ranges that public sandboxes may reach, such as a package mirror's; otherwise none.
    nameservers: the engine's; None: those of this host's resolv.conf, which the engine takes too.
    """

    toolbox: str = TOOLBOX_IMAGE
    reachable: tuple[IPv4Network, ...] = ()
    nameservers: tuple[IPv4Address, ...] | None = None


class DockerNetworking:
    """Gives sandboxes their networks; `harness.sandbox.docker.networking.Networking` describes how it is used."""

    def __init__(
        self, client: EngineClient, options: NetworkOptions = NetworkOptions(), *, dialer: Dialer | None = None
    ) -> None:
        self._client = client
        self._options = options
        self._dialer = dialer
        self._finding = anyio.Lock()
        self._starts = anyio.CapacityLimiter(STARTS_AT_ONCE)
        self._able = False

    @asynccontextmanager
    async def attach(self, spec: SandboxSpec, labels: Mapping[str, str]) -> AsyncGenerator[Attachment]:
        """Raises ConfigError for a wrong allow-list, UnsupportedError when the mode can't be enforced on this host, EngineError."""
        async with AsyncExitStack() as stack:
            try:
                attachment = await stack.enter_async_context(self._attached(spec, labels))
            except ApiError as error:
                if error.status != 404:
                    raise
                # Another process removed the shared network as unused, just after it was found: it is made anew.
                attachment = await stack.enter_async_context(self._attached(spec, labels))
            yield attachment

    @asynccontextmanager
    async def _attached(self, spec: SandboxSpec, labels: Mapping[str, str]) -> AsyncGenerator[Attachment]:
        match spec.network.mode:
            case NetworkMode.NO_NETWORK:
                yield Attachment(mode="none")
            case NetworkMode.PUBLIC as mode:
                _refuse_undoing(mode, spec.security)
                bridge = await self._bridge(Bridge.OPEN, mode)
                async with self._namespace(bridge, public(self._around(bridge)), (), labels) as namespace:
                    yield Attachment(mode=f"container:{namespace.container}")
            case NetworkMode.ALLOWLIST as mode:
                allow = AllowList.parse(spec.network.allowed_hosts)
                _refuse_undoing(mode, spec.security)
                bridge = await self._bridge(Bridge.CLOSED, mode)
                async with self._listed(bridge, allow, labels) as attachment:
                    yield attachment
            case _:
                assert_never(spec.network.mode)

    async def remove_unused(self, *, dry_run: bool) -> Sequence[str]:
        return await remove_unused(self._client, dry_run=dry_run)

    @asynccontextmanager
    async def _listed(
        self, bridge: BridgeNetwork, allow: AllowList, labels: Mapping[str, str]
    ) -> AsyncGenerator[Attachment]:
        try:
            listener = await listen(bridge.gateway)
        except OSError as error:
            raise _unsupported(NetworkMode.ALLOWLIST, f"{bridge.gateway} can't be listened on: {error}") from error
        names = {"run": labels.get(RUN, ""), "attempt": labels.get(ATTEMPT, ""), "role": labels.get(ROLE, "")}
        async with open_proxy(listener, allow, labels=names, dialer=self._dialer) as proxy:
            ports = (HostPort(bridge.gateway, proxy.port),)
            async with self._namespace(bridge, closed(ports), ports, labels) as namespace:
                proxy.peer = namespace.address
                env = dict.fromkeys(_PROXY_VARIABLES, f"http://{bridge.gateway}:{proxy.port}")
                env |= {"no_proxy": _NO_PROXY, "NO_PROXY": _NO_PROXY, "NODE_USE_ENV_PROXY": "1"}
                yield Attachment(mode=f"container:{namespace.container}", env=env)

    @asynccontextmanager
    async def _namespace(
        self, bridge: BridgeNetwork, rules: Ruleset, ports: Sequence[HostPort], labels: Mapping[str, str]
    ) -> AsyncGenerator[Namespace]:
        holder = hold(self._client, bridge.id, rules, ports, image=self._options.toolbox, labels=labels)
        async with AsyncExitStack() as stack:
            async with self._starts:
                namespace = await stack.enter_async_context(holder)
            yield namespace

    def _around(self, bridge: BridgeNetwork) -> Surroundings:
        nameservers = self._options.nameservers
        return Surroundings(
            host=frozenset(address for address in host_addresses() if isinstance(address, IPv4Address)),
            bridge=bridge.subnet,
            nameservers=_host_nameservers() if nameservers is None else nameservers,
            reachable=self._options.reachable,
        )

    async def _bridge(self, bridge: Bridge, mode: NetworkMode) -> BridgeNetwork:
        async with self._finding:
            if not self._able:
                await self._check_engine(mode)
                self._able = True
            network = await find_or_make(self._client, bridge)
        if not network.is_here():
            raise _unsupported(mode, f"the engine's network {network.interface} isn't on this machine")
        return network

    async def _check_engine(self, mode: NetworkMode) -> None:
        info = await self._client.call("GET", "/info")
        runtime = text(info, "DefaultRuntime")
        if text(info, "OSType") != "linux" or runtime not in RUNTIMES:
            raise _unsupported(mode, f"the engine's runtime is {runtime!r} on {text(info, 'OSType')!r}")
        try:
            await self._client.call("GET", f"/images/{self._options.toolbox}/json")
        except ApiError as error:
            if error.status != 404:
                raise
            raise UnsupportedError(
                f"network mode {mode} needs the image {self._options.toolbox} for a sandbox's firewall. "
                "Make it: harness images base"
            ) from error


def _refuse_undoing(mode: NetworkMode, security: Security) -> None:
    given = UNDOING.intersection(security.capabilities)
    if given:
        raise UnsupportedError(
            f"network mode {mode} can't be enforced on a sandbox with the capability {', '.join(sorted(given))}. "
            f"Take it out of the task, or use {NetworkMode.NO_NETWORK}"
        )


def _host_nameservers(path: Path = Path("/etc/resolv.conf")) -> tuple[IPv4Address, ...]:
    """Those that the engine asks from within a sandbox; it asks the ones on the host's loopback from the host."""
    found: list[IPv4Address] = []
    for line in path.read_text("utf-8", "replace").splitlines():
        match line.split():
            case ["nameserver", server, *_]:
                try:
                    address = ip_address(server)
                except ValueError:
                    continue
                if isinstance(address, IPv4Address) and not address.is_loopback:
                    found.append(address)
            case _:
                pass
    return tuple(found)


def _unsupported(mode: NetworkMode, why: str) -> UnsupportedError:
    return UnsupportedError(
        f"network mode {mode} can't be enforced here: {why}. Use {NetworkMode.NO_NETWORK}, or run on the engine's own Linux machine"
    )
