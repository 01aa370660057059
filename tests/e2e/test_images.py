"""Images as a user of `harness run` meets them: from a registry, refused by one, failing to build, and left behind."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.images.docker_cli import find_cli
from tests.images.registry import Registry, running_registry

from .conftest import EXAMPLES, Ran

pytestmark = pytest.mark.engine

SMALL = """\
FROM harness/toolbox:bookworm AS tools
FROM scratch
COPY --from=tools /toolbox/busybox /bin/busybox
RUN ["/bin/busybox", "--install", "/bin"]
LABEL harness.test="{mark}"
WORKDIR /app
"""
"""A system of two megabytes: quick to push and to pull."""
TEST = "#!/bin/sh\nif [ -e /app/done ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n"


def docker(*words: str, stdin: str = "", check: bool = True) -> str:
    cli = find_cli()
    assert cli is not None
    done = subprocess.run([cli.path, *words], input=stdin, capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, done.stderr
    return done.stdout


def a_task(folder: Path, *, image: str = "", dockerfile: str = "", environment: str = "") -> Path:
    """A task in Harbor's format, with nothing of this project's own in it."""
    for name in ("environment", "tests", "solution"):
        (folder / name).mkdir(parents=True)
    named = f'docker_image = "{image}"\n' if image else ""
    (folder / "task.toml").write_text(
        'artifacts = ["/app"]\n[verifier]\nenvironment_mode = "separate"\n'
        f'[environment]\nnetwork_mode = "no-network"\n{named}{environment}'
    )
    (folder / "instruction.md").write_text("Make /app/done.\n")
    if dockerfile:
        (folder / "environment" / "Dockerfile").write_text(dockerfile)
    (folder / "tests" / "test.sh").write_text(TEST)
    (folder / "solution" / "solve.sh").write_text("#!/bin/sh\ntouch /app/done\n")
    return folder


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    with running_registry(tmp_path / "registry") as running:
        yield running


@pytest.fixture
def mark() -> Iterator[str]:
    """A label of this test's images, which are removed after it."""
    mark = uuid4().hex[:12]
    yield mark
    ours = docker("images", "--all", "--quiet", "--no-trunc", "--filter", f"label=harness.test={mark}")
    for image in dict.fromkeys(ours.split()):
        docker("rmi", "--force", image, check=False)


@pytest.mark.network
def test_a_task_whose_image_is_in_a_registry(
    harness: Callable[..., Ran], tmp_path: Path, registry: Registry, mark: str
) -> None:
    ref = f"{registry.host}/small:1"
    docker("build", "--quiet", "--tag", ref, "-", stdin=SMALL.format(mark=mark))
    docker("push", "--quiet", ref)
    docker("rmi", "--force", ref)
    task = a_task(tmp_path / "pulled", image=ref)
    ran = harness("run", task, "-n", "2", "--json")
    assert ran.status == 0, ran.stderr
    rows = ran.document["attempts"]
    assert [(row["ending"], row["reward"], row["image"]["ref"]) for row in rows] == [("ENV_DONE", 1.0, ref)] * 2
    assert registry.manifests_fetched == 1
    image = rows[0]["image"]
    assert image["digest"].startswith("sha256:")
    pinned = a_task(tmp_path / "pinned", image=f"{registry.host}/small@{image['digest']}")
    built = a_task(tmp_path / "built", dockerfile=f'FROM {ref}\nRUN echo made\nLABEL harness.test="{mark}"\n')
    registry.stop()
    docker("rmi", "--force", image["id"])
    gone = harness("run", pinned, "--json")
    assert gone.status == 1
    (row,) = gone.document["attempts"]
    assert (row["ending"], row["cause"], row["reward"]) == ("ABORTED", "SandboxUnavailable", None)
    assert "connection refused" in row["detail"]
    registry.start()
    assert harness("run", pinned, built, "--json").rewards == {"pinned": 1.0, "built": 1.0}


