"""The page of a run's report. What comes from a task or a sandbox is escaped: by the template; control characters here."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import harness
from harness.cli import text
from harness.cli.page.plots import bar, curve, share
from harness.record import AttemptRecord, RunRecord
from harness.report import EvaluationReport, TaskScore
from harness.sample import Sample, TaskId, sample_of, settle_places, whole_attempts

_MOST_ATTEMPTS = 5_000
_MOST_CURVES = 12


@dataclass(frozen=True, slots=True)
class _Row:
    """One attempt. ``mark`` is its class: passed, partial, zero, ungraded. link: to its folder, relative to the page."""

    record: AttemptRecord
    sample: Sample
    mark: str
    retried: bool
    link: str

    @property
    def label(self) -> str:
        return "–" if self.mark == "ungraded" else f"{self.record.reward:.2g}"

    @property
    def took_s(self) -> float | None:
        return None if self.record.finished_at is None else self.record.finished_at - self.record.started_at


@dataclass(frozen=True, slots=True)
class _TaskRow:
    """A task and its attempts in the order of their indexes."""

    score: TaskScore
    attempts: tuple[_Row, ...]


def render(run: RunRecord, report: EvaluationReport, records: Sequence[AttemptRecord], *, folder: Path) -> str:
    """The page as text. ``folder``: where the page will lie, absolute; links to attempts are relative to it."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {  # pyright: ignore[reportUnknownMemberType]
        "printable": text.printable,
        "reward": text.reward,
        "estimate": text.estimate,
        "seconds": text.seconds,
        "date": _date,
        "counted": _counted,
        "bar": bar,
        "curve": curve,
    }
    rows = _rows(records, folder)
    shown = sorted(rows, key=_interest)[:_MOST_ATTEMPTS]
    return environment.get_template("report.html").render(
        run=run,
        report=report,
        share=share,
        command=shlex.join(("harness", *run.command[1:])),
        tasks=_tasks(report, rows),
        attempts=shown,
        left_out=len(rows) - len(shown),
        together=[score for score in report.benchmarks if not score.standalone],
        curves=[score for score in report.benchmarks if (score.n or 0) > 1 and score.pass_at_k][:_MOST_CURVES],
        holes=sorted({hole for record in records if record.grade for hole in record.grade.holes}),
        version=harness.__version__,
    )


def _rows(records: Sequence[AttemptRecord], folder: Path) -> list[_Row]:
    samples = {record.id: sample_of(record) for record in records}
    retried = {sample.attempt for sample in settle_places(whole_attempts(samples.values())).retried}
    return [
        _Row(record, samples[record.id], _mark(samples[record.id]), record.id in retried, _link(record.folder, folder))
        for record in records
    ]


def _mark(sample: Sample) -> str:
    if not sample.counted or sample.reward is None:
        return "ungraded"
    return "passed" if sample.passed else "zero" if sample.reward == 0 else "partial"


def _link(target: Path, folder: Path) -> str:
    # A name with a colon must not become a scheme: the path begins with a dot, and colons are escaped.
    return "./" + quote(os.path.relpath(target, folder), safe="/") + "/"


def _interest(row: _Row) -> tuple[int, str, int, float]:
    """What has no grade first, then what failed."""
    mark = ("ungraded", "zero", "partial", "passed").index(row.mark)
    return mark, row.record.key, row.record.index, row.record.started_at


def _tasks(report: EvaluationReport, rows: Sequence[_Row]) -> list[_TaskRow]:
    by_task: dict[TaskId, list[_Row]] = {}
    for row in rows:
        if not row.retried:
            by_task.setdefault(row.sample.task, []).append(row)
    scores = [task for score in report.benchmarks for task in score.by_task]
    return [
        _TaskRow(
            score=score,
            attempts=tuple(
                sorted(by_task[TaskId(score.benchmark, score.task, score.digest)], key=lambda row: row.record.index)
            ),
        )
        for score in scores
    ]


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(seconds))
