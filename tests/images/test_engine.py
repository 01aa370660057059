"""Images on a real Docker engine: builds, the image map, certificates, git ownership."""

from __future__ import annotations

import subprocess
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import pytest

from harness.errors import BuildFailed
from harness.images.identity import tag_of
from harness.images.mapping import ImageMap
from harness.images.resolve import ImageResolver
from harness.images.trust import certificates_digest
from harness.sandbox.docker.engine import DockerEngine
from harness.task.image import DockerfileBuild, ResolvedImage
from tests.images.docker_cli import find_cli
from tests.images.test_context import tree

pytestmark = pytest.mark.engine

BASE = "harness/base:bookworm"
PEM = b"""-----BEGIN CERTIFICATE-----
MIIBbjCCARWgAwIBAgIUE7yN9Q0hJYJ0d5p7vH6Y3x4kW1AwCgYIKoZIzj0EAwIw
-----END CERTIFICATE-----
"""


@dataclass
class Setting:
    folder: Path
    mark: str = field(default_factory=lambda: uuid4().hex)
    """In every image of a test, so that no earlier run's image is found."""

    @asynccontextmanager
    async def resolver(
        self, *, images: dict[str, str] | None = None, certificates: tuple[bytes, ...] | None = ()
    ) -> AsyncGenerator[ImageResolver]:
        async with DockerEngine() as engine:
            yield ImageResolver(
                engine, image_map=ImageMap(images or {}), certificates=certificates, cache=self.folder / "cache"
            )

    def source(self, dockerfile: str, **files: str) -> DockerfileBuild:
        path = tree(self.folder / "task", files)
        path.write_text(dockerfile.replace("BASE", BASE) + f"LABEL harness.test={self.mark}\n")
        return DockerfileBuild(dockerfile=path)


@pytest.fixture
def setting(tmp_path: Path) -> Iterator[Setting]:
    made = Setting(tmp_path)
    yield made
    cli("image", "prune", "--force", "--filter", f"label=harness.test={made.mark}", check=False)
    ours = cli("images", "--quiet", "--filter", f"label=harness.test={made.mark}").split()
    if ours:
        cli("rmi", "--force", *dict.fromkeys(ours), check=False)


