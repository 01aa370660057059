"""How a run stands: from its lock, its record, and the requests to cancel it."""

from __future__ import annotations

from harness.lock import is_held
from harness.outcome import Record
from harness.record import RunState
from harness.store.sql import SqlStore


class Standing(Record):
    """What is known of a run at one moment."""

    run: str
    state: RunState

    @property
    def running(self) -> bool:
        """Whether a process works on it."""
        return self.state in (RunState.RUNNING, RunState.CANCELLING)


def look(store: SqlStore, run: str) -> Standing:
    """How the run stands now. An owner records how it ended before it lets go of the lock, so the lock is looked at first."""
    owned = is_held(store.folder / run)
    state = store.run(run).standing(owned=owned, cancelling=owned and store.cancelling(run))
    return Standing(run=run, state=state)
