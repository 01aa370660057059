"""What every engine must do, the one in memory and Docker's alike."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from harness.errors import EngineError, PathMissing, SandboxGone, StartFailed, TransferFailed
from harness.ports import ArchiveCaps, Command, Engine, ImageEngine, Sandbox
from harness.sandbox.docker.engine import DockerEngine
from harness.sandbox.fake import FakeEngine
from harness.task.image import ResolvedImage
from tests.sandbox.conftest import Archive, World, read


def test_engines_are_what_the_ports_say() -> None:
    engines: list[Engine] = [FakeEngine(), DockerEngine()]
    images: list[ImageEngine] = [FakeEngine(), DockerEngine()]
    assert len(engines) == len(images)


async def ran(sandbox: Sandbox, *argv: str, status: int = 0, **fields: Any) -> bytes:
    """Standard output of a command that must end with ``status``."""
    result = await sandbox.exec(Command(argv, **fields))
    assert result.exit_status == status, result.stderr.text
    return bytes(result.stdout)


async def test_exec_takes_user_folder_environment_and_input(world: World) -> None:
    async with world.open(env={"A": "sandbox", "B": "sandbox"}, workdir="/srv/work") as sandbox:
        assert await ran(sandbox, "pwd") == b"/srv/work\n"
        assert await ran(sandbox, "pwd", cwd="/tmp") == b"/tmp\n"
        assert await ran(sandbox, "id", "-u") == b"0\n"
        assert await ran(sandbox, "id", "-u", user="1234") == b"1234\n"
        assert await ran(sandbox, "id", "-g", user="1234:99") == b"99\n"
        assert await ran(sandbox, "id", "-u", user="nobody") == b"65534\n"
        assert await ran(sandbox, "printenv", "A", env={"A": "command"}) == b"command\n"
        assert await ran(sandbox, "printenv", "B") == b"sandbox\n"
        assert await ran(sandbox, "printenv", "not a name", env={"not a name": "kept"}) == b"kept\n"
        assert await ran(sandbox, "cat", stdin=b"in\x00\xff\n") == b"in\x00\xff\n"
        assert await ran(sandbox, "cat", stdin=b"") == b""
        assert await ran(sandbox, "cat") == b""


async def test_an_ordinary_sandbox_is_all_that_was_asked_for(world: World) -> None:
    async with world.open() as sandbox:
        assert sandbox.warnings == ()


async def test_the_image_says_user_and_environment(world: World) -> None:
    image = world.image.model_copy(update={"user": "1234:99"})
    async with world.open(image=image) as sandbox:
        assert await ran(sandbox, "id", "-u") == b"1234\n"
        assert await ran(sandbox, "id", "-g") == b"99\n"
        assert await ran(sandbox, "id", "-u", user="root") == b"0\n"


async def test_exit_status_streams_and_bytes_are_exact(world: World) -> None:
    async with world.open() as sandbox:
        result = await sandbox.exec(Command(["sh", "-c", "printf '\\377\\000a'; echo wrong >&2; exit 42"]))
        assert (result.exit_status, bytes(result.stdout), bytes(result.stderr)) == (42, b"\xff\x00a", b"wrong\n")
        assert not result.timed_out
        assert result.duration_s > 0
        assert (await sandbox.exec(Command(["false"]))).exit_status == 1


async def test_a_sink_gets_output_in_order(world: World) -> None:
    pieces: list[bytes] = []

    async def sink(piece: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        pieces.append(piece)

    async with world.open() as sandbox:
        await sandbox.exec(Command(["sh", "-c", "echo 1; echo 2; echo 3"]), sink)
    assert b"".join(pieces) == b"1\n2\n3\n"


@pytest.mark.parametrize("error", [ValueError("sink"), EngineError("sink")])
@pytest.mark.parametrize("stdin", [None, b"x"])
async def test_what_a_sink_raises_is_raised(world: World, error: Exception, stdin: bytes | None) -> None:
    async def sink(piece: bytes) -> None:
        raise error

    async with world.open() as sandbox:
        with pytest.raises(type(error), match="sink"):
            await sandbox.exec(Command(["echo", "1"], stdin=stdin), sink)


@pytest.mark.parametrize(("written", "kept", "dropped"), [(20, 10, 0), (21, 10, 1), (100_000, 1000, 98_000), (5, 0, 5)])
async def test_output_is_kept_by_head_and_tail(world: World, written: int, kept: int, dropped: int) -> None:
    async with world.open() as sandbox:
        result = await sandbox.exec(Command(["head", "-c", str(written), "/dev/zero"], keep_bytes=kept))
    assert result.stdout.total_bytes == written
    assert result.stdout.dropped_bytes == dropped
    assert len(result.stdout.head) + len(result.stdout.tail) == written - dropped


async def test_a_missing_program_is_127_and_one_that_cannot_run_126(world: World) -> None:
    async with world.open() as sandbox:
        await sandbox.put("/tmp", Archive().add("plain", b"true\n", mode=0o644))
        assert (await sandbox.exec(Command(["no-such-program"]))).exit_status == 127
        assert (await sandbox.exec(Command(["/no/such/program"]))).exit_status == 127
        assert (await sandbox.exec(Command(["/tmp/plain"]))).exit_status == 126


async def test_a_deadline_ends_a_command_and_keeps_what_it_wrote(world: World) -> None:
    async with world.open() as sandbox:
        result = await sandbox.exec(Command(["sh", "-c", "echo begun; sleep 987"], deadline_s=0.5))
        assert result.timed_out
        assert result.exit_status is None
        assert bytes(result.stdout) == b"begun\n"
        assert 0.5 <= result.duration_s < 10
        assert await ran(sandbox, "echo", "still here") == b"still here\n"


async def test_a_cancelled_command_leaves_the_sandbox_usable(world: World) -> None:
    async with world.open() as sandbox:
        with anyio.move_on_after(0.3) as scope:
            await sandbox.exec(Command(["sleep", "987"]))
        assert scope.cancelled_caught
        assert await ran(sandbox, "echo", "still here") == b"still here\n"


async def test_commands_run_at_the_same_time(world: World) -> None:
    async with world.open() as sandbox, anyio.create_task_group() as tasks:
        for number in range(4):
            tasks.start_soon(ran, sandbox, "echo", str(number))


async def test_files_keep_owners_modes_and_links(world: World) -> None:
    sent = (
        Archive()
        .add("d", type=b"5", mode=0o750, uid=7, gid=8)
        .add("d/file", b"content\xff", mode=0o640, uid=1000, gid=1001)
        .add("d/program", b"#!/bin/sh\necho ran\n", mode=0o755)
        .add("d/link", type=b"2", linkname="../gone")
    )
    async with world.open() as sandbox:
        await sandbox.put("/tmp", sent)
        assert await ran(sandbox, "/tmp/d/program") == b"ran\n"
        with await read(sandbox, "/tmp/d") as got:
            members = {member.name.rstrip("/"): member for member in got}
            assert set(members) == {"d", "d/file", "d/program", "d/link"}
            folder, file, link = members["d"], members["d/file"], members["d/link"]
            assert (folder.isdir(), folder.mode & 0o777, folder.uid, folder.gid) == (True, 0o750, 7, 8)
            assert (file.mode & 0o777, file.uid, file.gid) == (0o640, 1000, 1001)
            assert (link.issym(), link.linkname) == (True, "../gone")
            content = got.extractfile(file)
            assert content is not None and content.read() == b"content\xff"


async def test_a_link_at_the_path_comes_as_a_link(world: World) -> None:
    async with world.open() as sandbox:
        await ran(sandbox, "ln", "-s", "/etc/passwd", "/tmp/link")
        for path in ("/tmp/link", "/tmp/link/"):
            with await read(sandbox, path) as got:
                (member,) = got.getmembers()
                assert (member.name, member.issym(), member.linkname) == ("link", True, "/etc/passwd")


async def test_a_missing_path_has_an_error_of_its_own(world: World) -> None:
    async with world.open() as sandbox:
        with pytest.raises(PathMissing, match="/no/such"):
            async with sandbox.get("/no/such"):
                pass
        with pytest.raises(PathMissing, match="/no/such"):
            await sandbox.put("/no/such", Archive().add("a"))
        with pytest.raises(TransferFailed) as caught:
            await sandbox.put("/etc/passwd", Archive().add("a"))
        assert not isinstance(caught.value, PathMissing)


async def test_what_an_archive_raises_while_it_is_sent_is_raised(world: World) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"\0" * 1024
        raise ValueError("changed while it was read")

    async with world.open() as sandbox:
        with pytest.raises(ValueError, match="changed while"):
            await sandbox.put("/tmp", broken())
        assert await ran(sandbox, "echo", "still here") == b"still here\n"


@pytest.mark.parametrize("caps", [ArchiveCaps(max_bytes=4096), ArchiveCaps(max_members=2)])
async def test_caps_hold_while_an_archive_is_read(world: World, caps: ArchiveCaps) -> None:
    async with world.open() as sandbox:
        await sandbox.put("/tmp", Archive().add("d/a", b"a" * 5000).add("d/b").add("d/c"))
        with pytest.raises(TransferFailed, match="/tmp/d"):
            async with sandbox.get("/tmp/d", caps) as chunks:
                async for _ in chunks:
                    pass
        assert (await read(sandbox, "/tmp/d")).getnames()


async def test_a_stopped_sandbox_keeps_its_files_and_starts_again(world: World) -> None:
    async with world.open() as sandbox:
        await ran(sandbox, "touch", "/root/made")
        await sandbox.stop()
        await sandbox.stop()
        with pytest.raises(SandboxGone):
            await sandbox.exec(Command(["true"]))
        assert (await read(sandbox, "/root/made")).getnames() == ["made"]
        await sandbox.put("/root", Archive().add("put-when-stopped", b"yes"))
        await sandbox.start()
        assert await ran(sandbox, "cat", "/root/put-when-stopped") == b"yes"
        with anyio.fail_after(10):
            await sandbox.start()


async def test_a_stop_ends_a_running_command_with_sandbox_gone(world: World) -> None:
    async with world.open() as sandbox:

        async def command() -> None:
            with pytest.raises(SandboxGone):
                await sandbox.exec(Command(["sleep", "987"]), started)

        async def started(piece: bytes) -> None: ...

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(command)
            await anyio.sleep(0.3)
            with anyio.fail_after(5):
                await sandbox.stop()


async def test_changes_name_what_differs_from_the_image(world: World) -> None:
    async with world.open() as sandbox:
        assert await sandbox.changes() == ()
        await ran(sandbox, "sh", "-c", "echo a > /srv/new; rm /etc/passwd")
        changes = set(await sandbox.changes())
        assert {"/srv/new", "/etc/passwd"} <= changes
        assert changes <= {"/srv/new", "/etc/passwd", "/srv", "/etc"}
        await sandbox.stop()
        assert "/srv/new" in await sandbox.changes()


async def test_nothing_is_left_after_the_end(world: World) -> None:
    async with world.open() as sandbox:
        assert await world.left() == (sandbox.id,)
    assert await world.left() == ()
    with pytest.raises(SandboxGone):
        await sandbox.exec(Command(["true"]))
    with pytest.raises(SandboxGone):
        await sandbox.put("/tmp", Archive().add("a"))
    with pytest.raises(SandboxGone):
        async with sandbox.get("/tmp"):
            pass
    for call in (sandbox.stop, sandbox.start, sandbox.changes):
        with pytest.raises(SandboxGone):
            await call()


async def test_nothing_is_left_after_an_error_or_a_cancellation(world: World) -> None:
    with pytest.raises(RuntimeError):
        async with world.open():
            raise RuntimeError
    with anyio.CancelScope() as scope:
        async with world.open() as sandbox:
            scope.cancel()
            await sandbox.exec(Command(["sleep", "987"]))
    assert await world.left() == ()


async def test_a_sandbox_of_a_missing_image_does_not_start(world: World) -> None:
    image = ResolvedImage(id="sha256:" + "0" * 64, ref="no/such:image")
    with pytest.raises(StartFailed, match="no/such:image"):
        async with world.open(image=image):
            pass
    assert await world.left() == ()


async def test_a_run_is_reaped_whoever_owns_it(world: World) -> None:
    async with world.open() as sandbox:
        assert (await world.engine.reap(run="another-run")).sandboxes == ()
        assert sandbox.id not in (await world.engine.reap()).sandboxes
        assert (await world.engine.reap(run=world.run)).sandboxes == (sandbox.id,)
        with pytest.raises(SandboxGone):
            await sandbox.exec(Command(["true"]))
