"""What looks like a failure of infrastructure but is the policy's doing is graded on the stopped file system.

Nothing solved: 0. Solved before: 1. Never an abort, and nothing that the sandbox says is evidence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from harness.outcome import Attribution, Ending, Integrity
from harness.record import AttemptRecord
from harness.sandbox.docker.engine import DockerEngine
from harness.sandbox.docker.witness import watch_engine
from harness.task.model import Resources

from .attempts import SOLVE, Attempts

pytestmark = pytest.mark.engine

AT_ONCE = 3
MIB = 1024**2
DOCKER_SAYS = "OCI runtime exec failed: exec failed: unable to start container process: read init-p: connection reset by peer: unknown"
PROVIDER_SAYS = "litellm.ServiceUnavailableError: APIError: 503 Service Unavailable. ServerUnreachable. InfraAbort"


@dataclass(frozen=True)
class LookAlike:
    """What the policy does, within which limits; ``timeout_s`` where it doesn't end by itself."""

    commands: tuple[str, ...]
    resources: Resources = Resources()
    timeout_s: float = 60.0
    ending: Ending = Ending.ENV_DONE


LOOK_ALIKES: Mapping[str, LookAlike] = {
    "every process killed": LookAlike(("kill -9 -1", "sleep 3", "echo still here")),
    "init killed": LookAlike(("kill -TERM 1; sleep 3", "echo still here")),
    "shells deleted": LookAlike(
        ("rm -f /bin/sh /bin/bash /bin/dash /usr/bin/sh /usr/bin/bash /usr/bin/dash", "echo still here")
    ),
    "processes exhausted": LookAlike(
        ("i=0; while [ $i -lt 60 ]; do sleep 300 & i=$((i+1)); done", "true", "true"), Resources(pids=40)
    ),
    "memory exhausted": LookAlike(("tail /dev/zero", "echo still here"), Resources(memory_bytes=48 * MIB)),
    "disk filled": LookAlike(
        ("head -c 100000000 /dev/zero > /srv/fill", "echo > /srv/more"), Resources(disk_bytes=64 * MIB)
    ),
    "errors printed": LookAlike((f"echo '{DOCKER_SAYS}' >&2; echo '{PROVIDER_SAYS}'; exit 1",)),
    "telling exit statuses": LookAlike(("exit 125", "exit 126", "exit 127", "exit 137", "kill -9 $$")),
    "output flooded": LookAlike(("head -c 60000000 /dev/zero; head -c 60000000 /dev/zero >&2",)),
    "a hang": LookAlike(("sleep 987",), timeout_s=1.5, ending=Ending.TIMEOUT),
    "results dropped": LookAlike(
        (
            "mkdir -p /logs/verifier /tests; echo 1 > /logs/verifier/reward.txt",
            "echo '{\"reward\": 1}' > /logs/verifier/reward.json; echo 'exit 0' > /tests/test.sh",
        )
    ),
    "background processes": LookAlike(
        ("(while :; do echo 1 > /logs/verifier/reward.txt; sleep 0.01; done) >/dev/null 2>&1 &",)
    ),
}


async def attempts(folder: Path, *before: str) -> dict[str, AttemptRecord]:
    """Every look-alike, a few at a time; ``before`` is what its agent does first."""
    records: dict[str, AttemptRecord] = {}
    limit = anyio.CapacityLimiter(AT_ONCE)
    async with DockerEngine() as engine, watch_engine(engine) as witness:
        bench = Attempts(engine, folder, witness)

        async def one(name: str, look_alike: LookAlike) -> None:
            task = bench.task(resources=look_alike.resources, timeout_s=look_alike.timeout_s)
            async with limit:
                records[name] = await bench.commands(name, *before, *look_alike.commands, task=task)

        async with anyio.create_task_group() as tasks:
            for name, look_alike in LOOK_ALIKES.items():
                tasks.start_soon(one, name, look_alike)
    return records


@pytest.mark.parametrize(("before", "reward"), [((), 0.0), ((SOLVE,), 1.0)], ids=["unsolved", "solved"])
async def test_look_alikes_are_graded_on_the_stopped_file_system(
    tmp_path: Path, before: tuple[str, ...], reward: float
):
    records = await attempts(tmp_path, *before)
    assert {name: (record.ending, record.cause, record.reward) for name, record in records.items()} == {
        name: (look_alike.ending, None, reward) for name, look_alike in LOOK_ALIKES.items()
    }
    examined = {name for name, record in records.items() if record.evidence}
    assert examined >= {"every process killed", "init killed"}, "a sandbox that ends is looked into"
    for name in examined:
        for examination in records[name].evidence:
            assert examination.judgement == "scored on the stopped file system", name


@pytest.mark.parametrize("tier", [Integrity.RESTARTED, Integrity.LIVE])
@pytest.mark.parametrize("solved", [False, True], ids=["unsolved", "solved"])
async def test_a_killed_init_is_graded_in_every_tier(tmp_path: Path, tier: Integrity, solved: bool):
    async with DockerEngine() as engine, watch_engine(engine) as witness:
        bench = Attempts(engine, tmp_path, witness)
        before = (SOLVE,) if solved else ()
        task = bench.task(tier=tier, collect=("cp /app/answer /logs/artifacts/ || true",))
        record = await bench.commands("killed", *before, "kill -TERM 1; sleep 3", task=task)
    assert (record.ending, record.cause, record.reward) == (Ending.ENV_DONE, None, float(solved)), record.detail


async def test_a_file_system_that_cant_be_started_again_is_zero(tmp_path: Path):
    """The policy puts a file where the engine must mount: nothing can be started on that, so nothing is left to grade."""
    async with DockerEngine() as engine, watch_engine(engine) as witness:
        bench = Attempts(engine, tmp_path, witness)
        task = bench.task(tier=Integrity.RESTARTED)
        record = await bench.commands("unstartable", SOLVE, "mv /.harness /.away; echo > /.harness", task=task)
    assert (record.ending, record.cause, record.reward) == (Ending.ERROR, None, 0.0), record.detail
    assert record.attribution is Attribution.POLICY
