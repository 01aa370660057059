"""Reading a checked context: digests of its files, and the tar stream that the engine gets.

A file that is no longer the one that was listed, before, while or after it is read, is an error: an image made of two states of a
tree has no identity. The stream is the same for the same content: members in order of their paths, owned by root, with one fixed
time, so that the builder's cache can find them; modes are kept.
"""

from __future__ import annotations

import hashlib
import os
import tarfile
import time
from collections.abc import AsyncGenerator, Generator, Iterator, Mapping
from pathlib import Path

from harness.concurrency import in_thread
from harness.errors import ContextError
from harness.images.context import Context, Entry, Kind, Stamp

ARCHIVE_TIME = 946_684_800
"""The modification time of every member: 2000-01-01 UTC. Not 0: a zip file can't hold a time before 1980."""

_CHUNK_BYTES = 1024 * 1024
_SETTLED_NS = 2_000_000_000
"""A file that was touched more recently than this when it was read is read again: clocks of file systems are coarse."""


class DigestCache:
    """Digests of files that this process has read, while their stamps stay the same."""

    def __init__(self) -> None:
        self._known: dict[tuple[Path, Stamp], str] = {}

    def digest(self, folder: Path, entry: Entry) -> str:
        """64 hex digits. Raises ContextError when the file changed or can't be read."""
        key = (folder / entry.path, entry.stamp)
        known = self._known.get(key)
        if known is None:
            began = time.time_ns()
            digest = hashlib.sha256()
            for chunk in read_unchanged(folder, entry):
                digest.update(chunk)
            known = digest.hexdigest()
            if max(entry.stamp.modified, entry.stamp.changed) < began - _SETTLED_NS:
                self._known[key] = known
        return known


def digest_files(context: Context, cache: DigestCache) -> dict[str, str]:
    """The digest of each file by its path, the Dockerfile left out: its text is part of the identity in its own way.

    Raises ContextError that names every file that changed or can't be read.
    """
    digests: dict[str, str] = {}
    problems: list[str] = []
    for entry in context.entries:
        if entry.kind is Kind.FILE and entry.path != context.dockerfile:
            try:
                digests[entry.path] = cache.digest(context.folder, entry)
            except ContextError as error:
                problems.append(str(error))
    if problems:
        raise ContextError("\n".join(problems))
    return digests


def read_unchanged(folder: Path, entry: Entry) -> Generator[bytes]:
    """The content of a listed file, in chunks. Raises ContextError at the first sign that it isn't what was listed."""
    path = folder / entry.path
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise ContextError(
            f"{path}: can't be read any more: {error.strerror}. Build again when nothing writes to it."
        ) from error
    try:
        count = 0
        if _unchanged(descriptor, entry):
            while chunk := os.read(descriptor, _CHUNK_BYTES):
                count += len(chunk)
                if count > entry.stamp.size:
                    break
                yield chunk
            if count == entry.stamp.size and _unchanged(descriptor, entry):
                return
    finally:
        os.close(descriptor)
    raise ContextError(f"{path}: it changed while it was read. Build again when nothing writes to it.")


def _unchanged(descriptor: int, entry: Entry) -> bool:
    return Stamp.of(os.fstat(descriptor)).same_content(entry.stamp)


async def stream_context(context: Context, *, dockerfile: bytes, digests: Mapping[str, str]) -> AsyncGenerator[bytes]:
    """The context as a tar stream in chunks of about a mebibyte, read in a thread. Raises ContextError when a file changed.

    dockerfile: the Dockerfile's text as the builder is to see it. digests: what the files must still be.
    """
    chunks = _batches(_tar(context, dockerfile, digests))
    try:
        while (chunk := await in_thread(next, chunks, None)) is not None:
            yield chunk
    finally:
        chunks.close()


def _batches(pieces: Iterator[bytes]) -> Generator[bytes]:
    """Small pieces in large ones, so that a context of many small files isn't a thread switch for each."""
    pending: list[bytes] = []
    size = 0
    for piece in pieces:
        pending.append(piece)
        size += len(piece)
        if size >= _CHUNK_BYTES:
            yield b"".join(pending)
            pending, size = [], 0
    if pending:
        yield b"".join(pending)


def _tar(context: Context, dockerfile: bytes, digests: Mapping[str, str]) -> Iterator[bytes]:
    for entry in context.entries:
        if entry.path == context.dockerfile:
            yield member_header(entry.path, size=len(dockerfile), mode=entry.mode)
            yield dockerfile + _padding(len(dockerfile))
        elif entry.kind is Kind.FILE:
            yield member_header(entry.path, size=entry.stamp.size, mode=entry.mode)
            digest = hashlib.sha256()
            for chunk in read_unchanged(context.folder, entry):
                digest.update(chunk)
                yield chunk
            if digest.hexdigest() != digests[entry.path]:
                raise ContextError(f"{context.folder / entry.path}: it changed after it was listed. Build again.")
            yield _padding(entry.stamp.size)
        else:
            kind = tarfile.SYMTYPE if entry.kind is Kind.LINK else tarfile.DIRTYPE
            yield member_header(entry.path, mode=entry.mode, kind=kind, target=entry.target)
    yield bytes(2 * tarfile.BLOCKSIZE)


def member_header(
    path: str, *, size: int = 0, mode: int = 0o644, kind: bytes = tarfile.REGTYPE, target: str = ""
) -> bytes:
    """The header of one archive member, owned by root and made at `ARCHIVE_TIME`."""
    member = tarfile.TarInfo(path)
    member.size, member.mode, member.type, member.linkname, member.mtime = size, mode, kind, target, ARCHIVE_TIME
    return member.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def _padding(size: int) -> bytes:
    return bytes(-size % tarfile.BLOCKSIZE)


async def stream_files(files: Mapping[str, bytes]) -> AsyncGenerator[bytes]:
    """A small context that is made, not read: names and contents."""
    for piece in tar_files(files):
        yield piece


def tar_files(files: Mapping[str, bytes]) -> Iterator[bytes]:
    """Names and contents as a tar archive, in pieces."""
    for name, content in sorted(files.items()):
        yield member_header(name, size=len(content)) + content + _padding(len(content))
    yield bytes(2 * tarfile.BLOCKSIZE)
