"""The canary: the operation that failed for an attempt, at that time, in a sandbox that no policy was ever in.

It runs only after a failure. Attempts that fail at the same time share one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

import anyio

from harness.archive import Folder, pack
from harness.errors import EngineError, HarnessError
from harness.faults import CanaryResult
from harness.ports import Command, Engine, Labels, Sandbox, SandboxSpec

CANARY_S = 60.0
"""A sandbox starts, runs a command and gives a file back in about a second; one that needs a minute doesn't work."""
PLACE = "/.harness-canary"


@dataclass(frozen=True, slots=True)
class Operation:
    """What a canary tries in a sandbox of its own. limit_s: for all of it, the sandbox's start included."""

    attempt: Callable[[Sandbox], Awaitable[None]]
    limit_s: float = CANARY_S


@dataclass(frozen=True, slots=True)
class Song:
    """How a canary fared; ``said`` is for people."""

    result: CanaryResult
    said: str


async def ordinary(sandbox: Sandbox) -> None:
    """What every attempt asks of an engine, beyond the start: a command, something in, the same out, the end of all processes."""
    result = await sandbox.exec(Command(argv=["/bin/sh", "-c", "exit 0"], user="root", cwd="/", keep_bytes=1024))
    if result.exit_status != 0:
        # In a sandbox that no policy was in, this is the engine's or the host's doing.
        raise EngineError(f"a command that does nothing ended with status {result.exit_status}: {result.stderr.text}")
    await sandbox.put("/", pack([Folder(PLACE)]))
    async with sandbox.get(PLACE) as chunks:
        if not sum([len(chunk) async for chunk in chunks]):
            raise EngineError(f"{PLACE} came back empty")
    await sandbox.stop()


ORDINARY = Operation(ordinary)


@dataclass
class Canaries:
    """The canaries of one run. A canary that was begun after a failure also answers for another one of the same image."""

    ordinary: Operation = ORDINARY
    _locks: dict[str, anyio.Lock] = field(default_factory=dict[str, anyio.Lock])
    _latest: dict[str, tuple[float, Song]] = field(default_factory=dict[str, tuple[float, Song]])

    async def ask(self, engine: Engine, spec: SandboxSpec, *, operation: Operation | None = None) -> Song:
        """The same image, limits and network, without the attempt's anything. Bounded; raises nothing.

        What fails, or doesn't end in time, may still be slowed or starved by what the attempt runs: end that first.
        operation: what to try; None: what every attempt does, and then the answer is shared.
        """
        probe = replace(spec, labels=_labels(spec.labels, (operation or self.ordinary).limit_s))
        if operation is not None:
            return await self._sing(engine, probe, operation)
        asked = anyio.current_time()
        async with self._locks.setdefault(spec.image.id, anyio.Lock()):
            began, song = self._latest.get(spec.image.id, (-1.0, None))
            if song is None or began < asked or song.result is CanaryResult.UNKNOWN:
                began = anyio.current_time()
                song = await self._sing(engine, probe, self.ordinary)
                self._latest[spec.image.id] = (began, song)
            return song

    async def _sing(self, engine: Engine, spec: SandboxSpec, operation: Operation) -> Song:
        try:
            with anyio.fail_after(operation.limit_s):
                async with engine.sandbox(spec) as sandbox:
                    await operation.attempt(sandbox)
        except TimeoutError:
            return Song(CanaryResult.FAILED, f"did not end within {operation.limit_s:g} s")
        except EngineError as error:
            return Song(CanaryResult.FAILED, str(error))
        except HarnessError as error:
            return Song(CanaryResult.UNKNOWN, str(error))
        except Exception as error:  # noqa: BLE001 - evidence is gathered while something has failed already: it must not fail too
            return Song(CanaryResult.UNKNOWN, f"{type(error).__name__}: {error}")
        return Song(CanaryResult.PASSED, "the same image on the same engine works")


def _labels(labels: Labels, limit_s: float) -> Labels:
    return replace(labels, role="probe", lease_s=limit_s + 60.0)
