"""Start-up is part of the product: help and version load nothing heavy."""

import gc
import json
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = (
    "aiohttp",
    "anyio",
    "docker",
    "git",
    "google.protobuf",
    "litellm",
    "openai",
    "psutil",
    "pydantic",
    "rich",
    "sqlalchemy",
    "structlog",
    "torch",
    "transformers",
)

PROBE = """
import json, sys
sys.argv = ["harness", *json.loads(sys.argv[1])]
from harness.cli import main
try:
    main()
except SystemExit as leaving:
    status = leaving.code
print(json.dumps({"status": status, "modules": sorted(sys.modules)}))
"""


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["-h"], []])
def test_help_and_version_load_no_sdk(arguments: list[str]):
    done = subprocess.run(
        [sys.executable, "-c", PROBE, json.dumps(arguments)], capture_output=True, text=True, check=True
    )
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["status"] == (0 if arguments else 2)
    loaded = {name for name in HEAVY if name in report["modules"]}
    assert loaded == set()


def test_every_command_has_help():
    from click.testing import CliRunner

    from harness.cli import COMMANDS, cli

    for name in COMMANDS:
        result = CliRunner().invoke(cli, [name, "--help"])
        assert gc.isenabled()
        assert result.exit_code == 0, name
        assert "Usage" in result.output


def harness(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from harness.cli import main; main()", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rnu"], "Did you mean 'run'"),
        (["run"], "no task was named"),
        (["run", "/nowhere/at/all"], "/nowhere/at/all"),
        (["run", "--agent", "orcale", "."], "Did you mean 'oracle'"),
        (["run", "--agent", "scripted:/nowhere", "."], "/nowhere"),
        (["run", "-n", "0", "."], "-n"),
        (["run", "--concurrency", "-3", "."], "--concurrency"),
        (["run", "--config", "/nowhere.toml", "."], "/nowhere.toml"),
        (["run", "--no-such-option"], "--no-such-option"),
        (["show", "abc", "--runs-dir", "/nowhere"], "holds no runs"),
        (["build"], "no task was named"),
        (["init", "a b"], "can't be a task's name"),
    ],
)
def test_bad_use_is_one_message_and_status_2(arguments: list[str], message: str):
    done = harness(*arguments)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_an_engine_behind_tls_is_refused_before_it_is_asked(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:2376")
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    done = harness("gc")
    assert done.returncode == 2
    assert "DOCKER_TLS_VERIFY" in done.stderr


@pytest.mark.parametrize("arguments", [["show", "abc"], ["runs"]])
@pytest.mark.parametrize("way", ["file", "variable", "option"])
def test_every_command_finds_the_runs_folder_in_the_same_ways(
    arguments: list[str], way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HARNESS_RUNS_DIR", raising=False)
    match way:
        case "file":
            (tmp_path / "harness.toml").write_text('runs_dir = "elsewhere"\n')
        case "variable":
            monkeypatch.setenv("HARNESS_RUNS_DIR", "elsewhere")
        case _:
            arguments = [*arguments, "--runs-dir", "elsewhere"]
    done = harness(*arguments)
    assert done.returncode == 2
    assert f"{tmp_path / 'elsewhere'} holds no runs" in done.stderr
