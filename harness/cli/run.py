"""`harness run`: tasks in, grades out."""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path

import click

from harness.agents.registry import agent_digest, make_agent, resolve_name
from harness.cli import BAD_USE, logs, text
from harness.cli.conduct import Conducted, conduct
from harness.cli.options import config_option, json_option, read_config, runs_dir_option
from harness.config import MOST, AgentConfig, RunConfig
from harness.lock import own_run
from harness.planning import find_slots, plan_benchmarks, plan_slots
from harness.record import RunRecord, new_run_id
from harness.space import DiskReserve
from harness.store.sql import SqlStore
from harness.task.discover import Loaded
from harness.wiring import engine_address, load, open_workshop, plan_attempts


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
        "agent": AgentConfig().model_copy(update={"name": resolve_name(agent)}) if agent is not None else config.agent,
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
    DiskReserve(config.runs_dir, config.disk_reserve).check()
    slots = plan_slots(loaded.tasks, config.attempts_for)
    run_id = new_run_id()
    record = RunRecord(
        id=run_id,
        created_at=time.time(),
        command=tuple(sys.argv),
        agent=agent.name,
        attempts=len(slots),
        benchmarks=plan_benchmarks(slots),
        folder=config.runs_dir / run_id,
        config=config.kept(),
        agent_digest=agent_digest(config.agent.name),
    )
    with SqlStore(config.runs_dir) as store, own_run(record.folder):
        owned = store.begin(record, slots)
        plans = plan_attempts(record, find_slots(slots, loaded.tasks).ready)
        workshop = partial(open_workshop, config, agent, owned)
        return conduct(
            Conducted(record, loaded.failures, plans, store, owned, workshop, config.retries), as_json=as_json
        )


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
