"""Sandboxes start whole, restart on ruins, and go away whatever died."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from typing import Any

import anyio
import pytest

from harness.errors import SandboxGone, StartFailed
from harness.ports import TOOLBOX, Command, Labels, SandboxSpec
from harness.sandbox.docker.engine import DockerEngine
from harness.sandbox.docker.owner import Life, Owner, owner_of, parse_owner, this_process
from harness.sandbox.docker.toolbox import Toolbox
from tests.sandbox.conftest import Archive

pytestmark = pytest.mark.engine

LEAVES_A_SANDBOX = """
import sys, anyio
from harness.ports import Labels, SandboxSpec
from harness.sandbox.docker.engine import DockerEngine
from harness.task.image import ResolvedImage

async def main(image, run):
    async with DockerEngine() as engine:
        labels = Labels(run=run, attempt="a1", role="agent", lease_s=300)
        async with engine.sandbox(SandboxSpec(image=ResolvedImage(id=image, ref="base"), labels=labels)) as sandbox:
            print(sandbox.id, flush=True)
            await anyio.sleep_forever()

anyio.run(main, *sys.argv[1:])
"""


async def left(docker: DockerEngine, run: str) -> tuple[str, ...]:
    return (await docker.reap(run=run, dry_run=True)).sandboxes


async def test_a_dead_owner_leaves_nothing(docker: DockerEngine, spec: SandboxSpec, run: str) -> None:
    argv = [sys.executable, "-c", LEAVES_A_SANDBOX, spec.image.id, run]
    async with await anyio.open_process(argv) as process:
        assert process.stdout is not None
        sandbox_id = (await process.stdout.receive()).decode().strip()
        assert sandbox_id not in (await docker.reap(dry_run=True)).sandboxes, "its owner lives"
        process.send_signal(signal.SIGKILL)
    assert sandbox_id in (await docker.reap(dry_run=True)).sandboxes
    assert await left(docker, run) == (sandbox_id,)
    assert sandbox_id in (await docker.reap()).sandboxes
    assert await left(docker, run) == ()


async def test_networks_and_volumes_of_a_run_are_reaped(docker: DockerEngine, spec: SandboxSpec, run: str) -> None:
    labels = {"harness.run": run, "harness.owner": this_process().label()}
    network = await docker.client.call(
        "POST", "/networks/create", body={"Name": run, "Internal": True, "Labels": labels}
    )
    await docker.client.call("POST", "/volumes/create", body={"Name": run, "Labels": labels})
    assert isinstance(network, dict)
    assert network["Id"] not in (await docker.reap()).networks
    reaped = await docker.reap(run=run)
    assert (reaped.networks, reaped.volumes) == ((network["Id"],), (run,))
    assert not await docker.reap(run=run)


async def test_after_its_lease_a_sandbox_ends_and_anyone_removes_it(
    docker: DockerEngine, spec: SandboxSpec, run: str
) -> None:
    async with docker.sandbox(replace(spec, labels=replace(spec.labels, lease_s=1))) as sandbox:
        with anyio.fail_after(10):
            await docker.client.call("POST", f"/containers/{sandbox.id}/wait")
        with pytest.raises(SandboxGone):
            await sandbox.exec(Command(["true"]))
        state: Any = await docker.client.call("GET", f"/containers/{sandbox.id}/json")
        await anyio.sleep(max(0, int(state["Config"]["Labels"]["harness.lease"]) - time.time()))
        assert sandbox.id in (await docker.reap()).sandboxes


async def test_a_living_owner_keeps_what_is_its_own(docker: DockerEngine, spec: SandboxSpec, run: str) -> None:
    async with docker.sandbox(spec) as sandbox:
        for dry_run in (True, False):
            reaped = await docker.reap(run=run, dry_run=dry_run, spare_living=True)
            assert (reaped.spared, reaped.sandboxes, bool(reaped)) == ((sandbox.id,), (), False)
        assert (await sandbox.exec(Command(["true"]))).exit_status == 0
        assert (await docker.reap(run=run)).sandboxes == (sandbox.id,)


def test_an_owner_is_known_exactly() -> None:
    me = this_process()
    assert parse_owner(me.label()) == me
    assert me.life() is Life.ALIVE

    def life(**changes: object) -> Life:
        return Owner(**{**asdict(me), **changes}).life()

    assert life(started=me.started - 100) is Life.ALIVE, "the clock was set"
    assert life(started=me.started - 100, after_boot=None) is Life.DEAD
    assert life(after_boot=None) is Life.ALIVE
    assert life(after_boot=1.0) is Life.DEAD
    assert life(boot="another") is Life.DEAD
    assert life(pid=2**22 + 1) is Life.DEAD
    assert life(host="another", boot="another") is Life.UNKNOWN
    assert life(pids="pid:[1]") is Life.UNKNOWN
    for label in ("", "{}", "[]", "null", '{"host": 1}'):
        assert parse_owner(label) is None


@pytest.mark.parametrize("delay_ms", [0, 1, 3, 6, 10, 20, 40, 70, 100, 150])
async def test_a_cancelled_creation_leaves_nothing(
    docker: DockerEngine, spec: SandboxSpec, run: str, delay_ms: int
) -> None:
    with anyio.move_on_after(delay_ms / 1000):
        async with docker.sandbox(spec):
            pass
    assert await left(docker, run) == ()


async def test_an_image_without_shell_and_sleep_needs_the_toolbox(
    docker: DockerEngine, spec: SandboxSpec, run: str, tag: str
) -> None:
    empty = await docker.import_image(Archive().add("etc", type=b"5", mode=0o755), tag)
    image = spec.image.model_copy(update={"id": empty.id})
    with pytest.raises(StartFailed, match="must have a working /bin/sh and sleep"):
        async with docker.sandbox(replace(spec, image=image)):
            pass
    assert await left(docker, run) == ()
    async with docker.sandbox(replace(spec, image=image, toolbox=True)) as sandbox:
        assert (await sandbox.exec(Command([f"{TOOLBOX}/busybox", "true"]))).exit_status == 0


async def test_the_toolbox_is_there_and_read_only(docker: DockerEngine, spec: SandboxSpec) -> None:
    async with docker.sandbox(replace(spec, toolbox=True)) as sandbox:
        assert await sandbox.changes() == ()
        assert (await sandbox.exec(Command([f"{TOOLBOX}/bash", "-c", "exit 7"]))).exit_status == 7
        assert (await sandbox.exec(Command([f"{TOOLBOX}/bin/ls", "/"]))).exit_status == 0
        assert (await sandbox.exec(Command(["touch", f"{TOOLBOX}/x"]))).exit_status != 0


async def test_with_the_toolbox_a_ruined_sandbox_starts_again(docker: DockerEngine, spec: SandboxSpec) -> None:
    ruin = "rm -rf /bin/* /usr/bin/* /lib/* /usr/lib/* /etc/passwd 2>/dev/null; exit 0"
    async with docker.sandbox(replace(spec, toolbox=True, workdir="/srv/work")) as sandbox:
        await sandbox.exec(Command([f"{TOOLBOX}/busybox", "sh", "-c", ruin]))
        await sandbox.exec(Command([f"{TOOLBOX}/busybox", "rm", "-rf", "/srv/work"]))
        await sandbox.stop()
        await sandbox.start()
        result = await sandbox.exec(Command([f"{TOOLBOX}/bash", "-c", "echo $PWD"]))
        assert (result.exit_status, bytes(result.stdout)) == (0, b"/srv/work\n")
        assert (await sandbox.exec(Command([f"{TOOLBOX}/bin/sleep", "987"], deadline_s=0.3))).timed_out
        assert (await sandbox.exec(Command([f"{TOOLBOX}/busybox", "true"]))).exit_status == 0


async def test_a_missing_toolbox_names_the_remedy(docker: DockerEngine) -> None:
    with pytest.raises(StartFailed, match="harness images base"):
        await Toolbox(docker.client, "harness-test/no-such-toolbox:1").volume()


async def test_a_changed_hosts_file_is_a_change(docker: DockerEngine, spec: SandboxSpec) -> None:
    async with docker.sandbox(spec) as sandbox:
        await sandbox.exec(Command(["sh", "-c", "echo 10.0.0.1 example.org >> /etc/hosts"]))
        assert await sandbox.changes() == ("/etc", "/etc/hosts")


async def test_a_killed_first_process_is_sandbox_gone_and_its_files_can_be_read(
    docker: DockerEngine, spec: SandboxSpec
) -> None:
    async with docker.sandbox(spec) as sandbox:
        await sandbox.exec(Command(["touch", "/srv/made"]))
        with pytest.raises(SandboxGone):
            await sandbox.exec(Command(["sh", "-c", "kill -TERM 1; sleep 987"]))
        async with sandbox.get("/srv/made") as chunks:
            assert b"".join([chunk async for chunk in chunks])


async def test_many_sandboxes_at_once(docker: DockerEngine, spec: SandboxSpec, run: str) -> None:
    async def one(number: int) -> None:
        labels = Labels(run=run, attempt=f"a{number}", role="agent", lease_s=300)
        async with docker.sandbox(replace(spec, labels=labels)) as sandbox:
            assert (await sandbox.exec(Command(["true"]))).exit_status == 0

    async with anyio.create_task_group() as tasks:
        for number in range(10):
            tasks.start_soon(one, number)
    assert await left(docker, run) == ()


def test_a_process_that_nobody_has_waited_for_is_dead() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        owner = owner_of(process.pid)
        assert owner.life() is Life.ALIVE
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert owner.life() is Life.DEAD
