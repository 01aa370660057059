"""What follows a failure: gather what the host can see, let `harness.faults` judge, keep both for the record.

Nothing here runs while all goes well. Looking is bounded in time, and shielded, so that a deadline doesn't leave half a look;
the canary, which may take a minute, gives way to a cancellation: a cancelled attempt needs no verdict on its engine.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType

import anyio

from harness.canary import Canaries, Operation
from harness.errors import EngineError
from harness.evidence import Case, Examination, Gateway, Reading, Sighting, Source, Witness, upstream_state
from harness.faults import (
    CanaryResult,
    EngineState,
    Evidence,
    Failed,
    Infrastructure,
    Judgement,
    SandboxState,
    UpstreamState,
    describe,
    grounds,
    judge,
)
from harness.outcome import InfraAbort
from harness.phases import Phase
from harness.ports import Engine, Sandbox, SandboxSpec

LOOK_S = 30.0
"""For a look; each of its parts has a shorter limit of its own."""
STOP_S = 20.0
"""For ending what still runs in the attempt's sandbox."""

_HOST = frozenset({Source.ENGINE, Source.SANDBOX, Source.DISK, Source.MEMORY})
_NOTHING = frozenset[Source]()

LOOKED_AT: Mapping[Failed, frozenset[Source]] = MappingProxyType(
    {
        Failed.ENGINE_SILENT: _HOST | {Source.CANARY},
        Failed.ENGINE_REFUSED: _HOST | {Source.CANARY},
        Failed.SANDBOX_GONE: _HOST | {Source.CANARY},
        Failed.FILES_UNREADABLE: _HOST | {Source.CANARY},
        Failed.GRADER_SANDBOX: _HOST,
        Failed.BAD_INPUT: _NOTHING,
        Failed.AGENT_CODE: _NOTHING,
        Failed.MODEL_SERVICE: frozenset({Source.UPSTREAM}),
        Failed.NO_REPLY: _NOTHING,
        Failed.TRAJECTORY_LOST: _NOTHING,
        Failed.NOTHING_FITS: _NOTHING,
        Failed.OWN_CODE: frozenset({Source.CANARY}),
    }
)
"""What can tell something about each failure after the start. Before it nothing is looked at: the evidence can't change it."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where in an attempt something failed."""

    phase: Phase
    step: str | None = None
    started: bool = False


