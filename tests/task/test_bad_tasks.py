"""Every way to spoil a task ends in one TaskError that names the place, what is wrong and how to mend it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import pytest

from harness.errors import TaskError
from harness.task.load import load_task

from .conftest import Files, MakeTask

HARBOR = "schema_version = '1.4'\n"


class Bad(NamedTuple):
    """A spoiled task.toml or file, the place that must be named, and words that must be in the message."""

    toml: str | bytes
    where: str
    what: str
    files: Files = {}


DEEP = "a = " + "[" * 5000 + "]" * 5000
STEP = "[[steps]]\nname = 'one'\n"
STEP_FILES: Files = {"steps/one/instruction.md": "Do one.", "steps/one/tests/test.sh": "#!/bin/bash\n"}
SEPARATE = "[verifier]\nenvironment_mode = 'separate'\n"

BAD_TOML = {
    "syntax": Bad("[agent\n", "task.toml:1:7", "not valid TOML"),
    "no-value": Bad("[agent]\ntimeout_sec = \n", "task.toml:2:15", 'The line reads: "timeout_sec ="'),
    "open-string": Bad('a = """x', "task.toml:1:9", "not valid TOML"),
    "twice": Bad("[agent]\nuser='a'\nuser='b'\n", "task.toml:3:", "not valid TOML"),
    "bytes": Bad(b"[agent]\nuser = '\xff'\n", "task.toml:2", "not UTF-8: byte 0xff"),
    "bom": Bad(b"\xef\xbb\xbf[agent]\n", "task.toml:1:1", "byte order mark"),
    "nul": Bad(b"\x00", "task.toml:1:1", "not valid TOML"),
    "deep": Bad(DEEP, "task.toml", "nested too deeply"),
    "long-number": Bad("[agent]\ntimeout_sec = 1" + "0" * 5000, "task.toml", "not valid TOML"),
    "huge": Bad("#" * (1024**2 + 1), "task.toml", "larger than"),
}

