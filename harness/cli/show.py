"""`harness show`: what is on record of one attempt."""

from __future__ import annotations

import time
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.cli import text
from harness.cli.options import config_option, json_option, read_config, runs_dir_option
from harness.record import AttemptRecord
from harness.store.sql import SqlStore


@click.command()
@click.argument("attempt")
@config_option
@runs_dir_option
@json_option
def show(attempt: str, config_path: Path | None, runs_dir: Path | None, as_json: bool) -> None:
    """Show ATTEMPT: its ending, reward, components, phases and files.

    ATTEMPT is an attempt's id, or the beginning of it.
    """
    with SqlStore(read_config(config_path, runs_dir=runs_dir).runs_dir, create=False) as store:
        record = store.attempt(attempt)
    if as_json:
        click.echo(record.model_dump_json(indent=2))
        return
    console = text.console()
    _facts(console, record)
    _build_failure(console, record)
    _components(console, record)
    _evidence(console, record)
    _phases(console, record)
    _files(console, record)


def _facts(console: Console, record: AttemptRecord) -> None:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    grade = record.grade
    rows: list[tuple[str, str]] = [
        ("attempt", f"{record.id} (run {record.run})"),
        ("task", f"{record.key} #{record.index}, {record.task_digest[:19]}"),
        ("agent", record.agent),
        *([("retry of", record.retry_of)] if record.retry_of else []),
        ("ending", text.ending(record.ending, record.cause)),
        ("reward", "not graded" if record.reward is None else text.reward(record.reward)),
        ("grading", f"{record.grading}, {record.integrity} tier"),
    ]
    if record.detail:
        rows.append(("detail", record.detail))
    rows += [("warning", warning) for warning in record.warnings]
    if grade is not None:
        rows += [("grader", f"{run.subject}: test script exited with status {run.exit_status}") for run in grade.runs]
        rows += [("changed", path) for path in grade.changed_paths[:20]]
        rows += [("not ruled out", hole) for hole in grade.holes]
    if record.image is not None:
        rows.append(("image", f"{record.image.ref} {record.image.id[:19]}"))
        rows += [("mapped", f"{asked} → {used}") for asked, used in record.image.mapped_from]
    for name, value in rows:
        table.add_row(Text(name, style="dim"), Text(text.printable(value)))
    console.print(table)


def _build_failure(console: Console, record: AttemptRecord) -> None:
    if (failure := record.build_failure) is not None:
        console.print(Text(text.printable(f"the build failed at {failure.instruction or 'no instruction'!r}:")))
        console.print(Text(text.printable(failure.log_tail.rstrip())))
        console.print(Text(text.printable(f"the whole log is in {failure.log_path}"), style="dim"))


def _components(console: Console, record: AttemptRecord) -> None:
    if record.grade is None or not record.grade.components:
        return
    table = Table("component", "value", "bounds", "weight", box=None, padding=(0, 2, 0, 0), header_style="dim")
    for part in record.grade.components:
        bounds = f"{part.low:g}..{part.high:g}"
        table.add_row(Text(text.printable(part.name)), f"{part.value:.4g}", bounds, f"{part.weight:.4g}")
    console.print(table)


def _evidence(console: Console, record: AttemptRecord) -> None:
    """What failed on the way to the verdict, what was looked at then, and what that decided."""
    for examination in record.evidence:
        when = "after the start" if examination.started else "before the start"
        line = f"{examination.failed} in {examination.phase}, {when}: {examination.judgement}"
        console.print(Text(line), Text(text.printable(examination.what), style="dim"))
        table = Table("looked at", "found", "", box=None, padding=(0, 2, 0, 2), header_style="dim")
        for reading in examination.readings:
            table.add_row(reading.source, reading.found, Text(text.printable(reading.said), style="dim"))
        if examination.readings:
            console.print(table)


def _phases(console: Console, record: AttemptRecord) -> None:
    table = Table("phase", "step", "began", "took", box=None, padding=(0, 2, 0, 0), header_style="dim")
    for stamp in record.phases:
        began = time.strftime("%H:%M:%S", time.localtime(stamp.start)) + f".{int(stamp.start % 1 * 1000):03d}"
        table.add_row(stamp.phase, Text(stamp.step or ""), began, text.seconds(stamp.duration_s))
    console.print(table)


def _files(console: Console, record: AttemptRecord) -> None:
    console.print(Text(f"files in {record.folder}", style="dim"))
    for path in sorted(record.folder.rglob("*")) if record.folder.is_dir() else []:
        if path.is_file():
            console.print(
                Text(f"  {text.printable(str(path.relative_to(record.folder)))}  {path.stat().st_size} bytes")
            )