def cli(*words: str, check: bool = True) -> str:
    docker = find_cli()
    assert docker is not None
    done = subprocess.run([docker.path, *words], capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, done.stderr
    return done.stdout


def shell(image: ResolvedImage, script: str, *, user: str = "0") -> tuple[int, str]:
    """Exit status and output of a script in a new container of the image."""
    docker = find_cli()
    assert docker is not None
    words = [docker.path, "run", "--rm", "--network", "none", "--user", user, image.id, "sh", "-c", script]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


async def test_a_context_becomes_an_image_once(setting: Setting) -> None:
    source = setting.source("FROM BASE\nWORKDIR /app\nCOPY . .\n", **{"a/file": "hello", "secret": "x"})
    (setting.folder / "task/.dockerignore").write_text("secret\n.dockerignore\n")
    (setting.folder / "task/a/run").write_text("#!/bin/sh\necho ran\n")
    (setting.folder / "task/a/run").chmod(0o755)
    (setting.folder / "task/link").symlink_to("a/file")
    async with setting.resolver() as resolver:
        image = await resolver.ensure(source)
        began = time.monotonic()
        again = await resolver.ensure(source)
        took_s = time.monotonic() - began
    assert (image.built, again.built, again.id) == (True, False, image.id)
    assert took_s < 0.5
    status, said = shell(image, "cat link; a/run; find . | sort | tr '\\n' ' '; stat -c '%u %a' a/run")
    assert (status, said) == (0, "helloran\n. ./Dockerfile ./a ./a/file ./a/run ./link 0 755\n")


async def test_a_failed_build_names_the_instruction_and_keeps_the_log(setting: Setting) -> None:
    source = setting.source("FROM BASE\nRUN echo before && echo the reason >&2 && exit 7\n")
    async with setting.resolver() as resolver:
        with pytest.raises(BuildFailed) as caught:
            await resolver.ensure(source)
    error = caught.value
    assert error.instruction.startswith("RUN echo before")
    assert "the reason" in error.log_tail
    assert error.log_path is not None and "the reason" in Path(error.log_path).read_text()
    assert str(source.dockerfile) in str(error) and "exit code: 7" in str(error)


async def test_a_build_that_takes_too_long_is_stopped(setting: Setting) -> None:
    source = setting.source("FROM BASE\nRUN sleep 987\n").model_copy(update={"timeout_s": 2.0})
    async with setting.resolver() as resolver:
        with pytest.raises(BuildFailed, match="took longer than 2 s") as caught:
            await resolver.ensure(source)
    assert caught.value.instruction == "RUN sleep 987"


async def test_arguments_target_and_mapped_images_reach_the_builder(setting: Setting) -> None:
    source = setting.source(
        "# syntax=docker/dockerfile:1\nARG TAG=none\nFROM python:${TAG} AS one\nARG WHO\nRUN echo $WHO >/who\n"
        "FROM one AS two\nCOPY --from=tools:1 /etc/debian_version /version\nFROM nowhere:1\n"
    ).model_copy(update={"args": {"TAG": "3.13-slim", "WHO": "me"}, "target": "two"})
    async with setting.resolver(images={"python:3.13-slim*": BASE, "tools:*": BASE}) as resolver:
        image = await resolver.ensure(source)
    assert image.mapped_from == (("python:3.13-slim", BASE), ("tools:1", BASE))
    assert shell(image, "cat /who; test -s /version && echo there") == (0, "me\nthere\n")


async def test_a_base_trusts_given_certificates_and_keeps_its_user(setting: Setting) -> None:
    bundle = "/etc/ssl/certs/ca-certificates.crt"
    bare = setting.source(f"FROM BASE\nRUN rm -rf /usr/sbin/update-ca-certificates {bundle}\nUSER nobody\n")
    async with setting.resolver() as resolver:
        plain = await resolver.ensure(bare)
    source = setting.source(f"FROM {plain.ref}\nRUN id -un >/tmp/who\n")
    async with setting.resolver(certificates=(PEM,)) as resolver:
        image = await resolver.ensure(source)
    assert image.user == "nobody"
    assert image.env["PIP_CERT"] == image.env["NODE_EXTRA_CA_CERTS"] == bundle
    line = PEM.splitlines()[1].decode()
    status, said = shell(image, f"cat /tmp/who; grep -c BEGIN {bundle}; grep -c {line} {bundle}")
    who, total, ours = said.split()
    assert (status, who, ours) == (0, "nobody", "1")
    assert int(total) > 100, "a system without a bundle gets the public certificates too"
    trusted = tag_of("trusted", "")[:-1]
    for tag in cli(
        "images", "--format", "{{.Repository}}:{{.Tag}}", "--filter", f"label=harness.test={setting.mark}"
    ).split():
        if tag.startswith(trusted):
            label = cli("inspect", "--format", '{{index .Config.Labels "harness.ca"}}', tag).strip()
            assert label == certificates_digest((PEM,))
            return
    pytest.fail("no derived base was kept")


async def test_an_image_without_a_shell_is_used_as_it_is(setting: Setting) -> None:
    empty = setting.source("FROM scratch\nCOPY file /file\n", file="x")
    async with setting.resolver() as resolver:
        plain = await resolver.ensure(empty)
    async with setting.resolver(certificates=(PEM,)) as resolver:
        image = await resolver.ensure(setting.source(f"FROM {plain.ref}\nENV A=1\n"))
        same = await resolver.with_repositories(image, repositories=[], users=[None], workdir="/srv")
    assert image.env["A"] == "1"
    assert same.id == image.id
    certificates, git = same.warnings
    assert image.warnings == (certificates,)
    assert "certificates can't be added to" in certificates
    assert "git works in /srv could not be checked" in git


REPOSITORIES = """FROM BASE
RUN useradd owner && useradd agent && useradd --create-home grader
RUN for name in declared other work; do mkdir -p /srv/$name && cd /srv/$name && git init -q . && touch file && git add file \
 && git -c user.name=x -c user.email=x@y commit -qm one && chown -R owner: /srv/$name; done
WORKDIR /srv/work
"""


async def test_declared_and_discovered_repositories_are_mended_for_each_user_and_no_other_path(
    setting: Setting,
) -> None:
    users = ["0", "agent", "grader", "4321"]
    async with setting.resolver() as resolver:
        image = await resolver.ensure(setting.source(REPOSITORIES))
        mended = await resolver.with_repositories(image, repositories=["/srv/declared"], users=users)
        began = time.monotonic()
        again = await resolver.with_repositories(image, repositories=["/srv/declared"], users=users)
        took_s = time.monotonic() - began
    assert again == mended and mended.id != image.id and took_s < 0.5
    assert (mended.ref, mended.digest, mended.workdir, mended.user) == (
        image.ref,
        image.digest,
        "/srv/work",
        image.user,
    )
    script = "for name in declared work other; do git -C /srv/$name log --format=tformat:$name 2>&1 | head -n 1; done"
    for user in users:
        before = shell(image, script, user=user)[1].splitlines()
        assert [line.startswith("fatal: detected dubious ownership") for line in before] == [True] * 3, (
            "what this is about"
        )
        declared, work, other, *paths = shell(mended, f"{script}; git config --get-all safe.directory", user=user)[
            1
        ].splitlines()
        assert (declared, work) == ("declared", "work")
        assert other.startswith("fatal: detected dubious ownership in repository at '/srv/other'"), (
            "only those are mended"
        )
        assert set(paths) == {"/srv/declared", "/srv/work"}
    assert shell(mended, "git -C /srv/other log --format=%s", user="owner")[0] == 0
    assert (
        shell(mended, "stat -c %U /home/grader/.gitconfig /home/agent /home/agent/.gitconfig")[1]
        == "grader\nagent\nagent\n"
    )
    assert shell(mended, "git -C /srv/work status --porcelain; stat -c %U .git/index", user="owner") == (0, "owner\n")


async def test_a_working_directory_whose_repository_cannot_be_used_is_a_warning(setting: Setting) -> None:
    broken = "RUN cp -a /srv/other /srv/broken && echo x >/srv/broken/.git/HEAD\nWORKDIR /srv/broken\n"
    async with setting.resolver() as resolver:
        image = await resolver.ensure(setting.source(REPOSITORIES + broken))
        first = await resolver.with_repositories(image, repositories=[], users=["agent"])
    async with setting.resolver() as resolver:  # a later run finds it, and what was said
        later = await resolver.with_repositories(image, repositories=[], users=["agent"])
    (warning,) = first.warnings
    assert "git as user agent in /srv/broken: " in warning
    assert later == first


async def test_nothing_is_added_where_owner_and_user_agree(setting: Setting) -> None:
    async with setting.resolver() as resolver:
        image = await resolver.ensure(setting.source(REPOSITORIES))
        same = await resolver.with_repositories(image, repositories=["/srv/declared"], users=["owner"])
        again = await resolver.with_repositories(image, repositories=["/srv/declared"], users=["owner"])
    assert same.id == again.id == image.id


async def test_linked_and_bare_repositories_and_a_working_directory_inside_one(setting: Setting) -> None:
    more = """RUN cd /srv/other && git config --global safe.directory '*' && git worktree add -q /srv/tree \\
 && git clone -q --bare . /srv/bare.git && mkdir /srv/work/deep && chown -R owner: /srv && rm ~/.gitconfig
WORKDIR /srv/work/deep
"""
    async with setting.resolver() as resolver:
        image = await resolver.ensure(setting.source(REPOSITORIES + more))
        mended = await resolver.with_repositories(
            image, repositories=["../../tree", "/srv/bare.git"], users=["agent", None]
        )
    script = "for path in /srv/tree /srv/bare.git /srv/work/deep; do git -C $path log --format=%s || exit 1; done"
    for user in ("agent", "0"):
        assert shell(mended, script, user=user) == (0, "one\n" * 3), user


@pytest.mark.parametrize(
    ("repository", "user", "reason"),
    [
        ("/srv/nothing", "agent", "there is no git repository at /srv/nothing"),
        ("/srv/declared", "nobody-here", "the image has no user 'nobody-here'"),
        ("/srv/broken", "agent", "git as user agent in /srv/broken: fatal:"),
    ],
)
async def test_a_declared_repository_that_cannot_be_used_fails_loudly(
    setting: Setting, repository: str, user: str, reason: str
) -> None:
    broken = "RUN cp -a /srv/other /srv/broken && echo x >/srv/broken/.git/HEAD\n"
    async with setting.resolver() as resolver:
        image = await resolver.ensure(setting.source(REPOSITORIES + broken))
        with pytest.raises(BuildFailed) as caught:
            await resolver.with_repositories(image, repositories=[repository], users=[user])
    assert reason in str(caught.value)
    assert caught.value.instruction == f"git ownership of {repository}"


async def test_an_image_without_git_is_left_alone(setting: Setting) -> None:
    async with setting.resolver() as resolver:
        image = await resolver.ensure(
            setting.source("FROM BASE\nRUN rm /usr/bin/git && mkdir -p /w/.git\nWORKDIR /w\n")
        )
        same = await resolver.with_repositories(image, repositories=["/w"], users=[None])
    assert same.id == image.id
