"""A Docker sandbox gets its limits, and they bite."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import anyio
import psutil
import pytest

from harness.ports import Command, Sandbox, SandboxSpec
from harness.sandbox.docker.client import ApiError
from harness.sandbox.docker.container import Container
from harness.sandbox.docker.engine import DockerEngine
from harness.sandbox.docker.execution import Execution
from harness.sandbox.docker.owner import parse_owner, this_process
from harness.task.model import Resources, Security
from tests.sandbox.conftest import read

pytestmark = pytest.mark.engine

MIB = 1024**2

FORKS = """
import os, signal, sys, time
children, said = [], "granted"
for number in range(int(sys.argv[1])):
    try:
        child = os.fork()
    except BlockingIOError:
        said = "refused"
        break
    if not child:
        time.sleep(987)
    children.append(child)
print(said, flush=True)
while sys.argv[2] == "stay":
    time.sleep(1)
for child in children:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""
"""Starts as many processes as it is told, or until one is refused, and says which."""


async def inspect(docker: DockerEngine, sandbox: Sandbox) -> Any:
    return await docker.client.call("GET", f"/containers/{sandbox.id}/json")


async def output(sandbox: Sandbox, script: str, user: str | None = None) -> str:
    result = await sandbox.exec(Command(["sh", "-c", script], user=user))
    return result.stdout.text.strip()


async def test_the_engine_is_told_every_limit(docker: DockerEngine, spec: SandboxSpec) -> None:
    limits = Resources(cpus=0.5, memory_bytes=256 * MIB, pids=77, nofile=1234)
    async with docker.sandbox(replace(spec, resources=limits)) as sandbox:
        host = (await inspect(docker, sandbox))["HostConfig"]
        assert host["NanoCpus"] == 500_000_000
        assert host["Memory"] == host["MemorySwap"] == 256 * MIB
        assert host["PidsLimit"] == 77
        assert host["CapDrop"] == ["MKNOD", "NET_RAW", "SETPCAP"]
        assert host["SecurityOpt"] == ["no-new-privileges"]
        assert host["NetworkMode"] == "none"
        assert host["LogConfig"]["Type"] == "none"
        assert host["Init"] is True
        assert host["Privileged"] is False
        assert await output(sandbox, "ulimit -Sn; ulimit -Hn; ulimit -Hc") == "1234\n1234\n0"


async def test_no_limit_is_none(docker: DockerEngine, spec: SandboxSpec) -> None:
    async with docker.sandbox(replace(spec, resources=Resources(memory_bytes=None, pids=None))) as sandbox:
        host = (await inspect(docker, sandbox))["HostConfig"]
        assert (host["Memory"], host["NanoCpus"]) == (0, 0)
        assert host["PidsLimit"] in (0, -1, None)


async def test_opt_outs(docker: DockerEngine, spec: SandboxSpec) -> None:
    security = Security(capabilities=("NET_RAW", "cap_sys_ptrace"), allow_setuid=True)
    async with docker.sandbox(replace(spec, security=security)) as sandbox:
        host = (await inspect(docker, sandbox))["HostConfig"]
        assert host["CapDrop"] == ["MKNOD", "SETPCAP"]
        assert [name.removeprefix("CAP_") for name in host["CapAdd"]] == ["SYS_PTRACE"]
        assert not host["SecurityOpt"]
        assert await output(sandbox, "grep NoNewPrivs /proc/self/status | cut -f2") == "0"


async def test_defaults_hold_inside(docker: DockerEngine, spec: SandboxSpec) -> None:
    async with docker.sandbox(spec) as sandbox:
        status = dict(
            line.split(":\t", 1)
            for line in (await output(sandbox, "cat /proc/self/status")).splitlines()
            if ":\t" in line
        )
        assert status["NoNewPrivs"] == "1"
        assert status["Seccomp"] == "2"
        dropped = (1 << 8) | (1 << 13) | (1 << 27)  # SETPCAP, NET_RAW, MKNOD
        assert int(status["CapBnd"], 16) & dropped == 0


async def test_too_many_processes_are_refused(docker: DockerEngine, spec: SandboxSpec) -> None:
    async with docker.sandbox(replace(spec, resources=Resources(pids=30))) as sandbox:
        assert await output(sandbox, f"python3 -c '{FORKS}' 60 kill") == "refused"
        assert await output(sandbox, f"python3 -c '{FORKS}' 15 kill") == "granted", (
            "the others have gone, and there is room again"
        )


