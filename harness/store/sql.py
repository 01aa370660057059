"""Runs and verdicts in SQLite: written durably before they are shown, read back as the records they were."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import sqlalchemy as sa
from pydantic import ValidationError
from sqlalchemy import event
from sqlalchemy.exc import DatabaseError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from harness.errors import ConfigError, StoreError
from harness.record import AttemptRecord, RunRecord
from harness.toml import is_text

DATABASE = "runs.sqlite"
RESULT = "result.json"


class _Base(DeclarativeBase):
    pass


class _Run(_Base):
    __tablename__ = "runs"

    id: Mapped[str] = mapped_column(primary_key=True)
    created_at: Mapped[float] = mapped_column(index=True)
    finished_at: Mapped[float | None]
    record: Mapped[str] = mapped_column(sa.Text)


class _Attempt(_Base):
    __tablename__ = "attempts"

    id: Mapped[str] = mapped_column(primary_key=True)
    run: Mapped[str] = mapped_column(sa.ForeignKey("runs.id"), index=True)
    benchmark: Mapped[str]
    task: Mapped[str] = mapped_column(index=True)
    task_digest: Mapped[str]
    agent: Mapped[str]
    index: Mapped[int]
    retry_of: Mapped[str | None]
    ending: Mapped[str]
    cause: Mapped[str | None]
    reward: Mapped[float | None]
    grading: Mapped[str]
    integrity: Mapped[str]
    started_at: Mapped[float]
    finished_at: Mapped[float | None]
    record: Mapped[str] = mapped_column(sa.Text)


class SqlStore:
    """The database of one folder of runs. Synchronous; use as a context manager.

    A write returns when it is on the disk (write-ahead log, full sync).
    """

    def __init__(self, folder: Path, *, create: bool = True) -> None:
        """Raises ConfigError when the folder can't be used, or, without ``create``, holds no runs."""
        self._path = folder / DATABASE
        if not is_text(str(folder.absolute())):
            raise ConfigError(f"runs folder {str(folder)!a}: its path isn't valid UTF-8. Name another with --runs-dir")
        if not create and not self._path.exists():
            raise ConfigError(f"{folder} holds no runs. Run a task first, or name another folder with --runs-dir")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"runs folder {folder}: {error.strerror}. Name another with --runs-dir") from error
        self._engine = sa.create_engine(sa.URL.create("sqlite", database=str(self._path)), connect_args={"timeout": 30})
        event.listen(self._engine, "connect", _durable)
        with self._translated():
            _Base.metadata.create_all(self._engine)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._engine.dispose()

    @contextmanager
    def _translated(self) -> Generator[None]:
        try:
            yield
        except DatabaseError as error:
            raise StoreError(f"{self._path}: {error.orig}") from error

    @contextmanager
    def _session(self) -> Generator[Session]:
        with self._translated(), Session(self._engine) as session:
            yield session

    def save_run(self, run: RunRecord) -> None:
        """Insert a run, or bring its row up to date."""
        row = _Run(id=run.id, created_at=run.created_at, finished_at=run.finished_at, record=run.model_dump_json())
        with self._session() as session:
            session.merge(row)
            session.commit()

    def save_attempt(self, attempt: AttemptRecord) -> None:
        """Commit a verdict, then write ``result.json`` in the attempt's folder, whole or not at all."""
        document = attempt.model_dump_json(indent=2)
        values: dict[str, Any] = {
            column.name: getattr(attempt, column.name)
            for column in _Attempt.__table__.columns
            if column.name != "record"
        }
        with self._session() as session:
            session.merge(_Attempt(**values, record=document))
            session.commit()
        draft = attempt.folder / f"{RESULT}.part"
        draft.write_text(document + "\n", encoding="utf-8")
        draft.replace(attempt.folder / RESULT)

    def runs(self, limit: int | None = None) -> Sequence[RunRecord]:
        """The newest first."""
        query = sa.select(_Run.record).order_by(_Run.created_at.desc()).limit(limit)
        with self._session() as session:
            return [RunRecord.model_validate_json(text) for text in session.scalars(query)]

    def run(self, prefix: str) -> RunRecord:
        """The run that a prefix of its id names. Raises ConfigError when none or several do."""
        return RunRecord.model_validate_json(self._one(_Run, prefix, "run"))

    def attempts(self, run: str) -> Sequence[AttemptRecord]:
        """The attempts of a run that have a verdict, in the order of task, index and start."""
        query = (
            sa.select(_Attempt.record)
            .where(_Attempt.run == run)
            .order_by(_Attempt.task, _Attempt.index, _Attempt.started_at)
        )
        with self._session() as session:
            return [_attempt(text, self._path) for text in session.scalars(query)]

    def attempt(self, prefix: str) -> AttemptRecord:
        """The attempt that a prefix of its id names. Raises ConfigError when none or several do."""
        return _attempt(self._one(_Attempt, prefix, "attempt"), self._path)

    def _one(self, table: type[_Run] | type[_Attempt], prefix: str, what: str) -> str:
        query = sa.select(table.id, table.record).where(table.id.startswith(prefix, autoescape=True)).limit(3)
        with self._session() as session:
            found = session.execute(query).all()
        exact = [text for identifier, text in found if identifier == prefix]
        if exact:
            return exact[0]
        if not found:
            raise ConfigError(
                f"no {what} has the id {prefix!r} in {self._path.parent}. `harness runs` lists what there is"
            )
        if len(found) > 1:
            raise ConfigError(
                f"several {what}s begin with {prefix!r}: {', '.join(row[0] for row in found)}, …. Give more of the id"
            )
        return found[0][1]


def _attempt(text: str, path: Path) -> AttemptRecord:
    try:
        return AttemptRecord.model_validate_json(text)
    except ValidationError as error:
        raise StoreError(f"{path}: an attempt's row can't be read: {error.errors()[0]['msg']}") from error


def _durable(connection: Any, _: object) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()
