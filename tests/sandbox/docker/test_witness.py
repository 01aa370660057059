"""What the host sees of a Docker engine: alive, gone, broken, silent; and of a sandbox that has ended in every way."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from harness.evidence import Case, Sighting, Source
from harness.faults import DiskState, EngineState, MemoryState, SandboxState
from harness.ports import Command, Sandbox, SandboxSpec
from harness.sandbox.docker.address import TcpAddress, UnixAddress
from harness.sandbox.docker.engine import DockerEngine
from harness.sandbox.docker.peer import engine_process, peer_pid
from harness.sandbox.docker.witness import DockerWitness, watch_engine
from harness.sandbox.host import DiskReserve, Shortage
from harness.task.model import Resources
from tests.sandbox.docker.forwarder import forwarder

pytestmark = pytest.mark.engine


async def until(condition: Callable[[], object]) -> None:
    with anyio.fail_after(10):
        while not condition():  # noqa: ASYNC110 - what is waited for is in another task, which has no use for an event
            await anyio.sleep(0.01)


async def connected(witness: DockerWitness) -> DockerWitness:
    await until(lambda: witness.connected and witness.reserve)
    return witness


async def ended(witness: DockerWitness) -> None:
    await until(lambda: witness.interruptions)


def case(sandbox: Sandbox, spec: SandboxSpec, *, age_s: float = 10.0) -> Case:
    now = anyio.current_time()
    return Case(sandbox.id, spec, now - age_s, now)


def said(sighting: Sighting, source: Source) -> str:
    return next(reading.said for reading in sighting.readings if reading.source is source)


async def test_a_sound_engine_and_each_end_of_a_sandbox(docker: DockerEngine, spec: SandboxSpec) -> None:
    async with watch_engine(docker) as witness:
        await connected(witness)
        async with docker.sandbox(spec) as sandbox:
            sighting = await witness.look(case(sandbox, spec))
            assert (sighting.engine, sighting.sandbox) == (EngineState.SOUND, SandboxState.RUNNING)
            assert sighting.memory is MemoryState.SOUND
            assert (await witness.disk(case(sandbox, spec), quiet=False)).state is DiskState.SOUND
            await sandbox.stop()
            stopped = await witness.look(case(sandbox, spec))
            assert stopped.sandbox is SandboxState.STOPPED
            assert "UTC" in said(stopped, Source.SANDBOX)
        assert (await witness.look(case(sandbox, spec))).sandbox is SandboxState.MISSING
        assert not witness.interrupted_since(0)


async def test_the_process_behind_the_socket_is_known(docker: DockerEngine) -> None:
    address = docker.client.address
    process = engine_process(address)
    pid = peer_pid(address)
    if process is None:
        assert pid in (None, 1) or isinstance(address, TcpAddress), "another program listens for the engine"
        return
    again = engine_process(address)
    assert again is not None
    assert process.same(again)
    assert process.pid == pid
    assert not process.same(replace(process, started=process.started + 60))


def test_a_socket_that_another_program_listens_on_leads_to_no_engine(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        address = UnixAddress(str(tmp_path / "socket"))
        assert peer_pid(address) == os.getpid()
        assert engine_process(address) is None
    assert engine_process(UnixAddress("/no/such/socket")) is None


async def test_an_engine_that_is_cut_off_is_unreachable_and_its_end_is_seen_at_once(
    tmp_path: Path, spec: SandboxSpec
) -> None:
    async with forwarder(tmp_path) as front, DockerEngine(front.address) as engine, watch_engine(engine) as witness:
        await connected(witness)
        async with DockerEngine() as direct, direct.sandbox(spec) as sandbox:
            began = anyio.current_time()
            await front.cut()
            await ended(witness)
            assert witness.interrupted_since(began)
            sighting = await witness.look(case(sandbox, spec))
            assert sighting.engine is EngineState.UNREACHABLE
            assert sighting.sandbox is SandboxState.UNKNOWN
            assert "nothing answers" in said(sighting, Source.ENGINE)


async def test_connections_that_broke_explain_a_call_that_failed_then_but_no_stopped_sandbox_of_before(
    tmp_path: Path, spec: SandboxSpec
) -> None:
    async with forwarder(tmp_path) as front, DockerEngine(front.address) as engine, watch_engine(engine) as witness:
        await connected(witness)
        async with DockerEngine() as direct, direct.sandbox(spec) as sandbox:
            await front.reset()
            await ended(witness)
            now = case(sandbox, spec)
            assert (await witness.look(now)).engine is EngineState.UNREACHABLE
            assert (await witness.look(replace(now, failed=now.failed + 100))).engine is EngineState.SOUND
            # What listens here is no engine: whether the engine was restarted can't be known, and it stopped just then.
            await sandbox.stop()
            assert (await witness.look(now)).engine is EngineState.RESTARTED


async def test_an_engine_that_answers_with_errors_or_not_at_all_is_unreachable(
    tmp_path: Path, spec: SandboxSpec
) -> None:
    async with forwarder(tmp_path) as front, DockerEngine(front.address) as engine, watch_engine(engine) as witness:
        await connected(witness)
        witness.ping_s = 0.3
        async with DockerEngine() as direct, direct.sandbox(spec) as sandbox:
            front.refused = lambda _: True
            refusing = await witness.look(case(sandbox, spec))
            assert refusing.engine is EngineState.UNREACHABLE
            assert "out of service" in said(refusing, Source.ENGINE)
            front.refused = lambda _: False
            front.silent = True
            with anyio.fail_after(5):
                silent = await witness.look(case(sandbox, spec))
            assert silent.engine is EngineState.UNREACHABLE
            assert "within 0.3 s" in said(silent, Source.ENGINE)


LITTLE, MUCH = "head -c 1000000 /dev/zero > /srv/little", "head -c 5000000 /dev/zero > /srv/much"
MANY = "mkdir /srv/m; cd /srv/m; seq -f name-that-is-long-enough-to-count-for-something-%.0f 15000 | xargs touch"


@pytest.mark.parametrize(
    ("lacking", "does", "found"),
    [
        (Shortage.BYTES, LITTLE, DiskState.BREACHED_BY_OTHERS),
        (Shortage.BYTES, MUCH, DiskState.BREACHED_BY_THIS),
        (Shortage.FILES, LITTLE, DiskState.BREACHED_BY_OTHERS),
        (Shortage.FILES, MANY, DiskState.BREACHED_BY_THIS),
    ],
)
async def test_who_filled_the_disk_is_told_from_its_victims(
    docker: DockerEngine, spec: SandboxSpec, lacking: Shortage, does: str, found: DiskState
) -> None:
    async with watch_engine(docker) as witness, docker.sandbox(spec) as sandbox:
        await connected(witness)
        path = Path("/")
        witness.reserve = (
            DiskReserve(path, reserve_bytes=2**62)
            if lacking is Shortage.BYTES
            else DiskReserve(path, reserve_bytes=0, reserve_files=2**62)
        )
        if witness.reserve.shortage() is not lacking:
            return  # a file system without a fixed number of files
        assert (await sandbox.exec(Command(["bash", "-c", does]))).exit_status == 0
        # The quota is looked at, not enforced, so that one sandbox can be over it on every engine.
        looked = replace(case(sandbox, spec), spec=replace(spec, resources=Resources(disk_bytes=4_000_000)))
        running = (await witness.disk(looked, quiet=False)).state
        sighting = await witness.disk(looked, quiet=True)
    assert sighting.state is found, sighting.said
    assert running is not DiskState.BREACHED_BY_OTHERS, "one that still runs may hold more in the next moment"
    gone = await witness.disk(looked, quiet=True)
    assert gone.state is DiskState.BREACHED_BY_OTHERS, "what is removed holds nothing"


async def test_a_sandbox_at_its_own_memory_limit_is_no_want_of_the_hosts(
    docker: DockerEngine, spec: SandboxSpec
) -> None:
    limited = replace(spec, resources=Resources(memory_bytes=48 * 1024**2))
    async with watch_engine(docker) as witness, docker.sandbox(limited) as sandbox:
        await connected(witness)
        result = await sandbox.exec(Command(["tail", "/dev/zero"], deadline_s=30))
        assert result.exit_status == 137
        assert (await witness.look(case(sandbox, limited))).memory in (MemoryState.SOUND, MemoryState.UNKNOWN)
