"""What a run came to: tables for people, one document for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click
from rich.table import Table
from rich.text import Text

from harness.cli import text
from harness.errors import UsageError
from harness.outcome import Record
from harness.phases import Phase
from harness.record import AttemptRecord, RunRecord, RunSummary


class RunDocument(Record):
    """What ``harness run --json`` prints."""

    run: RunRecord
    summary: RunSummary
    attempts: tuple[AttemptRecord, ...]
    problems: tuple[str, ...] = ()
    """Tasks that can't run, one message each."""


def print_document(
    record: RunRecord,
    summary: RunSummary,
    records: Sequence[AttemptRecord],
    failures: Sequence[tuple[Path, UsageError]],
) -> None:
    """One JSON document on standard output."""
    problems = tuple(str(failure) for _, failure in failures)
    document = RunDocument(run=record, summary=summary, attempts=tuple(records), problems=problems)
    click.echo(document.model_dump_json(indent=2))


def print_summary(
    record: RunRecord, summary: RunSummary, records: Sequence[AttemptRecord], *, signalled: int | None
) -> None:
    """A table of tasks, the run's means, and the time by phase."""
    console = text.console()
    console.print(_tasks(records))
    mean = "not graded" if summary.mean_reward is None else f"mean reward {text.reward(summary.mean_reward)}"
    counts = f"{summary.passed} passed, {summary.failed} failed, {summary.ungraded} ungraded"
    console.print(Text(f"{mean}: {counts}, in {text.seconds(summary.wall_s)}", style="bold"))
    if len(summary.mean_reward_by_integrity) > 1:
        tiers = summary.mean_reward_by_integrity.items()
        console.print("by tier: " + ", ".join(f"{tier} {text.reward(value)}" for tier, value in tiers))
    for reason, count in summary.ungraded_by_ending.items():
        details = sorted(
            {row.detail for row in records if row.reward is None and _reason(row) == reason and row.detail}
        )
        console.print(Text(text.printable(f"ungraded: {count} × {reason}{f': {details[0]}' if details else ''}")))
    shown = [(phase, summary.phase_seconds[phase]) for phase in Phase if phase in summary.phase_seconds]
    console.print("time by phase: " + ", ".join(f"{phase} {text.seconds(spent)}" for phase, spent in shown))
    if signalled is not None:
        kept = len(records)
        console.print(
            f"stopped by a signal: {kept} verdicts are kept, {record.attempts - kept} attempts were not begun"
        )
    console.print(Text(f"run {record.id} is in {record.folder}", style="dim"))


def _reason(row: AttemptRecord) -> str:
    return f"{row.ending}/{row.cause}" if row.cause else str(row.ending)


def _tasks(records: Sequence[AttemptRecord]) -> Table:
    columns = ("task", "attempts", "reward", "passed", "failed", "ungraded", "endings")
    table = Table(*columns, box=None, padding=(0, 2, 0, 0), header_style="dim")
    by_task: dict[str, list[AttemptRecord]] = {}
    for row in records:
        by_task.setdefault(row.key, []).append(row)
    for name, rows in by_task.items():
        rewards = [row.reward for row in rows if row.counted and row.reward is not None]
        mean = sum(rewards) / len(rewards) if rewards else None
        passed = sum(row.passed for row in rows if row.counted)
        endings = Counter(text.ending(row.ending, row.cause) for row in rows)
        table.add_row(
            Text(text.printable(name)),
            str(len(rows)),
            text.reward(mean),
            str(passed),
            str(len(rewards) - passed),
            str(len(rows) - len(rewards)),
            ", ".join(f"{ending} × {count}" if count > 1 else ending for ending, count in endings.items()),
        )
    return table
