"""Archives: what leaves a sandbox can do no harm where it enters."""

import filecmp
import io
import os
import tarfile
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harness.archive import Folder, Source, Tree, clean, keep, pack, regular_files
from harness.errors import TransferFailed


def member(
    name: str, kind: bytes = tarfile.REGTYPE, content: bytes = b"", **fields: object
) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.size = len(content)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, content


def write(path: Path, *members: tuple[tarfile.TarInfo, bytes], format: int = tarfile.PAX_FORMAT) -> Path:
    with tarfile.open(path, "w", format=format) as archive:
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    return path


def names(path: Path) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(path) as archive:
        return {info.name: info for info in archive}


def test_kept_members_go_to_their_absolute_place_with_owner_and_mode(tmp_path: Path):
    raw = write(
        tmp_path / "raw.tar",
        member("repo", tarfile.DIRTYPE, mode=0o755, uid=1000),
        member("repo/run.sh", content=b"x", mode=0o750, uid=1000, gid=7, mtime=5),
        member("repo/link", tarfile.SYMTYPE, linkname="/etc/passwd"),
        member("repo/hard", tarfile.LNKTYPE, linkname="repo/run.sh"),
    )
    assert clean([Source(raw, "/workspace/repo")], tmp_path / "out.tar") == ()
    kept = names(tmp_path / "out.tar")
    assert set(kept) == {"workspace/repo", "workspace/repo/run.sh", "workspace/repo/link", "workspace/repo/hard"}
    script = kept["workspace/repo/run.sh"]
    assert (script.mode, script.uid, script.gid, script.mtime) == (0o750, 1000, 7, 5)
    assert kept["workspace/repo/link"].linkname == "/etc/passwd"
    assert kept["workspace/repo/hard"].linkname == "workspace/repo/run.sh"


@pytest.mark.parametrize(
    "bad",
    [
        member("repo/../../etc/passwd", content=b"x"),
        member("/repo/x", content=b"x"),
        member("other/x", content=b"x"),
        member("repo/fifo", tarfile.FIFOTYPE),
        member("repo/dev", tarfile.CHRTYPE),
        member("repo/block", tarfile.BLKTYPE),
        member("repo/hard", tarfile.LNKTYPE, linkname="../../etc/shadow"),
        member("repo/hard", tarfile.LNKTYPE, linkname="/etc/shadow"),
        member("repo/hard", tarfile.LNKTYPE, linkname="tests/test.sh"),
    ],
    ids=lambda bad: f"{bad[0].name}→{bad[0].linkname}",
)
def test_what_could_do_harm_is_left_out_and_named(tmp_path: Path, bad: tuple[tarfile.TarInfo, bytes]):
    raw = write(tmp_path / "raw.tar", member("repo", tarfile.DIRTYPE), bad)
    left_out = clean([Source(raw, "/repo")], tmp_path / "out.tar")
    assert len(left_out) == 1
    assert bad[0].name in left_out[0]
    assert set(names(tmp_path / "out.tar")) == {"repo"}


def test_set_id_bits_dont_travel(tmp_path: Path):
    raw = write(tmp_path / "raw.tar", member("su", content=b"x", mode=0o6755))
    clean([Source(raw, "/usr/bin/su")], tmp_path / "out.tar")
    assert names(tmp_path / "out.tar")["usr/bin/su"].mode == 0o755


def test_a_sticky_folder_stays_sticky(tmp_path: Path):
    raw = write(tmp_path / "raw.tar", member("tmp", tarfile.DIRTYPE, mode=0o3777))
    clean([Source(raw, "/tmp")], tmp_path / "out.tar")
    assert names(tmp_path / "out.tar")["tmp"].mode == 0o1777


def test_excluded_members_are_left_out(tmp_path: Path):
    raw = write(
        tmp_path / "raw.tar",
        member("out", tarfile.DIRTYPE),
        member("out/a.log", content=b"x"),
        member("out/cache/x", content=b"x"),
        member("out/kept", content=b"x"),
    )
    clean([Source(raw, "/out", exclude=("*.log", "cache"))], tmp_path / "out.tar")
    assert set(names(tmp_path / "out.tar")) == {"out", "out/kept"}


@pytest.mark.parametrize("name", ["é", "x" * 200, "nonutf\udcff", "a\nb", "d" * 150 + "/" + "e" * 150])
def test_a_member_that_needs_an_extended_header_goes_to_its_absolute_place_too(tmp_path: Path, name: str):
    raw = write(
        tmp_path / "raw.tar",
        member("app", tarfile.DIRTYPE),
        member(f"app/{name}", content=b"x", mtime=5.25, pax_headers={"SCHILY.xattr.security.capability": "x"}),
        member("app/hard", tarfile.LNKTYPE, linkname=f"app/{name}"),
        member(f"app/{name}2", tarfile.LNKTYPE, linkname=f"app/{name}"),
    )
    assert clean([Source(raw, "/home/worker/app")], tmp_path / "out.tar") == ()
    kept = names(tmp_path / "out.tar")
    place = f"home/worker/app/{name}"
    assert set(kept) == {"home/worker/app", place, "home/worker/app/hard", f"{place}2"}
    assert {kept["home/worker/app/hard"].linkname, kept[f"{place}2"].linkname} == {place}
    assert kept[place].mtime == 5.25
    assert not any("xattr" in key for key in kept[place].pax_headers)


