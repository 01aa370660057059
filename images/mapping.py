"""The image map: other images in place of those that can't be pulled here.

From the configuration, ``"python:3.13-slim*" = "local/tag"``: the first pattern that fits a reference decides. It is applied to FROM
lines, to ``COPY --from`` and to a task's ``docker_image``, and what was replaced is recorded on every attempt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from harness.task.image import with_tag

_DEFAULT_PREFIXES = ("docker.io/library/", "docker.io/", "index.docker.io/library/", "index.docker.io/", "library/")


@dataclass(frozen=True, slots=True)
class ImageMap:
    """Patterns (``*``, ``?``, ``[…]``) and the image that stands in for what fits. A digest is part of the reference."""

    entries: Mapping[str, str] = field(default_factory=dict[str, str])

    def replacement(self, ref: str) -> str | None:
        """What to use in place of ``ref``; None when no pattern fits. A replacement isn't looked up again."""
        names = _spellings(ref)
        for pattern, image in self.entries.items():
            if any(fnmatchcase(name, pattern) for name in names):
                return image
        return None


def _spellings(ref: str) -> tuple[str, ...]:
    """The reference as it is written, without Docker Hub's prefix, and with the tag that is meant where none is given."""
    short = next((ref.removeprefix(prefix) for prefix in _DEFAULT_PREFIXES if ref.startswith(prefix)), ref)
    return ref, short, with_tag(short)
