"""The sandboxes of one attempt: started in the background where that saves time, and removed together at its end."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import structlog
from anyio.abc import TaskGroup

from harness.ports import Engine, Sandbox, SandboxSpec

_log = structlog.get_logger()


class Opening:
    """A sandbox that is being started, or that was. Lives in a task of its own until it is closed."""

    def __init__(self, engine: Engine, spec: SandboxSpec) -> None:
        self._engine = engine
        self._spec = spec
        self._ready = anyio.Event()
        self._done = anyio.Event()
        self._removed = anyio.Event()
        self._sandbox: Sandbox | None = None
        self._failure: Exception | None = None

    async def ready(self) -> Sandbox:
        """The started sandbox; raises what starting it raised."""
        await self._ready.wait()
        if self._failure is not None:
            raise self._failure
        assert self._sandbox is not None
        return self._sandbox

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the sandbox warns of; nothing before it has started."""
        return self._sandbox.warnings if self._sandbox is not None else ()

    def close(self) -> None:
        """Let it be removed, in the background."""
        self._done.set()

    async def hold(self) -> None:
        """Start it, keep it until it is closed, remove it. A failed removal is logged: the reaper gets what is left."""
        try:
            async with self._engine.sandbox(self._spec) as sandbox:
                self._sandbox = sandbox
                self._ready.set()
                await self._done.wait()
        except Exception as error:  # noqa: BLE001 - whoever waits for the sandbox gets it, and no other attempt
            if self._ready.is_set():
                _log.warning("sandbox_removal_failed", attempt=self._spec.labels.attempt, error=repr(error))
            self._failure = error
        finally:
            self._ready.set()
            self._removed.set()

    async def removed(self) -> None:
        """Wait until it is gone."""
        await self._removed.wait()


class Sandboxes:
    """Opens sandboxes for one attempt."""

    def __init__(self, engine: Engine, tasks: TaskGroup) -> None:
        self._engine = engine
        self._tasks = tasks
        self._openings: list[Opening] = []

    def begin(self, spec: SandboxSpec) -> Opening:
        """Begin to start a sandbox; don't wait for it."""
        opening = Opening(self._engine, spec)
        self._openings.append(opening)
        self._tasks.start_soon(opening.hold)
        return opening

    @property
    def warnings(self) -> tuple[str, ...]:
        """What any of them warns of, each once."""
        return tuple(dict.fromkeys(warning for opening in self._openings for warning in opening.warnings))

    def close(self) -> None:
        """Let all of them be removed, at the same time."""
        for opening in self._openings:
            opening.close()

    async def aclose(self) -> None:
        """Remove all of them and wait for it."""
        self.close()
        for opening in self._openings:
            await opening.removed()


@asynccontextmanager
async def open_sandboxes(engine: Engine) -> AsyncGenerator[Sandboxes]:
    """All sandboxes that were opened are removed when this ends, whatever happened.

    The body must not raise: its exceptions would come out in a group. `harness.attempt` turns them into verdicts inside.
    """
    async with anyio.create_task_group() as tasks:
        sandboxes = Sandboxes(engine, tasks)
        try:
            yield sandboxes
        finally:
            sandboxes.close()
