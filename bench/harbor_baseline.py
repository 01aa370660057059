"""Runs Harbor on a task and says what it cost: the row beside ours.

Two rows: *stock*, as Harbor is, and *tuned*, where the task's compose file gives the container an init process. Without one its
first process ignores SIGTERM and each trial ends with ten seconds of waiting; the tuned row is the fair one.

    python -m bench.harbor_baseline examples/tasks/hello --trials 4 --concurrency 1
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from bench.harbor_environment import DEFAULT_PATH, SetupError, ensure, find_docker
from bench.measure import Usage, measure

COMPOSE_FILE = Path("environment/docker-compose.yaml")
INIT = "services:\n  main:\n    init: true\n"
PHASES = ("environment", "agent_setup", "agent_run", "collect", "grading", "teardown", "trial")


@dataclass(frozen=True, slots=True)
class HarborRow:
    """One command of Harbor: ``trials`` trials of one task, ``concurrency`` at once.

    phases_s: median seconds per trial, keys of `PHASES`; ``collect`` is what lies between agent and verifier.
    rewards: one per trial; None where Harbor has none.
    """

    tuned: bool
    trials: int
    concurrency: int
    usage: Usage
    phases_s: Mapping[str, float]
    rewards: tuple[float | None, ...]

    @property
    def trials_per_s(self) -> float:
        return self.trials / self.usage.wall_s


@dataclass(frozen=True, slots=True)
class Harbor:
    """An installed Harbor. ``path``: its virtual environment. ``docker``: the CLI that it is to use."""

    path: Path
    docker: Path

    def start_up(self) -> Usage:
        """The cost of doing nothing: ``harbor --help``."""
        with self._environment() as env:
            return measure([str(self.path / "bin" / "harbor"), "--help"], env=env)

    def run(
        self, task: Path, *, trials: int = 1, concurrency: int = 1, tuned: bool = True, agent: str = "oracle"
    ) -> HarborRow:
        """Run one command and read its results. Raises SetupError when Harbor fails or a trial left no result."""
        with self._environment() as env, _prepared(task, tuned=tuned) as folder, _scratch() as jobs:
            command = [str(self.path / "bin" / "harbor"), "run", "--path", str(folder), "--agent", agent]
            command += ["--n-attempts", str(trials), "--n-concurrent", str(concurrency)]
            command += ["--jobs-dir", str(jobs), "--quiet", "--yes"]
            usage = measure(command, env=env)
            results = [json.loads(path.read_text()) for path in sorted(jobs.glob("*/*/result.json"))]
        if usage.exit_status != 0 or len(results) != trials:
            raise SetupError(
                f"harbor ended with {usage.exit_status} and {len(results)} of {trials} results:\n{usage.output[-2000:]}"
            )
        return HarborRow(
            tuned=tuned,
            trials=trials,
            concurrency=concurrency,
            usage=usage,
            phases_s=_medians([_phases_s(result) for result in results]),
            rewards=tuple(_reward(result) for result in results),
        )

    @contextmanager
    def _environment(self) -> Generator[dict[str, str]]:
        """Our environment with the chosen docker CLI first, the compose plugin, and nothing that calls home.

        Harbor's telemetry imports its model library at the end of each job, which takes seconds and 150 MiB, and that looks
        up model prices: neither belongs to a trial, so both are off, in Harbor's favour.
        """
        with _scratch() as folder:
            (folder / "bin").mkdir()
            (folder / "bin" / "docker").symlink_to(self.docker.absolute())
            (folder / "cli-plugins").mkdir()
            (folder / "cli-plugins" / "docker-compose").symlink_to(self.path.absolute() / "bin" / "docker-compose")
            yield {
                **os.environ,
                "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}",
                "DOCKER_CONFIG": str(folder),
                "HARBOR_TELEMETRY": "0",
                "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            }


@contextmanager
def _scratch() -> Generator[Path]:
    with tempfile.TemporaryDirectory(prefix="bench-harbor-") as folder:
        yield Path(folder)


@contextmanager
def _prepared(task: Path, *, tuned: bool) -> Generator[Path]:
    """The task's folder, or a copy whose container has an init process. Both have the task's own name."""
    if not (task / "task.toml").exists():
        raise SetupError(f"{task} is no task: it has no task.toml")
    if not tuned:
        yield task
        return
    if (task / COMPOSE_FILE).exists():
        raise SetupError(f"{task / COMPOSE_FILE} exists already; tuning would replace it")
    with _scratch() as folder:
        copy = folder / task.absolute().name
        shutil.copytree(task, copy, symlinks=True)
        (copy / COMPOSE_FILE).write_text(INIT)
        yield copy


def _phases_s(result: dict[str, object]) -> dict[str, float]:
    """Seconds of each of `PHASES` of one trial, as far as the trial got."""
    stamps = {"trial": _span(result)}
    for ours, theirs in (
        ("environment", "environment_setup"),
        ("agent_setup", "agent_setup"),
        ("agent_run", "agent_execution"),
        ("grading", "verifier"),
    ):
        if isinstance(phase := result.get(theirs), dict):
            stamps[ours] = _span(phase)
    seconds = {name: (end - begin).total_seconds() for name, (begin, end) in stamps.items()}
    if "agent_run" in stamps and "grading" in stamps:
        seconds["collect"] = (stamps["grading"][0] - stamps["agent_run"][1]).total_seconds()
    if "grading" in stamps:
        seconds["teardown"] = (stamps["trial"][1] - stamps["grading"][1]).total_seconds()
    return seconds


def _span(stamped: Mapping[str, object]) -> tuple[datetime, datetime]:
    return datetime.fromisoformat(str(stamped["started_at"])), datetime.fromisoformat(str(stamped["finished_at"]))


def _reward(result: dict[str, object]) -> float | None:
    verified = result.get("verifier_result")
    rewards = verified.get("rewards") if isinstance(verified, dict) else None
    value = rewards.get("reward") if isinstance(rewards, dict) else None
    return float(value) if isinstance(value, (int, float)) else None


def _medians(trials: list[dict[str, float]]) -> dict[str, float]:
    found = {name: [trial[name] for trial in trials if name in trial] for name in PHASES}
    return {name: statistics.median(values) for name, values in found.items() if values}


def describe(row: HarborRow) -> str:
    """Two lines for a person."""
    usage = row.usage
    return (
        f"harbor {'tuned' if row.tuned else 'stock'}, {row.trials} trials, {row.concurrency} at once: "
        f"wall {usage.wall_s:.2f} s, {row.trials_per_s:.3f} trials/s, "
        f"CPU s harbor {usage.own_cpu_s:.2f} / docker CLI {usage.children_cpu_s:.2f} / engine {usage.engine_cpu_s:.2f} "
        f"(machine {usage.machine_cpu_s:.2f}), peak {usage.peak_rss_bytes / 2**20:.0f} MiB, "
        f"rewards {sorted({str(reward) for reward in row.rewards})}\n"
        f"  medians: {', '.join(f'{name} {seconds:.2f}' for name, seconds in row.phases_s.items())} s"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", type=Path, help="a task's folder")
    parser.add_argument("--trials", type=int, default=1)
    parser.add_argument("--concurrency", type=int, default=1)
    parser.add_argument("--row", choices=("stock", "tuned", "both"), default="both")
    parser.add_argument("--agent", default="oracle")
    parser.add_argument("--harbor", type=Path, help=f"an environment that has Harbor (default: made in {DEFAULT_PATH})")
    parser.add_argument("--docker", type=Path, help="the docker CLI (default: the first that the engine answers)")
    options = parser.parse_args()
    print("$", "python -m bench.harbor_baseline", *sys.argv[1:])
    try:
        harbor = Harbor(path=options.harbor or ensure(), docker=options.docker or find_docker())
        start_up = harbor.start_up()
        print(f"harbor --help: wall {start_up.wall_s:.2f} s, CPU {start_up.cpu_s:.2f} s")
        harbor.run(options.task, agent=options.agent)  # the image is built and cached before anything is measured
        for tuned in {"stock": (False,), "tuned": (True,), "both": (False, True)}[options.row]:
            row = harbor.run(
                options.task,
                trials=options.trials,
                concurrency=options.concurrency,
                tuned=tuned,
                agent=options.agent,
            )
            print(f"$ {' '.join(row.usage.command)}\n{describe(row)}")
    except SetupError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
