"""Tar streams: made from host folders, kept from sandboxes, cleaned before they enter another sandbox.

Nothing is ever extracted onto the host. What comes out of a sandbox stays inside a tar file of ours.
"""

from __future__ import annotations

import os
import posixpath
import tarfile
from collections.abc import AsyncGenerator, AsyncIterable, Generator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, Any, cast

import anyio

from harness.concurrency import in_thread
from harness.errors import TransferFailed

CHUNK_BYTES = 256 * 1024
_IN_MEMORY_BYTES = 8 * 1024 * 1024
_SPECIAL_BITS = 0o7000
_FORMAT, _ENCODING, _ERRORS = tarfile.PAX_FORMAT, "utf-8", "surrogateescape"
_HOLE_BYTES = 4096
_MAX_LINES, _MAX_NAME = 1000, 200
"""Of what is said about members that are left out."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder to be made in a sandbox: absolute path and mode."""

    path: str
    mode: int = 0o755


@dataclass(frozen=True, slots=True)
class Tree:
    """A host folder whose contents go to ``target`` (absolute). Files get owner root and keep their mode bits.

    executable: names, relative to the folder, that are made executable whatever their mode is.
    """

    source: Path
    target: str
    executable: tuple[str, ...] = ()


async def pack(entries: Sequence[Folder | Tree]) -> AsyncGenerator[bytes]:
    """A tar stream, rooted at ``/``, of the entries in their order; a later file replaces an earlier one of its name."""
    with SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES) as spool:
        await in_thread(_write_entries, spool, tuple(entries))
        spool.seek(0)
        while chunk := spool.read(CHUNK_BYTES):
            yield chunk


def _write_entries(spool: IO[bytes], entries: tuple[Folder | Tree, ...]) -> None:
    with tarfile.open(fileobj=spool, mode="w", format=_FORMAT) as archive:
        for entry in entries:
            match entry:
                case Folder():
                    archive.addfile(_folder_member(entry.path, entry.mode))
                case Tree():
                    archive.addfile(_folder_member(entry.target, 0o755))
                    _add_tree(archive, entry)


