"""What keeping verdicts costs: attempts a second that are durably on record, and the memory of the process that keeps them.

    python -m bench.store                            # 10,000 attempts, 256 at a time
    python -m bench.store --at-a-time 1 8 64 256

Each attempt commits twice, as in a run: when its verdict stands, and when everything is cleaned up. Each commit is synced to the disk
before the attempt goes on, and each attempt's result.json is written. Nothing else runs: no engine, no agent, no grader. Afterwards
everything is read back, as `harness resume` does, and the rewards are added up.
"""

from __future__ import annotations

import argparse
import math
import resource
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import anyio

from harness.lock import own_run
from harness.outcome import Ending, Grade, GraderRun, GradingStatus, Integrity, RewardComponent
from harness.phases import Phase, PhaseStamp
from harness.planning import PlannedSlot
from harness.record import AttemptRecord, RunRecord
from harness.store.ledger import Ledger
from harness.store.owned import OwnedRun
from harness.store.sql import SqlStore
from harness.task.image import ResolvedImage

RUN = "20260101-000000-0000"
IMAGE = ResolvedImage(id="sha256:" + "a" * 64, ref="harness/build:" + "b" * 32, workdir="/work")


@dataclass(frozen=True, slots=True)
class Figures:
    """peak_bytes: resident memory at its highest, of the whole process, everything read back included."""

    at_a_time: int
    attempts_per_s: float
    read_per_s: float
    peak_bytes: int


def a_record(folder: Path, number: int) -> AttemptRecord:
    """As large as an ordinary attempt's: all phases, two components, one run of the grader."""
    reward = (number % 1000) / 1000
    now = time.time()
    phases = tuple(
        PhaseStamp(phase=phase, start=now, start_mono=now, end=now + 1, end_mono=now + 1)
        for phase in Phase
        if phase is not Phase.HEALTHCHECK
    )
    grade = Grade(
        status=GradingStatus.GRADED,
        reward=reward,
        components=(RewardComponent(name="reward", value=reward), RewardComponent(name="style", value=1.0, weight=0)),
        integrity=Integrity.PRISTINE,
        runs=(GraderRun(subject="attempt", status=GradingStatus.GRADED, exit_status=0, duration_s=1.0),),
    )
    return AttemptRecord(
        id=f"{number:010x}",
        run=RUN,
        benchmark="bench",
        task=f"t{number // 8}",
        task_digest=f"sha256:{number // 8:064x}",
        task_path=Path("/tasks") / f"t{number // 8}",
        agent="nop",
        index=number % 8,
        ending=Ending.ENV_DONE,
        reward=reward,
        grading=GradingStatus.GRADED,
        integrity=Integrity.PRISTINE,
        grade=grade,
        image=IMAGE,
        phases=phases,
        started_at=now,
        folder=folder / RUN / f"t{number // 8}-{number % 8}-{number:010x}",
    )


async def keep(owned: OwnedRun, folder: Path, attempts: int, at_a_time: int) -> None:
    """Commit every attempt's two records, ``at_a_time`` attempts side by side."""
    ledger = Ledger(owned)
    numbers = iter(range(attempts))

    async def work() -> None:
        for number in numbers:
            record = a_record(folder, number)
            record.folder.mkdir()
            await ledger.commit(record)
            await ledger.commit(record.model_copy(update={"finished_at": time.time()}))

    async with anyio.create_task_group() as tasks:
        for _ in range(at_a_time):
            tasks.start_soon(work)


def measure(folder: Path, attempts: int, at_a_time: int) -> Figures:
    """Raises SystemExit when what was kept isn't what is read back: the measurement is void."""
    slots = tuple(
        PlannedSlot(
            benchmark="bench",
            task=f"t{number // 8}",
            task_digest=f"sha256:{number // 8:064x}",
            index=number % 8,
            path=Path("/tasks") / f"t{number // 8}",
        )
        for number in range(attempts)
    )
    run = RunRecord(id=RUN, created_at=time.time(), command=(), agent="nop", attempts=attempts, folder=folder / RUN)
    with SqlStore(folder) as store, own_run(run.folder):
        owned = store.begin(run, slots)
        began = time.perf_counter()
        anyio.run(keep, owned, folder, attempts, at_a_time)
        kept = time.perf_counter()
        rewards = {record.id: record.reward or 0.0 for record in store.each_attempt(RUN)}
        read = time.perf_counter()
        total = math.fsum(rewards.values())
        standing = {slot.attempt for slot in store.slots(RUN)}
    expected = math.fsum((number % 1000) / 1000 for number in range(attempts))
    if total != expected or standing != rewards.keys() or len(rewards) != attempts:
        sys.exit(
            f"{len(rewards)} of {attempts} attempts were read back, with rewards of {total} in place of {expected}"
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return Figures(at_a_time, attempts / (kept - began), attempts / (read - kept), peak)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attempts", type=int, default=10_000)
    parser.add_argument("--at-a-time", type=int, nargs="+", default=[256])
    parser.add_argument("--folder", type=Path, help="Where the runs folder is made: its disk is what is measured.")
    arguments = parser.parse_args()
    print("at a time  attempts/s kept  attempts/s read  peak memory")
    for at_a_time in arguments.at_a_time:
        with tempfile.TemporaryDirectory(prefix="bench-store-", dir=arguments.folder) as folder:
            row = measure(Path(folder), arguments.attempts, at_a_time)
        print(
            f"{row.at_a_time:9}  {row.attempts_per_s:15.0f}  {row.read_per_s:15.0f}  {row.peak_bytes / 2**20:7.0f} MiB",
            flush=True,
        )


if __name__ == "__main__":
    main()
