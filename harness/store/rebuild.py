"""A database made anew from the files beside it: each run's ``run.json`` and its attempts' ``result.json``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from harness.errors import ConfigError, RunHeld, StoreError
from harness.lock import is_held
from harness.planning import PlannedSlot
from harness.record import AttemptRecord
from harness.store.database import DATABASE, Database
from harness.store.rows import RESULT, RUN_FILE, RunFile, attempt_row, read_file, run_row, slot_rows
from harness.store.schema import AttemptRow, RunRow, SlotRow


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What was found. kept_as: where the old database is now, if there was one."""

    runs: int
    attempts: int
    problems: tuple[str, ...]
    kept_as: Path | None


def rebuild(folder: Path) -> Rebuilt:
    """Put the old database aside and make a new one. What has no readable file is named in ``problems``.

    Raises ConfigError when there is nothing to read, RunHeld while a run is going on, StoreError when the files can't be moved.
    """
    files = sorted(folder.glob(f"*/{RUN_FILE}"))
    if not files:
        raise ConfigError(f"{folder} holds no {RUN_FILE} of any run, so there is nothing to make a database from")
    for file in files:
        if is_held(file.parent):
            raise RunHeld(f"run {file.parent.name} is going on, and writes to the database. Stop it first")
    kept_as = _put_aside(folder)
    database = Database(folder)
    attempts, problems = 0, list[str]()
    runs = 0
    for file in files:
        found = read_file(file, RunFile)
        if found is None or found.run.id != file.parent.name:
            problems.append(f"{file} can't be read: the run is left out")
            continue
        records = _results(file.parent, found.run.id, problems)
        _insert(database, found, records)
        runs, attempts = runs + 1, attempts + len(records)
    database.close()
    return Rebuilt(runs, attempts, tuple(problems), kept_as)


def _put_aside(folder: Path) -> Path | None:
    """The old file under another name, with the log that belongs to it; None where there is none."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    moved = None
    try:
        for suffix in ("-shm", "-wal", ""):
            old = folder / f"{DATABASE}{suffix}"
            if old.exists():
                moved = old.rename(folder / f"{DATABASE}.{stamp}{suffix}")
    except OSError as error:
        raise StoreError(f"{folder / DATABASE} can't be put aside: {error.strerror}") from error
    return moved


def _results(folder: Path, run: str, problems: list[str]) -> list[AttemptRecord]:
    records: list[AttemptRecord] = []
    for path in sorted(folder.glob(f"*/{RESULT}")):
        record = read_file(path, AttemptRecord)
        if record is None or record.run != run or not path.parent.name.endswith(f"-{record.id}"):
            problems.append(f"{path} can't be read: the attempt is left out")
        else:
            records.append(record)
    return records


def _insert(database: Database, found: RunFile, records: Sequence[AttemptRecord]) -> None:
    with database.writing() as connection:
        # Later than any owner that the old database knew.
        epoch = int(time.time())
        connection.execute(sa.insert(RunRow).values(**run_row(found.run), epoch=epoch, cancel_epoch=None))
        if found.slots:
            connection.execute(sa.insert(SlotRow), slot_rows(found.run.id, _settled(found.slots, records)))
        if records:
            connection.execute(sa.insert(AttemptRow), [attempt_row(record) for record in records])


def _settled(slots: Sequence[PlannedSlot], records: Sequence[AttemptRecord]) -> tuple[PlannedSlot, ...]:
    """The slots with the attempts that stand: of each slot's, the last that no other one is a retry of."""
    replaced = {record.retry_of for record in records}
    standing: dict[tuple[str, str, str, int], str] = {}
    for record in sorted(records, key=lambda record: (record.started_at, record.id)):
        if record.id not in replaced:
            standing[record.task_digest, record.benchmark, record.task, record.index] = record.id
    return tuple(slot.model_copy(update={"attempt": standing.get((*slot.content, slot.index))}) for slot in slots)