BAD_TYPES = {
    "text-timeout": Bad("[agent]\ntimeout_sec = 'soon'\n", "agent.timeout_sec", 'must be a number, not "soon"'),
    "negative": Bad("[agent]\ntimeout_sec = -3\n", "agent.timeout_sec", "must be above 0, not -3"),
    "zero": Bad("[verifier]\ntimeout_sec = 0\n", "verifier.timeout_sec", "must be above 0, not 0"),
    "nan": Bad("[agent]\ntimeout_sec = nan\n", "agent.timeout_sec", "must be a finite number"),
    "inf": Bad("[environment]\nbuild_timeout_sec = inf\n", "environment.build_timeout_sec", "must be a finite number"),
    "bool-number": Bad("[environment]\ncpus = true\n", "environment.cpus", "must be a number, not true"),
    "bool-int": Bad("[environment]\nmemory_mb = true\n", "environment.memory_mb", "must be a whole number, not true"),
    "fraction": Bad("[environment]\nmemory_mb = 1.5\n", "environment.memory_mb", "must be a whole number, not 1.5"),
    "memory-overflow": Bad("[environment]\nmemory_mb = 99999999999999\n", "environment.memory_mb", "at most"),
    "section": Bad("agent = 3\n", "task.toml: agent", "must be a table, not 3"),
    "section-list": Bad("[[environment]]\n", "task.toml: environment", "must be a table"),
    "own-section": Bad("harness = 'pristine'\n", "task.toml: harness", "must be a table"),
    "steps-table": Bad("[steps]\n", "task.toml: steps", "must be a list"),
    "step-number": Bad("steps = [3]\n", "steps[0]", "must be a table, not 3"),
    "metadata": Bad("metadata = 1\n", "task.toml: metadata", "must be a table"),
    "version-number": Bad("schema_version = 1.4\n", "schema_version", "must be text, not 1.4"),
    "env-number": Bad("[environment.env]\nPORT = 80\n", "environment.env.PORT", 'Put it in quotes: "80"'),
    "env-name": Bad("[environment.env]\n'A=B' = 'x'\n", "environment.env", "can't be a variable's name"),
    "env-nul": Bad('[environment.env]\nA = "x\\u0000"\n', "environment.env.A", "NUL"),
    "user-list": Bad("[agent]\nuser = ['root']\n", "agent.user", "must be a user's name or number"),
    "user-bool": Bad("[agent]\nuser = true\n", "agent.user", "must be a user's name or number"),
    "user-odd": Bad("[verifier]\nuser = 'a b'\n", "verifier.user", 'Write user = "name"'),
    "user-negative": Bad("[agent]\nuser = -1\n", "agent.user", "can't be a user"),
    "legacy-size": Bad("[environment]\nmemory = '2 apples'\n", "environment.memory", "is not a size"),
    "legacy-number": Bad("[environment]\nstorage = 10\n", "environment.storage", "must be text with a unit, not 10"),
    "mode": Bad(
        "[environment]\nnetwork_mode = 'no_network'\n", "environment.network_mode", 'Did you mean "no-network"?'
    ),
    "tests-mode": Bad(
        "[verifier]\nenvironment_mode = 'seperate'\n", "verifier.environment_mode", 'Did you mean "separate"?'
    ),
    "strategy": Bad("multi_step_reward_strategy = 'avg'\n", "multi_step_reward_strategy", "Known: mean, final"),
    "healthcheck": Bad("[environment.healthcheck]\nretries = 2\n", "environment.healthcheck.command", "missing"),
    "retries": Bad("[environment.healthcheck]\ncommand='x'\nretries = -1\n", "healthcheck.retries", "at least 0"),
    "collect": Bad("[[verifier.collect]]\ntimeout_sec = 3\n", "verifier.collect[0].command", "missing"),
    "empty-command": Bad("[[verifier.collect]]\ncommand = ''\n", "verifier.collect[0].command", "must not be empty"),
    "author": Bad("[task]\nname='a/b'\nauthors=[{email='x'}]\n", "task.authors[0].name", "missing"),
    "keywords": Bad("[task]\nname='a/b'\nkeywords='x'\n", "task.keywords", 'must be a list, not "x"'),
    "nameless": Bad("[task]\nversion='1'\n", "task.name", "missing"),
    "artifact-type": Bad("artifacts = [3]\n", "artifacts[0]", "must be a table, not 3"),
    "artifact-empty": Bad("artifacts = [{}]\n", "artifacts[0].source", "missing"),
    "internet": Bad("[environment]\nallow_internet = 'no'\n", "environment.allow_internet", "must be true or false"),
}