@dataclass
class Inquest:
    """The failures of one attempt. ``examinations`` goes into its record."""

    attempt: str
    engine: Engine
    witness: Witness
    gateway: Gateway
    canaries: Canaries
    look_s: float = LOOK_S
    examinations: list[Examination] = field(default_factory=list[Examination])
    _sandbox: Sandbox | None = None
    _spec: SandboxSpec | None = None
    _began: float = 0.0
    _keep_running: bool = False

    def watch(self, sandbox: Sandbox, spec: SandboxSpec, *, keep_running: bool) -> None:
        """From now on failures are about this sandbox.

        keep_running: it is graded as it runs, so an examination doesn't stop it.
        """
        self._sandbox, self._spec, self._keep_running = sandbox, spec, keep_running
        self._began = anyio.current_time()

    async def check(self, place: Place) -> None:
        """Raise InfraAbort where the engine took the sandbox with it, though nothing has failed for that yet.

        An agent may have taken it for a tool's failure. Costs nothing while the engine stays.
        """
        if place.started and self._sandbox is not None and self.witness.interrupted_since(self._began):
            await self.enforce(Failed.SANDBOX_GONE, place, None)

    async def judge(
        self, failed: Failed, place: Place, error: Exception | None = None, *, operation: Operation | None = None
    ) -> Judgement:
        """Gather, decide, remember.

        error: None where nothing has failed, and the engine is only suspected: then no canary is asked.
        operation: what the canary is to try; None: what every attempt does.
        """
        began = time.monotonic()
        evidence, readings = Evidence(), list[Reading]()
        if place.started:
            evidence, readings = await self._gather(failed, operation, failing=error is not None)
        judgement = judge(failed, place.phase, started=place.started, evidence=evidence)
        self.examinations.append(
            Examination(
                failed=failed,
                phase=place.phase,
                step=place.step,
                started=place.started,
                evidence=evidence,
                readings=tuple(readings),
                judgement=describe(judgement),
                cause=judgement.cause if isinstance(judgement, Infrastructure) else None,
                what=_line(f"{type(error).__name__}: {error}") if error is not None else "",
                at=time.time(),
                took_s=time.monotonic() - began,
            )
        )
        return judgement

    async def enforce(
        self, failed: Failed, place: Place, error: Exception | None, *, operation: Operation | None = None
    ) -> Judgement:
        """`judge`, and raise InfraAbort where that is the judgement."""
        judgement = await self.judge(failed, place, error, operation=operation)
        if isinstance(judgement, Infrastructure):
            raise InfraAbort(judgement.cause, str(error or "the engine went away while the agent worked")) from error
        return judgement

    async def _gather(
        self, failed: Failed, operation: Operation | None, *, failing: bool
    ) -> tuple[Evidence, list[Reading]]:
        wanted = LOOKED_AT[failed]
        evidence, readings = Evidence(), list[Reading]()
        case: Case | None = None
        with anyio.move_on_after(self.look_s, shield=True):
            if Source.ENGINE in wanted and self._sandbox is not None and self._spec is not None:
                case = Case(self._sandbox.id, self._spec, self._began, anyio.current_time() if failing else math.inf)
                sighting = await self.witness.look(case)
                evidence, readings = _with(evidence, sighting), [*readings, *sighting.readings]
            if Source.UPSTREAM in wanted:
                reading = await self._upstream()
                evidence = evidence.model_copy(update={"upstream": UpstreamState(reading.found)})
                readings.append(reading)
        if not failing or evidence.engine is EngineState.UNREACHABLE:
            return evidence, readings
        quiet = await self._quiet(evidence.sandbox) if wanted & {Source.DISK, Source.CANARY} else False
        if Source.DISK in wanted and case is not None:
            with anyio.move_on_after(self.look_s, shield=True):
                disk = await self.witness.disk(case, quiet=quiet)
                evidence = evidence.model_copy(update={"disk": disk.state})
                readings.append(Reading(source=Source.DISK, found=disk.state, said=disk.said))
        if Source.CANARY in wanted and not grounds(evidence) and (operation or failed is not Failed.OWN_CODE):
            reading = await self._canary(operation, quiet=quiet)
            evidence = evidence.model_copy(update={"canary": CanaryResult(reading.found)})
            readings.append(reading)
        return evidence, readings

    async def _upstream(self) -> Reading:
        record = await self.gateway.record(self.attempt)
        said = f"{record.failure}; probe: {record.probe}; other sessions failing: {record.others_failing}"
        return Reading(source=Source.UPSTREAM, found=upstream_state(record), said=said)

    async def _canary(self, operation: Operation | None, *, quiet: bool) -> Reading:
        if self._spec is None:
            return Reading(source=Source.CANARY, found=CanaryResult.UNKNOWN, said="there is no sandbox to compare with")
        song = await self.canaries.ask(self.engine, self._spec, operation=operation)
        if song.result is CanaryResult.FAILED and not quiet:
            # What the attempt runs may be what it failed of.
            await self._stop()
            song = await self.canaries.ask(self.engine, self._spec, operation=operation)
        return Reading(source=Source.CANARY, found=song.result, said=_line(song.said))

    async def _quiet(self, state: SandboxState) -> bool:
        """End what the attempt runs, so that it can neither slow a canary nor hide what it holds. Not where it is graded as it runs."""
        if self._sandbox is None or state in (SandboxState.STOPPED, SandboxState.MISSING):
            return True
        if self._keep_running:
            return False
        await self._stop()
        return True

    async def _stop(self) -> None:
        """An engine that can't do even that fails its canary too."""
        if self._sandbox is not None:
            with anyio.move_on_after(STOP_S), suppress(EngineError):
                await self._sandbox.stop()


def _with(evidence: Evidence, sighting: Sighting) -> Evidence:
    seen = {"engine": sighting.engine, "sandbox": sighting.sandbox, "memory": sighting.memory}
    return evidence.model_copy(update=seen)


def _line(text: str, limit: int = 500) -> str:
    return " ".join(text.split())[:limit]
