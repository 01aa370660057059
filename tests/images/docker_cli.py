"""Docker's own CLI as the reference for ``.dockerignore``: it sends its context to a stub engine, which says what came."""

from __future__ import annotations

import http.server
import io
import os
import re
import shutil
import socketserver
import subprocess
import tarfile
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

_MARK = b"\xef\xbb\xbf"
_SPECIAL = re.compile(rb"[+()|{}^]|\xef\xbb\xbf")
"""What CLIs before version 23 read in another way: parts of regular expressions, and a byte order mark within the file."""


@dataclass(frozen=True, slots=True)
class Cli:
    path: str
    version: int

    def reads_alike(self, ignore: bytes) -> bool:
        """Whether this CLI reads the file as the current one does."""
        return self.version >= 23 or _SPECIAL.search(ignore.removeprefix(_MARK)) is None


def find_cli() -> Cli | None:
    """The newest Docker CLI on this machine."""
    found: list[Cli] = []
    for path in {"/usr/bin/docker", "/usr/local/bin/docker", shutil.which("docker")}:
        if path is not None and Path(path).exists():
            said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
            if version := re.match(r"Docker version (\d+)\.", said):
                found.append(Cli(path, int(version[1])))
    return max(found, key=lambda cli: cli.version, default=None)


@dataclass
class StubEngine:
    socket: Path
    archives: list[bytes] = field(default_factory=list)

    def sent_by(self, cli: Cli, context: Path) -> frozenset[str] | None:
        """The paths that ``docker build`` sends from ``context``; None when it refuses."""
        self.archives.clear()
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.socket.parent),
            "DOCKER_BUILDKIT": "0",
            "DOCKER_HOST": f"unix://{self.socket}",
            "DOCKER_API_VERSION": "1.41",
        }
        done = subprocess.run(
            [cli.path, "build", "-q", str(context)], env=environment, capture_output=True, timeout=60, check=False
        )
        if done.returncode != 0 or not self.archives:
            return None
        with tarfile.open(fileobj=io.BytesIO(self.archives[-1])) as archive:
            return frozenset(member.name for member in archive)


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    stub: StubEngine


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def address_string(self) -> str:
        return "cli"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(b"")

    def do_GET(self) -> None:
        self._answer(b"OK" if self.path.endswith("/_ping") else b"{}")

    def do_POST(self) -> None:
        body = self._body()
        if "/build?" in self.path:
            self.server.stub.archives.append(body)
        self._answer(b'{"stream":"sha256:0\\n"}')

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        chunks: list[bytes] = []
        while size := int(self.rfile.readline(), 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Api-Version", "1.41")
        self.send_header("Ostype", "linux")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@contextmanager
def stub_engine(folder: Path) -> Generator[StubEngine]:
    stub = StubEngine(folder / "engine.sock")
    with _Server(str(stub.socket), _Handler) as server:
        server.stub = stub
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield stub
        finally:
            server.shutdown()
            thread.join()
