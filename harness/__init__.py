"""A sandbox harness for LLM agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.task.image import DockerfileBuild, ImageRef

__version__ = "0.1.0"
__all__ = ["DockerfileBuild", "ImageRef", "__version__"]


def __getattr__(name: str) -> Any:
    """The names that a benchmark's author uses, loaded when they are asked for: start-up is part of the product."""
    if name not in ("DockerfileBuild", "ImageRef"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from harness.task import image

    return getattr(image, name)
