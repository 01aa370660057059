"""Images that exist: found on the engine or pulled, through the image map, and resolved once."""

from __future__ import annotations

from dataclasses import dataclass

import anyio

from harness.errors import ImageUnavailable
from harness.images.build import Progress
from harness.images.mapping import ImageMap
from harness.ports import EngineImage, ImageEngine
from harness.task.image import split_tag

REFUSAL_KEPT_S = 60.0
"""How long a registry's refusal stands before it is asked again: a hundred attempts don't ask a hundred times."""


@dataclass(frozen=True, slots=True)
class Found:
    """An image that a reference means. ``used``: the reference after the image map."""

    asked: str
    used: str
    image: EngineImage

    @property
    def mapped(self) -> tuple[tuple[str, str], ...]:
        return ((self.asked, self.used),) if self.asked != self.used else ()

    @property
    def registry_digest(self) -> str | None:
        """``sha256:…`` under which a registry has it; None for an image that never came from one."""
        name, _, asked = self.used.partition("@")
        if asked:
            return asked
        name, _ = split_tag(name)
        digests = dict(entry.split("@", 1) for entry in self.image.repo_digests if "@" in entry)
        return digests.get(name) or next(iter(digests.values()), None)


class References:
    """Resolves references on one engine. What a tag meant first, it means for the life of this object."""

    def __init__(self, engine: ImageEngine, image_map: ImageMap) -> None:
        self._engine = engine
        self._map = image_map
        self._known: dict[tuple[str, str | None], str] = {}
        self._refusals: dict[tuple[str, str | None], tuple[float, str]] = {}
        self._locks: dict[str, anyio.Lock] = {}

    async def find(self, ref: str, *, platform: str | None = None, progress: Progress | None = None) -> Found:
        """Raises ImageUnavailable or EngineUnreachable."""
        used = self._map.replacement(ref) or ref
        key = (used, platform)
        async with self._locks.setdefault(used, anyio.Lock()):
            image = await self._present(key)
            if image is None:
                image = await self._pull(key, ref, progress)
            self._known[key] = image.id
        return Found(asked=ref, used=used, image=image)

    async def local(self, ref: str) -> Found | None:
        """Only when the engine has it already."""
        used = self._map.replacement(ref) or ref
        image = await self._engine.inspect_image(used)
        return Found(asked=ref, used=used, image=image) if image else None

    async def _present(self, key: tuple[str, str | None]) -> EngineImage | None:
        ref, platform = key
        if (known := self._known.get(key)) and (image := await self._engine.inspect_image(known)):
            return image
        image = await self._engine.inspect_image(ref)
        if image is None or platform is None:
            return image
        return (
            image if image.architecture in ("", platform.split("/")[1:2][0] if "/" in platform else platform) else None
        )

    async def _pull(self, key: tuple[str, str | None], asked: str, progress: Progress | None) -> EngineImage:
        ref, platform = key
        when, reason = self._refusals.get(key, (0.0, ""))
        if not reason or anyio.current_time() >= when + REFUSAL_KEPT_S:
            if progress:
                progress(f"pulling {ref}")
            try:
                return await self._engine.pull_image(ref, platform=platform)
            except ImageUnavailable as error:
                reason = str(error)
                self._refusals[key] = (anyio.current_time(), reason)
        mapped = f" (the image map puts it in place of {asked})" if asked != ref else ""
        raise ImageUnavailable(
            f"{reason}{mapped}. Check its name, pull it by hand, or name another image for it in the configuration's image map."
        )
