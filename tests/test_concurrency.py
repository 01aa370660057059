"""Threads, locks between processes, and the fan-out that raises plain exceptions."""

from __future__ import annotations

import threading
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
import trio

from harness.concurrency import THREADS, background, file_lock, find, in_thread, shielded, together


async def test_blocking_calls_share_a_bounded_number_of_threads():
    most, now, lock = 0, 0, threading.Lock()
    full = threading.Barrier(THREADS, timeout=10)

    def work() -> None:
        nonlocal most, now
        with lock:
            now += 1
            most = max(most, now)
        full.wait()
        with lock:
            now -= 1

    async with anyio.create_task_group() as tasks:
        for _ in range(2 * THREADS):
            tasks.start_soon(in_thread, work)
    assert most == THREADS


def test_threads_work_under_trio_as_under_asyncio():
    assert trio.run(in_thread, divmod, 7, 3) == anyio.run(in_thread, divmod, 7, 3) == (2, 1)


async def test_one_holder_at_a_time_and_a_waiter_can_be_cancelled(tmp_path: Path):
    path = tmp_path / "lock"
    async with file_lock(path):
        with anyio.move_on_after(0.05) as limit:
            async with file_lock(path):
                raise AssertionError("two hold it")
        assert limit.cancelled_caught
    with anyio.fail_after(5):
        async with file_lock(path):
            pass


async def test_a_link_is_no_lock(tmp_path: Path):
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic"):
        async with file_lock(tmp_path / "lock"):
            pass
    assert not (tmp_path / "elsewhere").exists()


async def test_the_first_failure_ends_the_others_and_comes_by_itself():
    async def fail() -> None:
        raise KeyError("x")

    with anyio.fail_after(5), pytest.raises(KeyError):
        await together(fail, anyio.sleep_forever)


def test_an_exception_is_found_in_groups_however_deep():
    error = KeyError()
    assert find(ExceptionGroup("a", [ValueError(), ExceptionGroup("b", [error])]), KeyError) is error
    assert find(ExceptionGroup("a", [ValueError()]), KeyError) is None


async def test_a_shielded_call_ends_before_its_cancellation_is_felt():
    made: list[int] = []

    async def make(number: int) -> int:
        await anyio.lowlevel.checkpoint()
        made.append(number)
        return number

    with anyio.CancelScope() as scope:
        scope.cancel()
        assert await shielded(make, 7) == 7
        await anyio.lowlevel.checkpoint()
        raise AssertionError("the cancellation was lost")
    assert made == [7]


async def test_background_tasks_end_with_their_block() -> None:
    ended: list[str] = []

    async def run() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("ended")

    async with background(run, run):
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        assert ended == []
    assert ended == ["ended", "ended"]


async def test_what_a_block_with_background_tasks_raises_comes_out_as_it_is() -> None:
    with pytest.raises(ValueError, match="plain"):
        async with background(anyio.sleep_forever):
            raise ValueError("plain")
