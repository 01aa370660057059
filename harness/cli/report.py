"""What a run came to: tables for people, one document for programs, one page for reading later."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.cli import NOT_GRADED, text
from harness.cli.damage import named_damage
from harness.cli.options import config_option, json_option, read_config, runs_dir_option
from harness.errors import ConfigError, UsageError
from harness.evaluation import report_on
from harness.outcome import Record
from harness.phases import Phase
from harness.record import AttemptRecord, BuildFailure, RunRecord
from harness.report import EvaluationReport, Score, TaskScore
from harness.sample import sample_of
from harness.store.sql import SqlStore

REPORT = "report.json"
_MOST_DETAILS = 3
_MOST_TASKS = 40
"""Rows of the table of tasks; with more, those that passed every time are left out first."""


class ReportDocument(Record):
    """What ``report.json`` holds and ``harness report --json`` prints. metrics: the numbers under the names that trainers log."""

    run: RunRecord
    summary: EvaluationReport
    metrics: dict[str, float]


class RunDocument(ReportDocument):
    """What ``harness run --json`` prints."""

    attempts: tuple[AttemptRecord, ...]
    problems: tuple[str, ...] = ()
    """Tasks that can't run, one message each."""


@click.command()
@click.argument("run")
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), help="Write a page to this file instead.")
@config_option
@runs_dir_option
@json_option
def report(run: str, html: Path | None, config_path: Path | None, runs_dir: Path | None, as_json: bool) -> int:
    """Report on RUN: means with standard errors, pass@k, and what has no grade and why.

    RUN is a run's id, or the beginning of it. It may still be going on.
    """
    with SqlStore(read_config(config_path, runs_dir=runs_dir).runs_dir, create=False) as store:
        record = store.run(run)
        records = store.attempts(record.id)
        damaged = named_damage(store)
    result = report_on(record, records)
    for warning in result.warnings:
        click.echo(f"warning: {warning}", err=True)
    if html is not None:
        _write_page(html, record, result, records)
    if as_json:
        document = ReportDocument(run=record, summary=result, metrics=result.metrics)
        click.echo(document.model_dump_json(indent=2))
    elif html is None:
        print_report(record, result, records)
    return NOT_GRADED if damaged else 0


