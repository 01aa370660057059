"""What builds leave behind is removed when nothing uses it, and nothing else is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from harness.errors import UsageError
from harness.images.identity import IMAGE_LABEL, tag_of
from harness.images.resolve import ImageResolver
from harness.images.sweep import images_in_use, sole_use, sweep_images
from harness.ports import BuildRequest, EngineImage, Labels, SandboxSpec, StoredImage
from harness.sandbox.docker.engine import DockerEngine
from harness.sandbox.docker.toolbox import LABEL
from harness.sandbox.fake import FakeEngine
from harness.task.image import DockerfileBuild
from tests.images.test_context import tree

BASE = "harness/base:bookworm"
CERTIFICATE = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


def source(folder: Path, text: str) -> DockerfileBuild:
    path = tree(folder, {})
    path.write_text(text)
    return DockerfileBuild(dockerfile=path)


async def names(engine: FakeEngine) -> set[str]:
    return {tag for image in await engine.list_images() for tag in image.tags or (image.id,)}


async def test_what_was_built_goes_and_the_rest_stays(tmp_path: Path) -> None:
    engine = FakeEngine()
    engine.add("mine:1")
    resolver = ImageResolver(engine, certificates=(CERTIFICATE,), cache=tmp_path / "cache")
    built = await resolver.ensure(source(tmp_path / "a", f"FROM {BASE}\n"))
    used = await resolver.ensure(source(tmp_path / "b", f"FROM {BASE}\nENV A=1\n"))
    replaced = await engine.build_image(_request("harness/build:x"), lambda line: None)
    await engine.build_image(_request("harness/build:x"), lambda line: None)
    pinned = tag_of("pinned", "0" * 32)
    await engine.tag_image("mine:1", pinned)
    before = await names(engine)
    labels = Labels(run="r", attempt="a", role="agent", lease_s=60)
    async with engine.sandbox(SandboxSpec(image=used, labels=labels)):
        would = await sweep_images(engine, dry_run=True)
        assert await names(engine) == before
        assert await sweep_images(engine) == would
    assert {built.ref, pinned, replaced.id, "harness/build:x"} <= set(would)
    assert any(tag.startswith("harness/trusted:") for tag in would)
    assert await names(engine) == {BASE, "mine:1", used.ref}
    assert await sweep_images(engine) == (used.ref,)


def _request(tag: str) -> BuildRequest:
    from harness.images.archive import stream_files

    context = stream_files({"Dockerfile": f"FROM {BASE}\n".encode()})
    return BuildRequest(context=context, dockerfile="Dockerfile", tag=tag, labels={IMAGE_LABEL: "0"})


async def test_an_image_that_is_known_by_nothing_but_a_tag_of_ours_stays_when_it_isnt_ours() -> None:
    """Someone made it and gave it no name; a build pinned it. Untagging it would remove it."""
    engine = FakeEngine()
    pinned = tag_of("pinned", "0" * 32)
    image = engine.add(pinned)
    assert await sweep_images(engine) == ()
    assert await engine.inspect_image(image.id) is not None


def test_nothing_is_swept_while_a_run_goes_on(tmp_path: Path) -> None:
    refused = pytest.raises(UsageError, match="a run or a build goes on")
    with images_in_use(tmp_path), images_in_use(tmp_path), refused, sole_use(tmp_path):
        pass
    with sole_use(tmp_path):
        pass


def test_a_folder_that_cant_be_written_keeps_no_run_from_starting(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with images_in_use(tmp_path / "file" / "cache"):
        pass
    with pytest.raises(UsageError, match="XDG_CACHE_HOME"), sole_use(tmp_path / "file" / "cache"):
        pass


class OwnImages(DockerEngine):
    """The Docker engine, as if it had this test's images only: others' must stay."""

    def __init__(self, mark: str) -> None:
        super().__init__()
        self._mark = mark

    async def list_images(self) -> tuple[StoredImage, ...]:
        return tuple(image for image in await super().list_images() if image.labels.get("harness.test") == self._mark)


@pytest.mark.engine
async def test_on_docker_an_image_goes_when_its_last_sandbox_has_gone(tmp_path: Path) -> None:
    mark = uuid4().hex
    async with OwnImages(mark) as engine:
        resolver = ImageResolver(engine, certificates=(), cache=tmp_path / "cache")
        text = f'FROM {BASE}\nLABEL harness.test="{mark}"\nRUN git init -q /w\nWORKDIR /w\n'
        built = await resolver.ensure(source(tmp_path / "a", text))
        same = await resolver.with_repositories(built, repositories=["/w"], users=[None])
        assert same.id == built.id
        (only,) = await engine.list_images()
        assert only.id == built.id, "a repository with nothing to mend leaves no image behind"
        assert sorted(tag.partition(":")[0] for tag in only.tags) == ["harness/build", "harness/git", "harness/pinned"]
        labels = Labels(run=f"test-{mark}", attempt="a", role="agent", lease_s=60)
        async with engine.sandbox(SandboxSpec(image=built, labels=labels)):
            assert await sweep_images(engine) == ()
            assert not await engine.remove_image(built.id), "the engine wouldn't either"
        assert sorted(await sweep_images(engine, dry_run=True)) == sorted(only.tags)
        assert sorted(await sweep_images(engine)) == sorted(only.tags)
        assert await engine.list_images() == ()
        assert await engine.inspect_image(BASE) is not None
        assert not await engine.remove_image(built.id), "it has gone"


@pytest.mark.engine
async def test_on_docker_a_replaced_image_is_found_without_a_name(tmp_path: Path) -> None:
    mark = uuid4().hex
    async with OwnImages(mark) as engine:
        resolver = ImageResolver(engine, certificates=(), cache=tmp_path / "cache")
        built: list[EngineImage] = []
        for number in range(2):
            text = f'FROM {BASE}\nLABEL harness.test="{mark}"\nENV A={number}\n'
            found = await engine.inspect_image((await resolver.ensure(source(tmp_path / "a", text))).ref)
            assert found is not None
            built.append(found)
        await engine.tag_image(built[1].id, built[0].tags[0])
        assert sorted(await sweep_images(engine)) == sorted([built[0].id, built[0].tags[0], built[1].tags[0]])
        assert await engine.list_images() == ()


@pytest.mark.engine
async def test_tools_of_another_toolbox_are_old_and_the_present_ones_are_not() -> None:
    name = f"harness-toolbox-test-{uuid4().hex[:12]}"
    async with DockerEngine() as engine:
        present = await engine.inspect_image("harness/toolbox:bookworm")
        assert present is not None
        for suffix, image in (("old", "sha256:0"), ("new", present.id)):
            body = {"Name": f"{name}-{suffix}", "Labels": {LABEL: image}}
            await engine.client.call("POST", "/volumes/create", body=body)
        try:
            old = await engine.remove_old_tools(dry_run=True)
            assert f"{name}-old" in old
            assert f"{name}-new" not in old
        finally:
            for suffix in ("old", "new"):
                await engine.client.call("DELETE", f"/volumes/{name}-{suffix}")


@pytest.mark.engine
def test_the_command_says_what_it_would_remove(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from harness.cli import main; main()", "gc", "--images", "--dry-run"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert not any(BASE in line or "harness/toolbox:" in line for line in lines)
    assert all(line == "nothing to remove" or line.startswith("would remove ") for line in lines)
