from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.errors import ContextError
from harness.images.archive import DigestCache, digest_files
from harness.images.context import Context, Kind, scan_context
from harness.images.identity import context_digest
from harness.task.image import MAX_CONTEXT_BYTES, MAX_CONTEXT_FILES, ContextLimits

DOCKERFILE = "FROM scratch\n"


def tree(root: Path, files: dict[str, str]) -> Path:
    """Files below ``root``, and a Dockerfile; its path."""
    root.mkdir(parents=True, exist_ok=True)
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content)
    (root / "Dockerfile").write_text(DOCKERFILE)
    return root / "Dockerfile"


def scan(dockerfile: Path, *, root: Path | None = None, max_files: int = 4096, max_bytes: int = 3 * 1024**3) -> Context:
    return scan_context(dockerfile, root=root, limits=ContextLimits(max_files, max_bytes))


def paths(context: Context) -> list[str]:
    return [entry.path for entry in context.entries]


def problems(dockerfile: Path, *, root: Path | None = None, max_files: int = 4096, max_bytes: int = 3 * 1024**3) -> str:
    with pytest.raises(ContextError) as caught:
        scan(dockerfile, root=root, max_files=max_files, max_bytes=max_bytes)
    return str(caught.value)


def test_the_default_limits_are_4096_files_and_3_gib() -> None:
    assert (
        ContextLimits()
        == ContextLimits(max_files=4096, max_bytes=3_221_225_472)
        == ContextLimits(MAX_CONTEXT_FILES, MAX_CONTEXT_BYTES)
    )


def test_4096_files_pass_and_one_more_fails(tmp_path: Path) -> None:
    dockerfile = tree(tmp_path, {f"many/{number}": "" for number in range(4095)})
    assert scan(dockerfile).files == 4096
    (tmp_path / "one more").touch()
    said = problems(dockerfile)
    assert "4,097 files, at most 4,096 are allowed  <- too many" in said
    assert "many (4,095)" in said
    assert "folders by bytes" not in said, "all of them are empty"


def test_exactly_3_gib_pass_and_a_byte_more_fails(tmp_path: Path) -> None:
    dockerfile = tree(tmp_path, {"data/large": ""})
    size = MAX_CONTEXT_BYTES - len(DOCKERFILE)
    os.truncate(tmp_path / "data/large", size)
    assert scan(dockerfile).total_bytes == MAX_CONTEXT_BYTES
    os.truncate(tmp_path / "data/large", size + 1)
    said = problems(dockerfile)
    assert "3.00 GiB (3,221,225,473 bytes), at most 3.00 GiB (3,221,225,472 bytes) are allowed  <- too much" in said
    assert "too many" not in said


def test_one_error_names_every_problem_and_the_three_remedies(tmp_path: Path) -> None:
    root = tmp_path / "benchmark"
    dockerfile = tree(root / "task", {"a/b/1": "x" * 100, "a/b/2": "", "c/3": "", "c/4": "", "c/5": ""})
    (root / "task/away").symlink_to("../../elsewhere")
    (tmp_path / "elsewhere").touch()
    (root / "task/absolute").symlink_to("/etc/hostname")
    (root / "task/broken").symlink_to("nothing")
    (root / "task/around").symlink_to("around")
    os.mkfifo(root / "task/pipe")
    said = problems(dockerfile, root=root, max_files=3, max_bytes=50)
    for expected in (
        "10 files, at most 3",
        "113 bytes, at most 50 bytes",
        "Largest folders by files: c (3), a/b (2)",
        "Largest folders by bytes: a/b (100 bytes)",
        "the link away leaves the root: it points to ../../elsewhere",
        "the link absolute is absolute: it points to /etc/hostname",
        "the link broken leads nowhere",
        "the link around leads nowhere",
        "pipe is a named pipe",
        "narrower folder",
        str(root / ".dockerignore"),
        "RUN tar -xzf",
    ):
        assert expected in said, said


def test_a_socket_cannot_be_sent(tmp_path: Path) -> None:
    dockerfile = tree(tmp_path, {})
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        assert "s is a socket" in problems(dockerfile)


def test_links_within_the_root_are_sent_as_they_are_written(tmp_path: Path) -> None:
    dockerfile = tree(tmp_path / "task", {"dir/file": ""})
    (tmp_path / "shared").touch()
    (tmp_path / "task/up").symlink_to("../shared")
    (tmp_path / "task/folder").symlink_to("./dir/")
    found = {entry.path: entry for entry in scan(dockerfile, root=tmp_path).entries}
    assert found["up"].target == "../shared"
    assert found["folder"].kind is Kind.LINK
    assert found["folder"].target == "./dir/"
    assert "folder/file" not in found, "a link to a folder isn't followed"
    assert "the link up leaves the root" in problems(dockerfile)


def test_what_is_ignored_is_neither_counted_nor_checked_nor_entered(tmp_path: Path) -> None:
    dockerfile = tree(tmp_path / "tasks/a", {"keep": "", "skip/1": "", "skip/2": "", "kept/.env": ""})
    (tmp_path / "tasks/a/skip/bad").symlink_to("/etc/passwd")
    (tmp_path / "tasks/a/.dockerignore").write_text("keep\n")
    (tmp_path / ".dockerignore").write_text("tasks/*/skip\n**/.env\n**/.dockerignore\n")
    context = scan(dockerfile, root=tmp_path, max_files=2)
    assert paths(context) == ["Dockerfile", "keep", "kept"], "only the root's file counts"


