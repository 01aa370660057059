"""`harness compare`: two runs, task by task."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click
from rich.table import Table
from rich.text import Text

from harness.cli import NOT_GRADED, text
from harness.cli.damage import named_damage
from harness.cli.options import config_option, json_option, read_config, runs_dir_option
from harness.comparison import Comparison, Outcome, Side, compare_runs
from harness.store.sql import SqlStore

_MOST_TASKS = 40
_MOST_NAMES = 10
_ORDER = (Outcome.LOSS, Outcome.WIN, Outcome.NOT_COMPARED, Outcome.TIE)


@click.command()
@click.argument("first")
@click.argument("second")
@config_option
@runs_dir_option
@json_option
def compare(first: str, second: str, config_path: Path | None, runs_dir: Path | None, as_json: bool) -> int:
    """Compare the runs FIRST and SECOND: differences are SECOND minus FIRST.

    Tasks are paired by their content. The mean difference comes with a 95% confidence interval (paired, clustered by task).
    """
    with SqlStore(read_config(config_path, runs_dir=runs_dir).runs_dir, create=False) as store:
        one, other = store.run(first), store.run(second)
        comparison = compare_runs(one, store.attempts(one.id), other, store.attempts(other.id))
        damaged = named_damage(store)
    if as_json:
        click.echo(comparison.model_dump_json(indent=2))
        return NOT_GRADED if damaged else 0
    console = text.console()
    if comparison.tasks:
        console.print(_tasks(comparison))
    for line in _lines(comparison):
        console.print(Text(text.printable(line)))
    console.print(Text(text.printable(_verdict(comparison)), style="bold"))
    return NOT_GRADED if damaged else 0


def _tasks(comparison: Comparison) -> Table:
    table = Table(
        "task", "first", "second", "difference", "ungraded", box=None, padding=(0, 2, 0, 0), header_style="dim"
    )
    ordered = sorted(comparison.tasks, key=lambda task: (_ORDER.index(task.outcome), -abs(task.difference or 0.0)))
    for task in ordered[:_MOST_TASKS]:
        difference = "not compared" if task.difference is None else f"{task.difference:+.4g}"
        ungraded = (
            f"{task.first.ungraded} / {task.second.ungraded}" if task.first.ungraded or task.second.ungraded else ""
        )
        names = task.first.key if task.first.key == task.second.key else f"{task.first.key} = {task.second.key}"
        table.add_row(Text(text.printable(names)), _reward(task.first), _reward(task.second), difference, ungraded)
    if len(ordered) > _MOST_TASKS:
        table.add_row(Text(f"and {len(ordered) - _MOST_TASKS} more: --json has them all", style="dim"))
    return table


def _reward(side: Side) -> str:
    return f"{text.reward(side.mean_reward)} ({side.attempts})" if side.attempts > 1 else text.reward(side.mean_reward)


def _lines(comparison: Comparison) -> Iterable[str]:
    for which, names in (("first", comparison.only_first), ("second", comparison.only_second)):
        if names:
            more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
            yield f"only in the {which}: {', '.join(names[:_MOST_NAMES])}{more}"
    for warning in comparison.warnings:
        yield f"note: {warning}"
    yield f"first {comparison.first}: mean {text.reward(comparison.first_mean)} over {comparison.compared} tasks"
    yield f"second {comparison.second}: mean {text.reward(comparison.second_mean)} over {comparison.compared} tasks"
    missing = f", {comparison.not_compared} not compared (no grade on a side)" if comparison.not_compared else ""
    yield f"{comparison.wins} won, {comparison.losses} lost, {comparison.ties} tied by the second{missing}"


def _verdict(comparison: Comparison) -> str:
    if comparison.mean_difference is None:
        return "difference: —"
    line = f"difference {comparison.mean_difference:+.4g}"
    if comparison.interval is None:
        return line
    low, high = comparison.interval.low, comparison.interval.high
    return (
        f"{line}, {comparison.interval.confidence:.0%} interval {low:+.4g} to {high:+.4g} (paired by task, Student's t)"
    )
