from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from harness.errors import ContextError
from harness.images.archive import DigestCache, digest_files, read_unchanged, stream_context
from harness.images.context import Context, scan_context
from harness.task.image import ContextLimits
from tests.images.test_context import tree

SIZE = 3 * 1024 * 1024 + 17


def scan(dockerfile: Path) -> Context:
    return scan_context(dockerfile, root=None, limits=ContextLimits())


async def archive(context: Context, dockerfile: bytes = b"FROM x\n") -> bytes:
    digests = digest_files(context, DigestCache())
    return b"".join([chunk async for chunk in stream_context(context, dockerfile=dockerfile, digests=digests)])


async def test_the_stream_is_a_tar_of_the_context(tmp_path: Path) -> None:
    dockerfile = tree(tmp_path, {"a/run.sh": "#!/bin/sh\n", "z": "x" * SIZE, "é" * 80 + "/x": ""})
    (tmp_path / "a/run.sh").chmod(0o750)
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("a/run.sh")
    (tmp_path / "not-\udcff-utf8").touch()
    with tarfile.open(
        fileobj=io.BytesIO(await archive(scan(dockerfile), b"FROM y\n")), errors="surrogateescape"
    ) as tar:
        members = {member.name: member for member in tar}
        assert list(members) == sorted(members)
        assert set(members) == {
            "Dockerfile",
            "a",
            "a/run.sh",
            "empty",
            "link",
            "not-\udcff-utf8",
            "z",
            "é" * 80,
            "é" * 80 + "/x",
        }
        assert members["a/run.sh"].mode == 0o750
        assert members["empty"].isdir()
        assert (members["link"].issym(), members["link"].linkname) == (True, "a/run.sh")
        assert {(member.uid, member.gid, member.uname) for member in members.values()} == {(0, 0, "")}
        content = tar.extractfile("z")
        assert content is not None and content.read() == b"x" * SIZE
        sent = tar.extractfile("Dockerfile")
        assert sent is not None and sent.read() == b"FROM y\n", "the builder gets the Dockerfile as it was rewritten"


async def test_the_same_content_makes_the_same_stream(tmp_path: Path) -> None:
    one = tree(tmp_path / "one", {"b": "1", "a": "2"})
    two = tree(tmp_path / "two", {"a": "2", "b": "1"})
    os.utime(two.parent / "a", (1, 1))
    assert await archive(scan(one)) == await archive(scan(two))


def append(path: Path) -> None:
    with path.open("a") as file:
        file.write("more")


def replace(path: Path) -> None:
    status = path.stat()
    other = path.with_name("other")
    other.write_text("y" * status.st_size)
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.rename(path)


def rewrite(path: Path) -> None:
    path.write_text("y" * path.stat().st_size)


def shrink(path: Path) -> None:
    os.truncate(path, 5)


CHANGES = [append, replace, rewrite, shrink, Path.unlink]


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changed_since_it_was_listed_is_an_error(tmp_path: Path, change: object) -> None:
    dockerfile = tree(tmp_path, {"file": "x" * SIZE})
    context = scan(dockerfile)
    assert callable(change)
    change(tmp_path / "file")
    with pytest.raises(ContextError, match=r"file: .*(changed|can't be read any more)"):
        digest_files(context, DigestCache())


@pytest.mark.parametrize("change", [append, rewrite, shrink])
def test_a_file_that_changes_while_it_is_read_is_an_error(tmp_path: Path, change: object) -> None:
    dockerfile = tree(tmp_path, {"file": "x" * SIZE})
    entry = next(entry for entry in scan(dockerfile).entries if entry.path == "file")
    reading = read_unchanged(tmp_path, entry)
    next(reading)
    assert callable(change)
    change(tmp_path / "file")
    with pytest.raises(ContextError, match="changed while it was read"):
        list(reading)


async def test_the_stream_is_what_was_digested_or_fails(tmp_path: Path) -> None:
    """Even a change that leaves size and time as they were is seen."""
    dockerfile = tree(tmp_path, {"file": "x" * 100})
    context = scan(dockerfile)
    digests = digest_files(context, DigestCache())
    before = (tmp_path / "file").stat()
    rewrite(tmp_path / "file")
    os.utime(tmp_path / "file", ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(ContextError, match="changed after it was listed"):
        [chunk async for chunk in stream_context(context, dockerfile=b"", digests=digests)]


def test_every_changed_file_is_named(tmp_path: Path) -> None:
    dockerfile = tree(tmp_path, {"one": "1", "two": "2", "three": "3"})
    context = scan(dockerfile)
    append(tmp_path / "one")
    append(tmp_path / "three")
    with pytest.raises(ContextError) as caught:
        digest_files(context, DigestCache())
    assert ["/one:" in str(caught.value), "/two:" in str(caught.value), "/three:" in str(caught.value)] == [
        True,
        False,
        True,
    ]


def test_a_settled_file_is_read_once(tmp_path: Path) -> None:
    dockerfile = tree(tmp_path, {"old": "1"})
    cache = DigestCache()
    entry = next(entry for entry in scan(dockerfile).entries if entry.path == "old")
    settled = entry.__class__(entry.path, entry.kind, entry.mode, entry.stamp._replace(modified=1, changed=1))
    (tmp_path / "old").unlink()
    with pytest.raises(ContextError):
        cache.digest(tmp_path, settled)
    (tmp_path / "old").write_text("1")
    fresh = next(entry for entry in scan(dockerfile).entries if entry.path == "old")
    digest = cache.digest(tmp_path, fresh)
    (tmp_path / "old").unlink()
    with pytest.raises(ContextError):  # touched a moment ago: its time stamp proves nothing yet
        cache.digest(tmp_path, fresh)
    assert len(digest) == 64
