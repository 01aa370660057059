"""The fake engine: its own programs, faults on demand, and trio."""

from __future__ import annotations

import anyio
import pytest

from harness.errors import EngineUnreachable, SandboxGone, StartFailed
from harness.ports import Command, Labels, SandboxSpec
from harness.sandbox.fake import FakeEngine, Operation, Process
from harness.task.image import ResolvedImage
from tests.sandbox.conftest import BASE


async def spec(engine: FakeEngine) -> SandboxSpec:
    image = await engine.inspect_image(BASE)
    assert image is not None
    return SandboxSpec(
        image=ResolvedImage(id=image.id, ref=BASE), labels=Labels(run="r", attempt="a", role="agent", lease_s=60)
    )


async def test_the_next_call_of_an_operation_fails() -> None:
    engine = FakeEngine()
    async with engine.sandbox(await spec(engine)) as sandbox:
        engine.fail_next(Operation.EXEC, EngineUnreachable("gone"), SandboxGone("gone"))
        with pytest.raises(EngineUnreachable):
            await sandbox.exec(Command(["true"]))
        with pytest.raises(SandboxGone):
            await sandbox.exec(Command(["true"]))
        assert (await sandbox.exec(Command(["true"]))).exit_status == 0
    engine.fail_next(Operation.CREATE, StartFailed("no"))
    with pytest.raises(StartFailed):
        async with engine.sandbox(await spec(engine)):
            pass
    assert engine.sandboxes == {}
    assert len(engine.made) == 1


async def test_programs_are_found_by_name_path_or_script() -> None:
    async def solve(process: Process) -> int:
        process.tree.write("/solved", process.env["WHO"].encode())
        await process.out(b"solved\n")
        return 3

    engine = FakeEngine(programs={"solve": solve, "./run --all | tee log": solve})
    async with engine.sandbox(await spec(engine)) as sandbox:
        for argv in (["solve"], ["/usr/bin/solve"], ["bash", "-c", "./run --all | tee log"]):
            result = await sandbox.exec(Command(argv, env={"WHO": "me"}))
            assert (result.exit_status, bytes(result.stdout)) == (3, b"solved\n")
            assert sandbox.tree.read("/solved") == b"me"
        assert sandbox.commands[0].argv == ["solve"]


async def test_a_script_file_runs() -> None:
    engine = FakeEngine()
    async with engine.sandbox(await spec(engine)) as sandbox:
        script = b"#!/bin/bash\nset -e\nmkdir -p /logs/verifier && cd /logs/verifier\necho 1 > reward.txt\nfalse\necho 2 > reward.txt\n"
        sandbox.tree.write("/tests/test.sh", script, mode=0o755)
        for argv in (["bash", "/tests/test.sh"], ["/tests/test.sh"]):
            assert (await sandbox.exec(Command(argv))).exit_status == 1
            assert sandbox.tree.read("/logs/verifier/reward.txt") == b"1\n"


async def test_a_sandbox_can_die_or_vanish() -> None:
    engine = FakeEngine()
    async with engine.sandbox(await spec(engine)) as sandbox:
        sandbox.die()
        with pytest.raises(SandboxGone):
            await sandbox.exec(Command(["true"]))
        async with sandbox.get("/etc/passwd") as chunks:
            assert [chunk async for chunk in chunks]
        sandbox.vanish()
        with pytest.raises(SandboxGone):
            async with sandbox.get("/etc/passwd"):
                pass


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_it_runs_under_both_event_loops(backend: str) -> None:
    async def main() -> None:
        engine = FakeEngine()
        async with engine.sandbox(await spec(engine)) as sandbox:
            result = await sandbox.exec(Command(["sleep", "987"], deadline_s=0.01))
            assert result.timed_out
            with anyio.move_on_after(0.01) as scope:
                await sandbox.exec(Command(["sleep", "987"]))
            assert scope.cancelled_caught

    anyio.run(main, backend=backend)
