"""Verdicts on their way to the disk: those that come while one commit is under way share the next one.

A commit costs a sync of the disk, whatever it holds. Alone, an attempt waits for its own; a hundred that end together wait for one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import anyio

from harness import concurrency
from harness.errors import SlotTaken
from harness.record import AttemptRecord

Offload = Callable[[Callable[[], None]], Awaitable[None]]
"""Runs a blocking call and waits for it: in a thread, or in place in a simulation, whose clock doesn't wait for threads."""

MOST_TOGETHER = 256
"""Verdicts in one commit."""


class Writer(Protocol):
    """Where verdicts are kept."""

    def save_attempts(self, records: Sequence[AttemptRecord]) -> None:
        """All of them durably, or none. Raises StoreError."""
        ...


async def in_thread(call: Callable[[], None]) -> None:
    """The `Offload` of production."""
    await concurrency.in_thread(call)


async def in_place(call: Callable[[], None]) -> None:
    """The `Offload` of a simulation."""
    call()


@dataclass(eq=False, slots=True)
class _Entry:
    """A verdict that waits, and what became of it."""

    record: AttemptRecord
    settled: bool = False
    failure: Exception | None = None


class Ledger:
    """Commits verdicts in batches, one batch at a time."""

    def __init__(self, writer: Writer, offload: Offload = in_thread) -> None:
        self._writer = writer
        self._offload = offload
        self._turn = anyio.Lock()
        self._waiting: list[_Entry] = []

    async def commit(self, record: AttemptRecord) -> None:
        """Returns when the record is on the disk; raises StoreError when it won't be. Not cancelled half-way."""
        entry = _Entry(record)
        self._waiting.append(entry)
        with anyio.CancelScope(shield=True):
            async with self._turn:
                while not entry.settled:
                    batch, self._waiting = self._waiting[:MOST_TOGETHER], self._waiting[MOST_TOGETHER:]
                    await self._save(batch)
        if entry.failure is not None:
            raise entry.failure

    async def _save(self, batch: Sequence[_Entry]) -> None:
        try:
            await self._offload(partial(self._writer.save_attempts, [entry.record for entry in batch]))
        except SlotTaken as error:
            # One of them may not be kept, and that is no other one's fault.
            if len(batch) > 1:
                for entry in batch:
                    await self._save([entry])
                return
            batch[0].failure = error
        except Exception as error:  # noqa: BLE001 - carried to everyone who waits for this batch, and raised there
            for entry in batch:
                entry.failure = error
        for entry in batch:
            entry.settled = True
