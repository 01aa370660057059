"""Commands end with their whole session, and a sandbox with everything."""

from __future__ import annotations

import time
from collections.abc import Callable

import anyio
import pytest

from harness.errors import SandboxGone
from harness.ports import Command, Sandbox, SandboxSpec
from harness.sandbox.docker.engine import DockerEngine

pytestmark = pytest.mark.engine


async def processes(sandbox: Sandbox) -> str:
    """The command lines that run in the sandbox, one a line."""
    script = "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline && echo; done 2>/dev/null"
    return (await sandbox.exec(Command(["sh", "-c", script]))).stdout.text


SESSIONS = (
    "sleep 987",
    "sleep 987 & sleep 987",
    "(sleep 987 &) ; sleep 987 >/dev/null & wait",
    "trap '' TERM HUP INT; sleep 987; sleep 987",
    "set -m; sleep 987 & sleep 987 & wait",
    "exec >&- 2>&-; sleep 987",
    "exec -a 'a) b (c' sleep 987",
    "sleep 987 & exit",
)


@pytest.mark.parametrize("user", ["root", "nobody"])
async def test_a_deadline_ends_the_session(docker: DockerEngine, spec: SandboxSpec, user: str) -> None:
    async def one(script: str) -> None:
        result = await sandbox.exec(Command(["bash", "-c", script], deadline_s=1.5, user=user))
        assert result.timed_out

    async with docker.sandbox(spec) as sandbox:
        async with anyio.create_task_group() as tasks:
            for script in SESSIONS:
                tasks.start_soon(one, script)
        assert "987" not in await processes(sandbox)


async def test_a_cancellation_ends_the_session(docker: DockerEngine, spec: SandboxSpec) -> None:
    async with docker.sandbox(spec) as sandbox:
        for delay_s in (0, 0.01, 0.03, 0.06, 0.3):
            with anyio.move_on_after(delay_s):
                await sandbox.exec(Command(["sh", "-c", "sleep 987 & sleep 987"]))
        assert "987" not in await processes(sandbox)


FLOODS = ("yes", "yes & yes >&2 & sleep 987")


@pytest.mark.parametrize("script", FLOODS)
async def test_a_flood_of_output_does_not_delay_an_end(docker: DockerEngine, spec: SandboxSpec, script: str) -> None:
    """Neither a deadline's nor a cancellation's, nor one that comes from whoever takes the output."""

    async def full(_: bytes) -> None:
        raise OSError("no space left")

    async with docker.sandbox(spec) as sandbox:
        began = time.monotonic()
        assert (await sandbox.exec(Command(["sh", "-c", script], deadline_s=0.5))).timed_out
        with anyio.move_on_after(0.5):
            await sandbox.exec(Command(["sh", "-c", script]))
        with pytest.raises(OSError, match="no space"):
            await sandbox.exec(Command(["sh", "-c", script]), full)
        assert time.monotonic() - began < 20
        assert "987" not in await processes(sandbox)


async def test_a_shell_that_never_says_its_number_outlives_no_deadline_by_much(
    docker: DockerEngine, spec: SandboxSpec
) -> None:
    shell = b"#!/bin/bash\nsleep 987\n"
    async with docker.sandbox(spec) as sandbox:
        await sandbox.exec(Command(["bash", "-c", "rm /bin/sh; cat > /bin/sh; chmod +x /bin/sh"], stdin=shell))
        began = time.monotonic()
        assert (await sandbox.exec(Command(["true"], deadline_s=0.3))).timed_out
        assert time.monotonic() - began < 8
        with pytest.raises(SandboxGone):
            await sandbox.exec(Command(["true"]))


async def test_other_commands_live_on(docker: DockerEngine, spec: SandboxSpec) -> None:
    async with docker.sandbox(spec) as sandbox:
        await sandbox.exec(Command(["sh", "-c", "sleep 654 >/dev/null 2>&1 &"]))
        await sandbox.exec(Command(["sh", "-c", "sleep 987"], deadline_s=0.3))
        found = await processes(sandbox)
        assert "sleep 654" in found
        assert "987" not in found


