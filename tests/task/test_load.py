"""What a good task means, field by field, under Harbor's defaults and under ours."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.outcome import Integrity
from harness.store.database import DATABASE
from harness.task.image import ContextLimits, DockerfileBuild, ImageRef
from harness.task.load import load_task
from harness.task.model import (
    Artifact,
    CollectCommand,
    Healthcheck,
    Network,
    NetworkMode,
    Repository,
    Resources,
    RewardSpec,
    Security,
    StepReward,
)

from .conftest import Files, MakeTask

GIB = 1024**3

EVERY_FIELD = """
schema_version = "1.4"
source = "somewhere"
artifacts = ["/app/out.txt", { source = "/var/log/", destination = "logs/var", exclude = ["*.tmp"], service = "main" }]

[task]
name = "acme/everything"
version = "2"
description = "All fields."
authors = [{ name = "Ann", email = "ann@example.org" }, { name = "Bo" }]
keywords = ["a", "b"]

[metadata]
anything = { goes = [1, "x"] }

[agent]
timeout_sec = 30
user = 1000
network_mode = "allowlist"
allowed_hosts = ["Example.ORG.", "*.pypi.org", "192.0.2.0/24", "2001:DB8:0::1"]

[verifier]
timeout_sec = 20.5
user = "grader"
environment_mode = "separate"
network_mode = "no-network"
env = { TOKEN = "${SECRET}", LEVEL = "${LEVEL:-3}", TEXT = "a" }

[verifier.environment]
memory_mb = 512
allow_internet = false

[[verifier.collect]]
command = "dump"
timeout_sec = 5
user = 0

[environment]
build_timeout_sec = 90
os = "Linux"
cpus = 1.5
memory_mb = 2048
storage = "10G"
gpus = 0
gpu_types = []
mcp_servers = []
env = { A = "1" }
workdir = "/srv/app/"
network_mode = "public"

[environment.healthcheck]
command = "true"
interval_sec = 1
timeout_sec = 2
start_period_sec = 3
start_interval_sec = 4
retries = 5

