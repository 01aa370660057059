"""What one attempt costs: ours beside Harbor's, on the same task and the same engine, in one run.

    python -m bench.attempt                          # both, at concurrency 1, 4 and 8
    python -m bench.attempt --only ours --repeat 7

Three kinds of figures. *Start-up* is the command doing nothing. *Whole command* is one attempt from the shell. *Marginal attempt*
is what each further attempt adds: the difference between a command with many attempts and one with a single attempt, divided
by the attempts between them; its CPU is that of the harness, its children, and the whole machine beside (engine, shims, the sandboxes).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.harbor_baseline import Harbor, describe
from bench.harbor_environment import DEFAULT_PATH, SetupError, ensure, find_docker
from bench.measure import Usage, measure

TASK = Path("examples/tasks/hello")
CONCURRENCIES = (1, 4, 8)


@dataclass(frozen=True, slots=True)
class Row:
    """One of our commands: ``attempts`` attempts, ``concurrency`` at once; median seconds by phase."""

    attempts: int
    concurrency: int
    usage: Usage
    phases_s: dict[str, float]


def ours(task: Path, *, attempts: int, concurrency: int) -> Row:
    """Run one command and read its document. Raises SetupError when an attempt isn't graded with 1."""
    with tempfile.TemporaryDirectory(prefix="bench-runs-") as runs:
        command = [str(Path(sys.executable).parent / "harness"), "run", str(task), "--agent", "oracle", "--json"]
        command += ["-n", str(attempts), "--concurrency", str(concurrency), "--runs-dir", runs]
        usage = measure(command)
    if usage.exit_status != 0:
        raise SetupError(f"{' '.join(command)} ended with {usage.exit_status}:\n{usage.output[-2000:]}")
    document = json.loads(usage.output[usage.output.index("{\n") :])
    if {row["reward"] for row in document["attempts"]} != {1.0}:
        raise SetupError("an attempt was not graded with 1: the measurement is void")
    return Row(attempts, concurrency, usage, document["summary"]["phase_seconds"])


def spread(values: Sequence[float]) -> str:
    """Median, minimum and maximum."""
    return f"{statistics.median(values):.2f} ({min(values):.2f}–{max(values):.2f})"


def start_up(repeat: int) -> None:
    program = str(Path(sys.executable).parent / "harness")
    for word in ("--help", "--version"):
        rows = [measure([program, word]) for _ in range(repeat)]
        cpu = [row.cpu_s for row in rows]
        print(f"harness {word}: CPU s {spread(cpu)}, wall s {spread([row.wall_s for row in rows])}")


def single(task: Path, repeat: int) -> list[Row]:
    rows = [ours(task, attempts=1, concurrency=1) for _ in range(repeat)]
    usages = [row.usage for row in rows]
    print(
        f"whole command, 1 attempt: wall s {spread([usage.wall_s for usage in usages])}, "
        f"CPU s harness {spread([usage.cpu_s for usage in usages])}, "
        f"machine {spread([usage.machine_cpu_s for usage in usages])}, "
        f"peak {max(usage.peak_rss_bytes for usage in usages) / 2**20:.0f} MiB"
    )
    return rows


def many(task: Path, singles: Sequence[Row], *, attempts: int, concurrency: int, repeat: int) -> None:
    rows = [ours(task, attempts=attempts, concurrency=concurrency) for _ in range(repeat)]
    one = statistics.median(row.usage.wall_s for row in singles)
    own = statistics.median(row.usage.cpu_s for row in singles)
    machine = statistics.median(row.usage.machine_cpu_s for row in singles)
    between = attempts - 1
    wall_s = [(row.usage.wall_s - one) / between for row in rows]
    own_s = [(row.usage.cpu_s - own) / between for row in rows]
    machine_s = [(row.usage.machine_cpu_s - machine) / between for row in rows]
    rates = [row.attempts / row.usage.wall_s for row in rows]
    peak = max(row.usage.peak_rss_bytes for row in rows) / 2**20
    print(
        f"{attempts} attempts, {concurrency} at once: {spread(rates)} attempts/s; marginal attempt: wall s {spread(wall_s)}, "
        f"CPU s harness {spread(own_s)}, whole machine {spread(machine_s)}; peak {peak:.0f} MiB"
    )
    print("  medians: " + ", ".join(f"{phase} {seconds:.2f}" for phase, seconds in rows[-1].phases_s.items()) + " s")


def theirs(task: Path, options: argparse.Namespace) -> None:
    harbor = Harbor(path=options.harbor or ensure(), docker=options.docker or find_docker())
    usage = harbor.start_up()
    print(f"harbor --help: CPU s {usage.cpu_s:.2f}, wall s {usage.wall_s:.2f}")
    harbor.run(task)  # the image is built before anything is measured
    for tuned in (False, True):
        print(describe(harbor.run(task, trials=1, concurrency=1, tuned=tuned)))
    for concurrency in CONCURRENCIES:
        print(describe(harbor.run(task, trials=options.attempts, concurrency=concurrency, tuned=True)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", type=Path, nargs="?", default=TASK, help=f"a task's folder (default: {TASK})")
    parser.add_argument("--attempts", type=int, default=16, help="attempts of each command with many (default: 16)")
    parser.add_argument("--repeat", type=int, default=5, help="how often each of our commands is measured (default: 5)")
    parser.add_argument("--only", choices=("ours", "harbor"))
    parser.add_argument("--harbor", type=Path, help=f"an environment that has Harbor (default: made in {DEFAULT_PATH})")
    parser.add_argument(
        "--docker", type=Path, help="the docker CLI for Harbor (default: the first that the engine answers)"
    )
    options = parser.parse_args()
    print("$ python -m bench.attempt", *sys.argv[1:])
    try:
        if options.only != "harbor":
            ours(options.task, attempts=1, concurrency=1)  # the image is built before anything is measured
            start_up(options.repeat)
            singles = single(options.task, options.repeat)
            for concurrency in CONCURRENCIES:
                repeat = max(1, options.repeat // 2)
                many(options.task, singles, attempts=options.attempts, concurrency=concurrency, repeat=repeat)
        if options.only != "ours":
            theirs(options.task, options)
    except SetupError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
