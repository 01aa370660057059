from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harness.images.archive import DigestCache, digest_files
from harness.images.context import scan_context
from harness.images.identity import Recipe, context_digest, tag_of
from harness.task.image import ContextLimits
from tests.images.test_context import tree

RECIPE = Recipe(
    context="c",
    dockerfile="FROM a\n",
    args={"A": "1", "B": "2"},
    target=None,
    platform=None,
    bases={"FROM a": "sha256:1"},
    certificates="",
)


def digest(dockerfile: Path) -> str:
    context = scan_context(dockerfile, root=None, limits=ContextLimits())
    return context_digest(context, digest_files(context, DigestCache()))


@pytest.fixture
def dockerfile(tmp_path: Path) -> Path:
    made = tree(tmp_path / "here", {"a/file": "1", "b": "2"})
    (tmp_path / "here/link").symlink_to("b")
    (tmp_path / "here/empty").mkdir()
    return made


def test_place_time_and_working_directory_change_nothing(
    dockerfile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = digest(dockerfile)
    shutil.copytree(dockerfile.parent, tmp_path / "deep/elsewhere", symlinks=True)
    os.utime(tmp_path / "deep/elsewhere/b", (1, 1))
    monkeypatch.chdir(tmp_path / "deep")
    assert digest(Path("elsewhere/Dockerfile")) == before


CHANGES: dict[str, Callable[[Path], object]] = {
    "content": lambda folder: (folder / "b").write_text("3"),
    "mode": lambda folder: (folder / "b").chmod(0o755),
    "name": lambda folder: (folder / "a/file").rename(folder / "a/other"),
    "new file": lambda folder: (folder / "new").touch(),
    "new folder": lambda folder: (folder / "new").mkdir(),
    "link": lambda folder: ((folder / "link").unlink(), (folder / "link").symlink_to("a/file")),
    "link to file": lambda folder: ((folder / "link").unlink(), (folder / "link").write_text("2")),
    "gone folder": lambda folder: (folder / "empty").rmdir(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_of_the_tree_changes_it(dockerfile: Path, change: str) -> None:
    before = digest(dockerfile)
    CHANGES[change](dockerfile.parent)
    assert digest(dockerfile) != before


@pytest.mark.parametrize(
    "other",
    [
        replace(RECIPE, context="d"),
        replace(RECIPE, dockerfile="FROM b\n"),
        replace(RECIPE, args={"A": "1"}),
        replace(RECIPE, args={"A": "2", "B": "1"}),
        replace(RECIPE, target="x"),
        replace(RECIPE, platform="linux/arm64"),
        replace(RECIPE, bases={"FROM a": "sha256:2"}),
        replace(RECIPE, certificates="e"),
    ],
)
def test_every_part_of_a_recipe_changes_it(other: Recipe) -> None:
    assert other.identity() != RECIPE.identity()


def test_the_order_of_arguments_changes_nothing() -> None:
    assert replace(RECIPE, args={"B": "2", "A": "1"}).identity() == RECIPE.identity()


def test_a_tag_is_made_of_the_first_32_digits() -> None:
    assert tag_of("build", RECIPE.identity()) == f"harness/build:{RECIPE.identity()[:32]}"
