"""The internet, as far as package registries show it: reached in public mode, and from an allow-list through the proxy."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from structlog.testing import capture_logs

from harness.ports import Sandbox
from harness.sandbox.docker.engine import DockerEngine
from tests.sandbox.docker.reach import image, shell, spec

pytestmark = [pytest.mark.engine, pytest.mark.network]

APT_SOURCES = 'apt-get update --print-uris | cut -d "\'" -f 2'
PIP_INDEX = (
    "pip config get global.index-url 2>/dev/null || "
    "python3 -c 'from pip._internal.models.index import PyPI; print(PyPI.simple_url)'"
)
UPDATE = "apt-get update -o Acquire::Retries=0 -o APT::Update::Error-Mode=any"
VERSIONS = "pip index versions six"


async def said(sandbox: Sandbox, script: str) -> str:
    result = await shell(sandbox, script)
    assert result.exit_status == 0, result.stdout.text + result.stderr.text
    return result.stdout.text


async def hosts(engine: DockerEngine, script: str) -> list[str]:
    """The hosts of the URLs that a script prints."""
    async with engine.sandbox(spec(await image(engine), "no-network")) as sandbox:
        urls = (await said(sandbox, script)).split()
    return sorted({urlsplit(url).netloc for url in urls})


async def test_public_reaches_the_registries_by_name() -> None:
    async with DockerEngine() as engine, engine.sandbox(spec(await image(engine), "public")) as sandbox:
        await said(sandbox, UPDATE)
        assert "six" in await said(sandbox, VERSIONS)


async def test_an_allow_list_reaches_the_registry_that_it_names_and_not_the_other() -> None:
    async with DockerEngine() as engine:
        base = await image(engine)
        apt, pip = await hosts(engine, APT_SOURCES), await hosts(engine, PIP_INDEX)
        assert apt
        assert pip
        with capture_logs() as logs:
            async with engine.sandbox(spec(base, "allowlist", *apt)) as sandbox:
                await said(sandbox, UPDATE)
                assert (await shell(sandbox, f"{VERSIONS} --retries 0")).exit_status != 0
            async with engine.sandbox(spec(base, "allowlist", *pip)) as sandbox:
                assert "six" in await said(sandbox, VERSIONS)
                assert (await shell(sandbox, UPDATE)).exit_status != 0
    denied = {log["host"] for log in logs if log["event"] == "network_denied"}
    assert denied == {*apt, *pip}


async def test_a_tunnel_to_a_listed_host_does_not_reach_another_name_at_its_address() -> None:
    async with DockerEngine() as engine:
        (pip,) = await hosts(engine, PIP_INDEX)
        other = (await hosts(engine, APT_SOURCES))[0]
        async with engine.sandbox(spec(await image(engine), "allowlist", pip)) as sandbox:
            fetch = f"curl -sS -o /dev/null -w '%{{http_code}}' --connect-to {other}:443:{pip}:443 https://{other}/"
            with capture_logs() as logs:
                assert (await shell(sandbox, fetch)).exit_status != 0
    assert [log["denial"] for log in logs if log["event"] == "network_denied"] == ["tls_name"]
