"""What a sandbox starts from: a Dockerfile to build, or a reference to an image that exists."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.outcome import Record

BASE_IMAGE = "harness/base:bookworm"
"""The project's own image that tasks can start from."""
TOOLBOX_IMAGE = "harness/toolbox:bookworm"
"""The project's own image with the static tools of graders, and with what sets a sandbox's firewall."""

MAX_CONTEXT_FILES = 4_096
MAX_CONTEXT_BYTES = 3 * 1024**3


@dataclass(frozen=True, slots=True)
class ContextLimits:
    """How many files and links a build context may hold, and how many bytes, after ``.dockerignore``."""

    max_files: int = MAX_CONTEXT_FILES
    max_bytes: int = MAX_CONTEXT_BYTES


class DockerfileBuild(Record):
    """An image to be built from a Dockerfile. The build context is the Dockerfile's folder.

    dockerfile: path of the Dockerfile, absolute or relative to the working directory.
    root: the benchmark's root, where ``.dockerignore`` is read; None means the Dockerfile's folder.
    args: build arguments.
    target: the stage to build; None means the last one.
    platform: ``os/arch``; None means the engine's own.
    max_files, max_bytes: limits of the context, after ``.dockerignore``.
    timeout_s: how long the build may take.
    """

    dockerfile: Path
    root: Path | None = None
    args: dict[str, str] = {}
    target: str | None = None
    platform: str | None = None
    max_files: int = MAX_CONTEXT_FILES
    max_bytes: int = MAX_CONTEXT_BYTES
    timeout_s: float = 600.0

    @property
    def limits(self) -> ContextLimits:
        return ContextLimits(self.max_files, self.max_bytes)


class ImageRef(Record):
    """An image that exists already, here or in a registry: ``name``, ``name:tag`` or ``name@sha256:…``."""

    ref: str
    platform: str | None = None


ImageSource = DockerfileBuild | ImageRef


def with_tag(ref: str) -> str:
    """The reference as engines read it: ``:latest`` where it has neither tag nor digest. A port's colon is no tag's."""
    return ref if "@" in ref or ":" in ref.rpartition("/")[2] else f"{ref}:latest"


def split_tag(ref: str) -> tuple[str, str]:
    """Name and tag of a reference without a digest: ``host:5000/name`` is ``host:5000/name`` and ``latest``."""
    name, _, tag = with_tag(ref).rpartition(":")
    return name, tag


class ResolvedImage(Record):
    """An image as it was found on the engine, once; everything later uses its id.

    id: the engine's content id, ``sha256:…``.
    ref: what the task asked for, for a reader: a reference, or the tag that the build was given.
    digest: the identity of the build (context, Dockerfile, arguments, bases), or the registry's digest; None for a local image.
    mapped_from: the reference that the configuration replaced, where it did.
    workdir, user, env: from the image's own configuration. ``user`` is ``""`` where the image names none (root).
    """

    id: str
    ref: str
    digest: str | None = None
    mapped_from: tuple[tuple[str, str], ...] = ()
    """Pairs (asked for, used) for each reference that the configuration's image map replaced."""
    workdir: str = "/"
    user: str = ""
    env: dict[str, str] = {}
    built: bool = False
    """Whether this call ran a build (False: found unchanged)."""
    build_log: Path | None = None
    warnings: tuple[str, ...] = ()
    """What could not be done as it should have been, though the image can be used; a sentence each."""