async def test_a_background_process_does_not_hold_a_command_up(docker: DockerEngine, spec: SandboxSpec) -> None:
    async with docker.sandbox(spec) as sandbox:
        result = await sandbox.exec(Command(["sh", "-c", "sleep 654 & echo started"]))
        assert (result.exit_status, bytes(result.stdout)) == (0, b"started\n")
        assert result.duration_s < 5
        assert "sleep 654" in await processes(sandbox)


async def test_a_command_that_closes_its_output_is_waited_for(docker: DockerEngine, spec: SandboxSpec) -> None:
    async with docker.sandbox(spec) as sandbox:
        result = await sandbox.exec(Command(["sh", "-c", "exec >&- 2>&-; sleep 0.5; exit 3"]))
        assert result.exit_status == 3


async def test_large_input_and_output_do_not_block_each_other(docker: DockerEngine, spec: SandboxSpec) -> None:
    data = bytes(range(256)) * 40_000
    async with docker.sandbox(spec) as sandbox:
        result = await sandbox.exec(Command(["cat"], stdin=data, keep_bytes=len(data)))
        assert bytes(result.stdout) == data
        assert (await sandbox.exec(Command(["true"], stdin=data))).exit_status == 0


async def test_commands_work_without_a_shell(docker: DockerEngine, spec: SandboxSpec) -> None:
    async with docker.sandbox(spec) as sandbox:
        await sandbox.exec(Command(["rm", "/bin/sh"]))
        pieces: list[bytes] = []

        async def sink(piece: bytes) -> None:
            pieces.append(piece)

        result = await sandbox.exec(Command(["echo", "works"]), sink)
        assert (result.exit_status, bytes(result.stdout), pieces) == (0, b"works\n", [b"works\n"])
        missing = await sandbox.exec(Command(["no-such-program"]))
        assert missing.exit_status in (126, 127)
        assert b"no-such-program" in bytes(missing.stderr)
        assert not missing.stdout.total_bytes


async def test_what_cannot_be_ended_alone_ends_with_the_sandbox(docker: DockerEngine, spec: SandboxSpec) -> None:
    async with docker.sandbox(spec) as sandbox:
        await sandbox.exec(Command(["rm", "/bin/sh"]))
        assert (await sandbox.exec(Command(["sleep", "987"], deadline_s=0.3))).timed_out
        with pytest.raises(SandboxGone):
            await sandbox.exec(Command(["true"]))


async def test_a_shell_that_lies_is_not_believed(
    docker: DockerEngine, spec: SandboxSpec, archive: Callable[[], object]
) -> None:
    shell = b'#!/bin/bash\nif [ $# = 4 ]; then exit 0; fi\necho "$4 999999"; shift 4; exec "$@"\n'
    async with docker.sandbox(spec) as sandbox:
        await sandbox.exec(Command(["bash", "-c", "rm /bin/sh; cat > /bin/sh; chmod +x /bin/sh"], stdin=shell))
        assert (await sandbox.exec(Command(["sleep", "987"], deadline_s=0.3))).timed_out
        with pytest.raises(SandboxGone):
            await sandbox.exec(Command(["true"]))


async def test_a_stop_takes_no_time(docker: DockerEngine, spec: SandboxSpec) -> None:
    async with docker.sandbox(spec) as sandbox:
        await sandbox.exec(Command(["bash", "-c", "trap '' TERM; sleep 654 >/dev/null 2>&1 &"]))
        began = time.monotonic()
        await sandbox.stop()
        assert time.monotonic() - began < 3


async def test_the_first_process_obeys_a_polite_stop_at_once(docker: DockerEngine, spec: SandboxSpec) -> None:
    async with docker.sandbox(spec) as sandbox:
        began = time.monotonic()
        await docker.client.call("POST", f"/containers/{sandbox.id}/stop", params={"t": "10"})
        assert time.monotonic() - began < 3


async def test_the_first_process_reaps(docker: DockerEngine, spec: SandboxSpec) -> None:
    async with docker.sandbox(spec) as sandbox:
        await sandbox.exec(
            Command(["bash", "-c", "for i in 1 2 3; do (sleep 0.1 >/dev/null 2>&1 &) ; done; sleep 0.5"])
        )
        states = await sandbox.exec(Command(["sh", "-c", "cat /proc/[0-9]*/stat | grep -c ' Z '"]))
        assert bytes(states.stdout) == b"0\n"