def test_a_folders_own_ignore_file_counts_where_the_root_has_none(tmp_path: Path) -> None:
    """As Docker reads it when that folder is its context: patterns relative to the folder."""
    dockerfile = tree(tmp_path / "task/environment", {"keep": "", "skip": "", "a/skip": "", "notes.md": ""})
    (tmp_path / "task/environment/shared").symlink_to("../shared")
    (tmp_path / "task/shared").touch()
    (tmp_path / "task/environment/.dockerignore").write_text("/skip\n**/*.md\n.dockerignore\n")
    context = scan(dockerfile, root=tmp_path / "task")
    assert paths(context) == ["Dockerfile", "a", "a/skip", "keep", "shared"], "links may still end below the root"
    assert context.passed_over is None


def test_the_roots_ignore_file_wins_and_the_other_is_named(tmp_path: Path) -> None:
    dockerfile = tree(tmp_path / "a", {"keep": "", "skip": ""})
    (tmp_path / "a/.dockerignore").write_text("keep\n.dockerignore\n")
    (tmp_path / ".dockerignore").write_text("a/skip\n")
    context = scan(dockerfile, root=tmp_path)
    assert paths(context) == [".dockerignore", "Dockerfile", "keep"]
    assert context.passed_over == tmp_path / "a/.dockerignore"
    assert scan(dockerfile).passed_over is None, "where the folder is the root there is one file"


def test_the_ignore_file_of_one_dockerfile_comes_first(tmp_path: Path) -> None:
    tree(tmp_path / "a", {"one": "", "two": ""})
    (tmp_path / "a/Dockerfile").rename(tmp_path / "a/x.dockerfile")
    (tmp_path / "a/.dockerignore").write_text("one\n")
    (tmp_path / "a/x.dockerfile.dockerignore").write_text("two\n**/*ignore\n")
    for root in (tmp_path, tmp_path / "a"):
        assert paths(scan(tmp_path / "a/x.dockerfile", root=root)) == ["one", "x.dockerfile"]


def test_the_remedy_names_the_ignore_file_that_counts(tmp_path: Path) -> None:
    dockerfile = tree(tmp_path / "a", {"1": "", "2": ""})
    assert f"in {tmp_path}/.dockerignore" in problems(dockerfile, root=tmp_path, max_files=1)
    (tmp_path / "a/.dockerignore").write_text("1\n")
    assert f"in {tmp_path}/a/.dockerignore" in problems(dockerfile, root=tmp_path, max_files=1)


def test_an_exception_is_found_in_an_ignored_folder(tmp_path: Path) -> None:
    dockerfile = tree(tmp_path, {"data/big": "", "data/deep/keep": "", "other/keep": ""})
    (tmp_path / ".dockerignore").write_text("data\nother\n.dockerignore\n!data/deep/keep\n")
    assert paths(scan(dockerfile)) == ["Dockerfile", "data/deep/keep"]


def test_the_dockerfile_goes_in_whatever_the_rules_say_and_by_any_name(tmp_path: Path) -> None:
    tree(tmp_path / "task", {"file": ""})
    (tmp_path / "task/Dockerfile").rename(tmp_path / "task/build.dockerfile")
    for rules in ("*\n", "task\n", "**/*.dockerfile\n**/file\n"):
        (tmp_path / ".dockerignore").write_text(rules)
        assert paths(scan(tmp_path / "task/build.dockerfile", root=tmp_path)) == ["build.dockerfile"]


def test_a_dockerfile_that_is_a_link_must_stay_in_the_root(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text(DOCKERFILE)
    (tmp_path / "root/task").mkdir(parents=True)
    (tmp_path / "root/shared").write_text(DOCKERFILE)
    dockerfile = tmp_path / "root/task/Dockerfile"
    dockerfile.symlink_to("../shared")
    assert scan(dockerfile, root=tmp_path / "root").entries[0].kind is Kind.FILE
    dockerfile.unlink()
    dockerfile.symlink_to("../../outside")
    assert "the Dockerfile Dockerfile is a link that leaves the root" in problems(dockerfile, root=tmp_path / "root")


def test_a_missing_dockerfile_and_a_root_elsewhere_are_named(tmp_path: Path) -> None:
    assert "no such Dockerfile" in problems(tmp_path / "Dockerfile")
    dockerfile = tree(tmp_path / "a", {})
    (tmp_path / "b").mkdir()
    assert "isn't below the benchmark's root" in problems(dockerfile, root=tmp_path / "b")


def test_a_root_may_be_named_through_a_link(tmp_path: Path) -> None:
    dockerfile = tree(tmp_path / "real/task", {"x": "", "y": ""})
    (tmp_path / "real/.dockerignore").write_text("task/x\n")
    (tmp_path / "alias").symlink_to("real")
    assert paths(scan(dockerfile, root=tmp_path / "alias")) == ["Dockerfile", "y"]


@contextmanager
def someone_else() -> Iterator[None]:
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_what_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    for folder in (tmp_path, *list(tmp_path.parents)[:2]):
        folder.chmod(0o755)
    dockerfile = tree(tmp_path, {"secret": "", "closed/file": ""})
    (tmp_path / "secret").chmod(0)
    (tmp_path / "closed").chmod(0)
    with someone_else():
        said = problems(dockerfile)
    (tmp_path / "closed").chmod(0o755)
    assert "the file secret can't be read" in said
    assert "the folder closed/ can't be read" in said


def test_a_full_context_is_checked_and_digested_well_within_a_second(tmp_path: Path) -> None:
    dockerfile = tree(tmp_path, {f"d{number % 64}/f{number}": f"content {number}\n" * 50 for number in range(4095)})
    (tmp_path / ".dockerignore").write_text("**/.git\n**/*.pyc\n.dockerignore\n")
    began = time.process_time()
    context = scan(dockerfile)
    context_digest(context, digest_files(context, DigestCache()))
    assert context.files == 4096
    assert time.process_time() - began < 0.8
