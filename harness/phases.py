"""The phases of an attempt: an enum, a table, one `advance`; and the clock that stamps them.

A stamp is written when a phase begins and again when it ends, so that a half-written record shows where an attempt died.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType

from harness.outcome import Record


class Phase(StrEnum):
    """A timed part of an attempt."""

    QUEUE = "queue"
    """Waiting for a place."""
    IMAGE = "image"
    """Finding, pulling or building the image."""
    SANDBOX = "sandbox"
    """Creating and starting the sandbox."""
    HEALTHCHECK = "healthcheck"
    """Waiting until the task's own check says that the sandbox is ready."""
    AGENT_SETUP = "agent_setup"
    """Installing the agent. That it has begun proves that the sandbox was ready."""
    AGENT_RUN = "agent_run"
    """The agent works."""
    COLLECT = "collect"
    """Stopping the agent's processes and keeping its artifacts."""
    GRADING = "grading"
    """The grader works."""
    TEARDOWN = "teardown"
    """Removing the sandbox."""


NEXT: Mapping[Phase | None, frozenset[Phase]] = MappingProxyType(
    {
        None: frozenset({Phase.QUEUE}),
        Phase.QUEUE: frozenset({Phase.IMAGE, Phase.TEARDOWN}),
        Phase.IMAGE: frozenset({Phase.SANDBOX, Phase.TEARDOWN}),
        Phase.SANDBOX: frozenset({Phase.HEALTHCHECK, Phase.AGENT_SETUP, Phase.TEARDOWN}),
        Phase.HEALTHCHECK: frozenset({Phase.AGENT_SETUP, Phase.AGENT_RUN, Phase.TEARDOWN}),
        Phase.AGENT_SETUP: frozenset({Phase.HEALTHCHECK, Phase.AGENT_RUN, Phase.TEARDOWN}),
        Phase.AGENT_RUN: frozenset({Phase.COLLECT, Phase.TEARDOWN}),
        Phase.COLLECT: frozenset({Phase.GRADING, Phase.HEALTHCHECK, Phase.AGENT_RUN, Phase.TEARDOWN}),
        Phase.GRADING: frozenset({Phase.HEALTHCHECK, Phase.AGENT_RUN, Phase.TEARDOWN}),
        Phase.TEARDOWN: frozenset[Phase](),
    }
)
"""What may follow what. A later step of a task goes from grading back to its healthcheck or to agent_run."""


def advance(current: Phase | None, following: Phase) -> Phase:
    """The one transition. Raises ValueError for a step that the table doesn't have."""
    if following not in NEXT[current]:
        raise ValueError(f"phase {following} can't follow {current}")
    return following


class PhaseStamp(Record):
    """When one phase began and ended. ``end`` is None when it never did.

    start, end: seconds since the epoch. start_mono, end_mono: monotonic seconds, for durations.
    """

    phase: Phase
    step: str | None = None
    start: float
    start_mono: float
    end: float | None = None
    end_mono: float | None = None

    @property
    def duration_s(self) -> float | None:
        return None if self.end_mono is None else self.end_mono - self.start_mono


PhaseListener = Callable[[PhaseStamp], None]
"""Told of each stamp, at its beginning and at its end."""


class PhaseClock:
    """Stamps phases into a file of JSON lines, as they begin and as they end.

    The file is appended to, not synced: a stamp is cheap, a verdict is durable. One that a full disk doesn't take is still in the record.
    """

    def __init__(self, path: Path, listener: PhaseListener | None = None) -> None:
        self._path = path
        self._listener = listener
        self._current: Phase | None = None
        self._stamps: list[PhaseStamp] = []

    @property
    def current(self) -> Phase | None:
        return self._current

    @property
    def stamps(self) -> tuple[PhaseStamp, ...]:
        return tuple(self._stamps)

    def began(self, phase: Phase) -> bool:
        return any(stamp.phase is phase for stamp in self._stamps)

    @contextmanager
    def phase(self, phase: Phase, step: str | None = None) -> Generator[None]:
        """Stamp the beginning, run the body, stamp the end."""
        self._current = advance(self._current, phase)
        index = len(self._stamps)
        stamp = PhaseStamp(phase=phase, step=step, start=time.time(), start_mono=time.monotonic())
        self._stamps.append(stamp)
        self._write("begin", stamp)
        try:
            yield
        finally:
            stamp = stamp.model_copy(update={"end": time.time(), "end_mono": time.monotonic()})
            self._stamps[index] = stamp
            self._write("end", stamp)

    def _write(self, event: str, stamp: PhaseStamp) -> None:
        # Opened anew for each line: thousands of attempts may wait in their queue phase, and files are few.
        with suppress(OSError), self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"event": event, **stamp.model_dump(mode="json")}) + "\n")
        if self._listener is not None:
            self._listener(stamp)