def test_a_hard_link_to_what_is_left_out_is_left_out_too(tmp_path: Path):
    raw = write(
        tmp_path / "raw.tar",
        member("app", tarfile.DIRTYPE),
        member("app/pipe", tarfile.FIFOTYPE),
        member("app/second", tarfile.LNKTYPE, linkname="app/pipe"),
        member("app/third", tarfile.LNKTYPE, linkname="app/second"),
        member("app/kept", content=b"x"),
    )
    assert len(clean([Source(raw, "/app")], tmp_path / "out.tar")) == 3
    assert set(names(tmp_path / "out.tar")) == {"app", "app/kept"}


def test_many_members_with_long_names_take_little_memory(tmp_path: Path):
    many = (member(f"app/{'x' * 3000}{number}", tarfile.FIFOTYPE) for number in range(1200))
    more = (member(f"app/{'y' * 3000}{number}", content=b"x") for number in range(1200))
    raw = write(tmp_path / "raw.tar", member("app", tarfile.DIRTYPE), *many, *more)
    tracemalloc.start()
    left_out = clean([Source(raw, "/app")], tmp_path / "out.tar")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2_000_000
    assert len(left_out) == 1001
    assert left_out[-1] == "200 more"
    assert max(map(len, left_out)) < 400


async def test_zeros_take_no_room_on_the_host(tmp_path: Path):
    size = 64 * 1024 * 1024
    content = b"begin" + bytes(size - 8) + b"end"
    source = write(tmp_path / "source.tar", member("big", content=content))

    async def stream() -> AsyncIterator[bytes]:
        with source.open("rb") as file:
            while chunk := file.read(256 * 1024):
                yield chunk

    await keep(stream(), tmp_path / "raw.tar")
    assert filecmp.cmp(source, tmp_path / "raw.tar", shallow=False)
    clean([Source(tmp_path / "raw.tar", "/app/big")], tmp_path / "out.tar")
    with tarfile.open(tmp_path / "out.tar") as archive:
        kept = archive.extractfile("app/big")
        assert kept is not None
        assert kept.read() == content
    assert all((tmp_path / name).stat().st_blocks * 512 < 2_000_000 for name in ("raw.tar", "out.tar"))


def test_junk_instead_of_an_archive_is_a_failed_transfer(tmp_path: Path):
    (tmp_path / "raw.tar").write_bytes(b"junk" * 1000)
    with pytest.raises(TransferFailed):
        clean([Source(tmp_path / "raw.tar", "/x")], tmp_path / "out.tar")


@pytest.mark.parametrize(
    "result",
    [
        member("verifier/reward.txt", tarfile.SYMTYPE, linkname="/etc/hostname"),
        member("verifier/reward.txt", tarfile.LNKTYPE, linkname="verifier/other"),
        member("verifier/reward.txt", tarfile.FIFOTYPE),
        member("verifier/reward.txt", tarfile.DIRTYPE),
        member("verifier/reward.txt", content=b"1" * 100),
    ],
    ids=["link", "hard link", "fifo", "folder", "too large"],
)
def test_a_result_that_is_not_a_small_regular_file_is_refused(tmp_path: Path, result: tuple[tarfile.TarInfo, bytes]):
    raw = write(tmp_path / "raw.tar", member("verifier", tarfile.DIRTYPE), result)
    with pytest.raises(TransferFailed, match=r"reward\.txt"):
        regular_files(raw, ("reward.txt",), max_bytes=64)


def test_only_direct_children_count_as_results(tmp_path: Path):
    raw = write(
        tmp_path / "raw.tar",
        member("verifier/deep/reward.txt", content=b"1"),
        member("verifier/reward.txt", content=b"0"),
    )
    assert regular_files(raw, ("reward.txt",), max_bytes=64) == {"reward.txt": b"0"}


async def test_packing_puts_folders_and_trees_in_place(tmp_path: Path):
    (tmp_path / "tests" / "deep").mkdir(parents=True)
    (tmp_path / "tests" / "test.sh").write_text("#!/bin/sh\n")
    (tmp_path / "tests" / "test.sh").chmod(0o600)
    (tmp_path / "tests" / "deep" / "data").write_bytes(b"\xff" * 300_000)
    (tmp_path / "tests" / "link").symlink_to("deep/data")
    entries = [Folder("/logs", 0o777), Tree(tmp_path / "tests", "/tests", executable=("test.sh",))]
    packed = b"".join([chunk async for chunk in pack(entries)])
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        found = {info.name: info for info in archive}
    assert found["logs"].mode == 0o777
    assert found["tests/test.sh"].mode == 0o755
    assert found["tests/test.sh"].uid == 0
    assert found["tests/deep/data"].size == 300_000
    assert found["tests/link"].linkname == "deep/data"


async def test_a_fifo_in_a_tests_folder_is_refused_and_not_waited_for(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TransferFailed, match="pipe"):
        [chunk async for chunk in pack([Tree(tmp_path, "/tests")])]
