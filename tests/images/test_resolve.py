from __future__ import annotations

import shutil
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
import pytest

from harness.errors import BuildFailed, ContextError, EngineError, ImageUnavailable
from harness.images.identity import IMAGE_LABEL
from harness.images.mapping import ImageMap
from harness.images.resolve import ImageResolver
from harness.images.trust import TRUST_LABEL, certificates_digest
from harness.ports import BuildRequest, EngineImage
from harness.sandbox.fake import FakeEngine
from harness.task.image import DockerfileBuild, ImageRef, ResolvedImage
from tests.images.test_context import tree

BASE = "harness/base:bookworm"
CERTIFICATE = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


class Engine(FakeEngine):
    """The fake engine, with doors that tests open, and a count of what the registry was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.pulls: list[str] = []
        self.door = anyio.Event()
        self.door.set()
        self.during_build: Callable[[], object] = lambda: None
        self.looked_up = 0
        self.four_looked_up = anyio.Event()

    async def pull_image(self, ref: str, *, platform: str | None = None) -> EngineImage:
        self.pulls.append(ref)
        return await super().pull_image(ref, platform=platform)

    async def inspect_image(self, ref: str) -> EngineImage | None:
        self.looked_up += ref.startswith("harness/build:")
        if self.looked_up == 4:
            self.four_looked_up.set()
        return await super().inspect_image(ref)

    async def build_image(self, request: BuildRequest, log: Callable[[str], None]) -> EngineImage:
        await self.door.wait()
        self.during_build()
        return await super().build_image(request, log)


@dataclass
class Setting:
    engine: Engine
    folder: Path

    def resolver(self, *, certificates: tuple[bytes, ...] = (), images: dict[str, str] | None = None) -> ImageResolver:
        return ImageResolver(
            self.engine, image_map=ImageMap(images or {}), certificates=certificates, cache=self.folder / "cache"
        )

    def source(
        self, dockerfile: str, *, name: str = "task", timeout_s: float = 600.0, files: dict[str, str] | None = None
    ) -> DockerfileBuild:
        path = tree(self.folder / name, files or {})
        path.write_text(dockerfile)
        return DockerfileBuild(dockerfile=path, timeout_s=timeout_s)


@pytest.fixture
async def setting(tmp_path: Path) -> AsyncIterator[Setting]:
    yield Setting(Engine(), tmp_path)


async def sent_dockerfile(request: BuildRequest) -> str:
    import io
    import tarfile

    data = b"".join([chunk async for chunk in request.context])
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        file = archive.extractfile(request.dockerfile)
        assert file is not None
        return file.read().decode()


async def test_an_unchanged_image_starts_no_build(setting: Setting) -> None:
    source = setting.source(f"FROM {BASE}\nWORKDIR /w\nUSER u\nENV A=1\n", files={"file": "x"})
    first = await setting.resolver().ensure(source)
    second = await setting.resolver().ensure(source)
    assert [first.built, second.built, len(setting.engine.builds)] == [True, False, 1]
    assert second == first.model_copy(update={"built": False})
    assert (first.workdir, first.user, first.env) == ("/w", "u", {"A": "1"})
    image = await setting.engine.inspect_image(first.ref)
    assert image is not None and first.digest is not None
    assert first.digest == f"sha256:{image.labels[IMAGE_LABEL]}"
    assert first.ref == f"harness/build:{image.labels[IMAGE_LABEL][:32]}"
    assert first.build_log is not None and "WORKDIR /w" in first.build_log.read_text()


async def test_the_same_tree_elsewhere_is_the_same_image(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    source = setting.source(f"FROM {BASE}\nCOPY . /x\n", files={"file": "x"})
    first = await setting.resolver().ensure(source)
    shutil.copytree(setting.folder / "task", setting.folder / "away/copy")
    monkeypatch.chdir(setting.folder / "away")
    second = await setting.resolver().ensure(DockerfileBuild(dockerfile=Path("copy/Dockerfile"), root=Path()))
    assert (second.id, second.built) == (first.id, False)


async def test_content_arguments_and_bases_make_other_images(setting: Setting) -> None:
    source = setting.source(f"ARG A=1\nFROM {BASE}\n", files={"file": "x"})
    ids = {(await setting.resolver().ensure(source)).id}
    ids.add((await setting.resolver().ensure(source.model_copy(update={"args": {"A": "2"}}))).id)
    (setting.folder / "task/file").write_text("y")
    ids.add((await setting.resolver().ensure(source)).id)
    setting.engine.add(BASE)
    ids.add((await setting.resolver().ensure(source)).id)
    assert len(ids) == 4


async def test_attempts_at_the_same_time_share_one_build(setting: Setting) -> None:
    source = setting.source(f"FROM {BASE}\n")
    resolver = setting.resolver()
    setting.engine.door = anyio.Event()
    found: list[ResolvedImage] = []

    async def attempt() -> None:
        found.append(await resolver.ensure(source))

    async with anyio.create_task_group() as group:
        for _ in range(8):
            group.start_soon(attempt)
        await anyio.wait_all_tasks_blocked()
        setting.engine.door.set()
    assert len({image.id for image in found}) == 1
    assert [image.built for image in found].count(True) == len(setting.engine.builds) == 1


async def test_those_who_waited_for_a_failed_build_fail_with_it(setting: Setting) -> None:
    source = setting.source(f"FROM {BASE}\nRUN false\n")
    resolver = setting.resolver()
    setting.engine.door = anyio.Event()
    failures: list[BuildFailed] = []

    async def attempt() -> None:
        with pytest.raises(BuildFailed) as caught:
            await resolver.ensure(source)
        failures.append(caught.value)

    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(attempt)
        await setting.engine.four_looked_up.wait()  # each caller once, and the builder twice more
        await anyio.wait_all_tasks_blocked()
        setting.engine.door.set()
    assert len({id(error) for error in failures}) == 4
    for error in failures:
        assert error.instruction == "RUN false"
        assert "RUN false" in error.log_tail
        assert error.log_path is not None and "RUN false" in Path(error.log_path).read_text()
        assert str(source.dockerfile) in str(error)
    assert len(setting.engine.builds) == 1, "not each of them built"


async def test_a_build_that_failed_is_not_tried_again_in_one_run(setting: Setting) -> None:
    text = f"FROM {BASE}\nRUN false\n"
    source, same = setting.source(text), setting.source(text, name="same")
    resolver = setting.resolver()
    for asked in (source, source, same):
        with pytest.raises(BuildFailed) as caught:
            await resolver.ensure(asked)
        assert str(asked.dockerfile) in str(caught.value), "it names the Dockerfile that was asked for"
        assert (caught.value.instruction, caught.value.log_tail) == ("RUN false", "RUN false")
    assert len(setting.engine.builds) == 1
    setting.engine.add(setting.engine.builds[0].tag)
    assert not (await resolver.ensure(source)).built, "someone else could build it"
    with pytest.raises(BuildFailed):
        await setting.resolver().ensure(setting.source(text + "RUN false\n"))
    assert len(setting.engine.builds) == 2


async def test_a_build_that_takes_too_long_says_so(setting: Setting) -> None:
    source = setting.source(f"FROM {BASE}\n", timeout_s=0.05)
    setting.engine.door = anyio.Event()
    with pytest.raises(BuildFailed, match=r"took longer than 0\.05 s"):
        await setting.resolver().ensure(source)


async def test_the_context_is_checked_before_the_engine_is_asked(setting: Setting) -> None:
    source = setting.source("FROM nowhere:1\n", files={"a": "1", "b": "2"}).model_copy(update={"max_files": 2})
    with pytest.raises(ContextError, match="3 files, at most 2"):
        await setting.resolver().ensure(source)
    assert setting.engine.pulls == []


async def test_a_file_that_changes_while_it_is_sent_is_the_users_error(setting: Setting) -> None:
    source = setting.source(f"FROM {BASE}\n", files={"file": "x"})
    setting.engine.during_build = lambda: (setting.folder / "task/file").write_text("y")
    with pytest.raises(ContextError, match="file: it changed"):
        await setting.resolver().ensure(source)


async def test_its_own_error_wins_over_what_the_engine_makes_of_it(setting: Setting) -> None:
    source = setting.source(f"FROM {BASE}\n", files={"file": "x"})

    class Confused(Engine):
        async def build_image(self, request: BuildRequest, log: Callable[[str], None]) -> EngineImage:
            (setting.folder / "task/file").write_text("y")
            try:
                return await super().build_image(request, log)
            except ContextError as error:
                raise EngineError("the request was cut off") from error

    setting.engine = Confused()
    with pytest.raises(ContextError, match="file: it changed"):
        await setting.resolver().ensure(source)


async def test_a_base_that_is_replaced_meanwhile_is_seen(setting: Setting) -> None:
    source = setting.source(f"FROM {BASE}\n")
    setting.engine.during_build = lambda: setting.engine.add(BASE)
    with pytest.raises(BuildFailed, match="replaced while it was built upon"):
        await setting.resolver().ensure(source)


async def test_a_missing_image_is_pulled_once(setting: Setting) -> None:
    image = setting.engine.add("remote/x:1")
    setting.engine.registry["remote/x:1"] = setting.engine.images.pop(image.id)
    stored = setting.engine.registry["remote/x:1"]
    setting.engine.registry["remote/x:1"] = replace(
        stored, image=replace(stored.image, repo_digests=("remote/x@sha256:abc", "other/y@sha256:def"))
    )
    resolver = setting.resolver()
    for _ in range(2):
        found = await resolver.ensure(ImageRef(ref="remote/x:1"))
        assert (found.id, found.ref, found.digest, found.built) == (image.id, "remote/x:1", "sha256:abc", False)
    assert setting.engine.pulls == ["remote/x:1"]


async def test_what_a_tag_meant_first_it_means_for_the_whole_run(setting: Setting) -> None:
    resolver = setting.resolver()
    first = await resolver.ensure(ImageRef(ref=BASE))
    setting.engine.add(BASE)
    assert (await resolver.ensure(ImageRef(ref=BASE))).id == first.id
    assert (await setting.resolver().ensure(ImageRef(ref=BASE))).id != first.id


async def test_a_registry_that_refuses_is_not_asked_again_at_once(setting: Setting) -> None:
    resolver = setting.resolver()
    for _ in range(5):
        with pytest.raises(ImageUnavailable, match="none:1 can't be pulled"):
            await resolver.ensure(ImageRef(ref="none:1"))
    assert setting.engine.pulls == ["none:1"]


async def test_the_image_map_is_applied_and_recorded(setting: Setting) -> None:
    other = setting.engine.add("local/tools:1")
    resolver = setting.resolver(images={"python:3.13-slim*": BASE, "tools*": "local/tools:1"})
    pinned = "python:3.13-slim@sha256:" + "0" * 64
    source = setting.source(f"# syntax=docker/dockerfile:1\nFROM {pinned} AS a\nCOPY --from=tools /x /y\n")
    built = await resolver.ensure(source)
    assert built.mapped_from == ((pinned, BASE), ("tools", "local/tools:1"))
    assert built.warnings == ("'# syntax=docker/dockerfile:1' is left out: the engine doesn't have that image",)
    sent = await sent_dockerfile(setting.engine.builds[0])
    assert sent == f"FROM {BASE} AS a\nCOPY --from=local/tools:1 /x /y\n"
    found = await resolver.ensure(ImageRef(ref="tools"))
    assert (found.id, found.ref, found.mapped_from) == (other.id, "tools", (("tools", "local/tools:1"),))
    assert setting.engine.pulls == []


async def test_a_syntax_line_stays_when_the_engine_has_its_image(setting: Setting) -> None:
    setting.engine.add("docker/dockerfile:1")
    text = f"# syntax=docker/dockerfile:1\nFROM {BASE}\n"
    await setting.resolver().ensure(setting.source(text))
    assert await sent_dockerfile(setting.engine.builds[0]) == text


async def test_bases_get_the_hosts_certificates(setting: Setting) -> None:
    source = setting.source(f"FROM {BASE} AS a\nFROM a\nFROM scratch\nCOPY --from=a / /\n")
    resolver = setting.resolver(certificates=(CERTIFICATE,))
    trusting = await resolver.ensure(source)
    plain = await setting.resolver().ensure(source)
    assert trusting.digest != plain.digest
    trusted, built, _ = setting.engine.builds
    assert trusted.labels[TRUST_LABEL] == certificates_digest((CERTIFICATE,))
    derived = await sent_dockerfile(trusted)
    assert "ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt PIP_CERT=" in derived
    assert (await sent_dockerfile(built)).startswith(f"FROM {trusted.tag} AS a\n")
    await resolver.ensure(setting.source(f"FROM {BASE}\nENV A=1\n", name="other"))
    assert len(setting.engine.builds) == 4, "the base is derived once"
    await resolver.ensure(setting.source(f"FROM {trusted.tag}\n", name="third"))
    assert len(setting.engine.builds) == 5, "an image that has them already isn't derived again"


async def test_an_image_that_cannot_take_certificates_is_used_as_it_is(setting: Setting) -> None:
    class NoShell(Engine):
        async def build_image(self, request: BuildRequest, log: Callable[[str], None]) -> EngineImage:
            if TRUST_LABEL in request.labels:
                self.builds.append(request)
                raise BuildFailed("no /bin/sh", instruction="RUN", log_tail="")
            return await super().build_image(request, log)

    setting.engine = NoShell()
    said: list[str] = []
    resolver = setting.resolver(certificates=(CERTIFICATE,))
    for _ in range(2):
        image = await resolver.ensure(setting.source(f"FROM {BASE}\n"), progress=said.append)
        (warning,) = image.warnings
        assert f"the host's certificates can't be added to {BASE}" in warning
    assert await sent_dockerfile(setting.engine.builds[1]) == f"FROM {BASE}\n"
    assert any(line.startswith("warning: the host's certificates can't be added") for line in said)
    await resolver.ensure(setting.source(f"FROM {BASE}\nENV A=1\n", name="other"))
    assert len(setting.engine.builds) == 3, "it isn't tried again"


async def test_an_unchanged_image_answers_quickly(setting: Setting) -> None:
    """Files that were read once and lie still aren't read again."""
    source = setting.source(f"FROM {BASE}\n", files={f"file{number}": "x" * 1000 for number in range(2000)})
    resolver = setting.resolver()
    await resolver.ensure(source)
    began = time.process_time()
    assert not (await resolver.ensure(source)).built
    assert time.process_time() - began < 0.5


async def test_processes_that_share_a_cache_share_a_build(setting: Setting) -> None:
    """Two resolvers know nothing of each other but the lock file, as two processes."""
    source = setting.source(f"FROM {BASE}\n")
    setting.engine.door = anyio.Event()
    found: list[ResolvedImage] = []

    async def process(resolver: ImageResolver) -> None:
        found.append(await resolver.ensure(source))

    async with anyio.create_task_group() as group:
        group.start_soon(process, setting.resolver())
        group.start_soon(process, setting.resolver())
        await setting.engine.four_looked_up.wait()
        setting.engine.door.set()
    assert sorted(image.built for image in found) == [False, True]
    assert len(setting.engine.builds) == 1