def _write_page(path: Path, run: RunRecord, result: EvaluationReport, records: Sequence[AttemptRecord]) -> None:
    from harness.cli.page.report import render

    try:
        path.write_text(render(run, result, records, folder=path.absolute().parent), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--html {path}: {error.strerror}. Name a file in a folder that can be written") from error
    click.echo(f"wrote {path}", err=True)


def print_document(
    run: RunRecord,
    result: EvaluationReport,
    records: Sequence[AttemptRecord],
    failures: Sequence[tuple[Path, UsageError]],
) -> None:
    """What ``harness run --json`` prints."""
    problems = tuple(text.printable(str(failure)) for _, failure in failures)
    document = RunDocument(run=run, summary=result, metrics=result.metrics, attempts=tuple(records), problems=problems)
    click.echo(document.model_dump_json(indent=2))


def write_report(run: RunRecord, result: EvaluationReport) -> None:
    """Keep the report in the run's folder, whole or not at all. Raises OSError."""
    document = ReportDocument(run=run, summary=result, metrics=result.metrics)
    run.folder.mkdir(parents=True, exist_ok=True)
    draft = run.folder / f"{REPORT}.part"
    draft.write_text(document.model_dump_json(indent=2) + "\n", encoding="utf-8")
    draft.replace(run.folder / REPORT)


def print_report(
    run: RunRecord, result: EvaluationReport, records: Sequence[AttemptRecord], *, stopped: str = ""
) -> None:
    """Tables of tasks and benchmarks, the run's numbers, what has no grade, and the time by phase. stopped: by what, if anything."""
    console = text.console()
    _print_tasks(console, [task for score in result.benchmarks for task in score.by_task])
    together = [score for score in result.benchmarks if not score.standalone]
    if together and len(result.benchmarks) > 1:
        console.print(_benchmarks([(score.benchmark, score) for score in together] + [("all", result)]))
    for line in _headline(result):
        console.print(Text(text.printable(line), style="bold"))
    if len(result.tiers) > 1:
        console.print("by tier: " + ", ".join(f"{tier.integrity} {text.estimate(tier)}" for tier in result.tiers))
    for line in _without_grade(result, records):
        console.print(Text(text.printable(line)), soft_wrap=True)
    if result.phase_seconds:
        phases = (
            f"{phase} {text.seconds(result.phase_seconds[phase])}" for phase in Phase if phase in result.phase_seconds
        )
        console.print("median time by phase: " + ", ".join(phases), soft_wrap=True)
    for failure in result.failed_builds:
        console.print(Text(text.printable(_failed_build(failure))), soft_wrap=True)
    for warning, count in result.attempt_warnings.items():
        console.print(Text(text.printable(f"warning: {count} × {warning}"), style="yellow"))
    if stopped:
        missing = result.planned - result.attempts
        kept = f"{text.counted(result.attempts, 'verdict')} kept, {text.counted(missing, 'attempt')} not begun"
        console.print(f"{stopped}: {kept}. To go on: harness resume {run.id}")
    console.print(Text(f"run {run.id} is in {run.folder}", style="dim"), soft_wrap=True)


def _failed_build(failure: BuildFailure) -> str:
    instruction = " ".join(failure.instruction.split())
    where = f" at {instruction[:120]!r}" if instruction else ""
    log = f"; its log is {failure.log_path}" if failure.log_path else ""
    return f"build failed{where}: no image for {', '.join(failure.tasks)}{log}"


def _headline(result: EvaluationReport) -> Iterable[str]:
    counts = f"{result.passed} passed, {result.failed} failed, {result.ungraded} ungraded"
    mean = "not graded" if result.mean_reward is None else f"mean reward {text.estimate(result)}"
    wall = "" if result.wall_s is None else f", in {text.seconds(result.wall_s)}"
    yield f"{mean}: {counts}{wall}"
    if result.n is not None and result.n > 1 and result.pass_at_k:
        yield f"{_pass_at_k(result)} ({result.complete_tasks} of {result.tasks} tasks have all {result.n} grades)"


def _pass_at_k(score: Score) -> str:
    return ", ".join(f"pass@{k} {text.reward(value)}" for k, value in score.pass_at_k.items())


def _without_grade(result: EvaluationReport, records: Sequence[AttemptRecord]) -> Iterable[str]:
    details: dict[str, Counter[str]] = {}
    for record in records:
        if record.reward is None and record.detail:
            details.setdefault(sample_of(record).reason, Counter())[record.detail] += 1
    if result.aborted and result.aborted_ratio is not None:
        yield f"aborted: {result.aborted} of {result.attempts} attempts ({result.aborted_ratio:.1%})"
    for reason, count in result.ungraded_by_ending.items():
        told = sorted(details.get(reason, Counter()).items(), key=lambda pair: (-pair[1], pair[0]))
        yield f"ungraded: {count} × {reason}{f': {told[0][0]}' if len(told) == 1 else ''}"
        if len(told) > 1:
            yield from (f"  {times} × {detail}" for detail, times in told[:_MOST_DETAILS])
        if len(told) > _MOST_DETAILS:
            yield f"  and {len(told) - _MOST_DETAILS} other reasons: `harness show ATTEMPT` has each"
    if result.retried:
        reasons = ", ".join(f"{count} × {reason}" for reason, count in result.retried_by_ending.items())
        yield f"run again, and not counted above: {reasons}"


def _benchmarks(rows: Sequence[tuple[str, Score]]) -> Table:
    columns = ("benchmark", "tasks", "n", "mean reward", "passed", "failed", "ungraded", "aborted", "pass@k")
    table = Table(*columns, box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name, score in rows:
        table.add_row(
            Text(text.printable(name)),
            str(score.tasks),
            "" if score.n is None else str(score.n),
            text.estimate(score),
            str(score.passed),
            str(score.failed),
            str(score.ungraded),
            "" if score.aborted_ratio is None else f"{score.aborted_ratio:.1%}",
            _pass_at_k(score),
        )
    return table


def _print_tasks(console: Console, tasks: Sequence[TaskScore]) -> None:
    shown = list(tasks)
    if len(shown) > _MOST_TASKS:
        shown = [task for task in tasks if task.passed < task.attempts][:_MOST_TASKS]
    columns = ("task", "attempts", "reward", "passed", "failed", "ungraded", "endings")
    table = Table(*columns, box=None, padding=(0, 2, 0, 0), header_style="dim")
    for task in shown:
        endings = (f"{reason} × {count}" if count > 1 else reason for reason, count in task.endings.items())
        table.add_row(
            Text(text.printable(task.key)),
            str(task.attempts),
            text.reward(task.mean_reward),
            str(task.passed),
            str(task.failed),
            str(task.ungraded),
            ", ".join(endings),
        )
        for step in task.steps:
            reward = text.reward(step.mean_reward)
            name = Text(text.printable(f"  {step.step}"), style="dim")
            table.add_row(name, str(step.reached), reward, str(step.passed), str(step.reached - step.passed))
    if shown:
        console.print(table)
    if left_out := len(tasks) - len(shown):
        console.print(Text(f"{left_out} more tasks: `harness report RUN --json`, or --html FILE", style="dim"))
