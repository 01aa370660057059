"""Framing and announcements, cut anywhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import EngineError
from harness.sandbox.docker.frames import Frames, Stream
from harness.sandbox.docker.session import Announcement

PIECES = st.lists(st.tuples(st.sampled_from([Stream.STDOUT, Stream.STDERR]), st.binary(max_size=40)), max_size=10)


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    pieces: list[bytes] = []
    for size in sizes:
        pieces.append(data[:size])
        data = data[size:]
    return [*pieces, data]


@given(PIECES, st.lists(st.integers(0, 30), max_size=20))
def test_any_cut_gives_the_same_streams(sent: list[tuple[Stream, bytes]], sizes: list[int]) -> None:
    wire = b"".join(bytes([stream, 0, 0, 0]) + len(data).to_bytes(4, "big") + data for stream, data in sent)
    frames = Frames()
    got = {Stream.STDOUT: b"", Stream.STDERR: b""}
    for piece in cut(wire, sizes):
        for stream, data in frames.feed(piece):
            got[stream] += data
    for stream, data in got.items():
        assert data == b"".join(piece for sort, piece in sent if sort is stream)


def test_a_frame_is_not_held_until_it_is_whole() -> None:
    frames = Frames()
    assert list(frames.feed(b"\1\0\0\0\xff\xff\xff\xff" + b"abc")) == [(Stream.STDOUT, b"abc")]


def test_what_is_not_a_frame_is_an_error() -> None:
    with pytest.raises(EngineError, match="frame"):
        list(Frames().feed(b"OCI runtime failed"))


@given(st.binary(max_size=50), st.lists(st.integers(0, 10), max_size=20))
def test_an_announcement_is_taken_off_wherever_it_is_cut(rest: bytes, sizes: list[int]) -> None:
    announcement = Announcement("token")
    got = b"".join(announcement.strip(piece) for piece in cut(b"token 4711\n" + rest, sizes))
    assert (got, announcement.pid) == (rest, 4711)


@given(st.binary(min_size=1, max_size=100).filter(lambda data: not b"token ".startswith(data[:6])))
def test_other_output_is_left_as_it_is(data: bytes) -> None:
    announcement = Announcement("token")
    assert announcement.strip(data) == data
    assert announcement.pid is None
    assert not announcement.pending
