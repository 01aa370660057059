"""A run whose verdicts can't be kept."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from harness.attempt import AttemptPlan, Workshop
from harness.errors import StoreError
from harness.record import AttemptRecord
from harness.run import Execution
from harness.sandbox.fake import FakeEngine
from tests.test_failed_builds import Watcher
from tests.worlds import FakeAgent, FakeGrader, FakeImages, a_task


async def test_a_store_that_cant_be_written_ends_the_run_with_its_own_error_and_leaves_no_sandbox(tmp_path: Path):
    async def commit(_: AttemptRecord) -> None:
        raise StoreError("the disk is full")

    engine = FakeEngine()
    workshop = Workshop(engine, FakeImages(engine), FakeAgent(), FakeGrader(), anyio.CapacityLimiter(2), commit)
    plans = [AttemptPlan(id=str(n), run="r", task=a_task(), index=n, folder=tmp_path / str(n)) for n in range(4)]
    with pytest.raises(StoreError, match="the disk is full"):
        await Execution(plans, workshop, Watcher(), retries=0).run()
    assert engine.sandboxes == {}