def _folder_member(path: str, mode: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(path.strip("/"))
    member.type = tarfile.DIRTYPE
    member.mode = mode
    return member


def _add_tree(archive: tarfile.TarFile, tree: Tree) -> None:
    base = tree.target.strip("/")
    for path in sorted(tree.source.rglob("*")):
        relative = path.relative_to(tree.source).as_posix()
        member = archive.gettarinfo(path, arcname=posixpath.join(base, relative))
        if not (member.isfile() or member.isdir() or member.issym() or member.islnk()):
            raise TransferFailed(f"{path}: only files, folders and links can be put into a sandbox")
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        if relative in tree.executable:
            member.mode |= 0o755
        if member.isfile():
            with path.open("rb") as source:
                archive.addfile(member, source)
        else:
            archive.addfile(member)


async def read_file(path: Path) -> AsyncGenerator[bytes]:
    """A file's bytes in chunks."""
    async with await anyio.open_file(path, "rb") as source:
        while chunk := await source.read(CHUNK_BYTES):
            yield chunk


async def keep(stream: AsyncIterable[bytes], path: Path) -> None:
    """Write a stream to a file. Zeros become holes: what takes no room in a sandbox takes none here."""
    async with await anyio.open_file(path, "wb") as target:
        async for chunk in stream:
            if _is_hole(chunk):
                await target.seek(len(chunk), os.SEEK_CUR)
            else:
                await target.write(chunk)
        await target.truncate()


def _is_hole(data: bytes) -> bool:
    return len(data) >= _HOLE_BYTES and data == bytes(len(data))


@dataclass(frozen=True, slots=True)
class Source:
    """A raw archive as it was read from a sandbox, and the absolute path that it was read at."""

    raw: Path
    path: str
    exclude: tuple[str, ...] = ()


def clean(sources: Sequence[Source], target: Path) -> tuple[str, ...]:
    """Merge raw archives into one that is rooted at ``/`` and safe to unpack in a fresh sandbox. Blocking.

    Files, folders and links are kept with owners and modes; set-id and sticky bits of files, devices, FIFOs, and members
    whose name or hard link leaves the source's path are not. Returns what was left out, a line each, with a bound.
    """
    left_out: list[str] = []
    untold = 0
    with target.open("wb") as file:
        for source in sources:
            missing: set[int] = set()
            with _opened(source.raw) as raw:
                for member in _members(raw):
                    if reason := _rejects(member, source) or _rejects_link(member, missing):
                        missing.add(hash(member.name))
                        if len(left_out) < _MAX_LINES:
                            left_out.append(f"{source.path}: {member.name[:_MAX_NAME]!r} {reason}")
                        else:
                            untold += 1
                        continue
                    file.write(_moved(member, source).tobuf(_FORMAT, _ENCODING, _ERRORS))
                    if (content := raw.extractfile(member) if member.isfile() else None) is not None:
                        _copy(content, file, member.size)
        file.write(bytes(2 * tarfile.BLOCKSIZE))
    return (*left_out, f"{untold:,} more") if untold else tuple(left_out)


def _copy(content: IO[bytes], file: IO[bytes], size: int) -> None:
    """A member's content, up to its last block's end."""
    for start in range(0, size, CHUNK_BYTES):
        chunk = content.read(min(CHUNK_BYTES, size - start))
        if _is_hole(chunk):
            file.seek(len(chunk), os.SEEK_CUR)
        else:
            file.write(chunk)
    file.write(bytes(-size % tarfile.BLOCKSIZE))


def _members(archive: tarfile.TarFile) -> Generator[tarfile.TarInfo]:
    """One by one. `tarfile` would remember them all, and a policy may leave hundreds of thousands with long names."""
    remembered: list[tarfile.TarInfo] = cast("Any", archive).members
    while (member := archive.next()) is not None:
        remembered.clear()
        yield member


@contextmanager
def _opened(path: Path) -> Generator[tarfile.TarFile]:
    try:
        with tarfile.open(path, "r:") as archive:
            yield archive
    except tarfile.TarError as error:
        raise TransferFailed(f"{path.name}: not a readable archive: {error}") from error


def _rejects(member: tarfile.TarInfo, source: Source) -> str | None:
    """Why a member is left out; None when it is kept."""
    top = posixpath.basename(source.path)
    if not _within(member.name, top):
        return "leaves its folder"
    if member.islnk() and not _within(member.linkname, top):
        return "is a hard link that leaves its folder"
    if not (member.isfile() or member.isdir() or member.issym() or member.islnk()):
        return "is neither a file, a folder nor a link"
    relative = posixpath.relpath(member.name, top)
    if any(_matches(relative, pattern) for pattern in source.exclude):
        return "is excluded"
    return None


def _rejects_link(member: tarfile.TarInfo, missing: Set[int]) -> str | None:
    """A hard link whose file is left out could not be made. ``missing``: the hashes of names, which may be long and many."""
    return "is a hard link to what is left out" if member.islnk() and hash(member.linkname) in missing else None


def _within(name: str, top: str) -> bool:
    parts = name.rstrip("/").split("/")
    return parts[0] == top and ".." not in parts and not name.startswith("/")


def _matches(relative: str, pattern: str) -> bool:
    """Whether a path, its name, or a folder above it matches a glob pattern."""
    from fnmatch import fnmatchcase

    parts = relative.split("/")
    prefixes = ["/".join(parts[: depth + 1]) for depth in range(len(parts))]
    return any(fnmatchcase(prefix, pattern.strip("/")) for prefix in (*prefixes, *parts))


def _moved(member: tarfile.TarInfo, source: Source) -> tarfile.TarInfo:
    """The member under its absolute place, without the bits that would give it power."""
    parent = posixpath.dirname(source.path).strip("/")
    moved = member.replace(name=posixpath.join(parent, member.name), deep=False)
    if member.islnk():
        moved.linkname = posixpath.join(parent, member.linkname)
    if not member.isdir():
        moved.mode = member.mode & ~_SPECIAL_BITS
    else:
        moved.mode = member.mode & ~0o6000
    # They would win over the name that was just given, and hold extended attributes.
    moved.pax_headers = {}
    return moved


def regular_files(raw: Path, names: Sequence[str], *, max_bytes: int) -> dict[str, bytes]:
    """Contents of the named direct children of an archived folder, or of an archived file of such a name. Blocking.

    Only regular files count; a link, FIFO or folder of that name raises TransferFailed, as does a file over ``max_bytes``.
    """
    found: dict[str, bytes] = {}
    with _opened(raw) as archive:
        for member in _members(archive):
            folder, _, name = member.name.rstrip("/").rpartition("/")
            if "/" in folder or name not in names:
                continue
            if not member.isreg():
                raise TransferFailed(f"{name} is not a regular file")
            if member.size > max_bytes:
                raise TransferFailed(f"{name} has {member.size} bytes; at most {max_bytes} are read")
            content = archive.extractfile(member)
            found[name] = content.read() if content else b""
    return found
