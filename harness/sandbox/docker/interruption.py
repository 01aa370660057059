"""Times at which an engine went away, and which failures they explain."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.evidence import Case
from harness.faults import EngineState, SandboxState

BEFORE_S = 30.0
AFTER_S = 60.0
"""Around an interruption, on the engine's clock and ours: an engine that shuts down closes its socket, then ends its containers."""
RECENT_S = 60.0
"""A broken connection explains a failed call for this long."""


@dataclass(frozen=True, slots=True)
class Interruption:
    """The stream of events ended. at: monotonic. wall: unix time. until: unix time when the engine answered again.

    restarted: whether another process of the engine answered then; None where its process can't be seen (another machine, a
    forwarded or systemd's socket): then the end of the stream is all there is.
    """

    at: float
    wall: float
    until: float | None = None
    restarted: bool | None = None

    def over(self, *, until: float, restarted: bool | None) -> Interruption:
        return replace(self, until=until, restarted=restarted)


def explained(
    interruptions: Sequence[Interruption], case: Case, *, state: SandboxState, stopped_at: float | None
) -> EngineState:
    """What the interruptions say about a case on an engine that answers.

    An attempt that lives through a restart (or whose forwarded socket broke once) isn't excused by it later: a sandbox must have
    stopped about when the engine did, a call must have failed about then.
    """
    for interruption in interruptions:
        if interruption.at < case.began:
            continue
        match state:
            case SandboxState.STOPPED | SandboxState.MISSING:
                if interruption.restarted is not False and _about_then(interruption, stopped_at):
                    return EngineState.RESTARTED
            case SandboxState.RUNNING | SandboxState.UNKNOWN:
                if interruption.at >= case.failed - RECENT_S:
                    return EngineState.RESTARTED if interruption.restarted else EngineState.UNREACHABLE
    return EngineState.SOUND


def _about_then(interruption: Interruption, stopped_at: float | None) -> bool:
    """True where nothing says when the sandbox stopped: one that is missing has no policy that could have removed it."""
    if stopped_at is None:
        return True
    until = time.time() if interruption.until is None else interruption.until
    return interruption.wall - BEFORE_S <= stopped_at <= until + AFTER_S
