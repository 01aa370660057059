"""An engine of a test's own, to be stopped and started at will: its own data, sockets, containerd namespace, and its own *network*
namespace, so that it can't touch the bridge and the firewall of the engine that everybody uses."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tarfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from tempfile import mkdtemp

import psutil

from harness.sandbox.docker.address import UnixAddress
from harness.sandbox.docker.engine import DockerEngine
from harness.task.image import TOOLBOX_IMAGE

START_S = 60.0
IMAGE = "harness-test/busybox:1"
_PROGRAMS = (
    "sh",
    "sleep",
    "mkdir",
    "rm",
    "cat",
    "test",
    "kill",
    "touch",
    "ls",
    "mv",
    "cp",
    "ln",
    "head",
    "tail",
    "chmod",
    "true",
)


def missing() -> str | None:
    """Why there can't be one here; None where there can."""
    if os.geteuid() != 0:
        return "only root can start an engine"
    lacking = [name for name in ("dockerd", "containerd", "unshare") if shutil.which(name) is None]
    return f"there is no {lacking[0]}" if lacking else None


class OwnEngine:
    """One dockerd in its own folder. Not started by making it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = UnixAddress(str(folder / "docker.sock"))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns once it answers."""
        options = {
            "host": self.address,
            "data-root": self.folder / "data",
            "exec-root": self.folder / "exec",
            "pidfile": self.folder / "pid",
            "containerd-namespace": "harness-test",
            "containerd-plugins-namespace": "harness-test-plugins",
            "bridge": "none",  # in a network namespace of its own: in the host's this would delete the other engine's bridge
            "iptables": "false",
            "ip-forward": "false",
        }
        command = ["unshare", "--net", "dockerd", *(f"--{name}={value}" for name, value in options.items())]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + START_S
        while not self._answers():
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError(f"dockerd didn't start: {(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.1)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End dockerd. With SIGKILL its containers live on, until another one of the same data finds them."""
        if self._process is None:
            return
        self._process.send_signal(how)
        self._process.wait(timeout=60)
        self._process = None
        # Where process 1 reaps nothing, a containerd that died with its dockerd would look alive to the next one.
        (self.folder / "exec" / "containerd" / "containerd.pid").unlink(missing_ok=True)

    def clear(self) -> None:
        """End whatever is left of it, by what its processes name: its folder."""
        self.stop()
        for process in psutil.process_iter(["cmdline"]):
            if any(str(self.folder) in word for word in process.info["cmdline"] or []):
                process.kill()
                process.wait(timeout=10)
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for mount in reversed([mount for mount in mounts if mount.startswith(f"{self.folder}/")]):
            subprocess.run(["umount", "--lazy", mount], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(START_S)
            try:
                connection.connect(self.address.path)
                connection.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
                return b" 200 " in connection.recv(64)
            except OSError:
                return False


@contextmanager
def own_engine() -> Iterator[OwnEngine]:
    """A started one; nothing of it is left afterwards."""
    # Short: the path of a socket has little room.
    engine = OwnEngine(Path(mkdtemp(prefix="hte-", dir="/tmp")))
    try:
        engine.start()
        yield engine
    finally:
        engine.clear()


async def give_image(engine: DockerEngine) -> None:
    """A small image with a shell: the static busybox of the toolbox that the ordinary engine has."""
    async with DockerEngine() as ordinary:
        body = {"Image": TOOLBOX_IMAGE, "Cmd": ["x"], "Labels": {"harness.run": "own-engine"}, "NetworkDisabled": True}
        answer = await ordinary.client.call("POST", "/containers/create", body=body)
        assert isinstance(answer, dict)
        container = f"/containers/{answer['Id']}"
        try:
            path = {"path": "/toolbox/busybox"}
            async with ordinary.client.open("GET", f"{container}/archive", params=path) as read:
                data = b"".join([chunk async for chunk in read.chunks()])
        finally:
            await ordinary.client.call("DELETE", container, params={"force": "1"})
    with tarfile.open(fileobj=BytesIO(data)) as archive:
        member = archive.extractfile("busybox")
        assert member is not None
        busybox = member.read()

    async def stream() -> AsyncIterator[bytes]:
        yield _root(busybox)

    await engine.import_image(stream(), IMAGE, changes=["ENV PATH=/bin"])


def _root(busybox: bytes) -> bytes:
    buffer = BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        program = tarfile.TarInfo("bin/busybox")
        program.size, program.mode = len(busybox), 0o755
        archive.addfile(program, BytesIO(busybox))
        for name in _PROGRAMS:
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(link)
        users = b"root:x:0:0:root:/root:/bin/sh\n"
        passwd = tarfile.TarInfo("etc/passwd")
        passwd.size = len(users)
        archive.addfile(passwd, BytesIO(users))
    return buffer.getvalue()
