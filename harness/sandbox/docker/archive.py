"""Files in and out of a container as tar streams, through the engine's archive API: it works on a stopped container too."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from contextlib import asynccontextmanager

from harness.errors import PathMissing, TransferFailed
from harness.ports import ArchiveCaps
from harness.sandbox.docker.answer import StreamCut
from harness.sandbox.docker.client import ApiError
from harness.sandbox.docker.container import Container
from harness.sandbox.meter import metered

PATIENCE_S = 300.0
"""For an engine that neither takes nor sends anything. At the end of an upload it is silent while it unpacks."""


async def put_archive(container: Container, path: str, archive: AsyncIterable[bytes]) -> None:
    """Unpack a tar stream below ``path``. Raises PathMissing, TransferFailed, SandboxGone; what ``archive`` raises is passed on."""
    try:
        async with container.client.open(
            "PUT",
            f"/containers/{container.id}/archive",
            params={"path": path},
            content=archive,
            patience_s=PATIENCE_S,
        ) as answer:
            async for _ in answer.chunks():
                pass
    except (ApiError, StreamCut) as error:
        raise await _explain(container, path, error, "written to") from error


@asynccontextmanager
async def get_archive(container: Container, path: str, caps: ArchiveCaps) -> AsyncGenerator[AsyncIterator[bytes]]:
    """Read ``path`` as a tar stream. Raises PathMissing, TransferFailed (a cap, a broken stream), SandboxGone."""
    # A slash at the end would make the engine follow a link that lies at `path`.
    where = path.rstrip("/") or "/"
    try:
        async with container.client.open(
            "GET", f"/containers/{container.id}/archive", params={"path": where}, patience_s=PATIENCE_S
        ) as answer:
            yield _whole(container, where, metered(answer.chunks(), caps, where))
    except ApiError as error:
        raise await _explain(container, where, error, "read from") from error


async def _whole(container: Container, path: str, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    try:
        async for chunk in chunks:
            yield chunk
    except StreamCut as error:
        raise await _explain(container, path, error, "read from") from error


async def _explain(container: Container, path: str, error: ApiError | StreamCut, what: str) -> Exception:
    """The engine says 404 both for a path and for a container that doesn't exist: ask which."""
    await container.inspect()  # raises SandboxGone or EngineUnreachable where that is the reason
    if isinstance(error, ApiError) and error.status == 404:
        return PathMissing(f"{path}: there is no such path in the sandbox {container.short_id}")
    return TransferFailed(f"{path} can't be {what} the sandbox {container.short_id}: {error}")
