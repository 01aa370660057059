"""A sandbox harness for LLM agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.outcome import Cause, Ending, InfraAbort
    from harness.task.image import DockerfileBuild, ImageRef

__version__ = "0.1.0"
__all__ = ["Cause", "DockerfileBuild", "Ending", "ImageRef", "InfraAbort", "__version__"]

_HOMES = {
    "Cause": "harness.outcome",
    "DockerfileBuild": "harness.task.image",
    "Ending": "harness.outcome",
    "ImageRef": "harness.task.image",
    "InfraAbort": "harness.outcome",
}


def __getattr__(name: str) -> Any:
    """The names that authors of benchmarks and agents use, loaded when they are asked for: start-up is part of the product."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
