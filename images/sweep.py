"""What builds left on an engine, and its removal: images that this project made and that nothing uses."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from harness.errors import ConfigError, UsageError
from harness.images.identity import IMAGE_LABEL, TAGGED
from harness.ports import ImageEngine, StoredImage

_LOCK = "images.lock"


async def sweep_images(engine: ImageEngine, *, dry_run: bool = False) -> tuple[str, ...]:
    """Remove built images, and the tags that builds gave to others' images, where no container uses them.

    Base images and the toolbox stay, and so does every image that has another name. Gives the tags, and the ids of images without
    one, that were removed or would be. What is removed is built again when a task needs it.
    """
    found = await engine.list_images()
    tags = [tag for image in found for tag in _removable(image)]
    if dry_run:
        return (*tags, *_nameless(found))
    removed = [tag for tag in tags if await engine.remove_image(tag)]
    # An image that another was built upon loses its last tag before it can go.
    left = _nameless(await engine.list_images())
    return (*removed, *[image for image in left if await engine.remove_image(image)])


def _removable(image: StoredImage) -> Sequence[str]:
    """The tags of ours. An image that isn't ours is never removed with its last name: someone may know it by its id."""
    ours = [tag for tag in image.tags if tag.startswith(TAGGED)]
    named_by_others = len(ours) < len(image.tags) or bool(image.repo_digests)
    return ours if not image.used and (IMAGE_LABEL in image.labels or named_by_others) else ()


def _nameless(images: Sequence[StoredImage]) -> list[str]:
    return [
        image.id
        for image in images
        if IMAGE_LABEL in image.labels and not image.tags and not image.repo_digests and not image.used
    ]


@contextmanager
def images_in_use(cache: Path) -> Generator[None]:
    """While this lasts, no sweep begins on this machine: a run has images that no container uses yet.

    cache: the folder that runs and sweeps share. Where it can't be written, nothing is held: there are no builds either.
    """
    try:
        descriptor = _open(cache)
    except OSError:
        yield
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def sole_use(cache: Path) -> Generator[None]:
    """While this lasts, no run begins on this machine. Raises UsageError while one goes on."""
    try:
        descriptor = _open(cache)
    except OSError as error:
        raise ConfigError(
            f"{cache / _LOCK}: can't be written: {error.strerror}. Set XDG_CACHE_HOME to a folder that can be."
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(
                "a run or a build goes on, and may need any image. Remove images when it has ended"
            ) from error
        yield
    finally:
        os.close(descriptor)


def _open(cache: Path) -> int:
    cache.mkdir(parents=True, exist_ok=True)
    return os.open(cache / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
