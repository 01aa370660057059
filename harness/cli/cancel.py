"""`harness cancel`: ask the process that works on a run to stop."""

from __future__ import annotations

import time
from pathlib import Path

import click

from harness.cli.options import config_option, json_option, read_config, runs_dir_option
from harness.cli.standing import Standing, look
from harness.lock import last_holder
from harness.record import RunState
from harness.store.sql import SqlStore

_POLL_S = 0.2


@click.command()
@click.argument("run")
@click.option("--wait", is_flag=True, help="Come back once the run has stopped.")
@config_option
@runs_dir_option
@json_option
def cancel(run: str, wait: bool, config_path: Path | None, runs_dir: Path | None, as_json: bool) -> None:
    """Ask RUN to stop: it removes its sandboxes and keeps every verdict that stands. Asking twice is fine.

    RUN is a run's id, or the beginning of it. The answer is "cancelling" while the run cleans up, and then how it ended. Ctrl-C ends
    the waiting only.
    """
    with SqlStore(read_config(config_path, runs_dir=runs_dir).runs_dir, create=False) as store:
        identifier = store.run(run).id
        seen = look(store, identifier)
        if seen.state is RunState.RUNNING:
            store.ask_to_cancel(identifier)
            seen = look(store, identifier)
        while wait and seen.running:
            time.sleep(_POLL_S)
            seen = look(store, identifier)
        if as_json:
            click.echo(seen.model_dump_json())
        else:
            click.echo(_said(seen, store.folder))


def _said(seen: Standing, folder: Path) -> str:
    match seen.state:
        case RunState.RUNNING | RunState.CANCELLING | RunState.CANCELLED:
            return f"run {seen.run}: {seen.state}"
        case RunState.FINISHED | RunState.INCOMPLETE:
            return f"run {seen.run} is not running: {seen.state}"
        case RunState.DIED:
            who = last_holder(folder / seen.run)
            owner = f"; its last owner was {who}" if who else ""
            return (
                f"run {seen.run} is not running: it died{owner}. "
                f"`harness resume {seen.run}` goes on with it, `harness gc` removes its sandboxes"
            )
