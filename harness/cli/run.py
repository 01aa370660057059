"""`harness run`: tasks in, grades out."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
import click

from harness.agents.registry import make_agent
from harness.cli import BAD_USE, NOT_GRADED, logs
from harness.cli.options import config_option, json_option, read_config, runs_dir_option
from harness.cli.report import print_document, print_summary
from harness.cli.signals import until_signalled
from harness.cli.view import View, make_view
from harness.config import AgentConfig, RunConfig
from harness.errors import EngineError
from harness.ports import Agent
from harness.record import AttemptRecord, RunRecord, new_run_id, summarise
from harness.run import Execution
from harness.store.sql import SqlStore
from harness.task.discover import Loaded
from harness.wiring import load, open_workshop, plan_attempts


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--agent", help="oracle (the default), nop, or scripted:FILE.")
@click.option("-n", "--attempts", type=click.IntRange(1), help="Attempts of each task. [default: 1]")
@click.option("--concurrency", type=click.IntRange(1), help="Attempts at the same time. [default: one per core]")
@config_option
@runs_dir_option
@json_option
def run(
    paths: tuple[Path, ...],
    agent: str | None,
    attempts: int | None,
    concurrency: int | None,
    config_path: Path | None,
    runs_dir: Path | None,
    as_json: bool,
) -> int:
    """Run the tasks at PATHS: each is a task, a folder of tasks or a benchmark.

    Exit status: 0 when every attempt was graded, 1 when one was not, 2 for bad use, 128 + n when signal n stopped it.
    """
    logs.configure()
    config = read_config(config_path, paths=paths, runs_dir=runs_dir)
    overrides: dict[str, object] = {
        "agent": AgentConfig(name=agent) if agent else config.agent,
        "concurrency": concurrency or config.concurrency,
    }
    if attempts is not None:
        overrides |= {"n": attempts, "benchmarks": {}}
    return execute(config.model_copy(update=overrides), as_json=as_json)


def execute(config: RunConfig, *, as_json: bool) -> int:
    """Run what the configuration says; the exit status."""
    agent = make_agent(config.agent.name, config.agent.options)
    loaded = load(config)
    for _, failure in loaded.failures:
        click.echo(f"error: {failure}", err=True)
    if not loaded.tasks:
        return BAD_USE
    _warn(loaded)
    run_id = new_run_id()
    with SqlStore(config.runs_dir) as store:
        record = RunRecord(
            id=run_id,
            created_at=time.time(),
            command=tuple(sys.argv),
            agent=agent.name,
            attempts=sum(config.attempts_for(task.benchmark) for task in loaded.tasks),
            folder=config.runs_dir / run_id,
        )
        store.save_run(record)
        view = make_view(record.attempts)
        with view:
            signalled = anyio.run(_Job(record, config, agent, loaded, store, view).run)
        records = store.attempts(run_id)
        record = record.model_copy(update={"finished_at": time.time()})
        store.save_run(record)
    return _conclude(record, records, loaded, as_json=as_json, signalled=signalled)


@dataclass(frozen=True, slots=True)
class _Job:
    """One run, from an open store to its last verdict."""

    record: RunRecord
    config: RunConfig
    agent: Agent
    loaded: Loaded
    store: SqlStore
    view: View

    async def run(self) -> int | None:
        """The number of the signal that stopped it, or None."""
        return await until_signalled(self._work, self.view.say)

    async def _work(self) -> None:
        plans = plan_attempts(self.record, self.loaded.tasks, self.config)
        async with open_workshop(self.config, self.agent, self.store) as workshop:
            try:
                reaped = await workshop.engine.reap()
            except EngineError as error:
                # Every attempt will say so with its own cause; this only explains it early.
                self.view.say(f"warning: {error}. `harness doctor` says more")
            else:
                if reaped.sandboxes:
                    self.view.say(f"removed {len(reaped.sandboxes)} sandboxes that a dead run had left")
            await Execution(plans, workshop, self.view).run()


def _warn(loaded: Loaded) -> None:
    """Once per run: what was read but not understood, and tiers that nobody chose."""
    for task in loaded.tasks:
        for warning in task.warnings:
            click.echo(f"warning: {warning}", err=True)
    unset = [task.name for task in loaded.tasks if not task.integrity_declared]
    if unset:
        named = ", ".join(unset[:3]) + (f" and {len(unset) - 3} more" if len(unset) > 3 else "")
        click.echo(
            f"warning: {named}: no environment_mode is set, so Harbor's default applies: graded live, in the agent's own sandbox",
            err=True,
        )


def _conclude(
    record: RunRecord, records: Sequence[AttemptRecord], loaded: Loaded, *, as_json: bool, signalled: int | None
) -> int:
    summary = summarise(records, wall_s=(record.finished_at or record.created_at) - record.created_at)
    if as_json:
        print_document(record, summary, records, loaded)
    else:
        print_summary(record, summary, records, signalled=signalled)
    if signalled is not None:
        return 128 + signalled
    if loaded.failures:
        return BAD_USE
    return NOT_GRADED if summary.graded < record.attempts else 0
