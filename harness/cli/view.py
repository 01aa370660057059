"""What a person sees while a run goes on: a live view on a terminal, plain lines elsewhere. Both go to standard error."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from harness.attempt import AttemptPlan
from harness.cli import text
from harness.outcome import Ending
from harness.phases import Phase, PhaseStamp
from harness.record import AttemptRecord

_MOST_ROWS = 12


class View(Protocol):
    """A watcher that is opened and closed."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def phase(self, plan: AttemptPlan, stamp: PhaseStamp) -> None: ...
    def ended(self, record: AttemptRecord) -> None: ...
    def retried(self, record: AttemptRecord, retry: AttemptPlan) -> None: ...
    def cancelled(self, plan: AttemptPlan) -> None: ...
    def say(self, line: str) -> None:
        """A line that stays."""
        ...


def name_of(plan: AttemptPlan) -> str:
    return f"{plan.task.key}#{plan.index}"


class PlainView:
    """A line for each phase that begins and for each attempt that ends."""

    def __init__(self, attempts: int, *, quiet: bool = False) -> None:
        self._attempts = attempts
        self._done = 0
        self._quiet = quiet

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def phase(self, plan: AttemptPlan, stamp: PhaseStamp) -> None:
        if stamp.end is None and stamp.phase is not Phase.QUEUE and not self._quiet:
            step = f" ({stamp.step})" if stamp.step else ""
            self.say(f"{name_of(plan)}: {stamp.phase}{step}")

    def ended(self, record: AttemptRecord) -> None:
        self._done += 1
        self.say(f"[{self._done}/{self._attempts}] {describe(record)}")

    def retried(self, record: AttemptRecord, retry: AttemptPlan) -> None:
        self.say(describe_retried(record, retry))

    def cancelled(self, plan: AttemptPlan) -> None:
        pass

    def say(self, line: str) -> None:
        with suppress(OSError):  # a terminal that has gone must not end the run
            print(text.printable(line), file=sys.stderr, flush=True)


class LiveView:
    """The attempts that run now, each with its phase; ended ones scroll away above."""

    def __init__(self, attempts: int, console: Console) -> None:
        self._attempts = attempts
        self._done = 0
        self._passed = 0
        self._began = time.monotonic()
        self._running: dict[str, tuple[AttemptPlan, PhaseStamp]] = {}
        self._console = console
        self._live = Live(self, console=self._console, refresh_per_second=8, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._live.stop()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        rows = list(self._running.values())
        for plan, stamp in rows[:_MOST_ROWS]:
            step = f" {stamp.step}" if stamp.step else ""
            spent = text.seconds(time.monotonic() - stamp.start_mono)
            table.add_row(Text(text.printable(name_of(plan))), f"[cyan]{stamp.phase}[/]", Text(step.strip()), spent)
        yield table
        more = f", {len(rows) - _MOST_ROWS} more running" if len(rows) > _MOST_ROWS else ""
        spent = text.seconds(time.monotonic() - self._began)
        yield Text(f"{self._done}/{self._attempts} done, {self._passed} passed{more}  {spent}", style="dim")

    def phase(self, plan: AttemptPlan, stamp: PhaseStamp) -> None:
        if stamp.phase is not Phase.QUEUE and stamp.end is None:
            self._running[plan.id] = (plan, stamp)

    def ended(self, record: AttemptRecord) -> None:
        self._running.pop(record.id, None)
        self._done += 1
        self._passed += record.passed
        colour = "green" if record.passed else "yellow" if record.reward is None else "red"
        with suppress(OSError):
            self._console.print(Text(text.printable(describe(record)), style=colour))

    def retried(self, record: AttemptRecord, retry: AttemptPlan) -> None:
        self._running.pop(record.id, None)
        with suppress(OSError):
            self._console.print(Text(text.printable(describe_retried(record, retry)), style="yellow"))

    def cancelled(self, plan: AttemptPlan) -> None:
        self._running.pop(plan.id, None)

    def say(self, line: str) -> None:
        with suppress(OSError):
            self._console.print(Text(text.printable(line)))


def describe(record: AttemptRecord) -> str:
    """One line on an attempt that ended."""
    spent = sum(stamp.duration_s or 0.0 for stamp in record.phases if stamp.phase is not Phase.QUEUE)
    line = (
        f"{record.key}#{record.index}: reward {text.reward(record.reward)}, {text.ending(record.ending, record.cause)}"
    )
    detail = f" — {record.detail}" if record.detail else ""
    return f"{line}, {text.seconds(spent)} [{record.id}]{detail}"


def describe_retried(record: AttemptRecord, retry: AttemptPlan) -> str:
    """One line on an attempt that is run again; a loud one where our own code failed."""
    if record.ending is Ending.HARNESS_FAILED:
        where = record.folder / "agent.log"
        return f"error: {describe(record)}. The harness itself failed ({where}); one fresh retry: {retry.id}"
    return f"{describe(record)}; run again as {retry.id}"


def make_view(attempts: int) -> View:
    """Live where standard error is a terminal that can move its cursor."""
    console = Console(stderr=True)
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveView(attempts, console)
    return PlainView(attempts)
