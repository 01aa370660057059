"""The agent's part of a step: it works until it ends or its deadline passes; then what ended it is judged.

The first that fits decides: an InfraAbort of its own, the engine, the model service by the gateway's record, the agent's code, and the
lack of any completed reply.
"""

from __future__ import annotations

import math
import traceback
from dataclasses import dataclass

import anyio

from harness.concurrency import find
from harness.errors import EngineError, HarnessError, NothingFits
from harness.evidence import Gateway
from harness.faults import Failed, classify
from harness.inquest import Inquest, Place
from harness.logfile import LogFile
from harness.outcome import Ending, InfraAbort
from harness.phases import Phase
from harness.ports import Agent, AgentContext
from harness.task.model import Step


class AgentEnded(HarnessError):
    """Says on a record how an agent ended that raised nothing."""


@dataclass(frozen=True, slots=True)
class AgentRun:
    """The agent of one attempt. ``notes`` is what the verdict's detail is made of."""

    attempt: str
    agent: Agent
    gateway: Gateway
    inquest: Inquest
    log: LogFile
    notes: list[str]

    @property
    def started(self) -> bool:
        """Whether the attempt has started, once its agent runs. In any step: replies are counted for the whole attempt."""
        return not self.agent.uses_policy or self.gateway.replies(self.attempt) > 0

    async def run(self, context: AgentContext) -> Ending:
        """The agent's turn at one step. What it raises after the start keeps what it did, and that is graded.

        Raises InfraAbort, and before the start what the agent's own code raised.
        """
        timeout_s = context.step.agent.timeout_s if context.step.agent.timeout_s is not None else math.inf
        failure: Exception | None = None
        with anyio.move_on_after(timeout_s) as deadline:
            try:
                await self.agent.run(context)
            except Exception as error:  # noqa: BLE001 - plug-in code: an agent may raise anything
                failure = error
        await self._ended(Place(Phase.AGENT_RUN, context.step.name, started=self.started), failure)
        if deadline.cancelled_caught:
            self.notes.append(f"the agent's deadline of {timeout_s:g} s passed")
            return Ending.TIMEOUT
        return Ending.ENV_DONE

    async def _ended(self, place: Place, failure: Exception | None) -> None:
        if failure is not None:
            if find(failure, InfraAbort) is not None:
                raise failure
            if place.started:
                self.log.note("".join(traceback.format_exception(failure)))
                self.notes.append(f"the agent raised {type(failure).__name__}: {failure}")
            if (known := find(failure, EngineError)) is not None:
                await self.inquest.enforce(classify(known), place, known)
        await self.inquest.check(place)
        await self._model_service(place, failure)
        if place.started:
            return
        if failure is not None:
            await self.inquest.judge(Failed.AGENT_CODE, place, failure)
            raise failure
        await self.inquest.enforce(Failed.NO_REPLY, place, AgentEnded("it ended without one completed reply"))

    async def _model_service(self, place: Place, failure: Exception | None) -> None:
        """Whatever the agent says of its model calls only asks: the gateway's record decides."""
        if not self.agent.uses_policy:
            return
        record = await self.gateway.record(self.attempt)
        if record.lost:
            lost = failure or AgentEnded(f"its last model call failed upstream: {record.failure}")
            await self.inquest.enforce(Failed.MODEL_SERVICE, place, lost)

    async def collect_trajectory(self, step: Step) -> None:
        """Keep what the gateway recorded. Raises InfraAbort when that fails."""
        if not self.agent.uses_policy:
            return
        try:
            await self.gateway.collect(self.attempt)
        except Exception as error:  # the gateway's boundary: any error means that there is no trajectory
            failed = Failed.NOTHING_FITS if find(error, NothingFits) else Failed.TRAJECTORY_LOST
            await self.inquest.enforce(failed, Place(Phase.COLLECT, step.name, started=self.started), error)
            raise

    async def save_trajectory(self) -> None:
        """What was recorded of an aborted attempt is kept where it can be; the abort keeps its cause whatever happens here."""
        if not self.agent.uses_policy:
            return
        try:
            await self.gateway.collect(self.attempt)
        except Exception as error:  # noqa: BLE001 - the gateway's boundary: the cause of the abort stands already
            self.log.note(f"the trajectory could not be collected either: {error!r}")