BAD_VALUES = {
    "name": Bad("[task]\nname = 'one'\n", "task.name", "Write org/name"),
    "name-dots": Bad("[task]\nname = 'a/b..c'\n", "task.name", "can't be a task's name"),
    "hosts-without-list": Bad(
        "[environment]\nallowed_hosts=['a.org']\n", "environment.allowed_hosts", 'Set network_mode = "allowlist"'
    ),
    "hosts-public": Bad(
        "[agent]\nnetwork_mode='public'\nallowed_hosts=['a.org']\n", "agent.allowed_hosts", "is not allowlist"
    ),
    "url": Bad(
        "[environment]\nnetwork_mode='allowlist'\nallowed_hosts=['https://a.org']\n",
        "allowed_hosts[0]",
        "without scheme",
    ),
    "port": Bad(
        "[environment]\nnetwork_mode='allowlist'\nallowed_hosts=['ok.org','a.org:443']\n",
        "allowed_hosts[1]",
        "a.org:443",
    ),
    "wildcard": Bad(
        "[environment]\nnetwork_mode='allowlist'\nallowed_hosts=['a.*.org']\n", "allowed_hosts[0]", "allow-list"
    ),
    "wildcard-ip": Bad(
        "[environment]\nnetwork_mode='allowlist'\nallowed_hosts=['*.10.0.0.1']\n", "allowed_hosts[0]", "allow-list"
    ),
    "cidr": Bad(
        "[environment]\nnetwork_mode='allowlist'\nallowed_hosts=['10.0.0.1/8']\n", "allowed_hosts[0]", "allow-list"
    ),
    "two-memories": Bad("[environment]\nmemory='2G'\nmemory_mb=1024\n", "environment.memory_mb", "1024 MB and 2048 MB"),
    "host-variable": Bad(
        "[environment.env]\nKEY='${NOT_THERE}'\n", "environment.env.KEY", "the host has no variable NOT_THERE"
    ),
    "grader-variable": Bad("[verifier.env]\nKEY='${NOT_THERE}'\n", "verifier.env.KEY", "${NOT_THERE:-value}"),
    "workdir": Bad("[environment]\nworkdir = 'app'\n", "environment.workdir", "not an absolute path"),
    "workdir-up": Bad("[environment]\nworkdir = '/app/../x'\n", "environment.workdir", "'..'"),
    "workdir-root": Bad("[environment]\nworkdir = '/'\n[harness]\n", "environment.workdir", "harness.artifacts"),
    "image": Bad("[environment]\ndocker_image = 'a b'\n", "environment.docker_image", "can't name an image"),
    "empty-image": Bad("[environment]\ndocker_image = ''\n", "environment.docker_image", "must not be empty"),
    "shared-with-own": Bad(
        "[verifier]\nenvironment_mode='shared'\n[verifier.environment]\ncpus=1\n",
        "verifier.environment_mode",
        "Remove one of the two",
    ),
    "artifact-relative": Bad("artifacts = ['out.txt']\n", "artifacts[0].source", "not an absolute path"),
    "artifact-up": Bad("artifacts = ['/a/../b']\n", "artifacts[0].source", "'..'"),
    "destination-up": Bad(
        "artifacts=[{source='/a',destination='../b'}]\n", "artifacts[0].destination", "can't be a destination"
    ),
    "destination-root": Bad(
        "artifacts=[{source='/a',destination='/b'}]\n", "artifacts[0].destination", "relative path"
    ),
    "destination-taken": Bad(
        "artifacts=[{source='/a',destination='manifest.json'}]\n", "artifacts[0].destination", "is taken"
    ),
    "planted-tests": Bad("artifacts=['/app', '/tests/x']\n" + SEPARATE, "artifacts[1]", "grader's own places"),
    "planted-step": Bad(
        SEPARATE + "[[steps]]\nname='one'\nartifacts=['/logs/verifier/']\n",
        "steps[0].artifacts[0]",
        "grader's own places",
        STEP_FILES,
    ),
}

BAD_OWN = {
    "unknown": Bad("[harness]\nintegrty = 'live'\n", "harness.integrty", 'Did you mean "integrity"?'),
    "unknown-far": Bad("[harness]\nzzz = 1\n", "harness.zzz", "Known: integrity, artifacts"),
    "tier": Bad("[harness]\nintegrity = 'prestine'\n", "harness.integrity", 'Did you mean "pristine"?'),
    "tier-case": Bad("[harness]\nintegrity = 'LIVE'\n", "harness.integrity", 'Did you mean "live"?'),
    "tier-number": Bad("[harness]\nintegrity = 1\n", "harness.integrity", "Known: pristine, restarted, live"),
    "live-separate": Bad(
        "[harness]\nintegrity='live'\n[verifier.environment]\ncpus=1\n",
        "harness.integrity",
        "a sandbox of the grader's own",
    ),
    "no-artifacts": Bad("[harness]\nartifacts = []\n", "harness.artifacts", "is empty"),
    "relative": Bad("[harness]\nartifacts = ['app']\n", "harness.artifacts[0]", '"/app"'),
    "everything": Bad("[harness]\nartifacts = ['/app', '/']\n", "harness.artifacts[1]", "grader's own places"),
    "logs": Bad("[harness]\nartifacts = ['/logs']\n", "harness.artifacts[0]", "grader's own places"),
    "repository": Bad("[harness]\nrepositories = ['repo']\n", "harness.repositories[0]", "not an absolute path"),
    "capability": Bad(
        "[harness]\ncapabilities = ['SYS_PTRACES']\n", "harness.capabilities[0]", 'Did you mean "SYS_PTRACE"?'
    ),
    "setuid": Bad("[harness]\nallow_setuid = 1\n", "harness.allow_setuid", "must be true or false"),
    "pids": Bad("[harness]\npids = 0\n", "harness.pids", "must be above 0"),
    "pids-text": Bad("[harness]\npids = '512'\n", "harness.pids", 'must be a whole number, not "512"'),
    "disk": Bad("[harness]\ndisk = '10X'\n", "harness.disk", "is not a size"),
    "disk-twice": Bad("[harness]\ndisk='1G'\n[environment]\nstorage_mb=2048\n", "harness.disk", "Keep one"),
    "bounds": Bad("[harness.rewards.tests]\nlow = 1\nhigh = 0\n", "harness.rewards.tests", "is not below high"),
    "weight": Bad("[harness.rewards.tests]\nweight = -1\n", "harness.rewards.tests.weight", "at least 0"),
    "weightless": Bad("[harness.rewards.tests]\nweight = 0\n", "harness.rewards", "no reward carries weight"),
    "reward-field": Bad(
        "[harness.rewards.tests]\nwieght = 1\n", "harness.rewards.tests.wieght", 'Did you mean "weight"?'
    ),
    "reward-number": Bad("[harness.rewards]\ntests = 1\n", "harness.rewards.tests", "must be a table"),
    "context-files": Bad("[harness]\nmax_context_files = -1\n", "harness.max_context_files", "must be above 0"),
    "context-bytes": Bad("[harness]\nmax_context_bytes = 0\n", "harness.max_context_bytes", "is not a size"),
}

