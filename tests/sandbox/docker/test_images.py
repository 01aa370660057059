"""Images on a Docker engine: builds with a readable log and a typed failure, imports, tags, pulls."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest

from harness.errors import BuildFailed, EngineError, ImageUnavailable
from harness.ports import BuildRequest, Command, SandboxSpec
from harness.sandbox.docker.build import build
from harness.sandbox.docker.engine import DockerEngine
from harness.task.image import ResolvedImage
from tests.sandbox.conftest import BASE, Archive

pytestmark = pytest.mark.engine


def request(tag: str, dockerfile: str, **fields: object) -> BuildRequest:
    context = Archive().add("Dockerfile", dockerfile.encode()).add("file", b"sent")
    return BuildRequest(**{"context": context, "dockerfile": "Dockerfile", "tag": tag, **fields})


async def test_a_build_has_a_readable_log_and_gives_the_image(docker: DockerEngine, tag: str) -> None:
    dockerfile = f"FROM {BASE}\nARG A\nCOPY file /srv/file\nRUN echo one-$A; printf two >&2\nENV B=b\nWORKDIR /srv\nUSER nobody\n"
    lines: list[str] = []
    image = await docker.build_image(
        request(tag, dockerfile, args={"A": "argument"}, labels={"harness.test": "yes"}), lines.append
    )
    log = "\n".join(lines)
    assert "] RUN echo one-" in log
    assert any(line.endswith(" one-argument") for line in lines)
    assert any(line.endswith(" two") for line in lines)
    assert image.id.startswith("sha256:")
    assert tag in image.tags
    assert (image.workdir, image.user, image.env["B"], image.labels["harness.test"]) == ("/srv", "nobody", "b", "yes")
    assert await docker.inspect_image(tag) == image


async def test_a_target_is_where_the_build_ends(docker: DockerEngine, tag: str) -> None:
    dockerfile = f"FROM {BASE} AS first\nENV A=first\nFROM first\nRUN false\n"
    image = await docker.build_image(request(tag, dockerfile, target="first"), lambda line: None)
    assert image.env["A"] == "first"


async def test_a_failed_build_names_the_instruction(docker: DockerEngine, tag: str) -> None:
    dockerfile = f"FROM {BASE}\nRUN echo the reason >&2 && exit 3\nRUN true\n"
    with pytest.raises(BuildFailed) as caught:
        await docker.build_image(request(tag, dockerfile), lambda line: None)
    assert caught.value.instruction == "RUN echo the reason >&2 && exit 3"
    assert "the reason" in caught.value.log_tail
    assert "exit code: 3" in str(caught.value)
    assert len(caught.value.log_tail.encode()) <= 4096


async def test_a_dockerfile_that_cannot_be_read_is_a_failed_build(docker: DockerEngine, tag: str) -> None:
    for dockerfile in ("FROM\n", "NONSENSE here\n", f"FROM {BASE}\nCOPY missing /\n", f"FROM {BASE}\nRUN <\n"):
        with pytest.raises(BuildFailed):
            await docker.build_image(request(tag, dockerfile), lambda line: None)


async def test_the_classic_builder_says_the_same(docker: DockerEngine, tag: str) -> None:
    lines: list[str] = []
    await build(docker.client, request(tag, f"FROM {BASE}\nRUN echo ran\n"), lines.append, buildkit=False)
    assert "ran" in lines
    with pytest.raises(BuildFailed) as caught:
        failing = request(tag, f"FROM {BASE}\nRUN exit 3\n")
        await build(docker.client, failing, lambda line: None, buildkit=False)
    assert caught.value.instruction == "RUN exit 3"


async def test_a_cancelled_build_ends(docker: DockerEngine, tag: str) -> None:
    with anyio.fail_after(10), anyio.move_on_after(1) as scope:
        await docker.build_image(request(tag, f"FROM {BASE}\nRUN sleep 987\n"), lambda line: None)
    assert scope.cancelled_caught


async def test_what_a_context_raises_is_raised(docker: DockerEngine, tag: str) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"\0" * 512
        raise ValueError("changed while it was read")

    with pytest.raises(ValueError, match="changed while"):
        await docker.build_image(request(tag, "", context=broken()), lambda line: None)
    with pytest.raises(ValueError, match="changed while"):
        await docker.import_image(broken(), tag)


async def test_an_import_takes_files_and_settings(docker: DockerEngine, tag: str) -> None:
    image = await docker.import_image(Archive().add("a", b"b"), tag, changes=['ENV A="b c"', "WORKDIR /srv"])
    assert (image.tags, image.env["A"], image.workdir) == ((tag,), "b c", "/srv")
    with pytest.raises(EngineError):
        await docker.import_image(Archive().add("a", b"b"), tag, changes=["NONSENSE here"])


async def test_tags(docker: DockerEngine, base: ResolvedImage, tag: str) -> None:
    await docker.tag_image(base.id, tag)
    image = await docker.inspect_image(tag)
    assert image is not None and image.id == base.id
    assert await docker.inspect_image("harness-test/nothing:1") is None
    with pytest.raises(ImageUnavailable):
        await docker.tag_image("harness-test/nothing:1", tag)


@pytest.mark.parametrize("ref", ["localhost:1/nothing:1", "localhost:1/nothing", "Not A Reference"])
async def test_an_image_that_cannot_be_pulled_says_why(docker: DockerEngine, ref: str) -> None:
    with pytest.raises(ImageUnavailable, match="can't be pulled"):
        await docker.pull_image(ref)


async def test_a_user_of_the_image_runs_commands(docker: DockerEngine, spec: SandboxSpec, tag: str) -> None:
    image = await docker.build_image(request(tag, f"FROM {BASE}\nUSER nobody\nWORKDIR /srv/a\n"), lambda line: None)
    resolved = ResolvedImage(id=image.id, ref=tag, workdir=image.workdir, user=image.user, env=dict(image.env))
    async with docker.sandbox(SandboxSpec(image=resolved, labels=spec.labels)) as sandbox:
        result = await sandbox.exec(Command(["sh", "-c", "id -un; pwd"]))
        assert bytes(result.stdout) == b"nobody\n/srv/a\n"
