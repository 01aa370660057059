"""A root file system from Debian's packages, for hosts that reach a package mirror but no container registry."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO

import anyio
from anyio.abc import ByteReceiveStream, Process

from harness.errors import ImageUnavailable, UnsupportedError
from harness.images.base.recipe import START, Recipe

PROGRAM = "mmdebstrap"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
"""The keys of Debian's archive. On Debian they are always there, on its relatives they come with a package."""

LOG_TAIL_BYTES = 2048
STOP_S = 15.0
"""How long the program may take to remove its temporary folder when it is told to stop."""


async def require_mmdebstrap(progress: Callable[[str], None]) -> None:
    """See that mmdebstrap and Debian's keys are here, and install them as root on a system with apt.

    Raises UnsupportedError, with every remedy, where that isn't possible.
    """
    if shutil.which(PROGRAM) and KEYRING.exists():
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise UnsupportedError(
            f"No registry gives {START}, and the other way, from Debian's packages, needs mmdebstrap. Remedies: "
            f"run `sudo apt-get install {PROGRAM} debian-archive-keyring`; or let the engine reach a registry; or load "
            f"{START} from a file with `docker load`. Then run `harness images base` again"
        )
    progress(f"installing {PROGRAM} with apt")
    for arguments in (["update"], ["install", "-y", "--no-install-recommends", PROGRAM, "debian-archive-keyring"]):
        result = await anyio.run_process(
            ["apt-get", "-qq", *arguments],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            check=False,
        )
        if result.returncode and arguments[0] != "update":  # one unreachable source fails an update; the others may do
            tail = result.stdout[-LOG_TAIL_BYTES:].decode("utf-8", "replace").strip()
            raise UnsupportedError(
                f"apt-get could not install {PROGRAM}: {tail}. Mend apt's sources, then run `harness images base` again"
            )


@asynccontextmanager
async def root_filesystem(recipe: Recipe, certificates: Sequence[bytes]) -> AsyncGenerator[AsyncIterator[bytes]]:
    """The recipe's root file system as a tar stream. Entered once its first bytes are there, which takes most of the time.

    Raises ImageUnavailable with the end of mmdebstrap's log when it fails, also from within the stream.
    """
    with tempfile.TemporaryDirectory(prefix="harness-base-") as name, tempfile.TemporaryFile() as log:
        folder = Path(name)
        folder.chmod(
            0o755
        )  # without root, mmdebstrap reads the files as another user, who can't read a private home either
        for file, content in recipe.files(certificates):
            (folder / file).parent.mkdir(exist_ok=True)
            (folder / file).write_bytes(content)
        process = await anyio.open_process(recipe.mmdebstrap(folder), stdin=subprocess.DEVNULL, stderr=log)
        try:
            assert process.stdout is not None
            first = await _receive(process.stdout)
            if not first:
                await _succeed(process, recipe, log)
            yield _stream(process, first, recipe, log)
        finally:
            await _end(process)


async def _stream(process: Process, first: bytes, recipe: Recipe, log: IO[bytes]) -> AsyncIterator[bytes]:
    assert process.stdout is not None
    chunk = first
    while chunk:
        yield chunk
        chunk = await _receive(process.stdout)
    await _succeed(process, recipe, log)


async def _receive(stream: ByteReceiveStream) -> bytes:
    """The next bytes; none at the end."""
    try:
        return await stream.receive(256 * 1024)
    except anyio.EndOfStream:
        return b""


async def _succeed(process: Process, recipe: Recipe, log: IO[bytes]) -> None:
    """Raise ImageUnavailable unless the program ended well."""
    status = await process.wait()
    if status == 0:
        return
    log.seek(0)
    tail = log.read()[-LOG_TAIL_BYTES:].decode("utf-8", "replace").strip()
    raise ImageUnavailable(
        f"{recipe.tag} could not be made from Debian's packages: {PROGRAM} ended with status {status}. Its log ends:\n{tail}"
    )


async def _end(process: Process) -> None:
    """Stop the program if it still runs: first so that it removes its temporary folder, then for certain."""
    with anyio.CancelScope(shield=True):
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            with anyio.move_on_after(STOP_S):
                await process.wait()
        await process.aclose()