[solution]
env = { X = "${NOT_SET}", Y = "y" }
"""


def test_every_field_of_harbor(make_task: MakeTask) -> None:
    path = make_task(EVERY_FIELD)
    task = load_task(path, environ={"SECRET": "s3"})
    assert (task.name, task.version, task.description) == ("acme/everything", "2", "All fields.")
    assert task.authors == ("Ann <ann@example.org>", "Bo")
    assert task.keywords == ("a", "b")
    assert task.metadata == {"anything": {"goes": [1, "x"]}}
    assert task.environment.image == DockerfileBuild(
        dockerfile=path / "environment/Dockerfile", root=path, timeout_s=90
    )
    assert task.environment.env == {"A": "1"}
    assert task.environment.workdir == "/srv/app"
    assert task.environment.network == Network(mode=NetworkMode.PUBLIC)
    assert task.environment.resources == Resources(cpus=1.5, memory_bytes=2 * GIB, disk_bytes=10 * GIB, pids=None)
    assert task.environment.healthcheck == Healthcheck(
        command="true", interval_s=1, timeout_s=2, start_period_s=3, start_interval_s=4, retries=5
    )
    (step,) = task.steps
    assert (step.name, step.instruction, step.solution, step.setup) == (None, "Do it.\n", path / "solution", None)
    assert (step.agent.timeout_s, step.agent.user) == (30, "1000")
    hosts = ("example.org", "*.pypi.org", "192.0.2.0/24", "2001:db8::1")
    assert step.agent.network == Network(mode=NetworkMode.ALLOWLIST, allowed_hosts=hosts)
    grader = step.grader
    assert (grader.timeout_s, grader.user, grader.tests) == (20.5, "grader", (path / "tests",))
    assert grader.env == {"TOKEN": "s3", "LEVEL": "3", "TEXT": "a"}
    assert grader.network == Network(mode=NetworkMode.NO_NETWORK)
    assert grader.collect == (CollectCommand(command="dump", timeout_s=5, user="0"),)
    assert grader.environment is not None
    assert grader.environment.image == task.environment.image
    assert grader.environment.resources.memory_bytes == 512 * 1024**2
    assert grader.environment.network.mode is NetworkMode.NO_NETWORK
    assert step.artifacts == (
        Artifact(source="/app/out.txt"),
        Artifact(source="/var/log", destination="logs/var", exclude=("*.tmp",)),
    )
    assert (task.integrity, task.integrity_declared) == (Integrity.PRISTINE, True)
    assert task.graded_artifacts == ("/logs/artifacts", "/app/out.txt", "/var/log")
    assert task.solution_env == {"Y": "y"}
    assert task.warnings == (f"{path}/task.toml: solution.env.X: left out, because the host has no variable NOT_SET",)


def test_harbors_defaults(make_task: MakeTask) -> None:
    task = load_task(make_task('version = "1.0"\n'))
    assert task.environment.network.mode is NetworkMode.PUBLIC
    assert task.environment.resources == Resources(memory_bytes=None, pids=None)
    assert task.environment.security == Security()
    assert (task.integrity, task.integrity_declared) == (Integrity.LIVE, False)
    assert task.steps[0].agent.timeout_s is None
    assert task.steps[0].grader.timeout_s == 600
    assert task.graded_artifacts is None
    assert task.warnings == ()
    assert (task.name, task.benchmark, task.key) == ("sample", "sample", "sample")
    assert task.root == task.path


def test_our_defaults(make_task: MakeTask) -> None:
    task = load_task(make_task("[harness]\n"))
    assert task.environment.network == Network(mode=NetworkMode.NO_NETWORK)
    assert task.environment.resources == Resources(memory_bytes=2 * GIB, pids=512)
    assert (task.integrity, task.integrity_declared) == (Integrity.PRISTINE, True)
    assert task.graded_artifacts is None
    assert task.steps[0].grader.environment is None


OWN = """
[environment]
memory_mb = 64
[harness]
integrity = "restarted"
artifacts = ["/app", "/srv//x/"]
repositories = ["/app/repo"]
capabilities = ["cap_net_raw", "SYS_PTRACE"]
allow_setuid = true
pids = 64
disk = "10G"
max_context_files = 10
max_context_bytes = "1M"
[harness.rewards.tests]
[harness.rewards.speed]
low = -1
high = 10
weight = 0
"""


def test_every_field_of_ours(make_task: MakeTask) -> None:
    task = load_task(make_task(OWN), limits=ContextLimits(max_files=1, max_bytes=1))
    assert task.integrity is Integrity.RESTARTED
    assert task.graded_artifacts == ("/app", "/srv/x")
    assert task.repositories == (Repository(path="/app/repo"),)
    assert task.environment.security == Security(capabilities=("NET_RAW", "SYS_PTRACE"), allow_setuid=True)
    assert task.environment.resources == Resources(memory_bytes=64 * 1024**2, disk_bytes=10 * GIB, pids=64)
    image = task.environment.image
    assert isinstance(image, DockerfileBuild)
    assert (image.max_files, image.max_bytes) == (10, 1024**2)
    assert task.steps[0].grader.rewards == {"tests": RewardSpec(), "speed": RewardSpec(low=-1, high=10, weight=0)}


def test_limits_of_the_run_hold_where_the_task_has_none(make_task: MakeTask) -> None:
    image = load_task(make_task(), limits=ContextLimits(max_files=7, max_bytes=8)).environment.image
    assert isinstance(image, DockerfileBuild)
    assert (image.max_files, image.max_bytes) == (7, 8)


@pytest.mark.parametrize(
    ("toml", "integrity", "declared"),
    [
        ("", Integrity.LIVE, False),
        ("[verifier]\nenvironment_mode='shared'\n", Integrity.LIVE, True),
        ("[verifier]\nenvironment_mode='separate'\n", Integrity.PRISTINE, True),
        ("[verifier.environment]\ncpus=1\n", Integrity.PRISTINE, True),
        ("[harness]\n", Integrity.PRISTINE, True),
        ("[harness]\n[verifier]\nenvironment_mode='shared'\n", Integrity.LIVE, True),
        ("[harness]\nintegrity='restarted'\n[verifier]\nenvironment_mode='shared'\n", Integrity.RESTARTED, True),
        ("[harness]\nintegrity='pristine'\n[verifier]\nenvironment_mode='shared'\n", Integrity.PRISTINE, True),
        ("[harness]\nintegrity='live'\n[verifier]\nenvironment_mode='separate'\n", Integrity.LIVE, True),
    ],
)
def test_who_decides_the_tier(toml: str, integrity: Integrity, declared: bool, make_task: MakeTask) -> None:
    task = load_task(make_task(toml))
    assert (task.integrity, task.integrity_declared) == (integrity, declared)


@pytest.mark.parametrize(
    ("toml", "mode"),
    [
        ("allow_internet = false", NetworkMode.NO_NETWORK),
        ("allow_internet = true", NetworkMode.PUBLIC),
        ("allow_internet = true\nnetwork_mode = 'no-network'", NetworkMode.NO_NETWORK),
        ("network_mode = 'allowlist'\nallowed_hosts = []", NetworkMode.ALLOWLIST),
    ],
)
def test_older_network_field(toml: str, mode: NetworkMode, make_task: MakeTask) -> None:
    for own in ("", "[harness]\n"):
        task = load_task(make_task(f"{own}[environment]\n{toml}\n"))
        assert task.environment.network.mode is mode
        assert bool(task.warnings) == ("true\nnetwork_mode" in toml)


@pytest.mark.parametrize(
    ("toml", "memory"),
    [
        ("memory = '2G'", 2 * GIB),
        ("memory = '512m'", GIB // 2),
        ("memory='2G'\nmemory_mb=2048", 2 * GIB),
        ("memory='1.5G'", 3 * GIB // 2),
    ],
)
def test_older_memory_field(toml: str, memory: int, make_task: MakeTask) -> None:
    assert load_task(make_task(f"[environment]\n{toml}\n")).environment.resources.memory_bytes == memory


def test_unknown_fields_of_harbors_tables_are_warnings(make_task: MakeTask) -> None:
    toml = "new_root = 1\n[environment]\nmemory_mbs = 3\n[verifier.environment]\ncpu = 1\n[[steps]]\nname='one'\nminreward=1\n"
    path = make_task(toml, {"steps/one/instruction.md": "x"})
    warnings = load_task(path).warnings
    assert len(warnings) == 4
    assert f'{path}/task.toml: environment.memory_mbs: unknown field, ignored. Did you mean "memory_mb"?' in "\n".join(
        warnings
    )
    assert any("steps[0].minreward" in warning and "min_reward" in warning for warning in warnings)
    assert any("verifier.environment.cpu:" in warning for warning in warnings)


@pytest.mark.parametrize(
    ("version", "known"), [("1.4", True), ("1.0", True), ("1", True), ("1.5", False), ("2.0", False), ("new", False)]
)
def test_newer_schemas_are_named(version: str, known: bool, make_task: MakeTask) -> None:
    task = load_task(make_task(f"schema_version = '{version}'\n"))
    assert task.warnings == () if known else "schema_version" in task.warnings[0]


def test_embedded_references_stay_and_are_named(make_task: MakeTask) -> None:
    task = load_task(
        make_task("[environment.env]\nURL = 'http://${HOST}/'\nEMPTY = '${NOPE:-}'\n"), environ={"HOST": "x"}
    )
    assert task.environment.env == {"URL": "http://${HOST}/", "EMPTY": ""}
    assert "environment.env.URL" in task.warnings[0]


def test_host_variables_come_from_this_process(make_task: MakeTask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_TEST_VARIABLE", "here")
    task = load_task(make_task("[environment.env]\nA = '${HARNESS_TEST_VARIABLE}'\n"))
    assert task.environment.env == {"A": "here"}


def test_canary_lines_are_not_for_the_agent(make_task: MakeTask) -> None:
    text = "<!-- benchmark CANARY 1234 -->\n# canary two\n\nDo it.\n# canary stays here\n"
    assert load_task(make_task(files={"instruction.md": text})).steps[0].instruction == "Do it.\n# canary stays here\n"


@pytest.mark.parametrize(
    ("toml", "files", "image"),
    [
        ("[verifier.environment]\ndocker_image = 'graders:1'\n", {"tests/test.sh": None}, "graders:1"),
        ("[verifier]\nenvironment_mode = 'separate'\n", {"tests/test.sh": None, "tests/Dockerfile": "FROM x"}, None),
        ("[harness]\n", {"tests/test.sh": None, "tests/Dockerfile": "FROM x"}, None),
    ],
)
def test_a_graders_image_that_holds_the_tests(toml: str, files: Files, image: str | None, make_task: MakeTask) -> None:
    path = make_task(toml, files)
    grader = load_task(path).steps[0].grader
    assert grader.tests == ()
    assert grader.environment is not None
    wanted = ImageRef(ref=image) if image else DockerfileBuild(dockerfile=path / "tests/Dockerfile", root=path)
    assert grader.environment.image == wanted


def test_docker_image_wins_over_the_dockerfile(make_task: MakeTask) -> None:
    task = load_task(make_task("[environment]\ndocker_image = 'python:3.13-slim'\n"))
    assert task.environment.image == ImageRef(ref="python:3.13-slim")


STEPS = """
artifacts = ["/app/all"]
multi_step_reward_strategy = "final"
[agent]
timeout_sec = 10
user = "a"
[verifier]
timeout_sec = 7
env = { A = "task", B = "task" }
collect = [{ command = "first" }]
[harness]
[[steps]]
name = "one"
min_reward = 0.5
artifacts = ["/app/one"]
[steps.agent]
timeout_sec = 20
[steps.verifier]
user = "v"
env = { A = "step" }
collect = [{ command = "second" }]
[steps.healthcheck]
command = "ok"
[[steps]]
name = "two"
min_reward = { reward = 1 }
[steps.verifier]
environment_mode = "shared"
timeout_sec = 3
"""


def test_steps_inherit_and_override(make_task: MakeTask) -> None:
    files: Files = {
        "instruction.md": None,
        "tests/test.sh": "#!/bin/bash\n",
        "steps/one/instruction.md": "One.",
        "steps/one/tests/extra.py": "",
        "steps/one/solution/solve.sh": "",
        "steps/one/workdir/setup.sh": "",
        "steps/two/instruction.md": "Two.",
    }
    path = make_task(STEPS, files)
    task = load_task(path)
    one, two = task.steps
    assert task.step_reward is StepReward.FINAL
    assert (one.name, one.instruction, two.name, two.instruction) == ("one", "One.", "two", "Two.")
    assert (one.min_reward, two.min_reward) == (0.5, {"reward": 1.0})
    assert (one.agent.timeout_s, one.agent.user, two.agent.timeout_s) == (20, "a", 10)
    assert (one.grader.timeout_s, two.grader.timeout_s) == (7, 3)
    assert (one.grader.user, two.grader.user) == ("v", None)
    assert (one.grader.env, two.grader.env) == ({"A": "step", "B": "task"}, {"A": "task", "B": "task"})
    assert [command.command for command in one.grader.collect] == ["first", "second"]
    assert one.grader.tests == (path / "tests", path / "steps/one/tests")
    assert two.grader.tests == (path / "tests",)
    assert [artifact.source for artifact in one.artifacts] == ["/app/all", "/app/one"]
    assert (one.solution, two.solution) == (path / "steps/one/solution", path / "solution")
    assert (one.setup, two.setup) == (path / "steps/one/workdir", None)
    assert one.healthcheck == Healthcheck(command="ok")
    assert (one.integrity, two.integrity) == (None, Integrity.LIVE)


def test_a_steps_own_grader_image_comes_first(make_task: MakeTask) -> None:
    toml = "[verifier.environment]\ndocker_image='task:1'\n[[steps]]\nname='one'\n[[steps]]\nname='two'\n"
    files: Files = {
        "steps/one/instruction.md": "x",
        "steps/one/tests/Dockerfile": "FROM x",
        "steps/two/instruction.md": "x",
        "tests/test.sh": None,
    }
    path = make_task(toml, files)
    one, two = load_task(path).steps
    assert one.grader.environment is not None
    assert two.grader.environment is not None
    assert one.grader.environment.image == DockerfileBuild(dockerfile=path / "steps/one/tests/Dockerfile", root=path)
    assert two.grader.environment.image == ImageRef(ref="task:1")


def test_the_digest_is_over_contents_not_places(make_task: MakeTask) -> None:
    first, second = load_task(make_task()), load_task(make_task(folder="other/sample"))
    os.utime(second.path / "task.toml", (1, 1))
    assert first.digest == load_task(second.path).digest
    assert first.digest.startswith("sha256:")


@pytest.mark.parametrize("change", ["content", "mode", "name", "link", "new", "empty-folder"])
def test_the_digest_sees_every_change(change: str, make_task: MakeTask) -> None:
    path = make_task()
    (path / "tests/link").symlink_to("test.sh")
    before = load_task(path).digest
    solve = path / "solution/solve.sh"
    match change:
        case "content":
            solve.write_text("#!/bin/bash\nfalse\n")
        case "mode":
            solve.chmod(0o755)
        case "name":
            (path / "tests/link").rename(path / "tests/lunk")
        case "link":
            (path / "tests/link").unlink()
            (path / "tests/link").symlink_to("../task.toml")
        case "new":
            (path / "tests/data").write_text("")
        case _:
            (path / "tests/data").mkdir()
    assert load_task(path).digest != before


def test_runs_that_were_started_in_the_tasks_folder_are_no_part_of_it(make_task: MakeTask) -> None:
    path = make_task()
    before = load_task(path).digest
    (path / "runs").mkdir()
    (path / "runs" / "other").touch()
    assert load_task(path).digest != before
    (path / "runs" / DATABASE).touch()
    assert load_task(path).digest == before


def test_the_digest_follows_links_into_the_benchmark(make_task: MakeTask) -> None:
    path = make_task()
    (path.parent / "benchmark.toml").write_text("name = 'b'\n")
    (path.parent / "shared").mkdir()
    (path.parent / "shared/data").write_text("1")
    (path / "tests/shared").symlink_to("../../shared")
    before = load_task(path)
    (path.parent / "shared/data").write_text("2")
    after = load_task(path)
    assert (before.benchmark, before.root, before.key) == ("b", path.parent, "b/sample")
    assert before.digest != after.digest


def test_messages_name_the_path_that_was_typed(make_task: MakeTask, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_task("[environment]\nnew = 1\n")
    monkeypatch.chdir(path.parent)
    task = load_task(Path("sample"))
    assert task.path == path
    assert task.warnings[0].startswith("sample/task.toml: environment.new")
    assert load_task(Path("sample/task.toml")) == task


def test_a_folder_reached_by_a_link(make_task: MakeTask) -> None:
    path = make_task()
    (path.parent / "link").symlink_to("sample")
    assert load_task(path.parent / "link") == load_task(path)


def test_importing_loads_nothing_that_reading_a_task_does_not_need() -> None:
    code = "import sys, harness.task.load; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert {"aiohttp", "anyio", "click", "rich", "sqlalchemy", "structlog"} & set(done.stdout.split()) == set()
