"""What the owner of a run writes: each write carries the owner's epoch, and is refused once somebody else has taken over."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import sqlalchemy as sa
import structlog

from harness.errors import SlotTaken, StaleOwner
from harness.planning import PlannedSlot
from harness.record import AttemptRecord, RunRecord
from harness.store.database import Database
from harness.store.rows import RESULT, RUN_FILE, RunFile, attempt_row, read_slots, run_row, slot_rows, write_whole
from harness.store.schema import AttemptRow, RunRow, SlotRow

_ATTEMPTS = cast("sa.Table", AttemptRow.__table__)  # the table itself: rows that are there are updated many at a time
_log = structlog.get_logger()


class OwnedRun:
    """A run, for the one who holds its lock. Synchronous, and safe to use from one thread at a time."""

    def __init__(self, database: Database, folder: Path, run: str, epoch: int) -> None:
        self._database = database
        self._folder = folder
        self.run = run
        self.epoch = epoch

    @classmethod
    def begin(cls, database: Database, folder: Path, record: RunRecord, slots: tuple[PlannedSlot, ...]) -> OwnedRun:
        """A new run, whole: its record and its slots."""
        with database.writing() as connection:
            connection.execute(sa.insert(RunRow).values(**run_row(record), epoch=1, cancel_epoch=None))
            if slots:
                connection.execute(sa.insert(SlotRow), slot_rows(record.id, slots))
        owned = cls(database, folder, record.id, 1)
        (folder / record.id).mkdir(exist_ok=True)
        owned._write(folder / record.id / RUN_FILE, RunFile(run=record, slots=slots).model_dump_json())
        return owned

    @classmethod
    def take(cls, database: Database, folder: Path, run: str) -> OwnedRun:
        """A run that is there: from now on whoever owned it before can't write any more."""
        with database.writing() as connection:
            connection.execute(sa.update(RunRow).where(RunRow.id == run).values(epoch=RunRow.epoch + 1))
            epoch = connection.scalar(sa.select(RunRow.epoch).where(RunRow.id == run))
        assert epoch is not None, "whoever takes a run has read it"
        return cls(database, folder, run, epoch)

    def save_run(self, record: RunRecord) -> None:
        """Bring the run's own record up to date. Raises StaleOwner."""
        with self._database.writing() as connection:
            self._fence(connection)
            connection.execute(sa.update(RunRow).where(RunRow.id == self.run).values(run_row(record)))
            slots = read_slots(connection, self.run)
        self._write(self._folder / self.run / RUN_FILE, RunFile(run=record, slots=slots).model_dump_json())

    def save_attempts(self, records: Sequence[AttemptRecord]) -> None:
        """Commit verdicts, all or none, then write the ``result.json`` of those whose attempt is cleaned up.

        A verdict takes its slot, or takes it over from the attempt that it is a retry of. Raises StaleOwner and SlotTaken.
        """
        rows = {record.id: attempt_row(record) for record in records}
        with self._database.writing() as connection:
            self._fence(connection)
            self._take_slots(connection, records)
            known = set(connection.scalars(sa.select(AttemptRow.id).where(AttemptRow.id.in_(rows))))
            fresh = [row for identifier, row in rows.items() if identifier not in known]
            if fresh:
                connection.execute(sa.insert(AttemptRow), fresh)
            if known:
                update = sa.update(_ATTEMPTS).where(_ATTEMPTS.c.id == sa.bindparam("known"))
                connection.execute(update, [{"known": identifier, **rows[identifier]} for identifier in known])
        for record in records:
            if record.finished_at is not None:
                self._write(record.folder / RESULT, rows[record.id]["record"])

    def cancel_requested(self) -> bool:
        """Whether somebody has asked this owner to stop. Raises StaleOwner."""
        query = sa.select(RunRow.epoch, RunRow.cancel_epoch).where(RunRow.id == self.run)
        with self._database.reading() as connection:
            found = connection.execute(query).one_or_none()
        if found is None or found.epoch != self.epoch:
            raise self._stale()
        return found.cancel_epoch == self.epoch

    def _fence(self, connection: sa.Connection) -> None:
        """The first statement of every write: it also keeps others from writing to this run until the write is done."""
        mine = sa.update(RunRow).where(RunRow.id == self.run, RunRow.epoch == self.epoch).values(epoch=self.epoch)
        if connection.execute(mine).rowcount != 1:
            raise self._stale()

    def _stale(self) -> StaleOwner:
        return StaleOwner(f"run {self.run} has been taken over by another process: nothing more is written from here")

    def _take_slots(self, connection: sa.Connection, records: Sequence[AttemptRecord]) -> None:
        query = sa.select(
            SlotRow.task_digest, SlotRow.benchmark, SlotRow.task, SlotRow.index, SlotRow.number, SlotRow.attempt
        ).where(
            SlotRow.run == self.run,
            SlotRow.task_digest.in_({record.task_digest for record in records}),
            SlotRow.index.in_({record.index for record in records}),
        )
        slots = {
            (digest, benchmark, task, index): (number, attempt)
            for digest, benchmark, task, index, number, attempt in connection.execute(query)
        }
        taken: dict[int, str] = {}
        for record in records:
            place = (record.task_digest, record.benchmark, record.task, record.index)
            if place not in slots:
                continue  # a rollout's groups are drawn as it goes on: nothing is planned for them
            number, standing = slots[place]
            if standing not in (None, record.id, record.retry_of):
                raise SlotTaken(
                    f"attempt {record.id} would be a second verdict on {record.key}#{record.index} in run {self.run}: "
                    f"attempt {standing} has one, and it isn't a retry of that"
                )
            slots[place] = (number, record.id)
            taken[number] = record.id
        if taken:
            update = sa.update(SlotRow).where(SlotRow.run == self.run, SlotRow.number == sa.bindparam("slot"))
            values = [{"slot": number, "verdict": attempt} for number, attempt in taken.items()]
            connection.execute(update.values(attempt=sa.bindparam("verdict")), values)

    def _write(self, path: Path, text: str) -> None:
        try:
            write_whole(path, text)
        except OSError as error:
            # The database has it. These files are for people, and for making the database anew.
            _log.warning("file_not_written", path=str(path), error=error.strerror)
