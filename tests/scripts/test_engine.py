"""The script that sees to a Docker engine: what answers is left alone, what fails says why, and only its own child is ended.

A program named dockerd that answers like one stands first in PATH.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "engine.py"

ANSWERS = f"""#!{sys.executable}
import socket, sys
host = sys.argv[sys.argv.index("--host") + 1].removeprefix("unix://")
server = socket.socket(socket.AF_UNIX)
server.bind(host)
server.listen()
while True:
    connection, _ = server.accept()
    connection.recv(1000)
    connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nOK")
    connection.close()
"""
FAILS = "#!/bin/sh\necho the disk is full\nexit 3\n"


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short path, since a socket's may have no more than 107 bytes."""
    path = Path(tempfile.mkdtemp(prefix="he-"))
    monkeypatch.setenv("HARNESS_ENGINE_DIR", str(path / "state"))
    monkeypatch.setenv("HARNESS_ENGINE_OPTIONS", f"--pidfile {path}/docker.pid")
    monkeypatch.setenv("PATH", f"{path}{os.pathsep}{os.environ['PATH']}")
    yield path
    shutil.rmtree(path)


@pytest.fixture
def host(folder: Path) -> str:
    return f"unix://{folder}/docker.sock"


@pytest.fixture
def engine(folder: Path) -> ModuleType:
    """The script as a module, with its state in the test's folder."""
    spec = importlib.util.spec_from_file_location("engine_script", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def install(folder: Path, source: str) -> None:
    (folder / "dockerd").write_text(source)
    (folder / "dockerd").chmod(0o755)


def test_started_engine_answers_is_used_and_ends(engine: ModuleType, folder: Path, host: str) -> None:
    install(folder, ANSWERS)
    assert engine.ask(host) == "No such file or directory"
    assert "started" in engine.launch(host)
    try:
        pid = engine.read_pid(engine.PID_FILE)
        assert os.getsid(pid) == pid, "it ends with its caller's terminal"
        assert engine.ask(host) is None
        assert engine.start(host) == f"answers at {host}"
        assert engine.read_pid(engine.PID_FILE) == pid, "a second one was started"
    finally:
        stopped = engine.stop(host)
    assert stopped == f"dockerd {pid} stopped"
    assert engine.ask(host) == "Connection refused"


def test_failing_engine_shows_its_logs_end(engine: ModuleType, folder: Path, host: str) -> None:
    install(folder, FAILS)
    with pytest.raises(engine.EngineProblem, match=r"(?s)status 3.*the disk is full"):
        engine.launch(host)


def test_stop_never_ends_another_program(engine: ModuleType, host: str) -> None:
    other = subprocess.Popen(["sleep", "60"])
    try:
        engine.STATE.mkdir()
        engine.PID_FILE.write_text(f"{other.pid}\n")
        assert "nothing to stop" in engine.stop(host)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


@pytest.mark.parametrize("content", ["1\n", "4194304\n", "not a number\n", ""], ids=["reused", "gone", "text", "empty"])
def test_stale_process_id_file_is_removed_or_harmless(engine: ModuleType, folder: Path, content: str) -> None:
    stale = folder / "docker.pid"
    stale.write_text(content)
    engine.remove_stale(stale)
    assert not stale.exists() or engine.read_pid(stale) is None


def test_running_engine_that_does_not_answer_is_named(engine: ModuleType, folder: Path, host: str) -> None:
    install(folder, "#!/bin/sh\nread forever\n")
    silent = subprocess.Popen(["dockerd"], stdin=subprocess.PIPE)
    try:
        (folder / "docker.pid").write_text(f"{silent.pid}\n")
        with pytest.raises(engine.EngineProblem, match=f"dockerd {silent.pid} runs already"):
            engine.remove_stale(folder / "docker.pid")
    finally:
        silent.communicate()


@pytest.mark.parametrize(
    ("host", "message"),
    [
        ("tcp://127.0.0.1:9", r"none answers at tcp://127.0.0.1:9 .*unset DOCKER_HOST"),
        ("npipe://docker", r"not unix:// or tcp://"),
    ],
)
def test_an_engine_elsewhere_is_not_started_here(host: str, message: str) -> None:
    result = subprocess.run(
        [sys.executable, str(SCRIPT), "start"],
        env={**os.environ, "DOCKER_HOST": host},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert result.stderr.startswith("engine: ")
    assert re.search(message, result.stderr)
