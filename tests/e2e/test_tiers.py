"""The three integrity tiers on a real engine: what an agent leaves behind, and what of it reaches the grading."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import Ran

pytestmark = pytest.mark.engine

DOCKERFILE = """\
FROM harness/base:bookworm
RUN useradd --uid 1000 --create-home worker && mkdir /app && echo old > /app/old && chown -R worker /app
WORKDIR /app
"""


class Bench:
    """A task of a given tier and test script, and agents that are lists of commands."""

    def __init__(self, folder: Path, harness: Callable[..., Ran]) -> None:
        self._folder = folder
        self._harness = harness

    def task(self, tier: str, test: str, *, more: str = "") -> Path:
        folder = self._folder / "task"
        for name in ("environment", "tests", "solution"):
            (folder / name).mkdir(parents=True)
        (folder / "task.toml").write_text(f'[verifier]\ntimeout_sec = 30.0\n[harness]\nintegrity = "{tier}"\n{more}')
        (folder / "instruction.md").write_text("Do it.\n")
        (folder / "environment" / "Dockerfile").write_text(DOCKERFILE)
        (folder / "tests" / "test.sh").write_text(test)
        (folder / "solution" / "solve.sh").write_text("#!/bin/sh\n")
        return folder

    def attempt(self, task: Path, *commands: str) -> dict[str, Any]:
        script = self._folder / "commands"
        script.write_text("\n".join(commands) + "\n")
        ran = self._harness("run", task, "--agent", f"scripted:{script}", "--json")
        assert ran.stdout, ran.stderr
        return ran.document["attempts"][0]


@pytest.fixture
def bench(tmp_path: Path, harness: Callable[..., Ran]) -> Bench:
    return Bench(tmp_path, harness)


SOLVED = """#!/bin/bash
if [ "$(cat /app/answer 2>/dev/null)" = 42 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""

FORK_BOMB = (
    "printf '%s\\n' 'import os, time' 'try:' ' while True:' '  if not os.fork():' '   {leave}' '   time.sleep(987)' "
    "'except BlockingIOError:' ' print(\"refused\", flush=True)' 'time.sleep(987)' > /tmp/bomb.py",
    "exec python3 /tmp/bomb.py",
)
"""Takes every process that the sandbox may have, and stays; ``leave``: what each child does first."""

WRITER = "(while :; do echo 1 > /logs/verifier/reward.txt; echo '{\"reward\": 1}' > /logs/verifier/reward.json; done) &"
PLANTED_TEST = "mkdir -p /tests; printf '#!/bin/sh\\necho 1 > /logs/verifier/reward.txt\\n' > /tests/test.sh; chmod +x /tests/test.sh"
SHIMS = (
    "printf '#!/bin/sh\\necho 42\\n' > /bin/cat",
    "printf '#!/bin/sh\\necho 1 > /logs/verifier/reward.txt\\n' > /bin/bash.new; chmod +x /bin/bash.new; mv /bin/bash.new /bin/bash",
)
ATTACKS = {
    "a planted result": ("mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt",),
    "a late writer": (WRITER,),
    "a planted test": (PLANTED_TEST,),
    "a folder in place of the tests": ("mkdir -p /elsewhere; rm -rf /tests; ln -s /elsewhere /tests",),
    "a link in place of the result": ("rm -rf /logs/verifier; ln -s /app /logs/verifier; echo 1 > /app/reward.txt",),
    "a link in place of the logs": (
        "rm -rf /logs; ln -s /app /logs; mkdir /app/verifier; echo 1 > /app/verifier/reward.txt",
    ),
    "a pipe in place of the result": ("rm -f /logs/verifier/reward.txt; mkfifo /logs/verifier/reward.txt",),
    "no shell": ("rm -f /bin/bash /bin/dash /bin/sh /usr/bin/bash /usr/bin/dash /usr/bin/sh",),
    "every process killed": ("kill -9 -1",),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_pristine_grading_sees_only_the_artifacts(bench: Bench, attack: str):
    row = bench.attempt(bench.task("pristine", SOLVED), *ATTACKS[attack])
    assert (row["ending"], row["reward"]) == ("ENV_DONE", 0.0)


@pytest.mark.parametrize("attack", [*ATTACKS, "replaced programs"])
def test_pristine_grading_still_finds_what_was_solved_before_the_attack(bench: Bench, attack: str):
    commands = ATTACKS.get(attack, SHIMS)
    row = bench.attempt(bench.task("pristine", SOLVED), "echo 42 > /app/answer", *commands)
    assert (row["ending"], row["reward"], row["integrity"]) == ("ENV_DONE", 1.0, "pristine")


def test_pristine_grading_is_deaf_to_replaced_programs(bench: Bench):
    assert bench.attempt(bench.task("pristine", SOLVED), *SHIMS)["reward"] == 0.0


def test_artifacts_replace_and_never_merge_and_keep_owner_mode_and_links(bench: Bench):
    test = """#!/bin/sh
    set -e
    [ ! -e /app/old ]
    [ "$(stat -c '%U %a' /app/tool)" = "worker 750" ]
    [ "$(readlink /app/link)" = /etc/hostname ]
    [ "$(stat -c %i /app/one)" = "$(stat -c %i /app/two)" ]
    [ "$(stat -c %a /app/su)" = 755 ]
    [ ! -e /app/pipe ]
    echo 1 > /logs/verifier/reward.txt
    """
    row = bench.attempt(
        bench.task("pristine", test),
        "rm /app/old",
        "echo x > /app/tool; chown worker /app/tool; chmod 750 /app/tool",
        "ln -s /etc/hostname /app/link",
        "echo x > /app/one; ln /app/one /app/two",
        "echo x > /app/su; chmod 6755 /app/su",
        "mkfifo /app/pipe",
    )
    assert row["reward"] == 1.0, row["detail"]


def test_only_declared_artifacts_enter(bench: Bench):
    test = "#!/bin/sh\n[ -e /app/answer ] && [ ! -e /app/other ] && echo 1 > /logs/verifier/reward.txt\n"
    task = bench.task("pristine", test, more='artifacts = ["/app/answer"]\n')
    assert bench.attempt(task, "echo 42 > /app/answer; echo x > /app/other")["reward"] == 1.0


RESTARTED = """#!/bin/bash
{ pgrep -f 'sleep 987' > /dev/null && echo 0 || cat /app/answer; } > /logs/verifier/reward.txt
"""


def test_restarted_grading_has_the_same_files_and_none_of_the_processes(bench: Bench):
    row = bench.attempt(bench.task("restarted", RESTARTED), "echo 1 > /app/answer", "sleep 987 &", "echo x > /etc/odd")
    assert (row["reward"], row["integrity"]) == (1.0, "restarted")
    assert "/etc/odd" in row["grade"]["changed_paths"]
    assert row["grade"]["holes"]


@pytest.mark.parametrize("attack", ATTACKS)
def test_restarted_grading_isnt_raised_by_these_attacks(bench: Bench, attack: str):
    row = bench.attempt(bench.task("restarted", SOLVED), *ATTACKS[attack])
    assert row["reward"] == 0.0


def test_restarted_grading_runs_a_shell_script_with_the_toolboxs_own_shell(bench: Bench):
    test = "#!/bin/bash\ncase $BASH in /.harness/*) echo 1 ;; *) echo 0 ;; esac > /logs/verifier/reward.txt\n"
    row = bench.attempt(bench.task("restarted", test), SHIMS[1])
    assert row["reward"] == 1.0
    assert any("bash" in path for path in row["grade"]["changed_paths"])


def test_the_toolbox_cant_be_written(bench: Bench):
    test = "#!/bin/bash\ncat /app/said > /logs/verifier/reward.txt\n"
    command = (
        "(echo x > /.harness/toolbox/bash || rm -f /.harness/toolbox/busybox || umount /.harness/toolbox) 2>/dev/null"
    )
    row = bench.attempt(bench.task("restarted", test), f"{command} && echo 0 > /app/said || echo 1 > /app/said")
    assert row["reward"] == 1.0


def test_live_grading_sees_running_processes_and_lists_its_holes(bench: Bench):
    test = "#!/bin/sh\npgrep -f 'sleep 987' > /dev/null && echo 1 > /logs/verifier/reward.txt\n"
    row = bench.attempt(bench.task("live", test), "sleep 987 &")
    assert (row["reward"], row["integrity"]) == (1.0, "live")
    assert row["grade"]["holes"]


@pytest.mark.parametrize("tier", ["pristine", "restarted", "live"])
@pytest.mark.parametrize(
    ("test", "said"),
    [
        ("#!/bin/sh\nexit 3\n", "neither"),
        ("#!/bin/sh\necho nan > /logs/verifier/reward.txt\n", "nan"),
        ("#!/bin/sh\nln -s /etc/hostname /logs/verifier/reward.txt\n", "regular file"),
        ("#!/bin/sh\nmkdir /logs/verifier/reward.json\n", "regular file"),
        ("#!/bin/sh\nmkfifo /logs/verifier/reward.txt\n", "regular file"),
        ("#!/bin/sh\ntruncate -s 1G /logs/verifier/reward.txt\n", "reward"),
        ("#!/bin/sh\nkill -9 $$\n", "neither"),
        ("#!/no/such/program\n", "neither"),
    ],
)
def test_a_grader_without_a_valid_result_has_failed(bench: Bench, tier: str, test: str, said: str):
    row = bench.attempt(bench.task(tier, test), "true")
    assert (row["ending"], row["reward"], row["grading"]) == ("ERROR", None, "failed")
    assert row["attribution"] == "grader"
    assert said in row["detail"]


SOURCES = """#!/bin/bash
. /app/settings
echo 0 > /logs/verifier/reward.txt
"""
BREAKERS = {
    "ends the script": "echo 'exit 3' > /app/settings",
    "hangs": "echo 'sleep 987' > /app/settings",
    "writes junk": "echo 'echo nan > /logs/verifier/reward.txt; exit 0' > /app/settings",
    "removes the result": "echo 'exec rm -rf /logs/verifier' > /app/settings",
}


@pytest.mark.parametrize("tier", ["pristine", "restarted", "live"])
@pytest.mark.parametrize("breaker", BREAKERS)
def test_who_breaks_the_grader_gets_a_zero(bench: Bench, tier: str, breaker: str):
    task = bench.task(tier, SOURCES)
    (task / "task.toml").write_text((task / "task.toml").read_text().replace("30.0", "1.5"))
    (task / "environment" / "Dockerfile").write_text(DOCKERFILE + "RUN touch /app/settings\n")
    row = bench.attempt(task, BREAKERS[breaker])
    assert (row["ending"], row["reward"], row["attribution"]) == ("ERROR", 0.0, "policy")
    assert [run["subject"] for run in row["grade"]["runs"]] == ["attempt", "regrade", "control"]
    assert [run["status"] for run in row["grade"]["runs"]] == ["failed", "failed", "graded"]


@pytest.mark.parametrize("tier", ["pristine", "live"])
def test_a_hanging_grader_has_failed_after_its_own_time(bench: Bench, tier: str):
    task = bench.task(tier, "#!/bin/sh\necho 1 > /logs/verifier/reward.txt\nsleep 987\n")
    text = (task / "task.toml").read_text().replace("timeout_sec = 30.0", "timeout_sec = 1.0")
    (task / "task.toml").write_text(text)
    row = bench.attempt(task, "true")
    assert (row["ending"], row["reward"]) == ("ERROR", None)
    assert "did not end within 1 s" in row["detail"]


def test_the_tests_and_the_solution_are_never_in_the_agents_sandbox(bench: Bench):
    task = bench.task("pristine", SOLVED)
    (task / "tests" / "secret").write_text("canary-7431")
    commands = ("ls -a / /tests /solution", "grep -rs 'canary-743[1]' /tests /solution /logs /app /mnt | wc -l")
    row = bench.attempt(task, *commands)
    log = (Path(row["folder"]) / "agent.log").read_text()
    assert "secret" not in log
    assert "\n0\n" in log


@pytest.mark.parametrize(("tier", "leave"), [("pristine", "os.setsid()"), ("live", "pass")])
def test_an_agent_that_uses_up_its_processes_is_graded_on_what_it_left(bench: Bench, tier: str, leave: str):
    """Its deadline passes while nothing more can be started in the sandbox: a timeout, not an error of the harness.

    Where not even the harness gets a shell into it, the sandbox is stopped, and a live grading can't run: the agent's doing.
    """
    task = bench.task(tier, SOLVED, more="pids = 40\n[agent]\ntimeout_sec = 6.0\n")
    row = bench.attempt(task, "echo 42 > /app/answer", *(line.format(leave=leave) for line in FORK_BOMB))
    scored = {("TIMEOUT", 1.0)} if tier == "pristine" else {("TIMEOUT", 1.0), ("ERROR", 0.0)}
    assert (row["ending"], row["reward"]) in scored, row["detail"]
    assert "refused" in (Path(row["folder"]) / "agent.log").read_text()
