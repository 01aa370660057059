"""Kills a run, or the resuming of one, at every point where it persists something; resumes it; and says what each of the two left.

A point is: opening a file of the run's for writing, making or renaming one, taking the lock, and of each transaction its beginning,
every statement, its commit and what follows that. Each is met in a process of its own, which kills itself (SIGKILL) just before.

    python -m tests.durability.kill_points FOLDER run|resume TASKS N
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.pool import Pool

from harness.errors import ConfigError
from harness.lock import is_held
from harness.phases import Phase
from harness.store.sql import SqlStore
from tests.durability.fakes import RUN, Surroundings, a_task, go_on, start

MOST = 2000
"""A run that persists more often is not the one that this was written for."""
_ENDED = re.compile(r"\[\d+/\d+\] .*: reward (\S+), .* \[([0-9a-f]+)\]")
"""How a run says that an attempt has its verdict."""
_WRITING = os.O_WRONLY | os.O_RDWR


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What is on record: by slot the attempt that stands; each attempt with its index and reward; or that there is no run yet."""

    run: bool
    state: str = ""
    slots: tuple[str | None, ...] = ()
    attempts: tuple[tuple[str, int, float | None], ...] = ()
    damage: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Killed:
    """One point: what it was, in which phases attempts were, what had been acknowledged (attempt and
    reward, as they were printed), what was there then and after resuming."""

    point: str
    phases: tuple[str, ...]
    acknowledged: tuple[tuple[str, str], ...]
    before: Verdicts
    after: Verdicts
    resumed: int


def main(folder: Path, what: str, tasks: int, n: int) -> None:
    """Writes one JSON line for each point on standard output."""
    named = [a_task(f"t{number}") for number in range(tasks)]
    for number in range(1, MOST):
        runs = folder / str(number)
        there = partial(_at, number)
        if what == "run":
            lines, status = in_child(partial(tripped, runs, there, partial(start, runs, named, n=n)))
        else:
            in_child(
                partial(tripped, runs, _half_way, partial(start, runs, named, n=n, met=Surroundings(concurrency=1)))
            )
            lines, status = in_child(partial(tripped, runs, there, partial(go_on, runs, named)))
        if status != -signal.SIGKILL:
            return
        point = next(line for line in reversed(lines) if line.startswith("point "))
        acknowledged = tuple((match[2], match[1]) for match in map(_ENDED.match, lines) if match)
        phases, before = in_phases(runs), on_record(runs)
        resumed = in_child(partial(go_on, runs, named))[1] if before.run else 0
        print(json.dumps(asdict(Killed(point, phases, acknowledged, before, on_record(runs), resumed))), flush=True)
        shutil.rmtree(runs, ignore_errors=True)


def in_child(call: Callable[[], int]) -> tuple[list[str], int]:
    """Make the call in a child: what it printed, and its exit status (negative: the signal that ended it)."""
    told = Path(sys.argv[1]) / "told"
    pid = os.fork()
    if pid == 0:
        status = 70
        try:
            descriptor = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(descriptor, 1)
            os.dup2(descriptor, 2)
            status = call()
        finally:
            sys.stdout.flush()
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return told.read_text().splitlines(), status


def _at(number: int, met: int, _: str) -> bool:
    return met == number


def _half_way(_: int, what: str) -> bool:
    """One verdict is on record, and its file isn't written."""
    return what == "open result.json.part"


def tripped(runs: Path, there: Callable[[int, str], bool], call: Callable[[], int]) -> int:
    """Make the call, and die at the point where ``there`` says so: it gets the point's number and what it is."""
    inside = str(runs)
    met = 0

    def meet(what: str) -> None:
        nonlocal met
        met += 1
        if there(met, what):
            os.write(1, f"\npoint {what}\n".encode())
            os.kill(os.getpid(), signal.SIGKILL)

    def audited(name: str, arguments: tuple[Any, ...]) -> None:
        if name == "open" and str(arguments[0]).startswith(inside) and arguments[2] & _WRITING:
            meet(f"open {Path(str(arguments[0])).name}")
        elif name in ("os.rename", "os.mkdir") and str(arguments[0]).startswith(inside):
            meet(f"{name} {Path(str(arguments[0])).name}")
        elif name == "fcntl.flock":
            meet(name)

    sys.addaudithook(audited)
    event.listen(sa.Engine, "begin", lambda _: meet("begin"))
    event.listen(sa.Engine, "commit", lambda _: meet("commit"))
    event.listen(sa.Engine, "after_cursor_execute", lambda *_: meet("statement"))
    event.listen(Pool, "checkin", lambda *_: meet("after the transaction"))
    return call()


def on_record(runs: Path) -> Verdicts:
    assert not is_held(runs / RUN)
    try:
        with SqlStore(runs, create=False) as store:
            state = store.run(RUN).standing(owned=False)
            records = store.attempts(RUN)
            slots = store.slots(RUN)
            damage = tuple(map(str, store.damage))
    except ConfigError:
        return Verdicts(run=False)
    return Verdicts(
        run=True,
        state=state,
        slots=tuple(slot.attempt for slot in slots),
        attempts=tuple((record.id, record.index, record.reward) for record in records),
        damage=damage,
    )


def in_phases(runs: Path) -> tuple[str, ...]:
    """The phase in which each attempt of the killed run was; "" before its first."""
    found: list[str] = []
    for path in sorted(runs.glob(f"{RUN}/*/")):
        stamps = path / "phases.jsonl"
        lines = stamps.read_text().splitlines() if stamps.exists() else []
        found.append(str(Phase(json.loads(lines[-1])["phase"])) if lines else "")
    return tuple(found)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
