"""What makes two builds the same image: never where a command was typed, where a tree lies, or when a file was touched."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from harness.images.context import Context

_VERSION = 1
"""Part of every identity: raised when the way in which images are made changes."""

IMAGE_LABEL = "harness.image.digest"
"""On each image that the harness built: its whole identity."""

TAGGED = ("harness/build:", "harness/trusted:", "harness/git:", "harness/pinned:")
"""What the tags begin with that builds give (`tag_of`)."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that decides what a build makes.

    context: `context_digest`. dockerfile: the text that the builder gets. bases: the engine's id of each image that it names.
    certificates: digest of the certificates that were added; ``""`` for none.
    """

    context: str
    dockerfile: str
    args: Mapping[str, str]
    target: str | None
    platform: str | None
    bases: Mapping[str, str]
    certificates: str

    def identity(self) -> str:
        fields = (
            self.context,
            self.dockerfile,
            dict(self.args),
            self.target,
            self.platform,
            dict(self.bases),
            self.certificates,
        )
        return identity_of("build", *fields)


def identity_of(kind: str, *parts: object) -> str:
    """64 hex digits over JSON values; the order of mappings doesn't matter."""
    text = json.dumps([_VERSION, kind, *parts], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def tag_of(repository: str, identity: str) -> str:
    """The tag of a built image: ``harness/build:<first 32 hex digits>``."""
    return f"harness/{repository}:{identity[:32]}"


def context_digest(context: Context, digests: Mapping[str, str]) -> str:
    """Over path, kind, permission bits, and content or link target of each entry.

    The Dockerfile's content is left out: it is part of the recipe, as the builder gets it.
    """
    total = hashlib.sha256()
    for entry in context.entries:
        content = digests.get(entry.path, entry.target)
        total.update(json.dumps([entry.path, str(entry.kind), entry.mode, content]).encode())
    return total.hexdigest()
