"""What an agent does to its sandbox must neither hide what it solved, nor make its zero look like the infrastructure's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Ran
from .test_tiers import DOCKERFILE, SOLVED, Bench

pytestmark = pytest.mark.engine


@pytest.fixture
def bench(tmp_path: Path, harness: Callable[..., Ran]) -> Bench:
    return Bench(tmp_path, harness)


HARMLESS = (
    """python3 -c "import os; [(os.mkdir('d' * 10), os.chdir('d' * 10)) for _ in range(1500)]" """,
    "rm /etc/passwd /etc/group",
    "mkfifo pipe; ln pipe second; ln pipe third",
    r"""touch .wh.answer .wh..wh..opq "$(printf 'a\nb')" "$(printf '\033[2J')" "$(printf '\377')" -- -rf""",
    """python3 -c "import socket; socket.socket(socket.AF_UNIX).bind('socket')" """,
    "ln -s a b; ln -s b a; ln -s . dot; ln -s / root",
)
"""Folders too deep for the engine, no users, hard links to a pipe, names that end a line, a socket, links that never end."""


@pytest.mark.parametrize("tier", ["pristine", "restarted"])
def test_what_was_solved_is_seen_whatever_lies_beside_it(bench: Bench, tier: str):
    row = bench.attempt(bench.task(tier, SOLVED), "echo 42 > /app/answer", *HARMLESS)
    assert (row["ending"], row["reward"]) == ("ENV_DONE", 1.0), row["detail"]
    log = (Path(row["folder"]) / "agent.log").read_text()
    assert log.count("[harness] exit status 0") == 1 + len(HARMLESS), log


def test_a_file_of_any_name_is_graded_where_it_lay(bench: Bench):
    test = """#!/bin/bash
    cd /home/worker/app && [ "$(cat héllo.txt)" = 1 ] && [ -e "$(printf 'l%.0s' {1..200})" ] && [ ! -e /app/héllo.txt ] &&
        [ "$(stat -c %h "$(printf 'nonutf\\377')")" = 2 ] && echo 1 > /logs/verifier/reward.txt
    """
    task = bench.task("pristine", test)
    workdir = "RUN mkdir /home/worker/app\nWORKDIR /home/worker/app\n"
    (task / "environment" / "Dockerfile").write_text(DOCKERFILE + workdir)
    long_name = "touch $(printf 'l%.0s' $(seq 200))"
    row = bench.attempt(task, "echo 1 > héllo.txt", long_name, r"f=$(printf 'nonutf\377'); touch $f; ln $f hardlink")
    assert row["reward"] == 1.0, row["detail"]


def test_a_sandbox_that_its_agent_made_unstartable_is_no_infrastructure_failure(bench: Bench):
    row = bench.attempt(bench.task("restarted", SOLVED), "mv /.harness /x; touch /.harness")
    assert (row["ending"], row["cause"], row["reward"], row["attribution"]) == ("ERROR", None, 0.0, "policy")