async def test_out_of_processes_a_command_still_ends_at_its_deadline(docker: DockerEngine, spec: SandboxSpec) -> None:
    async with docker.sandbox(replace(spec, resources=Resources(pids=30))) as sandbox:
        script = f"echo kept > /tmp/answer; exec python3 -c '{FORKS}' 60 stay"
        with anyio.fail_after(20):
            result = await sandbox.exec(Command(["sh", "-c", script], deadline_s=2))
        assert result.timed_out
        assert bytes(result.stdout) == b"refused\n"
        if (await inspect(docker, sandbox))["State"][
            "Running"
        ]:  # it depends on engine and kernel whether a shell got in
            assert await output(sandbox, f"python3 -c '{FORKS}' 15 kill") == "granted", "nothing of it runs on"
        assert (await read(sandbox, "/tmp/answer")).getnames() == ["answer"], "its files are there to be graded"


class Crowded(Container):
    """A container that nothing more can be started in, by the harness either, once its command runs."""

    async def create_exec(
        self, argv: Sequence[str], *, user: str, cwd: str, env: Mapping[str, str], stdin: bool = False
    ) -> str:
        if "987" not in argv:
            raise ApiError("OCI runtime exec failed: fork: resource temporarily unavailable", status=500)
        return await Container.create_exec(self, argv, user=user, cwd=cwd, env=env, stdin=stdin)


@pytest.mark.parametrize("cancelled", [False, True], ids=["deadline", "cancelled"])
async def test_a_command_that_nothing_can_be_started_beside_ends_with_the_sandbox(
    docker: DockerEngine, spec: SandboxSpec, cancelled: bool
) -> None:
    async with docker.sandbox(spec) as sandbox:
        crowded = Crowded(**{field.name: getattr(sandbox.container, field.name) for field in fields(Container)})
        command = Command(["sleep", "987"], deadline_s=None if cancelled else 1)
        with anyio.fail_after(20), anyio.move_on_after(1 if cancelled else 20):
            result = await Execution(crowded, command, None).run()
            assert result.timed_out, "a timeout, and not the engine's error"
        assert (await inspect(docker, sandbox))["State"]["Running"] is False


async def test_too_much_memory_ends_the_process_that_takes_it(docker: DockerEngine, spec: SandboxSpec) -> None:
    async with docker.sandbox(replace(spec, resources=Resources(memory_bytes=64 * MIB))) as sandbox:
        result = await sandbox.exec(Command(["sh", "-c", "head -c 200000000 /dev/zero | tail -c 200000000 | wc -c"]))
        assert b"200000000" not in bytes(result.stdout)
        assert await output(sandbox, "echo still here") == "still here"


async def test_what_the_engine_cannot_grant_is_said(docker: DockerEngine, spec: SandboxSpec) -> None:
    async with docker.sandbox(replace(spec, resources=Resources(cpus=10_000, disk_bytes=10**9))) as sandbox:
        assert any("10000 CPUs" in warning for warning in sandbox.warnings)
        assert sandbox.disk_enforced != any("1,000,000,000 bytes of disk" in warning for warning in sandbox.warnings)


async def test_labels_name_run_attempt_role_owner_and_lease(docker: DockerEngine, spec: SandboxSpec, run: str) -> None:
    async with docker.sandbox(spec) as sandbox:
        labels = (await inspect(docker, sandbox))["Config"]["Labels"]
        assert (labels["harness.run"], labels["harness.attempt"], labels["harness.role"]) == (run, "a1", "agent")
        assert parse_owner(labels["harness.owner"]) == this_process()
        assert json.loads(labels["harness.owner"])["pid"] == psutil.Process().pid
        assert labels["harness.lease"].isdecimal()


async def test_no_network_is_a_loopback_alone(docker: DockerEngine, spec: SandboxSpec) -> None:
    async with docker.sandbox(spec) as sandbox:
        assert await output(sandbox, "ls /sys/class/net") == "lo"
        assert await output(sandbox, "wc -l < /proc/net/route") == "1"
        assert (await output(sandbox, "getent ahosts localhost")).startswith(("127.0.0.1", "::1"))
        server = "import socket; s = socket.create_server(('localhost', 0)); socket.create_connection(s.getsockname()); print('connected')"
        assert await output(sandbox, f'python3 -c "{server}"') == "connected"


async def test_a_gigabyte_of_output_costs_little_memory(docker: DockerEngine, spec: SandboxSpec) -> None:
    process = psutil.Process()
    before = process.memory_info().rss
    most = before
    pieces = 0

    async def sink(piece: bytes) -> None:
        nonlocal most, pieces
        pieces += 1
        if pieces % 500 == 0:
            most = max(most, process.memory_info().rss)

    async with docker.sandbox(spec) as sandbox:
        result = await sandbox.exec(Command(["head", "-c", "1000000000", "/dev/zero"]), sink)
    assert result.exit_status == 0
    assert result.stdout.total_bytes == 1_000_000_000
    assert most - before < 100 * MIB
