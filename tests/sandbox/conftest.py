"""Engines and archives for the sandbox tests."""

from __future__ import annotations

import tarfile
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from io import BytesIO

import pytest

from harness.ports import Engine, Labels, Sandbox, SandboxSpec
from harness.sandbox.docker.engine import DockerEngine
from harness.sandbox.fake import FakeEngine
from harness.task.image import ResolvedImage

BASE = "harness/base:bookworm"


@pytest.fixture
async def docker() -> AsyncIterator[DockerEngine]:
    async with DockerEngine() as engine:
        yield engine


@pytest.fixture
async def base(docker: DockerEngine) -> ResolvedImage:
    """The base image on the Docker engine."""
    image = await docker.inspect_image(BASE)
    assert image is not None, f"{BASE} isn't on the engine; run: harness images base"
    return ResolvedImage(id=image.id, ref=BASE, workdir=image.workdir, user=image.user, env=dict(image.env))


@pytest.fixture
async def tag(docker: DockerEngine) -> AsyncIterator[str]:
    """A name for an image that a test makes; removed afterwards."""
    name = f"harness-test/{uuid.uuid4().hex[:12]}:1"
    yield name
    if await docker.inspect_image(name):
        await docker.client.call("DELETE", f"/images/{name}", params={"force": "1"})


@pytest.fixture
def run() -> str:
    """A run of this test alone, so that its labels find what it made."""
    return f"test-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def spec(base: ResolvedImage, run: str) -> SandboxSpec:
    """An ordinary sandbox on the Docker engine."""
    return SandboxSpec(image=base, labels=Labels(run=run, attempt="a1", role="agent", lease_s=300))


class World:
    """An engine and a way to open sandboxes on it, for tests that hold for every engine."""

    def __init__(self, engine: Engine, image: ResolvedImage, run: str) -> None:
        self.engine = engine
        self.image = image
        self.run = run

    def open(self, **fields: object) -> AbstractAsyncContextManager[Sandbox]:
        labels = Labels(run=self.run, attempt="a1", role="agent", lease_s=300)
        return self.engine.sandbox(SandboxSpec(**{"image": self.image, "labels": labels, **fields}))

    async def left(self) -> tuple[str, ...]:
        """Sandboxes of this test that exist."""
        return (await self.engine.reap(run=self.run, dry_run=True)).sandboxes


@pytest.fixture(params=["fake", pytest.param("docker", marks=pytest.mark.engine)])
async def world(request: pytest.FixtureRequest, run: str) -> AsyncIterator[World]:
    if request.param == "fake":
        engine = FakeEngine()
        image = await engine.inspect_image(BASE)
        assert image is not None
        yield World(engine, ResolvedImage(id=image.id, ref=BASE), run)
        return
    async with DockerEngine() as engine:
        image = await engine.inspect_image(BASE)
        assert image is not None, f"{BASE} isn't on the engine; run: harness images base"
        yield World(engine, ResolvedImage(id=image.id, ref=BASE, user=image.user, env=dict(image.env)), run)


class Archive:
    """A tar archive in the making, and the stream that ports take."""

    def __init__(self) -> None:
        self._buffer = BytesIO()
        self._tar = tarfile.open(fileobj=self._buffer, mode="w")  # noqa: SIM115 - closed when it is sent

    def add(self, name: str, data: bytes = b"", **fields: object) -> Archive:
        member = tarfile.TarInfo(name)
        member.size, member.mode = len(data), 0o644
        for field, value in fields.items():
            setattr(member, field, value)
        self._tar.addfile(member, BytesIO(data))
        return self

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self._tar.close()
        yield self._buffer.getvalue()


@pytest.fixture
def archive() -> Callable[[], Archive]:
    return Archive


async def read(sandbox: Sandbox, path: str) -> tarfile.TarFile:
    """What lies at ``path``, as an open archive."""
    async with sandbox.get(path) as chunks:
        return tarfile.open(fileobj=BytesIO(b"".join([chunk async for chunk in chunks])))
