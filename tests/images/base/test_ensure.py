"""Which way an image is made, and that a current one is left alone."""

from __future__ import annotations

import io
import tarfile
from collections.abc import AsyncIterable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from harness.errors import ImageUnavailable, UnsupportedError
from harness.images.base import BASE, RECIPES, TOOLBOX, Way, ensure_base
from harness.images.base.recipe import START
from harness.ports import BuildRequest, EngineImage, StoredImage

CERTIFICATE = b"-----BEGIN CERTIFICATE-----\nMTIz\n-----END CERTIFICATE-----\n"


class Shelf:
    """An engine that keeps images' descriptions in memory.

    registry: the images that can be pulled.
    """

    def __init__(self, *registry: str) -> None:
        self.registry = registry
        self.images: dict[str, EngineImage] = {}
        self.pulls: list[str] = []
        self.builds: list[bytes] = []
        self.imports: list[bytes] = []

    def keep(self, ref: str, labels: dict[str, str] | None = None) -> EngineImage:
        image = EngineImage(
            id=f"sha256:{len(self.images)}",
            tags=(ref,),
            repo_digests=(),
            labels=labels or {},
            env={},
            workdir="/",
            user="",
            architecture="amd64",
        )
        self.images[ref] = image
        return image

    async def inspect_image(self, ref: str) -> EngineImage | None:
        return self.images.get(ref)

    async def pull_image(self, ref: str, *, platform: str | None = None) -> EngineImage:
        self.pulls.append(ref)
        if ref not in self.registry:
            raise ImageUnavailable(f"{ref}: no such host")
        return self.keep(ref)

    async def list_images(self) -> tuple[StoredImage, ...]:
        return tuple(StoredImage(i.id, i.tags, i.repo_digests, i.labels, used=False) for i in self.images.values())

    async def remove_image(self, ref: str) -> bool:
        return self.images.pop(ref, None) is not None

    async def build_image(self, request: BuildRequest, log: Callable[[str], None]) -> EngineImage:
        assert START in self.images, "the Dockerfile's base is missing"
        self.builds.append(b"".join([chunk async for chunk in request.context]))
        return self.keep(request.tag, dict(request.labels))

    async def import_image(
        self, archive: AsyncIterable[bytes], tag: str, *, changes: Sequence[str] = ()
    ) -> EngineImage:
        self.imports.append(b"".join([chunk async for chunk in archive]))
        labels = [change.removeprefix("LABEL ").partition("=") for change in changes if change.startswith("LABEL ")]
        return self.keep(tag, {name: value for name, _, value in labels})

    async def tag_image(self, ref: str, tag: str) -> None:
        self.images[tag] = self.images[ref]


async def test_registry_is_the_first_choice() -> None:
    shelf = Shelf(START)
    images = await ensure_base(shelf, certificates=(CERTIFICATE,))
    assert [(image.tag, image.way) for image in images] == [(recipe.tag, Way.REGISTRY) for recipe in RECIPES]
    assert shelf.pulls == [START]
    with tarfile.open(fileobj=io.BytesIO(shelf.builds[0])) as archive:
        dockerfile = archive.extractfile("Dockerfile")
        assert dockerfile is not None
        assert "ENV PIP_CERT=" in dockerfile.read().decode()


async def test_current_images_are_left_alone() -> None:
    shelf = Shelf(START)
    made = await ensure_base(shelf)
    shelf.pulls.clear()
    lines: list[str] = []
    again = await ensure_base(shelf, progress=lines.append)
    assert [image.way for image in again] == [Way.FOUND, Way.FOUND]
    assert [image.id for image in again] == [image.id for image in made]
    assert len(shelf.builds) == 2
    assert not shelf.pulls
    assert not lines


async def test_other_certificates_remake_the_base_only() -> None:
    shelf = Shelf(START)
    await ensure_base(shelf)
    assert [image.way for image in await ensure_base(shelf, certificates=(CERTIFICATE,))] == [Way.REGISTRY, Way.FOUND]
    assert [image.way for image in await ensure_base(shelf, certificates=(CERTIFICATE,))] == [Way.FOUND, Way.FOUND]


async def test_an_image_of_another_maker_is_remade() -> None:
    shelf = Shelf(START)
    shelf.keep(BASE.tag, {"harness.base": "of an older version"})
    assert (await ensure_base(shelf, recipes=(BASE,)))[0].way is Way.REGISTRY


async def test_rebuild_pulls_again_and_makes_do_with_what_is_here() -> None:
    shelf = Shelf()
    shelf.keep(START)
    lines: list[str] = []
    images = await ensure_base(shelf, rebuild=True, progress=lines.append)
    assert shelf.pulls == [START]
    assert {image.way for image in images} == {Way.REGISTRY}
    assert "using the one that is here" in lines[0]
    assert "no such host" in lines[0]


async def test_a_start_image_that_is_here_needs_no_registry() -> None:
    shelf = Shelf()
    shelf.keep(START)
    assert {image.way for image in await ensure_base(shelf)} == {Way.REGISTRY}
    assert not shelf.pulls


async def test_neither_way_says_how_to_open_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    lines: list[str] = []
    with pytest.raises(UnsupportedError, match=r"apt-get install mmdebstrap.*docker load"):
        await ensure_base(Shelf(), progress=lines.append)
    assert "no such host" in lines[0]


@pytest.mark.network
async def test_packages_where_no_registry_answers() -> None:
    shelf = Shelf()
    recipe = replace(TOOLBOX, tag="harness-test/toolbox:packages")
    images = await ensure_base(shelf, recipes=(recipe,))
    assert images[0].way is Way.PACKAGES
    with tarfile.open(fileobj=io.BytesIO(shelf.imports[0])) as archive:
        members = {member.name.removeprefix("./"): member for member in archive}
    assert members["toolbox/bash"].mode == members["toolbox/busybox"].mode == 0o755
    assert members["toolbox/bash"].size > 1_000_000
    assert members["toolbox/bin/sh"].linkname == "../busybox"
    assert members["usr/sbin/iptables"].issym()
    assert sum(member.size for member in members.values()) < 16 * 1024**2
    assert [image.way for image in await ensure_base(shelf, recipes=(recipe,))] == [Way.FOUND]
