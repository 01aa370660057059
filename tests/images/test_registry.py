"""Pulls from a real registry: by tag, by digest, once; what a registry refuses, and what a tag means when it moves."""

from __future__ import annotations

import io
import socket
import subprocess
import tarfile
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import anyio
import pytest

from harness.errors import ImageUnavailable
from harness.images import references
from harness.images.mapping import ImageMap
from harness.images.resolve import ImageResolver
from harness.ports import EngineImage
from harness.sandbox.docker import images as docker_images
from harness.sandbox.docker.engine import DockerEngine
from harness.task.image import DockerfileBuild, ImageRef, ResolvedImage
from tests.images.docker_cli import find_cli
from tests.images.registry import Registry, refusing_registry, running_registry

pytestmark = [pytest.mark.engine, pytest.mark.network]


def cli(*words: str, check: bool = True) -> str:
    docker = find_cli()
    assert docker is not None
    done = subprocess.run([docker.path, *words], capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, done.stderr
    return done.stdout


async def files(content: str) -> AsyncIterator[bytes]:
    """A root file system with one file in it."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        member = tarfile.TarInfo("content")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content.encode()))
    yield buffer.getvalue()


class CountingEngine(DockerEngine):
    """The Docker engine, and what it was asked to pull."""

    def __init__(self) -> None:
        super().__init__()
        self.pulls: list[str] = []

    async def pull_image(self, ref: str, *, platform: str | None = None) -> EngineImage:
        self.pulls.append(ref)
        return await super().pull_image(ref, platform=platform)


@dataclass
class Setting:
    folder: Path
    registry: Registry
    engine: CountingEngine
    mark: str = field(default_factory=lambda: uuid4().hex[:12])

    @property
    def name(self) -> str:
        """Of a repository in the registry."""
        return f"{self.registry.host}/test-{self.mark}"

    def ref(self, tag: str) -> str:
        return f"{self.name}:{tag}"

    async def publish(self, tag: str, content: str) -> str:
        """Push an image under a tag and forget it here; its digest in the registry."""
        ref = self.ref(tag)
        label = f'LABEL harness.test="{self.mark}"'
        image = await self.engine.import_image(files(f"{content} {self.mark}"), ref, changes=[label, "WORKDIR /w"])
        cli("push", "--quiet", ref)
        pushed = await self.engine.inspect_image(image.id)
        assert pushed is not None
        cli("rmi", "--force", image.id)
        (digest,) = pushed.repo_digests
        return digest.rpartition("@")[2]

    def resolver(self, images: dict[str, str] | None = None) -> ImageResolver:
        return ImageResolver(
            self.engine, image_map=ImageMap(images or {}), certificates=(), cache=self.folder / "cache"
        )

    def source(self, dockerfile: str) -> DockerfileBuild:
        path = self.folder / "task" / "Dockerfile"
        path.parent.mkdir(exist_ok=True)
        path.write_text(dockerfile)
        return DockerfileBuild(dockerfile=path)


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    with running_registry(tmp_path / "registry") as running:
        yield running


@asynccontextmanager
async def opened(folder: Path, registry: Registry) -> AsyncGenerator[Setting]:
    async with CountingEngine() as engine:
        setting = Setting(folder, registry, engine)
        try:
            yield setting
        finally:
            ours = cli("images", "--all", "--quiet", "--no-trunc", "--filter", f"label=harness.test={setting.mark}")
            for image in dict.fromkeys(ours.split()):
                cli("rmi", "--force", image, check=False)


@pytest.fixture
async def setting(tmp_path: Path, registry: Registry) -> AsyncIterator[Setting]:
    async with opened(tmp_path, registry) as made:
        yield made


async def test_a_tag_is_pulled_and_its_digest_recorded(setting: Setting) -> None:
    digest = await setting.publish("1", "first")
    found = await setting.resolver().ensure(ImageRef(ref=setting.ref("1")))
    assert (found.ref, found.digest, found.workdir, found.built) == (setting.ref("1"), digest, "/w", False)
    again = await setting.resolver().ensure(ImageRef(ref=setting.ref("1")))
    assert again == found
    assert setting.engine.pulls == [setting.ref("1")]


async def test_no_tag_means_latest_and_nothing_else_is_pulled(setting: Setting) -> None:
    digest = await setting.publish("latest", "latest")
    await setting.publish("other", "other")
    found = await setting.resolver().ensure(ImageRef(ref=setting.name))
    assert (found.ref, found.digest) == (setting.name, digest)
    assert await setting.engine.inspect_image(setting.ref("other")) is None


@pytest.mark.parametrize("tagged", [False, True], ids=["name@digest", "name:tag@digest"])
async def test_a_digest_is_pulled_whatever_the_tag_means_now(setting: Setting, tagged: bool) -> None:
    digest = await setting.publish("1", "first")
    moved = await setting.publish("1", "second")
    assert moved != digest
    ref = f"{setting.ref('1') if tagged else setting.name}@{digest}"
    found = await setting.resolver().ensure(ImageRef(ref=ref))
    assert (found.ref, found.digest) == (ref, digest)
    setting.registry.stop()
    assert await setting.resolver().ensure(ImageRef(ref=ref)) == found, "it is here now"
    assert setting.engine.pulls == [ref]


async def test_a_tag_that_moves_changes_nothing_for_this_run(setting: Setting) -> None:
    ref = setting.ref("1")
    digest = await setting.publish("1", "first")
    resolver = setting.resolver()
    first = await resolver.ensure(ImageRef(ref=ref))
    cli("tag", first.id, f"{setting.name}:kept")
    moved = await setting.publish("1", "second")
    cli("pull", "--quiet", ref)  # someone else, on the same engine
    assert await resolver.ensure(ImageRef(ref=ref)) == first
    built = await resolver.ensure(setting.source(f'FROM {ref}\nLABEL harness.test="{setting.mark}"\n'))
    cli("create", "--name", f"harness-test-{setting.mark}", built.id, "none")
    try:
        content = cli("cp", f"harness-test-{setting.mark}:/content", "-")
    finally:
        cli("rm", f"harness-test-{setting.mark}")
    assert "first" in content and "second" not in content, "a build starts from what the tag meant, too"
    other = await setting.resolver().ensure(ImageRef(ref=ref))
    assert (first.digest, other.digest) == (digest, moved)


async def test_a_missing_tag_says_so_and_is_asked_for_once(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    resolver = setting.resolver()
    ref = setting.ref("missing")
    for _ in range(3):
        with pytest.raises(ImageUnavailable, match=rf"{ref} can't be pulled: .*manifest unknown"):
            await resolver.ensure(ImageRef(ref=ref))
    assert setting.engine.pulls == [ref]
    digest = await setting.publish("missing", "late")
    with pytest.raises(ImageUnavailable):
        await resolver.ensure(ImageRef(ref=ref))
    monkeypatch.setattr(references, "REFUSAL_KEPT_S", 0.0)
    assert (await resolver.ensure(ImageRef(ref=ref))).digest == digest, "a refusal is kept for a while only"


async def test_a_registry_that_is_gone_says_so(setting: Setting) -> None:
    await setting.publish("1", "first")
    setting.registry.stop()
    with pytest.raises(ImageUnavailable, match="connection refused"):
        await setting.resolver().ensure(ImageRef(ref=setting.ref("1")))
    setting.registry.start()
    assert (await setting.resolver().ensure(ImageRef(ref=setting.ref("1")))).digest


@pytest.mark.parametrize(
    ("status", "code", "message", "said"),
    [
        (404, "MANIFEST_UNKNOWN", "no such manifest", "manifest unknown"),
        (401, "UNAUTHORIZED", "authentication required", "pull access denied|authentication required|unauthorized"),
        (403, "DENIED", "not for you", "not for you|denied"),
        (429, "TOOMANYREQUESTS", "rate limit reached", "rate limit reached"),
        (500, "UNKNOWN", "the disk is full", "500 Internal Server Error|the disk is full"),
    ],
)
async def test_a_refusal_carries_the_registrys_reason(
    tmp_path: Path, status: int, code: str, message: str, said: str
) -> None:
    async with CountingEngine() as engine:
        resolver = ImageResolver(engine, certificates=(), cache=tmp_path / "cache")
        with refusing_registry(status, code, message) as host:
            for _ in range(2):
                with pytest.raises(ImageUnavailable, match=said):
                    await resolver.ensure(ImageRef(ref=f"{host}/image:1"))
        assert engine.pulls == [f"{host}/image:1"]


async def test_a_registry_that_says_nothing_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docker_images, "PULL_STALLED_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        ref = f"127.0.0.1:{silent.getsockname()[1]}/image:1"
        async with CountingEngine() as engine:
            resolver = ImageResolver(engine, certificates=(), cache=tmp_path / "cache")
            with anyio.fail_after(10), pytest.raises(ImageUnavailable, match=r"no news of it for 0\.3 s"):
                await resolver.ensure(ImageRef(ref=ref))


async def test_an_image_in_a_registry_is_pulled_for_a_build(setting: Setting) -> None:
    digest = await setting.publish("1", "first")
    resolver = setting.resolver()
    for name in (setting.ref("1"), f"{setting.name}@{digest}"):
        label = f'LABEL harness.test="{setting.mark}"'
        built = await resolver.ensure(setting.source(f"FROM {name}\n{label}\nCOPY --from={name} /content /copy\n"))
        assert built.built and built.workdir == "/w"
        setting.registry.stop()  # nothing but the first pull needs it
    assert setting.engine.pulls == [setting.ref("1")]


async def test_the_image_map_holds_for_references_with_a_digest(setting: Setting) -> None:
    digest = await setting.publish("3.13", "python")
    asked = "python:3.13-slim@sha256:" + "0" * 64
    for used in (setting.ref("3.13"), f"{setting.name}@{digest}"):
        resolver = setting.resolver({"python:3.13-slim*": used})
        found = await resolver.ensure(ImageRef(ref=asked))
        assert (found.ref, found.digest, found.mapped_from) == (asked, digest, ((asked, used),))
        label = f'LABEL harness.test="{setting.mark}"'
        built = await resolver.ensure(setting.source(f"FROM {asked}\n{label}\n"))
        assert built.mapped_from == ((asked, used),)


async def test_ten_at_once_are_one_pull(setting: Setting) -> None:
    digest = await setting.publish("1", "first")
    resolver = setting.resolver()
    found: list[ResolvedImage] = []

    async def ensure(ref: str) -> None:
        found.append(await resolver.ensure(ImageRef(ref=ref)))

    async with anyio.create_task_group() as group:
        for _ in range(10):
            group.start_soon(ensure, setting.ref("1"))
    assert [image.digest for image in found] == [digest] * 10
    assert setting.engine.pulls == [setting.ref("1")]
    assert setting.registry.manifests_fetched == 1
