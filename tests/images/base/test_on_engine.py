"""The project's own images on a real engine: made, current, and holding what tasks and sandboxes count on."""

from __future__ import annotations

import io
import tarfile
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.errors import BuildFailed
from harness.images.base import BASE, RECIPES, TOOLBOX, BaseImage, Recipe, Way, ensure_base
from harness.images.trust import extra_certificates
from harness.ports import BuildRequest, Command, EngineImage, Labels, SandboxSpec
from harness.sandbox.docker.client import ApiError
from harness.sandbox.docker.engine import DockerEngine
from harness.task.image import ResolvedImage

pytestmark = [pytest.mark.engine, pytest.mark.network]


@pytest.fixture
async def engine() -> AsyncIterator[DockerEngine]:
    async with DockerEngine() as engine:
        yield engine


@pytest.fixture
async def images(engine: DockerEngine) -> tuple[BaseImage, ...]:
    return await ensure_base(engine, certificates=extra_certificates())


async def run(engine: DockerEngine, ref: str, script: str, *, toolbox: bool = False) -> tuple[int | None, str]:
    """Exit status and output of a shell script in a sandbox of that image, without a network."""
    image = await engine.inspect_image(ref)
    assert image is not None
    spec = SandboxSpec(
        image=ResolvedImage(id=image.id, ref=ref, env=dict(image.env)),
        labels=Labels(run="test-base", attempt="test-base", role="probe", lease_s=120),
        toolbox=toolbox,
    )
    async with engine.sandbox(spec) as sandbox:
        result = await sandbox.exec(Command(argv=["bash", "-c", script]))
    return result.exit_status, result.stdout.text + result.stderr.text


def archive(files: dict[str, bytes]) -> AsyncIterator[bytes]:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))

    async def stream() -> AsyncIterator[bytes]:
        yield buffer.getvalue()

    return stream()


async def build(engine: DockerEngine, request: BuildRequest) -> EngineImage:
    """Build it; where it fails, with its log."""
    lines: list[str] = []
    try:
        return await engine.build_image(request, lines.append)
    except BuildFailed as error:
        raise AssertionError("\n".join([str(error), *lines[-40:]])) from error


async def remove(engine: DockerEngine, tag: str) -> None:
    try:
        await engine.client.call("DELETE", f"/images/{tag}")
    except ApiError as error:
        if error.status != 404:
            raise


async def test_current_images_answer_at_once(engine: DockerEngine, images: tuple[BaseImage, ...]) -> None:
    began = time.monotonic()
    again = await ensure_base(engine, certificates=extra_certificates())
    assert time.monotonic() - began < 1
    assert [(image.tag, image.id, image.way) for image in again] == [
        (image.tag, image.id, Way.FOUND) for image in images
    ]


@pytest.mark.usefixtures("images")
@pytest.mark.parametrize(
    "script",
    [
        "bash --version && git --version && curl --version && ps --version",
        "python3 --version && python --version && python3 -m pip --version",
        "python3 -m venv /tmp/venv && /tmp/venv/bin/pip --version",
        "test -s /etc/ssl/certs/ca-certificates.crt && git config --system --list; test ! -e /usr/share/man/man1/bash.1.gz",
        "test -e /usr/lib/python3.11/EXTERNALLY-MANAGED && test -z \"$PIP_BREAK_SYSTEM_PACKAGES\"",
        "test -z \"$(find /var/lib/apt/lists /var/cache/apt -type f -size +0)\"",
    ],
    ids=["tools", "python", "venv", "certificates", "debian-python", "no-package-lists"],
)  # fmt: skip
async def test_base_holds(engine: DockerEngine, script: str) -> None:
    status, output = await run(engine, BASE.tag, script)
    assert status == 0, output


@pytest.mark.usefixtures("images")
async def test_base_reaches_the_package_registries(engine: DockerEngine) -> None:
    """What fails without the host's certificates, on a host that has some."""
    dockerfile = f"FROM {BASE.tag}\nRUN python -m venv /venv && /venv/bin/pip install six && apt-get update\n"
    tag = "harness-test/registries:base"
    try:
        await build(
            engine, BuildRequest(context=archive({"Dockerfile": dockerfile.encode()}), dockerfile="Dockerfile", tag=tag)
        )
    finally:
        await remove(engine, tag)


@pytest.mark.usefixtures("images")
async def test_toolbox_works_in_a_sandbox(engine: DockerEngine) -> None:
    script = (
        "cd /.harness/toolbox && env -i PATH=$PWD/bin $PWD/bash -c 'type ls tar sh bash && ls -l $PWD/busybox && id -u'"
    )
    status, output = await run(engine, BASE.tag, script, toolbox=True)
    assert status == 0, output
    assert "/.harness/toolbox/bin/tar" in output


@pytest.mark.usefixtures("images")
async def test_toolbox_image_has_both_families_of_iptables(engine: DockerEngine) -> None:
    names = [
        f"{family}{kind}{action}"
        for family in ("iptables", "ip6tables")
        for kind in ("", "-legacy")
        for action in ("", "-restore")
    ]
    script = " && ".join(f"{name} --version" for name in names)
    status, output = await run(engine, TOOLBOX.tag, script)
    assert status == 0, output
    assert output.count("nf_tables") == 4
    assert output.count("legacy") == 4


@pytest.mark.usefixtures("images")
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.tag.split("/")[1].split(":")[0])
async def test_dockerfiles_build(engine: DockerEngine, recipe: Recipe, tmp_path: Path) -> None:
    """The way through a registry, from an image that is here: on hosts without a registry nothing else would run it."""
    for file in recipe.folder.iterdir():
        (tmp_path / file.name).write_bytes(
            file.read_bytes().replace(b"FROM debian:bookworm-slim", b"FROM " + BASE.tag.encode())
        )
    local = replace(recipe, folder=tmp_path, tag=recipe.tag.replace("harness/", "harness-test/"))
    certificates = extra_certificates()

    async def context() -> AsyncIterator[bytes]:
        yield local.context(certificates)

    request = BuildRequest(context=context(), dockerfile="Dockerfile", tag=local.tag, labels=local.labels(certificates))
    try:
        image = await build(engine, request)
        assert image.labels["harness.base"] == local.labels(certificates)["harness.base"]
        made = await engine.inspect_image(recipe.tag)
        assert made is not None
        assert image.env == made.env
        status, output = await run(engine, local.tag, "echo works")
        assert (status, output) == (0, "works\n")
    finally:
        await remove(engine, local.tag)
