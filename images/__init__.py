"""Images: build contexts and their limits, ``.dockerignore``, identities, the image map, git ownership.

``from harness.images import DockerfileBuild, ImageRef, ImageResolver``; what isn't used isn't loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.images.mapping import ImageMap
    from harness.images.resolve import ImageResolver
    from harness.task.image import DockerfileBuild, ImageRef, ResolvedImage

__all__ = ["DockerfileBuild", "ImageMap", "ImageRef", "ImageResolver", "ResolvedImage"]

_HOMES = {
    "DockerfileBuild": "harness.task.image",
    "ImageMap": "harness.images.mapping",
    "ImageRef": "harness.task.image",
    "ImageResolver": "harness.images.resolve",
    "ResolvedImage": "harness.task.image",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
