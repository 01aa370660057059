"""Images of the fake engine: a tree of files and what an image's configuration says."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import AsyncIterable, Callable, Sequence
from dataclasses import dataclass, field, replace

import anyio.lowlevel

from harness.errors import BuildFailed, ImageUnavailable
from harness.ports import BuildRequest, EngineImage, StoredImage
from harness.sandbox.fake.tree import Tree
from harness.task.image import BASE_IMAGE, with_tag


@dataclass(frozen=True, slots=True)
class FakeImage:
    """An image, and the files of its sandboxes."""

    image: EngineImage
    tree: Tree = field(default_factory=Tree)


class FakeImages:
    """`ports.ImageEngine` in memory: one image exists, `BASE_IMAGE`; ``registry`` holds those that can be pulled, by reference."""

    def __init__(self) -> None:
        self.images: dict[str, FakeImage] = {}
        """By id."""
        self.registry: dict[str, FakeImage] = {}
        self.builds: list[BuildRequest] = []
        tree = Tree()
        for folder in ("/etc", "/root", "/tmp", "/usr/bin"):
            tree.folder(folder)
        tree.write("/etc/passwd", b"root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n")
        self.add(BASE_IMAGE, tree)

    def add(
        self,
        tag: str,
        tree: Tree | None = None,
        *,
        workdir: str = "/",
        user: str = "",
        env: dict[str, str] | None = None,
    ) -> EngineImage:
        """Put an image on the engine."""
        digest = hashlib.sha256(f"{tag}/{workdir}/{user}/{len(self.images)}".encode()).hexdigest()
        image = EngineImage(
            id=f"sha256:{digest}",
            tags=(tag,),
            repo_digests=(),
            labels={},
            env=env or {},
            workdir=workdir,
            user=user,
            architecture="amd64",
        )
        return self._store(FakeImage(image, tree or Tree()))

    def _store(self, image: FakeImage) -> EngineImage:
        for other in list(self.images.values()):
            tags = tuple(tag for tag in other.image.tags if tag not in image.image.tags)
            self.images[other.image.id] = replace(other, image=replace(other.image, tags=tags))
        self.images[image.image.id] = image
        return image.image

    def _find(self, ref: str) -> FakeImage | None:
        name = with_tag(ref)
        for image in self.images.values():
            if ref == image.image.id or name in image.image.tags or name in image.image.repo_digests:
                return image
        return None

    async def inspect_image(self, ref: str) -> EngineImage | None:
        await anyio.lowlevel.checkpoint()
        found = self._find(ref)
        return found.image if found else None

    async def pull_image(self, ref: str, *, platform: str | None = None) -> EngineImage:
        await anyio.lowlevel.checkpoint()
        if ref not in self.registry:
            raise ImageUnavailable(f"{ref} can't be pulled: the registry doesn't have it")
        return self._store(self.registry[ref])

    async def build_image(self, request: BuildRequest, log: Callable[[str], None]) -> EngineImage:
        """The files of its FROM image, and WORKDIR, USER and ENV. ``RUN false`` fails; other instructions are only logged."""
        self.builds.append(request)
        data = b"".join([chunk async for chunk in request.context])
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            dockerfile = archive.extractfile(request.dockerfile)
            lines = dockerfile.read().decode().splitlines() if dockerfile else []
        tree, settings, env = Tree(), {"WORKDIR": "/", "USER": ""}, dict[str, str]()
        for line in lines:
            log(line)
            word, _, rest = line.strip().partition(" ")
            if word == "FROM":
                base = self._find(rest.split()[0])
                tree = base.tree.copy() if base else Tree()
            elif word == "ENV":
                name, _, value = rest.partition("=")
                env[name] = value
            elif word in settings:
                settings[word] = rest
            elif line.strip() == "RUN false":
                raise BuildFailed(f"the image {request.tag} can't be built", instruction=line.strip(), log_tail=line)
        tree.folder(settings["WORKDIR"])
        image = self.add(request.tag, tree, workdir=settings["WORKDIR"], user=settings["USER"], env=env)
        return self._store(FakeImage(replace(image, labels=dict(request.labels)), tree))

    async def import_image(
        self, archive: AsyncIterable[bytes], tag: str, *, changes: Sequence[str] = ()
    ) -> EngineImage:
        tree = Tree()
        tree.unpack("/", b"".join([chunk async for chunk in archive]))
        settings = dict(change.split(" ", 1) for change in changes if not change.startswith("ENV "))
        env = dict(change.removeprefix("ENV ").split("=", 1) for change in changes if change.startswith("ENV "))
        return self.add(tag, tree, workdir=settings.get("WORKDIR", "/"), user=settings.get("USER", ""), env=env)

    async def tag_image(self, ref: str, tag: str) -> None:
        await anyio.lowlevel.checkpoint()
        found = self._find(ref)
        if found is None:
            raise ImageUnavailable(f"{ref} isn't on the engine")
        name = with_tag(tag)
        if name not in found.image.tags:
            self._store(replace(found, image=replace(found.image, tags=(*found.image.tags, name))))

    def in_use(self) -> frozenset[str]:
        """Ids of images that sandboxes of this engine are made of."""
        return frozenset()

    async def list_images(self) -> tuple[StoredImage, ...]:
        await anyio.lowlevel.checkpoint()
        used = self.in_use()
        images = [stored.image for stored in self.images.values()]
        return tuple(
            StoredImage(image.id, image.tags, image.repo_digests, image.labels, used=image.id in used)
            for image in images
        )

    async def remove_image(self, ref: str) -> bool:
        await anyio.lowlevel.checkpoint()
        found = self._find(ref)
        if found is None:
            return False
        left = () if ref == found.image.id else tuple(tag for tag in found.image.tags if tag != ref)
        if left:
            self._store(replace(found, image=replace(found.image, tags=left)))
            return True
        if found.image.id in self.in_use() or (ref == found.image.id and len(found.image.tags) > 1):
            return False
        del self.images[found.image.id]
        return True
