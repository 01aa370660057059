"""A Docker engine for a machine that has none: ``python3 scripts/engine.py start|stop|status``.

``start`` uses what answers already and touches nothing then. Otherwise, as root, it installs docker.io with apt, starts dockerd
in a session of its own and waits for its socket. ``stop`` ends only a dockerd that ``start`` started.
Plain Python without dependencies: it runs before there is an environment.

DOCKER_HOST names the socket, as for every Docker client. HARNESS_ENGINE_DIR (/run/harness-engine) holds process id and log,
HARNESS_ENGINE_OPTIONS are further options of dockerd.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

DEFAULT_HOST = "unix:///var/run/docker.sock"
STATE = Path(os.environ.get("HARNESS_ENGINE_DIR", "/run/harness-engine"))
PID_FILE = STATE / "started.pid"
LOG_FILE = STATE / "dockerd.log"
DOCKER_PID_FILE = Path("/var/run/docker.pid")

ANSWER_S = 5.0
START_S = 60.0
STOP_S = 30.0
LOG_TAIL_LINES = 25


class EngineProblem(Exception):
    """What is wrong, and how to mend it."""


def main(arguments: list[str]) -> int:
    host = os.environ.get("DOCKER_HOST") or DEFAULT_HOST
    actions: dict[str, Callable[[str], str]] = {"start": start, "stop": stop, "status": status}
    if len(arguments) != 1 or arguments[0] not in actions:
        print("usage: engine.py start|stop|status", file=sys.stderr)
        return 2
    try:
        print(f"engine: {actions[arguments[0]](host)}")
    except EngineProblem as problem:
        print(f"engine: {problem}", file=sys.stderr)
        return 1
    return 0


def status(host: str) -> str:
    """Whether an engine answers. Raises EngineProblem if none does."""
    problem = ask(host)
    if problem:
        raise EngineProblem(f"none answers at {host} ({problem})")
    return f"answers at {host}"


def start(host: str) -> str:
    """See that an engine answers; start one if need be and allowed."""
    problem = ask(host)
    if not problem:
        return f"answers at {host}"
    if problem == "permission denied":
        raise EngineProblem(
            f"one is at {host}, but {os.environ.get('USER', 'this user')} may not use it. "
            "Join its group (`sudo usermod -aG docker $USER`, then log in again), or run this as root"
        )
    if not host.startswith("unix://"):
        raise EngineProblem(f"none answers at {host} ({problem}). Start it there, or unset DOCKER_HOST")
    if os.geteuid() != 0:
        raise EngineProblem(
            f"none answers at {host} ({problem}), and only root can install and start one. "
            "Run this command as root once, or start Docker and join its group"
        )
    install()
    if Path("/run/systemd/system").is_dir() and host == DEFAULT_HOST:
        run(["systemctl", "start", "docker"])
        return wait(host, lambda: None, lambda: ". `journalctl -u docker` tells why")
    return launch(host)


def ask(host: str) -> str | None:
    """Send ``GET /_ping``. None when the engine answers, else why not."""
    address = urlsplit(host)
    try:
        if address.scheme == "unix":
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.settimeout(ANSWER_S)
            connection.connect(address.path)
        elif address.scheme in ("tcp", "http") and address.hostname:
            connection = socket.create_connection((address.hostname, address.port or 2375), timeout=ANSWER_S)
        else:
            return f"DOCKER_HOST {host!r} is not unix:// or tcp://"
        with connection:
            connection.sendall(b"GET /_ping HTTP/1.1\r\nHost: docker\r\nConnection: close\r\n\r\n")
            answer = connection.recv(64)
    except PermissionError:
        return "permission denied"
    except OSError as error:
        return error.strerror or str(error)
    return None if answer.startswith(b"HTTP/1.1 200") else f"it answered {answer[:40]!r}"


def install() -> None:
    """Install dockerd and what it needs, where they are missing."""
    wanted = {"dockerd": "docker.io", "iptables": "iptables"}
    missing = [package for program, package in wanted.items() if not shutil.which(program)]
    if not missing:
        return
    if not shutil.which("apt-get"):
        raise EngineProblem(
            f"this system has no apt-get: install Docker yourself ({', '.join(missing)} missing), then start it"
        )
    print(f"engine: installing {' '.join(missing)} with apt")
    run(["apt-get", "-qq", "update"], may_fail=True)  # one unreachable source fails it; the others may do
    apt_install = ["apt-get", "-qq", "install", "-y", "--no-install-recommends"]
    run([*apt_install, *missing])
    if not shutil.which("docker"):  # from Debian 13 on its command line is a package of its own; only our tests need it
        run([*apt_install, "docker-cli"], may_fail=True)


def launch(host: str) -> str:
    """Start dockerd by hand, in its own session, so that it outlives this command and its terminal."""
    STATE.mkdir(mode=0o755, parents=True, exist_ok=True)
    options = shlex.split(os.environ.get("HARNESS_ENGINE_OPTIONS", ""))
    if not any(option.startswith("--pidfile") for option in options):
        remove_stale(DOCKER_PID_FILE)
    environment = {**os.environ, "PATH": iptables_path(os.environ.get("PATH", os.defpath))}
    environment.pop("DOCKER_HOST", None)
    with LOG_FILE.open("wb") as log:
        process = subprocess.Popen(
            ["dockerd", "--log-level", "warn", "--host", host, *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    PID_FILE.write_text(f"{process.pid}\n")
    return wait(host, process.poll, log_tail) + f" (dockerd {process.pid}, log {LOG_FILE}; `make engine-stop` ends it)"


def wait(host: str, ended: Callable[[], int | None], why: Callable[[], str]) -> str:
    """Wait until the engine answers. Raises EngineProblem if it ends or takes too long; ``why`` says where that is to be read."""
    deadline = time.monotonic() + START_S
    while problem := ask(host):
        status = ended()
        if status is not None or time.monotonic() > deadline:
            what = (
                f"dockerd ended with status {status}"
                if status is not None
                else f"no answer in {START_S:.0f} s ({problem})"
            )
            raise EngineProblem(f"{what}{why()}")
        time.sleep(0.1)
    return f"started, answers at {host}"


def log_tail() -> str:
    lines = LOG_FILE.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
    return f". The end of {LOG_FILE}:\n" + "\n".join(lines)


def stop(host: str) -> str:
    """End the dockerd that `launch` started; containers end with it."""
    pid = read_pid(PID_FILE)
    if pid is None or not is_dockerd(pid):
        PID_FILE.unlink(missing_ok=True)
        return "nothing to stop: none was started from here"
    try:
        os.kill(pid, signal.SIGTERM)
    except PermissionError as error:
        raise EngineProblem(
            f"dockerd {pid} was started by another user: stop it as that user (`sudo make engine-stop`)"
        ) from error
    deadline = time.monotonic() + STOP_S
    while is_dockerd(pid):
        if time.monotonic() > deadline:
            raise EngineProblem(f"dockerd {pid} did not end in {STOP_S:.0f} s; its log is {LOG_FILE}")
        time.sleep(0.1)
    PID_FILE.unlink(missing_ok=True)
    return f"dockerd {pid} stopped"


def remove_stale(pid_file: Path) -> None:
    """Remove a process id file that no dockerd stands behind: dockerd refuses to start when some process has that id."""
    pid = read_pid(pid_file)
    if pid is None:
        return
    if is_dockerd(pid):
        raise EngineProblem(f"dockerd {pid} runs already but doesn't answer; end it (`kill {pid}`), then try again")
    pid_file.unlink(missing_ok=True)


def read_pid(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def is_dockerd(pid: int) -> bool:
    """Whether that process lives (a zombie doesn't) and is a dockerd."""
    try:
        name, state = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rsplit(")", 1)
    except (OSError, ValueError):
        return False
    return name == "dockerd" and not state.strip().startswith("Z")


def iptables_path(path: str) -> str:
    """A PATH in which ``iptables`` works with this kernel: where only the legacy interface does, a folder with links to it
    goes first. The system's own choice stays as it is."""
    if not shutil.which("iptables-legacy") or works("iptables") or not works("iptables-legacy"):
        return path
    links = STATE / "bin"
    links.mkdir(exist_ok=True)
    for name in ("iptables", "ip6tables"):
        target = shutil.which(f"{name}-legacy")
        (links / name).unlink(missing_ok=True)
        if target:
            (links / name).symlink_to(target)
    return f"{links}{os.pathsep}{path}"


def works(program: str) -> bool:
    command = [program, "--wait", "--table", "nat", "--list", "--numeric"]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 0


def run(command: list[str], *, may_fail: bool = False) -> None:
    """Run a command quietly. Raises EngineProblem with what it said if it fails."""
    result = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        check=False,
    )
    if result.returncode and not may_fail:
        tail = "\n".join(result.stdout.decode("utf-8", "replace").splitlines()[-LOG_TAIL_LINES:])
        raise EngineProblem(f"`{shlex.join(command)}` failed with status {result.returncode}:\n{tail}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
