"""A root file system from Debian's packages, for hosts that reach a package mirror but no container registry."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO

import anyio
from anyio.abc import ByteReceiveStream, Process

from harness.concurrency import shielded
from harness.errors import ImageUnavailable, UnsupportedError
from harness.images.base.recipe import START, Recipe

PROGRAM = "mmdebstrap"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
"""The keys of Debian's archive. On Debian they are always there, on its relatives they come with a package."""

LOG_TAIL_BYTES = 2048
MAKE_S = 900.0
"""How long the program may take until it begins to write: apt has been seen to wait for ever in a stalled download."""
STOP_S = 15.0
"""How long it may take to remove its temporary folder when it is told to stop."""


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
async def root_filesystem(
    recipe: Recipe, certificates: Sequence[bytes], *, make_s: float = MAKE_S, stop_s: float = STOP_S
) -> AsyncGenerator[AsyncIterator[bytes]]:
    """The recipe's root file system as a tar stream. Entered once its first bytes are there, which takes most of the time.

    make_s: how long that may take. stop_s: how long the program gets to clean up after itself when it is stopped.

    Raises ImageUnavailable with the end of mmdebstrap's log when it fails or takes too long, also from within the stream.
    """
    with tempfile.TemporaryDirectory(prefix="harness-base-") as name, tempfile.TemporaryFile() as log:
        folder = Path(name)
        # Without root, mmdebstrap reads it as another user: that's why the files are copied here, too.
        folder.chmod(0o755)
        for file, content in recipe.files(certificates):
            (folder / file).parent.mkdir(exist_ok=True)
            (folder / file).write_bytes(content)
        # A session of its own, so that it can be stopped with everything that it started.
        command = recipe.mmdebstrap(folder)
        start = partial(anyio.open_process, stdin=subprocess.DEVNULL, stderr=log, start_new_session=True)
        process = await shielded(start, command)  # a cancellation in here would kill it before it can clean up
        try:
            assert process.stdout is not None
            first = b""
            with anyio.move_on_after(make_s) as scope:
                first = await _receive(process.stdout)
            if scope.cancelled_caught:
                raise _failed(recipe, f"{PROGRAM} wrote nothing within {make_s:.0f} s", log)
            if not first:
                await _succeed(process, recipe, log)
            yield _stream(process, first, recipe, log)
        finally:
            await _end(process, stop_s)


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
    if status != 0:
        raise _failed(recipe, f"{PROGRAM} ended with status {status}", log)


def _failed(recipe: Recipe, what: str, log: IO[bytes]) -> ImageUnavailable:
    log.seek(0)
    tail = log.read()[-LOG_TAIL_BYTES:].decode("utf-8", "replace").strip()
    return ImageUnavailable(f"{recipe.tag} could not be made from Debian's packages: {what}. Its log ends:\n{tail}")


async def _end(process: Process, stop_s: float) -> None:
    """Stop the program if it still runs: first so that it removes its temporary folder, then for certain."""
    with anyio.CancelScope(shield=True):
        if process.returncode is None:
            _signal(process, signal.SIGTERM)
            with anyio.move_on_after(stop_s):
                await process.wait()
        if process.returncode is None:
            _signal(process, signal.SIGKILL)
        await process.aclose()


def _signal(process: Process, number: signal.Signals) -> None:
    """To the program and what it started: it waits for its children, whatever it is told."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