UNSUPPORTED = {
    "gpus": Bad("[environment]\ngpus = 1\n", "environment.gpus", "not supported yet"),
    "gpu-types": Bad("[environment]\ngpu_types = ['H100']\n", "environment.gpu_types", "not supported yet"),
    "tpu": Bad("[environment.tpu]\ntype='v4'\ntopology='2x2'\n", "environment.tpu", "not supported yet"),
    "windows": Bad("[environment]\nos = 'Windows'\n", "environment.os", "not supported yet"),
    "os": Bad("[environment]\nos = 'plan9'\n", "environment.os", 'Write "linux"'),
    "mcp": Bad("[[environment.mcp_servers]]\nname='x'\n", "environment.mcp_servers", "not supported yet"),
    "skills": Bad("[environment]\nskills_dir = '/skills'\n", "environment.skills_dir", "not supported yet"),
    "compose": Bad(
        "", "environment/docker-compose.yaml", "not supported yet", {"environment/docker-compose.yaml": "services: {}"}
    ),
    "artifact-service": Bad("artifacts=[{source='/a',service='db'}]\n", "artifacts[0].service", "not supported yet"),
    "collect-service": Bad(
        "[[verifier.collect]]\ncommand='x'\nservice='db'\n", "verifier.collect[0].service", "not supported yet"
    ),
    "prior-context": Bad("", "trajectory.json", "not supported yet", {"trajectory.json": "{}"}),
    "grader-gpus": Bad("[verifier.environment]\ngpus = 2\n", "verifier.environment.gpus", "not supported yet"),
    "grader-compose": Bad(
        SEPARATE, "tests/docker-compose.yaml", "not supported yet", {"tests/docker-compose.yaml": "x"}
    ),
    "loose-files": Bad(
        "[environment]\ndocker_image='x'\n",
        "environment.docker_image",
        "COPY",
        {"environment/Dockerfile": None, "environment/data": "x"},
    ),
    "network-change": Bad(
        HARBOR + "[agent]\nnetwork_mode = 'no-network'\n",
        "agent.network_mode",
        "in the same sandbox, public: not supported yet",
    ),
    "ignore-file": Bad("", "tests/.harborignore", "is not read yet", {"tests/.harborignore": "x"}),
}

