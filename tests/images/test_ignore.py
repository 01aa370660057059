from __future__ import annotations

import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import ContextError
from harness.images.ignore import FolderMatch, IgnoreRules, load_rules, parse_rules
from tests.images.docker_cli import Cli, StubEngine, find_cli, stub_engine
from tests.images.ignore_cases import make_case

CASES = 2_000
CLI = find_cli()
ALWAYS_SENT = {"Dockerfile", ".dockerignore"}
"""The CLI sends these two in any case and leaves it to the builder to drop them."""


def kept(root: Path, rules: IgnoreRules) -> frozenset[str]:
    """The paths that the rules leave in a tree."""
    found: set[str] = set()

    def walk(folder: str, match: FolderMatch) -> None:
        for entry in os.scandir(root / folder):
            path = f"{folder}/{entry.name}" if folder else entry.name
            if not entry.is_dir(follow_symlinks=False):
                if not rules.ignores(path, match):
                    found.add(path)
                continue
            below = rules.folder(path, match)
            if not below.ignored:
                found.add(path)
            if not below.ignored or rules.reopens(path):
                walk(path, below)

    walk("", rules.root)
    return frozenset(found)


def kept_by_older(root: Path, rules: IgnoreRules) -> frozenset[str]:
    """What CLIs before version 23 keep: they try each rule on a path and on one of its parents, that of the rule's own depth.

    The two ways differ where a rule with ``**`` fits a deeper parent, and where an exception fits a folder that nothing left out.
    """
    found: set[str] = set()

    def ignored(path: str) -> bool:
        result = False
        for rule in rules.rules:
            alone = IgnoreRules((replace(rule, exception=False),))
            parents, depth = path.split("/")[:-1], len(rule.text.split("/"))
            places = [path, "/".join(parents[:depth])] if depth <= len(parents) else [path]
            if rule.exception == result and any(alone.ignores(place, alone.root) for place in places):
                result = not rule.exception
        return result

    def walk(folder: str) -> None:
        for entry in os.scandir(root / folder):
            path = f"{folder}/{entry.name}" if folder else entry.name
            out = ignored(path)
            if not out:
                found.add(path)
            if entry.is_dir(follow_symlinks=False) and (not out or rules.reopens(path)):
                walk(path)

    walk("")
    return frozenset(found)


def refuses_each(stub: StubEngine, cli: Cli, root: Path, error: ContextError) -> bool:
    """Whether the CLI refuses each pattern that we refused, once it must compare it with a path.

    It compiles a pattern only when one is needed, so it can accept a file with an invalid one.
    """
    lines = (root / ".dockerignore").read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n")
    numbers = [int(line.split("line ")[1].split(":")[0]) for line in str(error).splitlines() if ", line " in line]
    for number in numbers:
        pattern = lines[number - 1].strip().lstrip(b"!\t ")
        (root / ".dockerignore").write_bytes(pattern)
        if stub.sent_by(cli, root) is not None:
            return False
    return bool(numbers)


@pytest.mark.skipif(CLI is None, reason="no Docker CLI here")
def test_agrees_with_dockers_cli_on_generated_trees(tmp_path: Path) -> None:
    assert CLI is not None
    compared = refused = differing = seed = 0
    root = tmp_path / "tree"
    with stub_engine(tmp_path) as stub:
        while compared < CASES:
            case = make_case(seed)
            seed += 1
            if not CLI.reads_alike(case.ignore):
                continue
            compared += 1
            case.write(root)
            theirs = stub.sent_by(CLI, root)
            try:
                rules = load_rules(root)
                ours = kept(root, rules)
            except ContextError as error:
                refused += 1
                assert theirs is None or refuses_each(stub, CLI, root, error), (seed, case.ignore, str(error))
            else:
                assert theirs is not None, (seed, case.ignore)
                expected = ours if CLI.version >= 23 else kept_by_older(root, rules)
                assert expected - ALWAYS_SENT == theirs - ALWAYS_SENT, (seed, case.ignore)
                differing += expected != ours
            shutil.rmtree(root)
    assert refused < compared / 4
    assert differing < compared / 50


def test_patterns_are_relative_to_the_root() -> None:
    rules = parse_rules(b"/tasks/a/data\n*.log\n")
    task = rules.folder("tasks/a", rules.folder("tasks", rules.root))
    assert rules.folder("tasks/a/data", task).ignored
    assert not rules.folder("tasks/b/data", rules.folder("tasks", rules.root)).ignored
    assert not rules.ignores("tasks/a/x.log", task), "a pattern without ** is for the root alone"
    assert rules.ignores("x.log", rules.root)


@pytest.mark.parametrize(
    ("content", "line", "why"),
    [
        (b"ok\n[a\n", 2, "class"),
        (b"!\n", 1, "path after it"),
        (b"# fine\n\n\\", 3, "backslash"),
        (b"a[z-a]", 1, "backwards"),
        (b"x" * 70_000, 1, "longer"),
    ],
)
def test_an_invalid_pattern_names_file_and_line(tmp_path: Path, content: bytes, line: int, why: str) -> None:
    (tmp_path / ".dockerignore").write_bytes(content)
    with pytest.raises(ContextError, match=why) as caught:
        load_rules(tmp_path)
    assert f"{tmp_path / '.dockerignore'}, line {line}:" in str(caught.value)


def test_all_invalid_patterns_are_named_at_once() -> None:
    with pytest.raises(ContextError) as caught:
        parse_rules(b"[\nok\n!\n[]\n")
    assert [f"line {number}" in str(caught.value) for number in (1, 2, 3, 4)] == [True, False, True, True]


def test_no_file_means_no_rules(tmp_path: Path) -> None:
    assert load_rules(tmp_path) == IgnoreRules()


segment = st.text(alphabet="ab.*?", min_size=1, max_size=4)


@given(
    st.lists(st.tuples(st.booleans(), st.lists(segment, min_size=1, max_size=3)), max_size=6),
    st.text("ab", min_size=1, max_size=3),
)
def test_a_file_is_judged_as_a_folder_of_that_name_would_be(lines: list[tuple[bool, list[str]]], name: str) -> None:
    """The quick way for files, by runs of rules, agrees with the rule by rule way for folders."""
    text = "\n".join(("!" if exception else "") + "/".join(parts) for exception, parts in lines)
    rules = parse_rules(text.encode())
    top = rules.folder("a", rules.root)
    assert rules.ignores(f"a/{name}", top) == rules.folder(f"a/{name}", top).ignored
    assert rules.ignores(name, rules.root) == rules.folder(name, rules.root).ignored


def test_a_hundred_thousand_files_are_judged_within_a_second() -> None:
    rules = parse_rules(
        b"# usual\n**/.git\n**/__pycache__\n**/*.pyc\n.venv\nruns\n*.log\nbuild/**\n!build/keep\ndocs/*.md\n"
    )
    folders = [f"src/pkg{number:03}" for number in range(100)]
    files = [f"module_{number:04}.py" for number in range(1000)]
    began = time.process_time()
    top = rules.folder("src", rules.root)
    ignored = 0
    for folder in folders:
        match = rules.folder(folder, top)
        for file in files:
            ignored += rules.ignores(f"{folder}/{file}", match)
    assert ignored == 0
    assert time.process_time() - began < 1.0
