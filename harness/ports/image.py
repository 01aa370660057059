"""The ports of what stores and builds images, and of what turns a task's request into one."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from harness.task.image import ImageSource, ResolvedImage


@dataclass(frozen=True, slots=True)
class EngineImage:
    """An image as the engine describes it."""

    id: str
    tags: tuple[str, ...]
    repo_digests: tuple[str, ...]
    labels: Mapping[str, str]
    env: Mapping[str, str]
    workdir: str
    user: str
    architecture: str


@dataclass(frozen=True, slots=True)
class StoredImage:
    """An image in a list of all that the engine has. ``used``: a container of it exists, whether it runs or not."""

    id: str
    tags: tuple[str, ...]
    repo_digests: tuple[str, ...]
    labels: Mapping[str, str]
    used: bool


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """One image build: a tar stream with the context, and what the engine needs beside it.

    dockerfile: its name within the archive.
    log: gets the build's output, line by line.
    """

    context: AsyncIterable[bytes]
    dockerfile: str
    tag: str
    args: Mapping[str, str] = field(default_factory=dict[str, str])
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    target: str | None = None
    platform: str | None = None


class ImageEngine(Protocol):
    """What stores and builds images."""

    async def inspect_image(self, ref: str) -> EngineImage | None:
        """None when the engine doesn't have it."""
        ...

    async def pull_image(self, ref: str, *, platform: str | None = None) -> EngineImage:
        """Raises ImageUnavailable with the registry's reason."""
        ...

    async def build_image(self, request: BuildRequest, log: Callable[[str], None]) -> EngineImage:
        """Raises BuildFailed with the failing instruction and the log's end."""
        ...

    async def import_image(
        self, archive: AsyncIterable[bytes], tag: str, *, changes: Sequence[str] = ()
    ) -> EngineImage:
        """An image of one layer from a root file system. ``changes``: Dockerfile instructions such as ``ENV A=b``."""
        ...

    async def tag_image(self, ref: str, tag: str) -> None: ...

    async def list_images(self) -> tuple[StoredImage, ...]:
        """Every image that has a tag or that no other was built upon."""
        ...

    async def remove_image(self, ref: str) -> bool:
        """Remove a tag, and the image with its last one; or, by its id, an image without. False when it has gone or is needed."""
        ...


class Images(Protocol):
    """Turns what a task asks for into an image on the engine."""

    async def ensure(self, source: ImageSource) -> ResolvedImage:
        """Find, pull or build it. One build or pull per digest at a time.

        Raises ContextError (the user's), BuildFailed, ImageUnavailable or EngineUnreachable.
        """
        ...

    async def with_repositories(
        self,
        image: ResolvedImage,
        *,
        repositories: Sequence[str],
        users: Sequence[str | None],
        workdir: str | None = None,
    ) -> ResolvedImage:
        """An image in which each user can run git in each repository, and in the one that ``workdir`` lies in.

        users: None is the image's own. workdir: None is the image's own. Raises BuildFailed where that can't be had.
        """
        ...
