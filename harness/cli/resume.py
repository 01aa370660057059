"""`harness resume`: go on with a run that died, was cancelled or had no room: exactly the attempts that lack a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click

from harness.agents.registry import agent_digest, make_agent
from harness.cli import logs
from harness.cli.conduct import Conducted, conduct
from harness.cli.options import config_option, json_option, read_config, runs_dir_option
from harness.config import RunConfig
from harness.errors import ConfigError, UsageError
from harness.lock import own_run
from harness.planning import PlannedSlot, find_slots, outstanding
from harness.record import RunRecord
from harness.space import DiskReserve
from harness.store.sql import SqlStore
from harness.task.model import Task
from harness.wiring import load_again, open_workshop, plan_attempts


@click.command()
@click.argument("run")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--ungraded", is_flag=True, help="Also run again what was aborted or not graded.")
@click.option("--concurrency", type=click.IntRange(1), help="Attempts at the same time. [default: as before]")
@config_option
@runs_dir_option
@json_option
def resume(
    run: str,
    paths: tuple[Path, ...],
    ungraded: bool,
    concurrency: int | None,
    config_path: Path | None,
    runs_dir: Path | None,
    as_json: bool,
) -> int:
    """Go on with RUN: run the attempts that lack a verdict, and report over the whole run.

    RUN is a run's id, or the beginning of it. Its tasks are found by their content: PATHS say where they are now, if they have moved.
    A task that has changed or is gone is named and not run. The rest of the configuration is what the run began with.

    Exit status: as `harness run`.
    """
    logs.configure()
    folder = read_config(config_path, runs_dir=runs_dir).runs_dir
    with SqlStore(folder, create=False) as store:
        record = store.run(run)
        with own_run(folder / record.id):
            # Read again: whoever owned it until now may have written since.
            record = store.run(record.id)
            config = _configured(record, folder, paths=paths, concurrency=concurrency)
            return _go_on(store, record, config, ungraded=ungraded, as_json=as_json)


def _configured(record: RunRecord, folder: Path, *, paths: Sequence[Path], concurrency: int | None) -> RunConfig:
    """What the run began with, at the places where things are now."""
    if record.config is None:
        raise ConfigError(f"run {record.id} has no configuration on record, so it can't go on. Start a new one")
    changes: dict[str, object] = {"runs_dir": folder, "concurrency": concurrency or record.config.concurrency}
    if paths:
        changes["paths"] = [path.absolute() for path in paths]
    return record.config.model_copy(update=changes)


def _go_on(store: SqlStore, record: RunRecord, config: RunConfig, *, ungraded: bool, as_json: bool) -> int:
    records = store.attempts(record.id)
    wanted = outstanding(store.slots(record.id), records, retries=config.retries, ungraded=ungraded)
    agent = make_agent(config.agent.name, config.agent.options)
    if wanted:
        if record.agent_digest != agent_digest(config.agent.name):
            raise ConfigError(
                f"run {record.id}: {config.agent.name} has changed since the run began, and one run has one agent. "
                "Bring its content back, or start a new run"
            )
        DiskReserve(config.runs_dir, config.disk_reserve).check()
    else:
        click.echo(f"run {record.id}: every attempt has its verdict", err=True)
    ready, failures = _tasks(config, wanted)
    for _, failure in failures:
        click.echo(f"error: {failure}", err=True)
    owned = store.take(record.id)
    record = record.resumed(records, config=config.kept(), folder=config.runs_dir / record.id)
    owned.save_run(record)
    plans = plan_attempts(record, ready)
    workshop = partial(open_workshop, config, agent, owned)
    return conduct(Conducted(record, failures, plans, store, owned, workshop, config.retries), as_json=as_json)


def _tasks(
    config: RunConfig, wanted: Sequence[PlannedSlot]
) -> tuple[Sequence[tuple[PlannedSlot, Task]], Sequence[tuple[Path, UsageError]]]:
    """The slots whose tasks are there, and what is wrong with the others. What else is in the paths is no part of this run."""
    if not wanted:
        return (), ()
    loaded = load_again(config)
    broken = {path.resolve(): failure for path, failure in loaded.failures}
    found = find_slots(wanted, loaded.tasks)
    failures = [(gone.slot.path, broken.get(gone.slot.path) or UsageError(str(gone))) for gone in found.missing]
    return found.ready, failures
