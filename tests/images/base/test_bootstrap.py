"""What happens when the program that makes a root file system fails or is no longer wanted.

A program of the same name stands first in PATH.
"""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import psutil
import pytest

from harness.errors import ImageUnavailable
from harness.images.base import BASE, TOOLBOX
from harness.images.base.bootstrap import root_filesystem

CERTIFICATE = b"-----BEGIN CERTIFICATE-----\nMTIz\n-----END CERTIFICATE-----\n"


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the stand-in goes."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return tmp_path / "mmdebstrap"


def install(program: Path, script: str) -> None:
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


async def test_whole_output_is_passed_on(program: Path) -> None:
    install(program, "head -c 3000000 /dev/zero")
    async with root_filesystem(BASE, ()) as archive:
        assert sum([len(chunk) async for chunk in archive]) == 3_000_000


async def test_failure_before_the_first_byte_tells_why(program: Path) -> None:
    install(program, "echo E: no mirror today >&2; exit 25")
    with pytest.raises(ImageUnavailable, match=r"status 25.*(?s:.*)no mirror today"):
        async with root_filesystem(BASE, ()):
            pytest.fail("entered without a byte")


async def test_failure_within_the_stream_never_looks_like_its_end(program: Path) -> None:
    install(program, "echo some bytes; echo E: disk full >&2; exit 1")
    received = b""
    with pytest.raises(ImageUnavailable, match="disk full"):
        async with root_filesystem(BASE, ()) as archive:
            async for chunk in archive:
                received += chunk
    assert received == b"some bytes\n"


async def test_cancelling_ends_the_program(program: Path, tmp_path: Path) -> None:
    running = tmp_path / "running"
    os.mkfifo(running)
    install(
        program,
        f"trap 'echo cleaned > {tmp_path}/end; exit 1' TERM; echo yes > {running}; while :; do sleep 0.05; done",
    )
    with anyio.move_on_after(20) as scope:
        async with anyio.create_task_group() as tasks:

            async def bootstrap() -> None:
                async with root_filesystem(BASE, ()):
                    pytest.fail("entered without a byte")

            tasks.start_soon(bootstrap)
            await anyio.to_thread.run_sync(running.read_text)
            tasks.cancel_scope.cancel()
    assert not scope.cancelled_caught
    assert (tmp_path / "end").read_text() == "cleaned\n"


async def test_a_program_that_hangs_is_ended_with_its_children(program: Path, tmp_path: Path) -> None:
    """It ignores the request to stop, and its child holds the pipe that is read: both must be gone."""
    install(program, f"trap '' TERM; echo waiting for a mirror >&2; sleep 60 & echo $! > {tmp_path}/child; wait")
    with pytest.raises(ImageUnavailable, match=r"wrote nothing within 1 s.*(?s:.*)waiting for a mirror"):
        async with root_filesystem(BASE, (), make_s=1.0, stop_s=0.1):
            pytest.fail("entered without a byte")
    child = int((tmp_path / "child").read_text())
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


async def test_certificates_are_handed_over_as_files(program: Path) -> None:
    install(program, 'for option; do case $option in *finish.sh*) eval "set -- $option"; cat "$4"/*.crt;; esac; done')
    async with root_filesystem(BASE, (CERTIFICATE,)) as archive:
        assert b"".join([chunk async for chunk in archive]) == CERTIFICATE


async def test_command_names_packages_and_suite() -> None:
    command = TOOLBOX.mmdebstrap(Path("/certificates"))
    assert command[0] == "mmdebstrap"
    assert command[-2:] == ("bookworm", "-")
    assert "bash-static" in command[1]