@pytest.mark.network
def test_an_image_that_a_registry_refuses_ends_the_attempt_and_no_other(
    harness: Callable[..., Ran], tmp_path: Path, registry: Registry
) -> None:
    missing = a_task(tmp_path / "missing", image=f"{registry.host}/nothing:1")
    ran = harness("run", missing, EXAMPLES / "hello", "--json")
    assert ran.status == 1
    row = next(row for row in ran.document["attempts"] if row["task"] == "missing")
    assert (row["ending"], row["cause"], row["reward"]) == ("ABORTED", "SandboxUnavailable", None)
    assert "nothing:1 can't be pulled" in row["detail"] and "manifest unknown" in row["detail"]
    assert ran.rewards == {"missing": None, "hello": 1.0}


def test_a_failing_build_is_tried_once_and_names_every_task(harness: Callable[..., Ran], tmp_path: Path) -> None:
    text = "FROM harness/base:bookworm\nRUN cat /proc/sys/kernel/random/uuid && echo the reason && exit 7\nWORKDIR /w\n"
    tasks = [a_task(tmp_path / name, dockerfile=text) for name in ("one", "two")]
    ran = harness("run", *tasks, "-n", "4", "--concurrency", "4", "--json")
    assert ran.status == 1
    failures = [row["build_failure"] for row in ran.document["attempts"]]
    assert len(failures) == 8
    (tail,) = {failure["log_tail"] for failure in failures}  # it holds a number that is another in each build
    assert "the reason" in tail
    (failure,) = ran.document["summary"]["failed_builds"]
    assert failure["instruction"].startswith("RUN cat")
    assert sorted(failure["tasks"]) == ["one", "two"]
    shown = harness("show", ran.document["attempts"][0]["id"])
    assert "the reason" in shown.stdout and failure["log_path"] in shown.stdout
    listed = harness("run", *tasks)
    assert "no image for one, two" in listed.stdout
    built = harness("build", *tasks)
    assert built.status == 1
    assert built.stderr.count("\nERROR: ") == 1, "the log's end is shown once"
    assert "one failed build keeps 2 tasks from running: one, two" in built.stderr


def test_the_ignore_files_of_a_dataset(harness: Callable[..., Ran], tmp_path: Path, mark: str) -> None:
    """A task's own file counts, as in Docker; a benchmark's root has the last word, and says so once."""
    text = f'FROM harness/base:bookworm\nCOPY . /app\nWORKDIR /app\nLABEL harness.test="{mark}"\n'
    tasks = [a_task(tmp_path / "set" / name, dockerfile=text) for name in ("a", "b")]
    for task in tasks:
        (task / "environment" / "done").touch()
        (task / "environment" / ".dockerignore").write_text("done\n")
    nop = ("--agent", "nop", "--json")
    alone = harness("run", tmp_path / "set", *nop)
    assert alone.rewards == {"a": 0.0, "b": 0.0}, "the file that would pass the test is left out"
    assert "dockerignore" not in alone.stderr
    (tmp_path / "set" / "benchmark.toml").write_text('name = "set"\nversion = "1"\n')
    (tmp_path / "set" / ".dockerignore").write_text("*.md\n")
    under = harness("run", tmp_path / "set", *nop)
    assert set(under.rewards.values()) == {1.0}, under.stderr
    warning = f"{tmp_path}/set/.dockerignore decides what stays out of images; a/environment/.dockerignore, b/"
    assert under.stderr.count(warning) == 1


def test_a_limit_that_cant_be_had_is_said(harness: Callable[..., Ran], tmp_path: Path) -> None:
    text = "FROM harness/base:bookworm\nWORKDIR /app\n"
    task = a_task(tmp_path / "greedy", dockerfile=text, environment="cpus = 10000\nstorage_mb = 1000\n")
    ran = harness("run", task, "-n", "2")
    assert ran.status == 0, ran.stderr
    assert ran.stdout.count("warning: 2 × the task asks for 10000 CPUs") == 1
    (run,) = json.loads(harness("runs", "--json").stdout)
    row = json.loads(harness("runs", run["id"], "--json").stdout)[0]
    assert any("10000 CPUs" in warning for warning in row["warnings"])
    assert len(row["warnings"]) == len(set(row["warnings"])) <= 2
    assert "10000 CPUs" in harness("show", row["id"]).stdout
