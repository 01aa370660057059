"""`harness runs`: what was run, how it stands, and what is on record of it."""

from __future__ import annotations

import time
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.cli import NOT_GRADED, text
from harness.cli.damage import named_damage
from harness.cli.options import config_option, json_option, read_config, runs_dir_option
from harness.cli.standing import look
from harness.cli.view import describe
from harness.errors import StoreError
from harness.evaluation import report_on
from harness.record import RunRecord, RunState
from harness.store.sql import SqlStore

_POLL_S = 0.5


class ListedRun(RunRecord):
    """What ``harness runs --json`` prints of each run."""

    state: RunState


@click.command()
@click.argument("run", required=False)
@click.option("--follow", is_flag=True, help="Print the attempts of RUN as they end, until it stops.")
@click.option("--rebuild", is_flag=True, help="Make a broken database anew from the results beside it.")
@config_option
@runs_dir_option
@json_option
def runs(
    run: str | None, follow: bool, rebuild: bool, config_path: Path | None, runs_dir: Path | None, as_json: bool
) -> int:
    """List the runs, newest first; with RUN, the attempts of that run.

    Ctrl-C ends the following, never the run. Exit status: 1 when something on record can't be read, 0 otherwise.
    """
    if (follow and run is None) or (rebuild and (follow or run is not None)):
        raise click.UsageError("--follow needs a RUN" if follow else "--rebuild is for all runs: leave RUN out")
    folder = read_config(config_path, runs_dir=runs_dir).runs_dir
    if rebuild:
        _rebuild(folder)
    with SqlStore(folder, create=False) as store:
        if run is None:
            _list_runs(store, as_json=as_json)
        elif follow:
            _follow(store, store.run(run).id, as_json=as_json)
        else:
            _list_attempts(store, store.run(run).id, as_json=as_json)
        return NOT_GRADED if named_damage(store) else 0


def _list_runs(store: SqlStore, *, as_json: bool) -> None:
    found = [(run, look(store, run.id).state) for run in store.runs()]
    if as_json:
        listed = (ListedRun(**dict(run), state=state) for run, state in found)
        click.echo("[" + ",\n".join(run.model_dump_json() for run in listed) + "]")
        return
    columns = ("run", "began", "state", "agent", "attempts", "mean reward", "passed", "ungraded")
    table = Table(*columns, box=None, padding=(0, 2, 0, 0), header_style="dim")
    for run, state in found:
        summary = report_on(run, store.each_attempt(run.id))
        began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run.created_at))
        counts = f"{summary.attempts}/{run.attempts}"
        mean = text.reward(summary.mean_reward)
        table.add_row(run.id, began, state, Text(run.agent), counts, mean, str(summary.passed), str(summary.ungraded))
    text.console().print(table)


def _list_attempts(store: SqlStore, run: str, *, as_json: bool) -> None:
    records = store.attempts(run)
    if as_json:
        click.echo("[" + ",\n".join(record.model_dump_json() for record in records) + "]")
        return
    table = Table("attempt", "task", "ending", "reward", "took", box=None, padding=(0, 2, 0, 0), header_style="dim")
    for record in records:
        spent = None if record.finished_at is None else record.finished_at - record.started_at
        name = Text(text.printable(f"{record.key}#{record.index}"))
        ending = text.ending(record.ending, record.cause)
        table.add_row(record.id, name, ending, text.reward(record.reward), text.seconds(spent))
    text.console().print(table)


def _follow(store: SqlStore, run: str, *, as_json: bool) -> None:
    """What has ended, then what ends. Reads only: nothing that happens to this process touches the run."""
    told: set[str] = set()
    console = text.console()
    while True:
        standing = look(store, run)
        for identifier in store.ended(run):
            if identifier not in told:
                told.add(identifier)
                _tell(console, store, identifier, as_json=as_json)
        if not standing.running:
            break
        time.sleep(_POLL_S)
    if not as_json:
        console.print(f"run {run}: {standing.state}")


def _tell(console: Console, store: SqlStore, attempt: str, *, as_json: bool) -> None:
    try:
        record = store.attempt(attempt)
    except StoreError:
        return  # named at the end, with whatever else can't be read
    if as_json:
        click.echo(record.model_dump_json())
    else:
        console.print(Text(text.printable(describe(record))))


def _rebuild(folder: Path) -> None:
    from harness.store.rebuild import rebuild

    done = rebuild(folder)
    for problem in done.problems:
        click.echo(f"warning: {problem}", err=True)
    kept = f"; the old database is kept as {done.kept_as}" if done.kept_as else ""
    click.echo(f"{done.runs} runs with {done.attempts} attempts were read from {folder}{kept}", err=True)
