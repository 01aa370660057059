"""The database file: opening it, what SQLite alone needs, and what its errors mean. The only place that knows SQLite."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import DatabaseError, OperationalError
from sqlalchemy.pool import StaticPool

from harness.errors import ConfigError, StoreError
from harness.store.schema import SCHEMA_VERSION, Base, MetaRow
from harness.toml import is_text

DATABASE = "runs.sqlite"
_BUSY_S = 30
_PAUSE_S = 0.02
_WRITES = "writes"
"""The execution option of a connection that will write: it waits for others at its beginning, never in its middle."""


class Database:
    """One folder's database, ready for use: writes are on the disk when they return (write-ahead log, full sync)."""

    def __init__(self, folder: Path, *, create: bool = True) -> None:
        """Raises ConfigError when the folder can't be used, or, without ``create``, holds no runs; StoreError when the
        file is no database, is broken, or was written by another version."""
        self.path = folder / DATABASE
        if not is_text(str(folder.absolute())):
            raise ConfigError(f"runs folder {str(folder)!a}: its path isn't valid UTF-8. Name another with --runs-dir")
        if not create and not self.path.exists():
            raise _no_runs(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"runs folder {folder}: {error.strerror}. Name another with --runs-dir") from error
        self._engine = sa.create_engine(
            sa.URL.create("sqlite", database=str(self.path)), connect_args={"timeout": _BUSY_S}
        )
        _listen(self._engine, "journal_mode=WAL", "synchronous=FULL")
        with self.translated():
            try:
                version = self._version(create=create)
            except OperationalError:
                if create or not self._open_alone():
                    raise
                version = self._version(create=False)
        if version is None:
            self.close()
            raise _no_runs(folder)
        if version != SCHEMA_VERSION:
            self.close()
            raise StoreError(
                f"{self.path} was written by another version of harness (its schema is {version}, this one's is "
                f"{SCHEMA_VERSION}). `harness runs --rebuild` makes it anew from the results beside it"
            )

    def close(self) -> None:
        """Give the file back."""
        self._engine.dispose()

    @contextmanager
    def reading(self) -> Generator[sa.Connection]:
        """For queries, which all see the same state."""
        with self.translated(), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Generator[sa.Connection]:
        """One transaction: all of it is on the disk when this ends, or, after an exception, nothing of it."""
        with self.translated(), self._engine.execution_options(**{_WRITES: True}).begin() as connection:
            yield connection

    @contextmanager
    def translated(self) -> Generator[None]:
        """Foreign errors become StoreError."""
        try:
            yield
        except DatabaseError as error:
            raise StoreError(f"{self.path}: {_meaning(str(error.orig))}") from error

    def _version(self, *, create: bool) -> int | None:
        """The schema's, which is made where there is none; None: there is none, and it isn't to be made."""
        deadline = time.monotonic() + _BUSY_S
        while True:
            try:
                with self._engine.connect() as connection:
                    version = _schema_version(connection)
                if version is None and create:
                    with self._engine.execution_options(**{_WRITES: True}).begin() as connection:
                        version = _schema_version(connection) or _create(connection)
                return version
            except OperationalError as error:
                # Two processes that open a new file at the same time: SQLite doesn't wait while the log is switched on.
                if "locked" not in str(error.orig) or time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE_S)

    def _open_alone(self) -> bool:
        """Read without the file that readers share, which can't be made on a full disk. False where somebody else reads."""
        self._engine.dispose()
        self._engine = sa.create_engine(
            f"sqlite:///{self.path}", connect_args={"timeout": _BUSY_S}, poolclass=StaticPool
        )
        _listen(self._engine, "locking_mode=EXCLUSIVE", "query_only=ON")
        try:
            with self._engine.connect() as connection:
                sa.inspect(connection).get_table_names()
        except OperationalError:
            return False
        return True


def _schema_version(connection: sa.Connection) -> int | None:
    """None where there is no table at all."""
    tables = sa.inspect(connection).get_table_names()
    if not tables:
        return None
    if MetaRow.__tablename__ not in tables:
        return 1
    found = connection.scalar(sa.select(MetaRow.value).where(MetaRow.name == "schema_version"))
    return int(found) if found is not None and found.isdecimal() else 0


def _create(connection: sa.Connection) -> int:
    Base.metadata.create_all(connection)
    connection.execute(sa.insert(MetaRow).values(name="schema_version", value=str(SCHEMA_VERSION)))
    return SCHEMA_VERSION


def _no_runs(folder: Path) -> ConfigError:
    return ConfigError(f"{folder} holds no runs. Run a task first, or name another folder with --runs-dir")


def _meaning(message: str) -> str:
    if "malformed" in message or "not a database" in message:
        return f"{message}. The file is broken: `harness runs --rebuild` makes it anew from the results beside it"
    if "is full" in message:
        return "the disk is full, so nothing can be recorded. What is on record stays readable; make room and resume"
    if "locked" in message:
        return f"another process has been writing for more than {_BUSY_S} s. Try again"
    return message


def _listen(engine: sa.Engine, *pragmas: str) -> None:
    """Transactions that begin where SQLAlchemy says so, creation of tables included; text that isn't UTF-8 is read all the same."""

    def connected(connection: Any, _: object) -> None:
        connection.isolation_level = None
        connection.text_factory = _lenient
        cursor = connection.cursor()
        for pragma in pragmas:
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    def began(connection: sa.Connection) -> None:
        writes = connection.get_execution_options().get(_WRITES, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    event.listen(engine, "connect", connected)
    event.listen(engine, "begin", began)


def _lenient(data: bytes) -> str:
    """One damaged row must not keep the others from being read."""
    return data.decode("utf-8", "surrogateescape")
