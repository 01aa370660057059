"""Counting a tar stream agrees with reading it, wherever it is cut."""

from __future__ import annotations

import tarfile
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import TransferFailed
from harness.ports import ArchiveCaps
from harness.sandbox.kept import Kept
from harness.sandbox.meter import Meter

NAMES = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0/"), min_size=1, max_size=150)


def archive(members: list[tuple[str, bytes]], format: int) -> bytes:
    buffer = BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=format) as made:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            made.addfile(member, BytesIO(data))
    return buffer.getvalue()


@given(
    st.lists(st.tuples(NAMES, st.binary(max_size=1500)), max_size=8),
    st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT]),
    st.integers(1, 3000),
)
def test_members_and_bytes_are_counted(members: list[tuple[str, bytes]], format: int, step: int) -> None:
    data = archive(members, format)
    meter = Meter(ArchiveCaps(), "x")
    for start in range(0, len(data), step):
        meter.feed(data[start : start + step])
    assert (meter.members, meter.bytes) == (len(members), len(data))


def test_caps_are_exact() -> None:
    data = archive([("a", b"1"), ("b", b"2")], tarfile.PAX_FORMAT)
    Meter(ArchiveCaps(max_bytes=len(data), max_members=2), "x").feed(data)
    with pytest.raises(TransferFailed, match="members"):
        Meter(ArchiveCaps(max_members=1), "x").feed(data)
    with pytest.raises(TransferFailed, match="bytes"):
        Meter(ArchiveCaps(max_bytes=len(data) - 1), "x").feed(data)


def test_a_size_in_an_extended_header_counts() -> None:
    member = tarfile.TarInfo("big")
    member.size = 9 * 1024**3
    header = member.tobuf(format=tarfile.PAX_FORMAT)
    meter = Meter(ArchiveCaps(max_bytes=10**11), "x")
    meter.feed(header)
    chunk = bytes(1024**2)
    for _ in range(4):
        meter.feed(chunk)
    assert meter.members == 1


def test_what_is_not_an_archive_is_refused() -> None:
    with pytest.raises(TransferFailed, match="broken"):
        Meter(ArchiveCaps(), "x").feed(b"a" * 512)


@given(st.lists(st.binary(max_size=30), max_size=20), st.integers(0, 25))
def test_head_and_tail_are_what_they_say(pieces: list[bytes], keep: int) -> None:
    whole = b"".join(pieces)
    kept = Kept(keep)
    for piece in pieces:
        kept.feed(piece)
    output = kept.output()
    assert output.total_bytes == len(whole)
    assert output.head == whole[:keep]
    assert output.tail == whole[keep:][-keep:] if keep else output.tail == b""
    if len(whole) <= 2 * keep:
        assert bytes(output) == whole