BAD_FILES = {
    "instruction": Bad("", "sample/instruction.md", "missing", {"instruction.md": None}),
    "instruction-empty": Bad("", "sample/instruction.md", "is empty", {"instruction.md": " \n"}),
    "instruction-canary": Bad("", "sample/instruction.md", "is empty", {"instruction.md": "<!-- canary 1 -->\n\n"}),
    "instruction-bytes": Bad("", "sample/instruction.md:2", "not UTF-8", {"instruction.md": b"a\n\xe9\n"}),
    "tests": Bad("", "sample/tests/test.sh", "missing", {"tests/test.sh": None}),
    "dockerfile": Bad("", "sample/environment/Dockerfile", "or set docker_image", {"environment/Dockerfile": None}),
    "solve": Bad("", "sample/solution/solve.sh", "missing", {"solution/solve.sh": None, "solution/x": ""}),
    "shared-image-tests": Bad(
        HARBOR, "sample/tests/test.sh", "missing", {"tests/test.sh": None, "tests/Dockerfile": "FROM x"}
    ),
}

BAD_STEPS = {
    "nameless": Bad("[[steps]]\n", "steps[0].name", "missing"),
    "up": Bad("[[steps]]\nname = '..'\n", "steps[0].name", "can't be the name of a step's folder"),
    "absolute": Bad("[[steps]]\nname = '/etc'\n", "steps[0].name", "can't be the name of a step's folder"),
    "long": Bad(f"[[steps]]\nname = '{'a' * 300}'\n", "steps[0].name", "can't be the name of a step's folder"),
    "twice": Bad(STEP + "[[steps]]\nname = 'ONE'\n", "steps[1].name", "taken by another step", STEP_FILES),
    "folder": Bad("[[steps]]\nname = 'two'\n", "sample/steps/two", "folder is missing", STEP_FILES),
    "instruction": Bad(
        STEP, "sample/steps/one/instruction.md", "missing", {**STEP_FILES, "steps/one/instruction.md": None}
    ),
    "tests": Bad(
        STEP,
        "sample/steps/one/tests/test.sh",
        "missing",
        {**STEP_FILES, "steps/one/tests/test.sh": None, "tests/test.sh": None},
    ),
    "min-reward": Bad(STEP + "min_reward = '1'\n", "steps[0].min_reward", "finite number", STEP_FILES),
    "min-reward-nan": Bad(STEP + "min_reward = nan\n", "steps[0].min_reward", "finite number", STEP_FILES),
    "min-reward-table": Bad(STEP + "min_reward = {a = true}\n", "steps[0].min_reward", "finite number", STEP_FILES),
    "undeclared-reward": Bad(
        STEP + "min_reward = {b = 1}\n[harness.rewards.a]\n",
        "steps[0].min_reward",
        'the reward "b" is not declared',
        STEP_FILES,
    ),
    "agent": Bad(STEP + "agent = {timeout_sec = 'x'}\n", "steps[0].agent.timeout_sec", "must be a number", STEP_FILES),
    "verifier": Bad(
        STEP + "[steps.verifier.env]\nA='${NOT_THERE}'\n", "steps[0].verifier.env.A", "NOT_THERE", STEP_FILES
    ),
    "prior-context": Bad(
        STEP, "steps/one/trajectory.json", "not supported yet", {**STEP_FILES, "steps/one/trajectory.json": "{}"}
    ),
    "live-separate": Bad(
        "[harness]\nintegrity = 'live'\n" + STEP + "[steps.verifier.environment]\ncpus = 1\n",
        "harness.integrity",
        "[steps[0].verifier.environment] asks for",
        STEP_FILES,
    ),
    "networks": Bad(
        STEP + "[[steps]]\nname='two'\nagent={network_mode='public'}\n[harness]\n",
        "steps[1].agent.network_mode",
        "between steps",
        {**STEP_FILES, "steps/two/instruction.md": "x"},
    ),
}

CASES = {
    f"{group}-{name}": bad
    for group, cases in {
        "toml": BAD_TOML,
        "type": BAD_TYPES,
        "value": BAD_VALUES,
        "own": BAD_OWN,
        "unsupported": UNSUPPORTED,
        "file": BAD_FILES,
        "step": BAD_STEPS,
    }.items()
    for name, bad in cases.items()
}


