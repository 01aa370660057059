"""Rows that can't be read: moved to quarantine with the reason, and put back from the files beside the database where these are sound."""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import StrEnum
from glob import escape
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from harness.errors import StoreError
from harness.record import AttemptRecord
from harness.store.database import Database
from harness.store.rows import RESULT, RUN_FILE, RunFile, attempt_row, read_file, run_row
from harness.store.schema import AttemptRow, QuarantineRow, RunRow, SlotRow


class Kind(StrEnum):
    """What a row holds."""

    RUN = "run"
    ATTEMPT = "attempt"


@dataclass(frozen=True, slots=True)
class Damage:
    """A row that could not be read, and what became of it.

    run: where it says it belongs. restored: its files were sound. moved: it is in quarantine; else
    it is where it was: it is intact, or the database can't be written.
    """

    kind: Kind
    row: str
    run: str
    reason: str
    restored: bool = False
    moved: bool = True

    def __str__(self) -> str:
        return f"the row of {self.kind} {self.row} can't be read: {self.reason}. {self._fate()}"

    def _fate(self) -> str:
        if not self.moved:
            return "It stays where it is"
        if self.restored:
            file = RUN_FILE if self.kind is Kind.RUN else RESULT
            return f"It is in quarantine, and its {file} has taken its place"
        if self.kind is Kind.RUN:
            return "It is in quarantine; `harness show` still finds its attempts"
        return f"It is in quarantine, and its slot lacks a verdict: `harness resume {self.run}`"


class Quarantine:
    """Takes damaged rows out of the tables of one folder's database."""

    def __init__(self, database: Database, folder: Path) -> None:
        self._database = database
        self._folder = folder

    def move(self, kind: Kind, row: str, text: Any, reason: str) -> Damage | None:
        """Move the row, whose record reads ``text``, and put back what its files hold.

        None where somebody else has mended it meanwhile. A database that can't be written is left as it is.
        """
        table = RunRow if kind is Kind.RUN else AttemptRow
        run = row
        try:
            with self._database.writing() as connection:
                if connection.scalar(sa.select(table.record).where(table.id == row)) != text:
                    return None
                if kind is Kind.ATTEMPT:
                    run = str(connection.scalar(sa.select(AttemptRow.run).where(AttemptRow.id == row)))
                self._keep(connection, Damage(kind, row, run, reason), text)
                restored = self._replace(connection, kind, row)
        except StoreError:
            return Damage(kind, row, run, reason, moved=False)
        return Damage(kind, row, run, reason, restored=restored)

    def lasting(self, run: str) -> list[Damage]:
        """What of a run went to quarantine, was not restored, and has not been run again since."""
        query = (
            sa.select(QuarantineRow.kind, QuarantineRow.row, QuarantineRow.run, QuarantineRow.reason)
            .join(SlotRow, sa.and_(SlotRow.run == QuarantineRow.run, SlotRow.number == QuarantineRow.slot))
            .outerjoin(AttemptRow, AttemptRow.id == QuarantineRow.row)
            .where(QuarantineRow.run == run, QuarantineRow.kind == Kind.ATTEMPT, AttemptRow.id.is_(None))
            .where(SlotRow.attempt.is_(None))
        )
        with self._database.reading() as connection:
            return [Damage(Kind(kind), row, of, reason) for kind, row, of, reason in connection.execute(query)]

    def _keep(self, connection: sa.Connection, damage: Damage, text: Any) -> None:
        data = text if isinstance(text, bytes) else str(text).encode("utf-8", "surrogateescape")
        slot = connection.scalar(sa.select(SlotRow.number).where(SlotRow.attempt == damage.row))
        values = {
            "kind": damage.kind,
            "row": damage.row,
            "run": damage.run,
            "slot": slot,
            "at": time.time(),
            "reason": damage.reason,
            "record": data,
        }
        connection.execute(sa.insert(QuarantineRow).values(values))

    def _replace(self, connection: sa.Connection, kind: Kind, row: str) -> bool:
        """Whether its files held what the row should."""
        if kind is Kind.RUN:
            file = read_file(self._folder / row / RUN_FILE, RunFile)
            if file is not None and file.run.id == row:
                connection.execute(sa.update(RunRow).where(RunRow.id == row).values(run_row(file.run)))
                return True
            connection.execute(sa.delete(RunRow).where(RunRow.id == row))
            return False
        for path in self._folder.glob(f"*/*-{escape(row)}/{RESULT}"):
            record = read_file(path, AttemptRecord)
            if record is not None and record.id == row:
                connection.execute(sa.update(AttemptRow).where(AttemptRow.id == row).values(attempt_row(record)))
                return True
        connection.execute(sa.delete(AttemptRow).where(AttemptRow.id == row))
        connection.execute(sa.update(SlotRow).where(SlotRow.attempt == row).values(attempt=None))
        return False
