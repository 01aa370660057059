"""What can be said of the example tasks without an engine. That the oracle passes and nop fails is tested where they are run."""

import ast
import json
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "examples" / "tasks"
TASKS = sorted(path.parent.name for path in ROOT.glob("*/task.toml"))


def parts(name: str) -> list[Path]:
    """The folders that hold instruction, solution and tests: the task's own, or one for each step."""
    steps = tomllib.loads((ROOT / name / "task.toml").read_text()).get("steps", [])
    return [ROOT / name / "steps" / step["name"] for step in steps] or [ROOT / name]


@pytest.mark.parametrize("name", TASKS)
def test_every_task_is_whole(name: str):
    assert (ROOT / name / "environment" / "Dockerfile").read_text().startswith("FROM harness/base:bookworm\n")
    for part in parts(name):
        assert (part / "instruction.md").read_text().strip()
        for script in (part / "solution" / "solve.sh", part / "tests" / "test.sh"):
            assert script.stat().st_mode & 0o111, script
            assert script.read_text().startswith("#!"), script


@pytest.mark.parametrize("name", TASKS)
def test_no_solution_or_test_can_reach_the_build_context(name: str):
    context = {path.name for path in (ROOT / name / "environment").rglob("*")}
    for part in parts(name):
        for folder in ("solution", "tests"):
            assert not context & {path.name for path in (part / folder).iterdir()} - {"orders.csv"}


def test_the_splits_hold_every_task_once():
    splits = tomllib.loads((ROOT / "benchmark.toml").read_text())["splits"]
    assert sorted(splits["train"] + splits["test"]) == TASKS


def test_fix_bug_lists_every_test_once():
    tests = ROOT / "fix-bug" / "tests"
    tree = ast.parse((tests / "test_indexedset.py").read_text())
    written = [
        f"{each.name}.{method.name}"
        for each in tree.body
        if isinstance(each, ast.ClassDef)
        for method in each.body
        if isinstance(method, ast.FunctionDef) and method.name.startswith("test_")
    ]
    listed = json.loads((tests / "expected.json").read_text())
    assert sorted(listed["fail_to_pass"] + listed["pass_to_pass"]) == sorted(written)
    assert listed["fail_to_pass"] and listed["pass_to_pass"]
