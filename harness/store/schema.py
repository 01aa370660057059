"""The tables. Nothing in them is peculiar to one database.

A row of ``runs`` and ``attempts`` holds a whole record as JSON with its checksum, and beside it the columns that queries need.
No foreign key ties attempts to their run: a damaged row must be movable without taking sound ones along.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

SCHEMA_VERSION = 2
"""1 had neither slots nor checksums."""


class Base(DeclarativeBase):
    pass


class MetaRow(Base):
    """Facts about the database itself: ``schema_version``."""

    __tablename__ = "meta"

    name: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[str]


class RunRow(Base):
    """epoch: how many owners the run has had; a write with an older one is refused. cancel_epoch: the owner that is asked to stop."""

    __tablename__ = "runs"

    id: Mapped[str] = mapped_column(primary_key=True)
    created_at: Mapped[float] = mapped_column(index=True)
    epoch: Mapped[int]
    cancel_epoch: Mapped[int | None]
    record: Mapped[str] = mapped_column(sa.Text)
    checksum: Mapped[str]


class SlotRow(Base):
    """A planned attempt. attempt: the one whose verdict stands."""

    __tablename__ = "slots"
    __table_args__ = (sa.UniqueConstraint("run", "task_digest", "benchmark", "task", "index"),)

    run: Mapped[str] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    benchmark: Mapped[str]
    task: Mapped[str]
    task_digest: Mapped[str]
    index: Mapped[int]
    path: Mapped[str]
    attempt: Mapped[str | None] = mapped_column(index=True)


class AttemptRow(Base):
    __tablename__ = "attempts"

    id: Mapped[str] = mapped_column(primary_key=True)
    run: Mapped[str] = mapped_column(index=True)
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
    checksum: Mapped[str]


class QuarantineRow(Base):
    """A row that could not be read. slot: the number of the slot that it stood for; None for a run, or where it stood for none."""

    __tablename__ = "quarantine"

    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    kind: Mapped[str]
    row: Mapped[str]
    run: Mapped[str] = mapped_column(index=True)
    slot: Mapped[int | None]
    at: Mapped[float]
    reason: Mapped[str]
    record: Mapped[bytes] = mapped_column(sa.LargeBinary)
