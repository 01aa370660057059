"""Artifacts on a fake engine: what can't be kept decides nothing, what can't be graded is said, and nothing raw is left."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from harness.errors import CapExceeded, TransferFailed
from harness.graders.artifacts import KeptArtifacts, collect_artifacts
from harness.outcome import Integrity
from harness.ports import ArchiveCaps, GradeRequest, Labels, Sandbox, SandboxSpec
from harness.sandbox.fake import FakeEngine
from harness.task.image import BASE_IMAGE, ImageRef, ResolvedImage
from harness.task.model import Artifact, Environment, GraderOptions, Step, Task


class Small:
    """A sandbox whose archives may hold less than they usually may."""

    def __init__(self, sandbox: Sandbox, max_bytes: int) -> None:
        self._sandbox = sandbox
        self._caps = ArchiveCaps(max_bytes=max_bytes)

    def __getattr__(self, name: str) -> object:
        return getattr(self._sandbox, name)

    def get(self, path: str, caps: ArchiveCaps = ArchiveCaps()) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._sandbox.get(path, self._caps)


async def collect(folder: Path, integrity: Integrity, large: str) -> str:
    """Collect from a sandbox in which the file ``large`` breaks a cap. Gives what was logged."""
    engine = FakeEngine()
    image = await engine.inspect_image(BASE_IMAGE)
    assert image is not None
    spec = SandboxSpec(
        image=ResolvedImage(id=image.id, ref="base", workdir="/app"),
        labels=Labels(run="r", attempt="a", role="agent", lease_s=60),
    )
    step = Step(instruction="Do it.", grader=GraderOptions(), artifacts=(Artifact(source="/data"),))
    task = Task(
        name="t",
        path=Path("/t"),
        benchmark="b",
        root=Path("/t"),
        digest="sha256:0",
        environment=Environment(image=ImageRef(ref="base")),
        steps=(step,),
        integrity=integrity,
        integrity_declared=True,
    )
    said: list[bytes] = []

    async def log(chunk: bytes) -> None:
        said.append(chunk)

    async with engine.sandbox(spec) as sandbox:
        sandbox.tree.write("/app/answer", b"42")
        sandbox.tree.write(large, bytes(2_000_000))
        request = GradeRequest(
            task=task,
            step=step,
            sandbox=Small(sandbox, 1_000_000),  # pyright: ignore[reportArgumentType]
            workdir="/app",
            grader_workdir="/app",
            open_sandbox=lambda role: engine.sandbox(spec),
            folder=folder,
            log=log,
        )
        await collect_artifacts(request)
    return b"".join(said).decode()


@pytest.mark.parametrize("integrity", Integrity)
@pytest.mark.parametrize("large", ["/logs/agent/log", "/data/file"])
async def test_what_is_only_kept_may_be_too_large(tmp_path: Path, integrity: Integrity, large: str):
    said = await collect(tmp_path, integrity, large)
    assert f"/{large.split('/')[1]} is not kept" in said
    assert "larger than" in said
    files = KeptArtifacts(tmp_path)
    assert files.graded.exists() == (integrity is Integrity.PRISTINE)
    assert not list(tmp_path.glob("raw*"))


async def test_what_is_graded_may_not_be_too_large_and_leaves_nothing_on_the_host(tmp_path: Path):
    with pytest.raises(CapExceeded) as caught:
        await collect(tmp_path, Integrity.PRISTINE, "/app/large")
    assert isinstance(caught.value, TransferFailed)
    assert not list(tmp_path.iterdir())
