"""See that the project's own images are on the engine, and make what is missing or out of date."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import anyio

from harness.errors import ImageUnavailable
from harness.images.base.bootstrap import require_mmdebstrap, root_filesystem
from harness.images.base.recipe import RECIPES, START, Recipe
from harness.ports import BuildRequest, ImageEngine

PULL_S = 60.0
"""How long a registry may take to hand over Debian's slim image (30 MB) before packages are tried instead."""


class Way(StrEnum):
    """How an image came to be on the engine."""

    FOUND = "found"
    """It was there and is current."""
    REGISTRY = "registry"
    """Built from a Dockerfile, from Debian's image."""
    PACKAGES = "packages"
    """Bootstrapped from Debian's packages and imported."""


@dataclass(frozen=True, slots=True)
class BaseImage:
    """One of the project's images, as it is on the engine now."""

    tag: str
    id: str
    way: Way


async def ensure_base(
    engine: ImageEngine,
    *,
    certificates: Sequence[bytes] = (),
    progress: Callable[[str], None] = lambda line: None,
    rebuild: bool = False,
    recipes: Sequence[Recipe] = RECIPES,
) -> tuple[BaseImage, ...]:
    """Make the project's images present on the engine: built where a registry gives Debian's, else made from packages.

    certificates: the host's extra certificates (`harness.images.trust.extra_certificates`), PEM.
    progress: gets one line whenever something that takes time begins or ends. From packages, both take about half a minute.
    rebuild: make them again even if they are current, for newer packages.

    Raises UnsupportedError (with the remedy) where neither way is open, ImageUnavailable or BuildFailed where one failed,
    EngineUnreachable.
    """
    images: list[BaseImage] = []
    way: Way | None = None
    for recipe in recipes:
        present = None if rebuild else await _current(engine, recipe, certificates)
        if present is not None:
            images.append(BaseImage(recipe.tag, present, Way.FOUND))
            continue
        if way is None:
            way = await _choose(engine, progress, fresh=rebuild)
        images.append(await _make(engine, recipe, certificates, way=way, progress=progress))
    return tuple(images)


async def _current(engine: ImageEngine, recipe: Recipe, certificates: Sequence[bytes]) -> str | None:
    """The image's id, if this recipe and these certificates made it."""
    image = await engine.inspect_image(recipe.tag)
    if image is None:
        return None
    wanted = recipe.labels(certificates)
    return image.id if all(image.labels.get(name) == value for name, value in wanted.items()) else None


async def _choose(engine: ImageEngine, progress: Callable[[str], None], *, fresh: bool) -> Way:
    """Registry, where Debian's image is on the engine or can be pulled in a bounded time; else packages."""
    here = await engine.inspect_image(START) is not None
    if here and not fresh:
        return Way.REGISTRY
    reason = f"{START} can't be pulled: no answer within {PULL_S:.0f} s"
    try:
        with anyio.move_on_after(PULL_S):
            await engine.pull_image(START)
            return Way.REGISTRY
    except ImageUnavailable as error:
        reason = str(error)
    if here:
        progress(f"{reason}; using the one that is here")
        return Way.REGISTRY
    progress(f"{reason}; using Debian's packages instead")
    await require_mmdebstrap(progress)
    return Way.PACKAGES


async def _make(
    engine: ImageEngine, recipe: Recipe, certificates: Sequence[bytes], *, way: Way, progress: Callable[[str], None]
) -> BaseImage:
    began = anyio.current_time()
    if way is Way.REGISTRY:
        progress(f"{recipe.tag}: building from {START}")
        request = BuildRequest(
            context=_once(recipe.context(certificates)),
            dockerfile="Dockerfile",
            tag=recipe.tag,
            labels=recipe.labels(certificates),
        )
        image = await engine.build_image(request, lambda line: None)
    else:
        progress(f"{recipe.tag}: making it from Debian's packages")
        async with root_filesystem(recipe, certificates) as archive:
            image = await engine.import_image(archive, recipe.tag, changes=recipe.changes(certificates))
    progress(f"{recipe.tag}: made in {anyio.current_time() - began:.1f} s")
    return BaseImage(recipe.tag, image.id, way)


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content
