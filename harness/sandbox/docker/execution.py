"""One command in a container: started, drained, bounded, and ended with its whole session when its time is up.

That the command's first process is gone is asked of the engine, never believed of the sandbox. Where the shell is missing (a
policy may have removed it) the command is started directly; it is then ended by stopping the sandbox.
"""

from __future__ import annotations

import math
import time
from collections import deque
from contextlib import suppress

import anyio

from harness.concurrency import shielded
from harness.errors import EngineError, SandboxGone
from harness.ports import Command, ExecResult, OutputSink
from harness.sandbox.docker.client import ApiError
from harness.sandbox.docker.container import Container
from harness.sandbox.docker.frames import Frames, Stream
from harness.sandbox.docker.hijack import Hijacked
from harness.sandbox.docker.json import Json, member, number
from harness.sandbox.docker.session import Announcement, announced, end_session
from harness.sandbox.kept import Kept

NOT_EXECUTABLE, NOT_FOUND, KILLED = 126, 127, 137
ANNOUNCE_S = 10.0
"""For a command that must be ended to say its number, if it hasn't yet."""
SILENT_S = 2.0
"""The same for one that runs: a shell says it at once, and only one that the policy put in its place never does."""
END_S = 10.0
"""For ending a session. After this the sandbox is stopped."""
DRAIN_S = 3.0
"""For what an ended command wrote to arrive. The engine itself waits 2 s for processes that hold the stream open."""
QUIET_S = 60.0
"""Without output, after which the engine is asked whether it is still there."""

SETTLE_S = 0.5
"""When a sandbox ends, its commands are seen to be killed a little before the sandbox is seen to have ended."""


