"""Records as rows and back: the text that is stored, its checksum, and the files that hold the same beside the database."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from pydantic import ValidationError

from harness.outcome import Record
from harness.planning import PlannedSlot
from harness.record import AttemptRecord, RunRecord
from harness.store.schema import AttemptRow, SlotRow

RESULT = "result.json"
"""An attempt's record, in the attempt's folder."""
RUN_FILE = "run.json"
"""A `RunFile`, in the run's folder."""

R = TypeVar("R", bound=Record)

_COLUMNS = tuple(column.name for column in AttemptRow.__table__.columns if column.name not in ("record", "checksum"))


class RunFile(Record):
    """A run and its slots: enough, with the attempts' results, to make its rows anew."""

    run: RunRecord
    slots: tuple[PlannedSlot, ...]


class Unreadable(Exception):
    """A row holds no record that can be read. intact: it is as it was written, by a version that writes other records."""

    def __init__(self, reason: str, *, intact: bool = False) -> None:
        super().__init__(reason)
        self.intact = intact


def checksum(text: str) -> str:
    """Of a record's text, as it is stored beside it."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def parse(kind: type[R], text: Any, expected: Any, **columns: str) -> R:
    """The record in a row. columns: what the row says beside it. Raises Unreadable."""
    if not isinstance(text, str):
        raise Unreadable("it holds no text")
    if checksum(text) != expected:
        raise Unreadable("its checksum is wrong")
    try:
        record = kind.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        reason = f"another version of harness wrote it ({'.'.join(map(str, first['loc']))}: {first['msg']})"
        raise Unreadable(reason, intact=True) from error
    for name, value in columns.items():
        if getattr(record, name) != value:
            raise Unreadable(f"it is in the place of {name} {value}")
    return record


def attempt_row(record: AttemptRecord) -> dict[str, Any]:
    """An attempt's columns. ``record`` is also the text of its ``result.json``."""
    text = record.model_dump_json(indent=2)
    return {**{name: getattr(record, name) for name in _COLUMNS}, "record": text, "checksum": checksum(text)}


def run_row(record: RunRecord) -> dict[str, Any]:
    """The columns of a run that its record decides."""
    text = record.model_dump_json()
    return {"id": record.id, "created_at": record.created_at, "record": text, "checksum": checksum(text)}


def slot_rows(run: str, slots: tuple[PlannedSlot, ...]) -> list[dict[str, Any]]:
    """The columns of a run's slots, in their order."""
    return [{"run": run, "number": number, **slot.model_dump(mode="json")} for number, slot in enumerate(slots)]


def read_slots(connection: sa.Connection, run: str) -> tuple[PlannedSlot, ...]:
    """A run's slots, in their order."""
    columns = [SlotRow.__table__.columns[name] for name in PlannedSlot.model_fields]
    query = sa.select(*columns).where(SlotRow.run == run).order_by(SlotRow.number)
    return tuple(PlannedSlot.model_validate(dict(row)) for row in connection.execute(query).mappings())


def write_whole(path: Path, text: str) -> None:
    """The file is there whole, or as it was before. Raises OSError."""
    draft = path.with_name(f"{path.name}.part")
    draft.write_text(text + "\n", encoding="utf-8")
    draft.replace(path)


def read_file(path: Path, kind: type[R]) -> R | None:
    """The record in a file; None when there is none that can be read."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None