@pytest.mark.parametrize("bad", CASES.values(), ids=CASES.keys())
def test_a_spoiled_task_is_refused_with_its_place(bad: Bad, make_task: MakeTask) -> None:
    task = make_task(bad.toml, bad.files)
    with pytest.raises(TaskError) as caught:
        load_task(task, environ={})
    assert len(caught.value.problems) == 1, str(caught.value)
    problem = caught.value.problems[0]
    assert bad.where in problem.where
    assert str(task) in problem.where
    assert bad.what in str(problem)
    assert problem.what
    assert problem.remedy
    assert "\n" not in str(problem)


def test_all_problems_come_at_once(make_task: MakeTask) -> None:
    task = make_task(
        "[environment]\ngpus = 2\nworkdir = '/'\n[harness]\n[verifier.env]\nA='${NOPE}'\n",
        {"instruction.md": None, "tests/test.sh": None},
    )
    with pytest.raises(TaskError) as caught:
        load_task(task, environ={})
    places = [problem.where for problem in caught.value.problems]
    for part in ("environment.gpus", "environment.workdir", "verifier.env.A", "instruction.md", "test.sh"):
        assert sum(part in place for place in places) == 1
    assert len(str(caught.value).splitlines()) == len(places) == 5


def test_types_and_unknown_fields_come_together(make_task: MakeTask) -> None:
    with pytest.raises(TaskError) as caught:
        load_task(make_task("[harness]\npidz = 1\npids = 'x'\n[agent]\ntimeout_sec = true\n"))
    assert len(caught.value.problems) == 3


@pytest.mark.parametrize(
    ("path", "what"),
    [("nothing", "this folder is missing"), ("sample/instruction.md", "is a file, not a task's folder")],
)
def test_a_path_that_is_no_folder(path: str, what: str, make_task: MakeTask) -> None:
    root = make_task().parent
    with pytest.raises(TaskError, match=what):
        load_task(root / path)


def test_a_name_that_is_too_long_for_the_disk(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="can't be read"):
        load_task(tmp_path / ("x" * 300))


def test_no_task_toml(make_task: MakeTask) -> None:
    task = make_task()
    (task / "task.toml").unlink()
    with pytest.raises(TaskError, match=r"task\.toml: this file is missing"):
        load_task(task)


def test_task_toml_is_a_folder(make_task: MakeTask) -> None:
    task = make_task()
    (task / "task.toml").unlink()
    (task / "task.toml").mkdir()
    with pytest.raises(TaskError, match="is not a regular file"):
        load_task(task)


def test_a_link_out_of_the_benchmark(make_task: MakeTask) -> None:
    task = make_task()
    (task / "tests/secret").symlink_to("/etc/hostname")
    with pytest.raises(
        TaskError, match=r"tests/secret: links to /etc/hostname, which is outside .*Copy what it points to"
    ):
        load_task(task)


def test_a_chain_of_links_out_of_the_benchmark(make_task: MakeTask) -> None:
    task = make_task()
    (task.parent / "other").mkdir()
    (task / "tests/a").symlink_to("b")
    (task / "tests/b").symlink_to("../../other")
    with pytest.raises(TaskError) as caught:
        load_task(task)
    assert len(caught.value.problems) == 2


def test_a_link_to_itself_is_no_crash(make_task: MakeTask) -> None:
    task = make_task()
    (task / "tests/loop").symlink_to("loop")
    (task / "tests/above").symlink_to("..")
    load_task(task)


def test_a_pipe_is_refused_and_not_read(make_task: MakeTask) -> None:
    task = make_task()
    os.mkfifo(task / "tests/pipe")
    with pytest.raises(TaskError, match="tests/pipe: is neither a file, a folder nor a link"):
        load_task(task)


def test_instruction_is_a_pipe(make_task: MakeTask) -> None:
    task = make_task(files={"instruction.md": None})
    os.mkfifo(task / "instruction.md")
    with pytest.raises(TaskError, match=r"instruction\.md: is not a regular file"):
        load_task(task)


def test_a_broken_benchmark_file_around_the_task(make_task: MakeTask) -> None:
    task = make_task()
    (task.parent / "benchmark.toml").write_text("name = 3\n")
    with pytest.raises(TaskError, match=r"benchmark\.toml: name: must be text, not 3"):
        load_task(task)
