"""Archives: what leaves a sandbox can do no harm where it enters."""

import io
import os
import tarfile
from pathlib import Path

import pytest

from harness.archive import Folder, Source, Tree, clean, pack, regular_files
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


def write(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w") as archive:
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
