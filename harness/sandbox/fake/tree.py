"""A tree of files in memory: folders, files and symbolic links with owners and modes; packed and unpacked as tar."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from io import BytesIO
from posixpath import basename, dirname, join, normpath
from typing import Self

from harness.errors import PathMissing, TransferFailed

MAX_LINKS = 40


class Kind(StrEnum):
    """What lies at a path."""

    FILE = "file"
    FOLDER = "folder"
    LINK = "link"


@dataclass(frozen=True, slots=True)
class Node:
    """One file, folder or link. ``target`` is a link's."""

    kind: Kind
    data: bytes = b""
    target: str = ""
    mode: int = 0o755
    uid: int = 0
    gid: int = 0
    mtime: int = 0


class Tree:
    """Absolute paths and what lies there. Methods raise PathMissing and TransferFailed."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {"/": Node(Kind.FOLDER)}

    def copy(self) -> Self:
        made = type(self)()
        made._nodes = dict(self._nodes)
        return made

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._nodes))

    def find(self, path: str, *, follow: bool = True) -> Node | None:
        """What lies at ``path``; links in its folders are followed always, one at its end if ``follow``."""
        return self._nodes.get(self.resolve(path, follow=follow))

    def resolve(self, path: str, *, follow: bool = True) -> str:
        """The path without links, ``.`` and ``..``."""
        place, parts = "/", [part for part in path.split("/") if part not in ("", ".")]
        links = 0
        while parts:
            part = parts.pop(0)
            place = dirname(place) if part == ".." else join(place, part)
            node = self._nodes.get(place)
            if node and node.kind is Kind.LINK and (parts or follow):
                links += 1
                if links > MAX_LINKS:
                    raise TransferFailed(f"{path}: too many links")
                parts = [piece for piece in node.target.split("/") if piece not in ("", ".")] + parts
                place = "/" if node.target.startswith("/") else dirname(place)
        return normpath(place)

    def read(self, path: str) -> bytes:
        node = self.find(path)
        if node is None or node.kind is not Kind.FILE:
            raise PathMissing(f"{path}: there is no such file")
        return node.data

    def write(self, path: str, data: bytes, *, mode: int = 0o644, uid: int = 0, gid: int = 0) -> None:
        """Write a file; its folders are made. One that exists keeps its owner and mode."""
        where = self.resolve(path)
        old = self._nodes.get(where)
        self.folder(dirname(where))
        kept = replace(old, data=data) if old and old.kind is Kind.FILE else None
        self._nodes[where] = kept or Node(Kind.FILE, data, mode=mode, uid=uid, gid=gid)

    def folder(self, path: str) -> None:
        """Make a folder and those above it."""
        where = self.resolve(path)
        for above in [where, *_above(where)]:
            node = self._nodes.setdefault(above, Node(Kind.FOLDER))
            if node.kind is not Kind.FOLDER:
                raise TransferFailed(f"{above}: isn't a folder")

    def place(self, path: str, node: Node) -> None:
        """Put a node at a path, whatever was there."""
        where = self.resolve(path, follow=False)
        if node.kind is not Kind.FOLDER:
            self.remove(where)
        self._nodes[where] = node

    def remove(self, path: str) -> None:
        """Remove what lies at ``path``, with all below it. Nothing there is fine."""
        where = self.resolve(path, follow=False)
        for name in self.below(where):
            del self._nodes[name]

    def below(self, path: str) -> list[str]:
        """``path`` itself and everything below it, in order; empty where nothing is."""
        inside = path.rstrip("/") + "/"
        return [name for name in self if name == path or name.startswith(inside)]

    def unpack(self, path: str, archive: bytes) -> None:
        """Unpack a tar archive below an existing folder, keeping owners and modes."""
        root = self.resolve(path)
        node = self._nodes.get(root)
        if node is None:
            raise PathMissing(f"{path}: there is no such path")
        if node.kind is not Kind.FOLDER:
            raise TransferFailed(f"{path}: isn't a folder")
        try:
            with tarfile.open(fileobj=BytesIO(archive)) as members:
                for member in members:
                    self._unpack(members, member, root)
        except tarfile.TarError as error:
            raise TransferFailed(f"{path}: not a tar archive: {error}") from error

    def _unpack(self, members: tarfile.TarFile, member: tarfile.TarInfo, root: str) -> None:
        where = normpath(join(root, member.name.lstrip("/")))
        self.folder(dirname(where))
        owner = Node(Kind.FOLDER, mode=member.mode, uid=member.uid, gid=member.gid, mtime=int(member.mtime))
        if member.isdir():
            self.place(where, owner)
        elif member.issym():
            self.place(where, replace(owner, kind=Kind.LINK, target=member.linkname))
        elif member.islnk():
            self.place(where, replace(owner, kind=Kind.FILE, data=self.read(join(root, member.linkname))))
        elif content := members.extractfile(member):
            self.place(where, replace(owner, kind=Kind.FILE, data=content.read()))

    def pack(self, path: str) -> bytes:
        """A tar archive of ``path``, whose members are named below its last part."""
        root = self.resolve(path, follow=False)
        if root not in self._nodes:
            raise PathMissing(f"{path}: there is no such path")
        buffer = BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for name in self.below(root):
                node = self._nodes[name]
                member = tarfile.TarInfo((basename(root) + name[len(root.rstrip("/")) :]).lstrip("/") or ".")
                member.mode, member.uid, member.gid, member.mtime = node.mode, node.uid, node.gid, node.mtime
                member.type = _TYPES[node.kind]
                member.linkname, member.size = node.target, len(node.data)
                archive.addfile(member, BytesIO(node.data))
        return buffer.getvalue()

    def differences(self, base: Tree) -> tuple[str, ...]:
        """Paths that were added, changed or deleted since ``base``."""
        names = set(self._nodes) | set(base._nodes)
        return tuple(sorted(name for name in names if self._nodes.get(name) != base._nodes.get(name)))


_TYPES = {Kind.FILE: tarfile.REGTYPE, Kind.FOLDER: tarfile.DIRTYPE, Kind.LINK: tarfile.SYMTYPE}


def _above(path: str) -> Iterator[str]:
    while path != "/":
        path = dirname(path)
        yield path
