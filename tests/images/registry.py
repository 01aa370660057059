"""A real image registry for tests: Debian's ``docker-registry``, on a loopback port that engines talk to without TLS."""

from __future__ import annotations

import http.server
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

PROGRAM = "docker-registry"
CACHE = Path(__file__).parents[2] / ".cache"
START_S = 20.0


def find_program() -> Path:
    """The registry's program: installed, or unpacked from its package into the clone's cache (nothing is installed)."""
    if (installed := shutil.which(PROGRAM)) is not None:
        return Path(installed)
    unpacked = CACHE / PROGRAM
    if not unpacked.exists():
        if shutil.which("apt-get") is None:
            pytest.skip(f"{PROGRAM} isn't installed, and there is no apt-get to fetch it with")
        CACHE.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            fetch = ["apt-get", "-qq", "download", PROGRAM]
            if subprocess.run(fetch, cwd=folder, capture_output=True, check=False).returncode != 0:
                subprocess.run(["apt-get", "-qq", "update"], capture_output=True, check=False)
                subprocess.run(fetch, cwd=folder, capture_output=True, check=True)
            (package,) = Path(folder).glob("*.deb")
            subprocess.run(["dpkg-deb", "-x", package, f"{folder}/root"], check=True)
            Path(folder, "root").rename(unpacked)
    return unpacked / "usr/bin" / PROGRAM


class Registry:
    """A registry that runs on its own port. What is pushed to it stays in its folder while it is stopped."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return (self._folder / "registry.log").read_text(errors="replace")

    @property
    def manifests_fetched(self) -> int:
        """How many times an image's manifest was handed out: once for each pull."""
        return len(re.findall(r'"GET /v2/\S+/manifests/\S+ HTTP', self.log))

    def start(self) -> None:
        self._folder.mkdir(exist_ok=True)
        configuration = self._folder / "config.yml"
        configuration.write_text(
            f"version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {self._folder}/storage\n"
            f"http:\n  addr: {self.host}\n"
        )
        with (self._folder / "registry.log").open("ab") as log:
            self._process = subprocess.Popen(
                [find_program(), "serve", configuration], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline = time.monotonic() + START_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except ConnectionRefusedError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError(f"the registry doesn't start: {self.log[-2000:]}") from None
                time.sleep(0.02)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def running_registry(folder: Path) -> Generator[Registry]:
    registry = Registry(folder)
    registry.start()
    try:
        yield registry
    finally:
        registry.stop()


@contextmanager
def refusing_registry(status: int, code: str, message: str) -> Generator[str]:
    """A registry that answers its own address and refuses every image in one way. Gives its ``host:port``."""

    class Refuser(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            welcome = self.path == "/v2/"
            body = b"{}" if welcome else f'{{"errors":[{{"code":"{code}","message":"{message}"}}]}}'.encode()
            self.send_response(200 if welcome else status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refuser) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
