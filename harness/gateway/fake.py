"""A gateway in memory, for tests and simulations: its records are what a test says."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace

import anyio.lowlevel

from harness.evidence import Health, UpstreamFailure, UpstreamRecord


@dataclass
class FakeGateway:
    """`evidence.Gateway`. A test calls `reply` and `fail` where an agent's model call would have been answered or lost.

    probe: what the health probe finds when it is asked. collect_failure: what collecting a trajectory raises.
    """

    probe: Health = Health.ANSWERS
    collect_failure: Exception | None = None
    collected: list[str] = field(default_factory=list[str])
    _records: defaultdict[str, UpstreamRecord] = field(default_factory=lambda: defaultdict(UpstreamRecord))

    def reply(self, attempt: str) -> None:
        """One completed reply."""
        self._records[attempt] = UpstreamRecord(replies=self._records[attempt].replies + 1)

    def fail(self, attempt: str, failure: UpstreamFailure) -> None:
        """The upstream failed for a call of this attempt, after every retry."""
        self._records[attempt] = replace(self._records[attempt], failure=failure)

    def replies(self, attempt: str) -> int:
        return self._records[attempt].replies

    async def record(self, attempt: str) -> UpstreamRecord:
        await anyio.lowlevel.checkpoint()
        own = self._records[attempt]
        others = sum(record.lost for other, record in self._records.items() if other != attempt)
        return replace(own, probe=self.probe if own.failure else Health.UNKNOWN, others_failing=others)

    async def collect(self, attempt: str) -> None:
        await anyio.lowlevel.checkpoint()
        if self.collect_failure is not None:
            raise self.collect_failure
        self.collected.append(attempt)
