"""Verdicts that come together share a commit, and each one's fate is its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import pytest

from harness.errors import SlotTaken, StoreError
from harness.record import AttemptRecord
from harness.store.ledger import MOST_TOGETHER, Ledger, in_place

from .records import an_attempt


class Disk:
    """Keeps what it is given, and refuses what a test tells it to."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.kept: list[str] = []
        self.refuse: Callable[[str], Exception | None] = lambda _: None

    def save_attempts(self, records: Sequence[AttemptRecord]) -> None:
        names = [record.id for record in records]
        for name in names:
            if (failure := self.refuse(name)) is not None:
                raise failure
        self.batches.append(names)
        self.kept += names


async def slowly(call: Callable[[], None]) -> None:
    await anyio.lowlevel.checkpoint()
    await anyio.lowlevel.checkpoint()
    call()


async def commit_all(ledger: Ledger, records: Sequence[AttemptRecord]) -> dict[str, Exception]:
    failures: dict[str, Exception] = {}

    async def one(record: AttemptRecord) -> None:
        try:
            await ledger.commit(record)
        except StoreError as error:
            failures[record.id] = error

    async with anyio.create_task_group() as tasks:
        for record in records:
            tasks.start_soon(one, record)
    return failures


@pytest.fixture
def records(tmp_path: Path) -> list[AttemptRecord]:
    return [an_attempt(tmp_path, f"{number:04}", index=number) for number in range(MOST_TOGETHER + 10)]


async def test_what_waits_while_a_commit_is_under_way_goes_into_the_next_one(records: list[AttemptRecord]):
    disk = Disk()
    assert await commit_all(Ledger(disk, slowly), records) == {}
    assert sorted(disk.kept) == [record.id for record in records], "each exactly once"
    assert len(disk.batches) <= 3
    assert max(map(len, disk.batches)) <= MOST_TOGETHER


async def test_a_commit_alone_doesnt_wait_for_others(records: list[AttemptRecord]):
    disk = Disk()
    ledger = Ledger(disk, in_place)
    for record in records[:3]:
        await ledger.commit(record)
    assert disk.batches == [["0000"], ["0001"], ["0002"]]


async def test_a_verdict_that_is_refused_costs_no_other_one(records: list[AttemptRecord]):
    disk = Disk()
    disk.refuse = lambda name: SlotTaken("taken") if name == "0003" else None
    failures = await commit_all(Ledger(disk, slowly), records[:8])
    assert failures.keys() == {"0003"}
    assert isinstance(failures["0003"], SlotTaken)
    assert sorted(disk.kept) == [record.id for record in records[:8] if record.id != "0003"]


async def test_a_disk_that_fails_is_told_to_everyone_who_waits(records: list[AttemptRecord]):
    disk = Disk()
    disk.refuse = lambda _: StoreError("full")
    assert len(await commit_all(Ledger(disk, slowly), records[:8])) == 8


async def test_a_commit_that_has_begun_is_not_cut_short(records: list[AttemptRecord]):
    disk = Disk()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await Ledger(disk, slowly).commit(records[0])
    assert disk.batches == [["0000"]]


def test_it_runs_under_trio_too(records: list[AttemptRecord]):
    pytest.importorskip("trio")
    disk = Disk()
    anyio.run(commit_all, Ledger(disk, slowly), records[:5], backend="trio")
    assert len(disk.kept) == 5
