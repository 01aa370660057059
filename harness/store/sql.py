"""Runs and verdicts on record: written durably before they are shown, read back as the records they were."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import sqlalchemy as sa

from harness.errors import ConfigError, StoreError
from harness.planning import PlannedSlot
from harness.record import AttemptRecord, RunRecord
from harness.store.database import Database
from harness.store.owned import OwnedRun
from harness.store.quarantine import Damage, Kind, Quarantine
from harness.store.rows import Unreadable, parse, read_slots
from harness.store.schema import AttemptRow, RunRow

R = TypeVar("R", RunRecord, AttemptRecord)

_RUN = (RunRow.id, RunRow.record, RunRow.checksum)
_ATTEMPT = (AttemptRow.id, AttemptRow.run, AttemptRow.record, AttemptRow.checksum)
_ORDER = (AttemptRow.benchmark, AttemptRow.task, AttemptRow.index, AttemptRow.started_at, AttemptRow.id)
_ROWS_AT_A_TIME = 200
"""Rows whose text is in memory beside the records that were made of it."""


class SqlStore:
    """The database of one folder of runs. Synchronous; use as a context manager.

    Reading needs no lock. Writing goes through the `OwnedRun` of the one who holds the run's. A row that can't be read is
    moved to quarantine and named in ``damage``; the others are served.
    """

    def __init__(self, folder: Path, *, create: bool = True) -> None:
        """Raises ConfigError when the folder can't be used, or, without ``create``, holds no runs; StoreError where its
        database is broken or another version's."""
        self.folder = folder
        self._database = Database(folder, create=create)
        self._quarantine = Quarantine(self._database, folder)
        self._damage: dict[tuple[Kind, str], Damage] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._database.close()

    @property
    def damage(self) -> tuple[Damage, ...]:
        """What could not be read so far."""
        return tuple(self._damage.values())

    # --- owning ---------------------------------------------------------------------------------------------------

    def begin(self, run: RunRecord, slots: tuple[PlannedSlot, ...]) -> OwnedRun:
        """Put a new run on record. The caller holds its lock."""
        return OwnedRun.begin(self._database, self.folder, run, slots)

    def take(self, run: str) -> OwnedRun:
        """Take over a run that is on record. The caller holds its lock."""
        return OwnedRun.take(self._database, self.folder, run)

    def ask_to_cancel(self, run: str) -> None:
        """Ask the run's present owner to stop. Asking twice is fine; a later owner isn't asked."""
        with self._database.writing() as connection:
            connection.execute(sa.update(RunRow).where(RunRow.id == run).values(cancel_epoch=RunRow.epoch))

    def cancelling(self, run: str) -> bool:
        """Whether the run's last owner was asked to stop."""
        query = sa.select(RunRow.id).where(RunRow.id == run, RunRow.cancel_epoch == RunRow.epoch)
        with self._database.reading() as connection:
            return connection.scalar(query) is not None

    # --- reading --------------------------------------------------------------------------------------------------

    def runs(self, limit: int | None = None) -> Sequence[RunRecord]:
        """The newest first."""
        query = sa.select(*_RUN).order_by(RunRow.created_at.desc()).limit(limit)
        return sorted(self._read(query, Kind.RUN, RunRow.id, _run), key=lambda run: -run.created_at)

    def run(self, prefix: str) -> RunRecord:
        """The run that a prefix of its id names. Raises ConfigError when none or several do, StoreError when it can't be read."""
        identifier = self._one(RunRow, prefix, Kind.RUN)
        query = sa.select(*_RUN).where(RunRow.id == identifier)
        return self._readable(self._read(query, Kind.RUN, RunRow.id, _run), Kind.RUN, identifier)

    def slots(self, run: str) -> tuple[PlannedSlot, ...]:
        """What a run is to have verdicts on, in the order in which it was planned."""
        with self._database.reading() as connection:
            return read_slots(connection, run)

    def attempts(self, run: str) -> Sequence[AttemptRecord]:
        """The attempts of a run that have a verdict, retried ones too, in the order of task, index and start."""
        return sorted(
            self.each_attempt(run), key=lambda row: (row.benchmark, row.task, row.index, row.started_at, row.id)
        )

    def each_attempt(self, run: str) -> Iterator[AttemptRecord]:
        """As `attempts`, one after the other, so that they needn't all be in memory; those that had to be restored come last."""
        query = sa.select(*_ATTEMPT).where(AttemptRow.run == run).order_by(*_ORDER)
        yield from self._read(query, Kind.ATTEMPT, AttemptRow.id, _attempt)
        for damage in self._quarantine.lasting(run):
            self._damage.setdefault((damage.kind, damage.row), damage)

    def ended(self, run: str) -> Sequence[str]:
        """The attempts of a run that have a verdict and are cleaned up, in that order."""
        query = sa.select(AttemptRow.id).where(AttemptRow.run == run, AttemptRow.finished_at.is_not(None))
        with self._database.reading() as connection:
            return connection.scalars(query.order_by(AttemptRow.finished_at, AttemptRow.id)).all()

    def attempt(self, prefix: str) -> AttemptRecord:
        """The attempt that a prefix of its id names. Raises ConfigError and StoreError like `run`."""
        identifier = self._one(AttemptRow, prefix, Kind.ATTEMPT)
        query = sa.select(*_ATTEMPT).where(AttemptRow.id == identifier)
        return self._readable(self._read(query, Kind.ATTEMPT, AttemptRow.id, _attempt), Kind.ATTEMPT, identifier)

    def _read(
        self, query: sa.Select[*tuple[Any, ...]], kind: Kind, key: Any, parsed: Callable[[Any], R]
    ) -> Iterator[R]:
        """The rows' records. Damaged rows are moved away; what took their places comes at the end."""
        for damaged in (False, True):
            bad: list[tuple[Any, Unreadable]] = []
            with self._database.reading() as connection:
                for row in connection.execution_options(yield_per=_ROWS_AT_A_TIME).execute(query):
                    try:
                        record = parsed(row)
                    except Unreadable as error:
                        bad.append((row, error))
                    else:
                        yield record
            if damaged:
                return
            for row, error in bad:
                self._set_apart(kind, row, error)
            query = query.where(key.in_([row.id for row, _ in bad]))

    def _set_apart(self, kind: Kind, row: Any, error: Unreadable) -> None:
        if error.intact:
            damage = Damage(kind, row.id, getattr(row, "run", row.id), str(error), moved=False)
        else:
            damage = self._quarantine.move(kind, row.id, row.record, str(error))
        if damage is not None:
            self._damage[kind, row.id] = damage

    def _readable(self, found: Iterator[R], kind: Kind, identifier: str) -> R:
        for record in found:
            return record
        raise StoreError(str(self._damage[kind, identifier]))

    def _one(self, table: type[RunRow] | type[AttemptRow], prefix: str, kind: Kind) -> str:
        query = sa.select(table.id).where(table.id.startswith(prefix, autoescape=True)).order_by(table.id).limit(3)
        with self._database.reading() as connection:
            found = connection.scalars(query).all()
        if prefix in found or len(found) == 1:
            return prefix if prefix in found else found[0]
        if not found:
            raise ConfigError(f"no {kind} has the id {prefix!r} in {self.folder}. `harness runs` lists what there is")
        raise ConfigError(f"several {kind}s begin with {prefix!r}: {', '.join(found)}, …. Give more of the id")


def _run(row: Any) -> RunRecord:
    return parse(RunRecord, row.record, row.checksum, id=row.id)


def _attempt(row: Any) -> AttemptRecord:
    return parse(AttemptRecord, row.record, row.checksum, id=row.id, run=row.run)
