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
from harness.cli import BAD_USE, NOT_GRADED, logs, text
from harness.cli.options import config_option, json_option, read_config, runs_dir_option
from harness.cli.report import RunDocument, print_report, write_report
from harness.cli.signals import until_signalled
from harness.cli.view import View, make_view
from harness.config import MOST, AgentConfig, RunConfig
from harness.errors import EngineError
from harness.evaluation import report_on
from harness.ports import Agent
from harness.record import AttemptRecord, RunRecord, new_run_id
from harness.run import Execution
from harness.store.sql import SqlStore
from harness.task.discover import Loaded
from harness.wiring import engine_address, load, open_workshop, plan_attempts, plan_benchmarks


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--agent", help="oracle (the default), nop, or scripted:FILE.")
@click.option("-n", "--attempts", type=click.IntRange(1, MOST), help="Attempts of each task. [default: 1]")
@click.option(
    "--retries",
    type=click.IntRange(0),
    help="How often an attempt that ends aborted or ungraded is run again. [default: 1]",
)
@click.option("--concurrency", type=click.IntRange(1, MOST), help="Attempts at the same time. [default: one per core]")
@config_option
@runs_dir_option
@json_option
def run(
    paths: tuple[Path, ...],
    agent: str | None,
    attempts: int | None,
    retries: int | None,
    concurrency: int | None,
    config_path: Path | None,
    runs_dir: Path | None,
    as_json: bool,
) -> int:
    """Run the tasks at PATHS: each is a task, a folder of tasks or a benchmark.

    Exit status: 0 when every attempt, or the last retry of it, was graded, 1 when one was not, 2 for bad use, 128 + n when signal n
    stopped it.
    """
    logs.configure()
    config = read_config(config_path, paths=paths, runs_dir=runs_dir)
    overrides: dict[str, object] = {
        "agent": AgentConfig().model_copy(update={"name": agent}) if agent is not None else config.agent,
        "retries": config.retries if retries is None else retries,
        "concurrency": concurrency or config.concurrency,
    }
    if attempts is not None:
        overrides |= {"n": attempts, "benchmarks": {}}
    return execute(config.model_copy(update=overrides), as_json=as_json)


def execute(config: RunConfig, *, as_json: bool) -> int:
    """Run what the configuration says; the exit status."""
    agent = make_agent(config.agent.name, config.agent.options)
    engine_address(config)  # before there is a run on record: an address that can't be used is bad use
    loaded = load(config)
    for _, failure in loaded.failures:
        click.echo(f"error: {text.printable(str(failure))}", err=True)
    if not loaded.tasks:
        return BAD_USE
    _warn(loaded, config)
    run_id = new_run_id()
    with SqlStore(config.runs_dir) as store:
        record = RunRecord(
            id=run_id,
            created_at=time.time(),
            command=tuple(sys.argv),
            agent=agent.name,
            attempts=sum(config.attempts_for(task.benchmark) for task in loaded.tasks),
            benchmarks=plan_benchmarks(loaded.tasks, config),
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
                self.view.say(f"warning: {error} `harness doctor` says more")
            else:
                if reaped.sandboxes:
                    self.view.say(
                        f"removed what a dead run had left: {text.counted(len(reaped.sandboxes), 'container')}"
                    )
            await Execution(plans, workshop, self.view, self.config.retries).run()


def _warn(loaded: Loaded, config: RunConfig) -> None:
    """Once per run: what was read but not understood, and tiers that nobody chose."""
    for name in sorted(config.benchmarks.keys() - {task.benchmark for task in loaded.tasks}):
        click.echo(f"warning: [benchmarks.{name}] has no effect: no task of that benchmark is in this run", err=True)
    for warning in (*loaded.warnings, *(warning for task in loaded.tasks for warning in task.warnings)):
        click.echo(f"warning: {text.printable(warning)}", err=True)
    unset = [task.name for task in loaded.tasks if not task.integrity_declared]
    if unset:
        named = text.printable(", ".join(unset[:3])) + (f" and {len(unset) - 3} more" if len(unset) > 3 else "")
        click.echo(
            f"warning: {named}: no environment_mode is set, so Harbor's default applies: graded live, in the agent's own sandbox",
            err=True,
        )


def _conclude(
    record: RunRecord, records: Sequence[AttemptRecord], loaded: Loaded, *, as_json: bool, signalled: int | None
) -> int:
    report = report_on(record, records)
    try:
        write_report(record, report)
    except OSError as error:
        # The verdicts are in the store, and `harness report` makes the report from them.
        click.echo(f"warning: the report could not be written: {error}", err=True)
    for warning in report.warnings:
        click.echo(f"warning: {text.printable(warning)}", err=True)
    if as_json:
        problems = tuple(text.printable(str(failure)) for _, failure in loaded.failures)
        document = RunDocument(
            run=record, summary=report, metrics=report.metrics, attempts=tuple(records), problems=problems
        )
        click.echo(document.model_dump_json(indent=2))
    else:
        print_report(record, report, records, signalled=signalled)
    if loaded.failures:
        click.echo(f"error: {text.counted(len(loaded.failures), 'task')} can't run: the messages are above", err=True)
    if signalled is not None:
        return 128 + signalled
    if loaded.failures:
        return BAD_USE
    return NOT_GRADED if report.graded < record.attempts else 0
