"""What whoever owns a run does, be it new or resumed: runs the attempts, hears signals and requests to cancel, and reports."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

import anyio
import click

from harness.attempt import AttemptPlan, Workshop
from harness.cli import BAD_USE, NOT_GRADED, text
from harness.cli.damage import named_damage
from harness.cli.report import print_document, print_report, write_report
from harness.cli.signals import until_signalled
from harness.cli.view import View, make_view
from harness.concurrency import find, in_thread
from harness.errors import EngineError, HarnessError, StaleOwner, StartRefused, StoreError, UsageError
from harness.evaluation import report_on
from harness.planning import PlannedSlot
from harness.record import AttemptRecord, RunRecord, RunState
from harness.report import EvaluationReport
from harness.run import Execution
from harness.store.owned import OwnedRun
from harness.store.sql import SqlStore

_CANCEL_POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class Conducted:
    """A run that this process owns, and what is to be run of it now.

    failures: what is wrong with tasks that can't be run. workshop: opens what the attempts work with.
    retries: of an attempt that ends aborted or ungraded.
    """

    record: RunRecord
    failures: Sequence[tuple[Path, UsageError]]
    plans: Sequence[AttemptPlan]
    store: SqlStore
    owned: OwnedRun
    workshop: Callable[[], AbstractAsyncContextManager[Workshop]]
    retries: int


def conduct(run: Conducted, *, as_json: bool) -> int:
    """Run what is planned, record how it ended, report over the whole run; the exit status.

    Raises HarnessError where the store failed: what it kept until then stands.
    """
    work = _Work(run, make_view(len(run.plans)))
    with work.view:
        signalled = anyio.run(work.until_it_ends) if run.plans else None
    ending = _Ending(work, signalled)
    record = run.record.model_copy(update={"finished_at": time.time()})
    everything = run.store.attempts(record.id) if as_json else ()
    ungraded: list[AttemptRecord] = []
    report = report_on(record, everything or _noting(run.store.each_attempt(record.id), ungraded))
    # After the reading: a verdict that can't be read any more has left its slot.
    record = record.model_copy(update={"ended": ending.state(run.store.slots(record.id))})
    run.owned.save_run(record)
    _keep_report(record, report)
    _name_problems(record, report, work.refused)
    if as_json:
        print_document(record, report, everything, run.failures)
    else:
        print_report(record, report, ungraded, stopped=ending.stopped)
    return _status(run, record, report, signalled)


def _noting(records: Iterable[AttemptRecord], ungraded: list[AttemptRecord]) -> Iterator[AttemptRecord]:
    """The records, of which only those without a grade stay in memory."""
    for record in records:
        if record.reward is None:
            ungraded.append(record)
        yield record


class _Work:
    """The attempts of one owner, from an open store to the last verdict."""

    def __init__(self, run: Conducted, view: View) -> None:
        self.view = view
        self.cancelled = False
        self.refused: Sequence[StartRefused] = ()
        self._run = run

    async def until_it_ends(self) -> int | None:
        """The number of the signal that stopped it, or None. Raises what the store raised, by itself."""
        try:
            return await until_signalled(self._until_cancelled, self.view.say)
        except BaseExceptionGroup as group:
            if (failure := find(group, HarnessError)) is not None:
                raise failure from group
            raise

    async def _until_cancelled(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._listen, tasks.cancel_scope)
            await self._work()
            tasks.cancel_scope.cancel()

    async def _listen(self, scope: anyio.CancelScope) -> None:
        """Cancel the work when another process asks for it, or has taken the run over (that raises StaleOwner)."""
        while not await self._asked():  # noqa: ASYNC110 - set by another process
            await anyio.sleep(_CANCEL_POLL_S)
        self.cancelled = True
        self.view.say("cancelled by `harness cancel`: sandboxes are being removed, verdicts that stand are kept …")
        scope.cancel()

    async def _asked(self) -> bool:
        try:
            return await in_thread(self._run.owned.cancel_requested)
        except StaleOwner:
            raise
        except StoreError:
            return False  # asked again soon; whether verdicts can be kept shows where they are

    async def _work(self) -> None:
        run = self._run
        async with run.workshop() as workshop:
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
            execution = Execution(run.plans, workshop, self.view, run.retries)
            try:
                await execution.run()
            finally:
                self.refused = execution.refused


@dataclass(frozen=True, slots=True)
class _Ending:
    """What ended the work."""

    work: _Work
    signalled: int | None

    @property
    def stopped(self) -> str:
        """By what, for people; nothing where it ended by itself."""
        if self.work.cancelled:
            return "cancelled"
        return "" if self.signalled is None else "stopped by a signal"

    def state(self, slots: Iterable[PlannedSlot]) -> RunState:
        if self.stopped:
            return RunState.CANCELLED
        return RunState.INCOMPLETE if any(slot.attempt is None for slot in slots) else RunState.FINISHED


def _keep_report(record: RunRecord, report: EvaluationReport) -> None:
    try:
        write_report(record, report)
    except OSError as error:
        # The verdicts are in the store, and `harness report` makes the report from them.
        click.echo(f"warning: the report could not be written: {error}", err=True)


def _name_problems(record: RunRecord, report: EvaluationReport, refused: Iterable[StartRefused]) -> None:
    for warning in report.warnings:
        click.echo(f"warning: {text.printable(warning)}", err=True)
    for reason, count in Counter(map(str, refused)).items():
        attempts = "1 attempt was" if count == 1 else f"{count} attempts were"
        click.echo(f"error: {attempts} not started: {reason}. Make room, then: harness resume {record.id}", err=True)


def _status(run: Conducted, record: RunRecord, report: EvaluationReport, signalled: int | None) -> int:
    damaged = named_damage(run.store)
    if run.failures:
        click.echo(f"error: {text.counted(len(run.failures), 'task')} can't run: the messages are above", err=True)
    if signalled is not None:
        return 128 + signalled
    if run.failures:
        return BAD_USE
    return NOT_GRADED if damaged or report.graded < record.attempts else 0
