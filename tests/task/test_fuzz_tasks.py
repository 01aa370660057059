"""Whatever a file holds, reading it ends in a task or in a TaskError."""

from __future__ import annotations

import datetime
import json
import math
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.errors import TaskError
from harness.task.harbor import TaskFile
from harness.task.load import load_task

from .conftest import MakeTask

FUZZ = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])

PLAIN = st.characters(exclude_categories=["Cs"])
WORDS = st.sampled_from(
    [
        "",
        "public",
        "allowlist",
        "separate",
        "shared",
        "live",
        "pristine",
        "10G",
        "/app",
        "/",
        "a/b",
        "one",
        "..",
        "${A}",
        "${A:-b}",
        "x\0y",
    ]
)
SCALARS = st.one_of(
    WORDS,
    st.text(PLAIN, max_size=20),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.booleans(),
    st.just(datetime.date(2026, 1, 1)),
)


def _fields(annotation: Any = TaskFile) -> list[str]:
    names: set[str] = set()

    def visit(model: Any) -> None:
        for name, info in getattr(model, "model_fields", {}).items():
            if name not in names:
                names.add(name)
                stack = [info.annotation]
                while stack:
                    inner = stack.pop()
                    stack.extend(getattr(inner, "__args__", ()))
                    visit(inner)

    visit(annotation)
    return sorted(names)


NAMES = st.one_of(st.sampled_from(_fields()), st.text(PLAIN, max_size=5))
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=5), max_leaves=12
)
DOCUMENTS = st.dictionaries(NAMES, VALUES | st.dictionaries(NAMES, VALUES, max_size=6), max_size=8)


def _toml(value: Any) -> str:
    """A value as TOML writes it inline."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            return json.dumps(value).replace("\x7f", "\\u007f")
        case float():
            return (
                str(value)
                if math.isfinite(value)
                else {True: "nan"}.get(math.isnan(value), "inf" if value > 0 else "-inf")
            )
        case dict():
            table = cast("dict[str, Any]", value)
            return "{" + ", ".join(f"{_toml(key)} = {_toml(item)}" for key, item in table.items()) + "}"
        case list():
            return "[" + ", ".join(_toml(item) for item in cast("list[Any]", value)) + "]"
        case _:
            return str(value)


def _load(path: Path) -> None:
    try:
        load_task(path, environ={"A": "1"})
    except TaskError as error:
        assert error.problems
        for problem in error.problems:
            assert problem.where
            assert problem.what
            assert problem.remedy
            assert "\n" not in str(problem)


@pytest.fixture
def task(make_task: MakeTask) -> Path:
    return make_task(files={"steps/one/instruction.md": "One."})


@FUZZ
@given(st.binary(max_size=200))
def test_any_bytes(task: Path, content: bytes) -> None:
    (task / "task.toml").write_bytes(content)
    _load(task)


@FUZZ
@given(st.text(PLAIN, max_size=200))
def test_any_text(task: Path, content: str) -> None:
    (task / "task.toml").write_text(content)
    _load(task)


@FUZZ
@given(DOCUMENTS)
def test_any_document(task: Path, document: dict[str, Any]) -> None:
    (task / "task.toml").write_text("\n".join(f"{_toml(key)} = {_toml(value)}" for key, value in document.items()))
    _load(task)


@FUZZ
@given(st.binary(max_size=100))
def test_any_instruction(task: Path, content: bytes) -> None:
    (task / "task.toml").write_text("")
    (task / "instruction.md").write_bytes(content)
    _load(task)