class Execution:
    """Runs one command, once."""

    def __init__(self, container: Container, command: Command, sink: OutputSink | None) -> None:
        self._container = container
        self._command = command
        self._sink = sink
        self._kept = {stream: Kept(command.keep_bytes) for stream in (Stream.STDOUT, Stream.STDERR)}
        self._frames = Frames()
        self._pieces: deque[tuple[Stream, bytes]] = deque()
        self._announcement = Announcement()
        self._settled = anyio.Event()
        """The announcement has come, or can't come any more."""
        self._wrapped = False
        self._exec_id = ""
        self._connection: Hijacked | None = None

    async def run(self) -> ExecResult:
        """Raises SandboxGone or EngineError. Whatever interrupts it, a cancellation too, ends the command's session first."""
        began = time.monotonic()
        deadline_s = math.inf if self._command.deadline_s is None else self._command.deadline_s
        status: int | None = None
        over = False
        try:
            with anyio.move_on_after(deadline_s):
                status = await self._run(wrapped=True)
                over = True
            if not over:
                over = True
                await self._end(drain=True)
        finally:
            if not over:
                self._sink = None
                with suppress(EngineError):  # what interrupted it is what the caller must see
                    await self._end(drain=False)
            await self._close()
        stdout, stderr = (self._kept[stream].output() for stream in (Stream.STDOUT, Stream.STDERR))
        return ExecResult(status, stdout, stderr, time.monotonic() - began)

    async def _run(self, *, wrapped: bool) -> int:
        connection = await self._start(wrapped=wrapped)
        await self._converse(connection)
        status, ran = await self._outcome()
        if self._announcement.pid is None and not ran and status in (NOT_EXECUTABLE, NOT_FOUND):
            # The engine started nothing. Because of the shell, or of the command, its user or folder? The direct way tells.
            self._discard(wrapped)
            if wrapped:
                await self._close()
                return await self._run(wrapped=False)
        return status

    async def _start(self, *, wrapped: bool) -> Hijacked:
        container, command = self._container, self._command
        argv = list(command.argv)
        self._wrapped, self._announcement = wrapped, Announcement()
        if wrapped:
            argv, self._announcement = announced(container, argv, command.env)
        self._exec_id = await container.create_exec(
            argv,
            user=command.user or container.user,
            cwd=command.cwd or container.workdir,
            env=command.env,
            stdin=command.stdin is not None,
        )
        # A cancellation in between would leave a command running that nobody could end.
        self._connection = await shielded(container.start_exec, self._exec_id)
        return self._connection

    async def _converse(self, connection: Hijacked) -> None:
        stdin = self._command.stdin
        if stdin is None:
            await self._drain(connection)
            return
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(connection.send, stdin)
                await self._drain(connection)
                tasks.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from group.exceptions[0].__cause__  # sending raises nothing: it is the draining's

    async def _drain(self, connection: Hijacked) -> None:
        """Take output until its end. Pieces wait in a queue, so that a cancellation in the sink loses none."""
        while True:
            while self._pieces:
                stream, piece = self._pieces.popleft()
                if stream is Stream.STDOUT:
                    piece = self._announcement.strip(piece)
                if not piece or stream not in self._kept:
                    continue
                self._kept[stream].feed(piece)
                if self._sink is not None and (self._announcement.pid is not None or not self._wrapped):
                    await self._sink(piece)
            if not self._announcement.pending:
                self._settled.set()
            with anyio.move_on_after(QUIET_S) as quiet:
                data = await connection.receive()
                if not data:
                    self._settled.set()
                    return
                self._pieces.extend(self._frames.feed(data))
            if quiet.cancelled_caught:
                await self._is_running()  # raises when the engine doesn't answer either

    async def _outcome(self) -> tuple[int, bool]:
        """Exit status, and whether a process ever ran. Waits for one that has closed its output but still runs."""
        pause_s = 0.002
        while True:
            state = await self._container.inspect_exec(self._exec_id)
            status = number(state, "ExitCode")
            if status is not None and member(state, "Running") is not True:
                break
            await anyio.sleep(pause_s)
            pause_s = min(pause_s * 2, 0.5)
        if status == KILLED:
            await self._container.require_running(settle_s=SETTLE_S)
        return status, bool(number(state, "Pid"))

    def _discard(self, wrapped: bool) -> None:
        """The engine writes why it could start nothing to standard output: drop it, or keep it beside the command's output."""
        kept, size = self._kept, self._command.keep_bytes
        kept[Stream.STDERR] = Kept(size) if wrapped else kept[Stream.STDOUT]
        kept[Stream.STDOUT] = Kept(size)
        self._frames = Frames()

    async def _end(self, *, drain: bool) -> None:
        """End the session; when that can't be done or proven, stop the sandbox.

        Output is taken all the while: the engine holds the end of a command, and of its sandbox, back until that has gone somewhere.
        """
        connection = self._connection
        if connection is None:
            return
        failure: EngineError | None = None
        taken = anyio.Event()
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._take, connection, taken)
                try:
                    await self._end_command()
                except SandboxGone:
                    pass  # then nothing runs in it any more
                except EngineError as error:
                    failure = error
                if drain and failure is None:
                    with anyio.move_on_after(DRAIN_S):
                        await taken.wait()
                tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def _take(self, connection: Hijacked, taken: anyio.Event) -> None:
        """Drain, whatever happens: neither a connection that breaks nor a sink that fails keeps a command from being ended."""
        while not taken.is_set():
            try:
                await self._drain(connection)
            except EngineError:
                self._settled.set()
            except Exception:  # noqa: BLE001 - the sink is the caller's code
                self._sink = None
                continue
            taken.set()

    async def _end_command(self) -> None:
        silent = self._announcement.pending
        with anyio.move_on_after(ANNOUNCE_S):
            while silent:
                with anyio.move_on_after(SILENT_S):
                    await self._settled.wait()
                silent = not self._settled.is_set() and await self._is_running() is not True
        ended = False
        # Out of processes, the engine can start no shell there.
        with anyio.move_on_after(END_S), suppress(ApiError):
            ended = await self._end_session()
        if not ended:
            await self._container.kill()

    async def _end_session(self) -> bool:
        if self._announcement.pid is not None and not await end_session(self._container, self._announcement.pid):
            return False
        for pause_s in (0.005, 0.02, 0.1, 0.5):
            if await self._is_running() is False:
                return True
            await anyio.sleep(pause_s)
        return False

    async def _is_running(self) -> Json:
        return member(await self._container.inspect_exec(self._exec_id), "Running")

    async def _close(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            with anyio.CancelScope(shield=True):
                await connection.aclose()
