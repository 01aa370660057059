"""A run that is asked to stop stops once, cleanly, however often it is asked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator

import anyio
import pytest

from harness.cli.signals import until_signalled
from harness.errors import StoreError

HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def handlers() -> Generator[None]:
    before = {number: signal.getsignal(number) for number in HANDLED}
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests themselves may run under nohup
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


async def test_work_that_ends_by_itself_leaves_the_handlers_as_they_were():
    before = [signal.getsignal(number) for number in HANDLED]
    assert await until_signalled(anyio.lowlevel.checkpoint, print) is None
    assert [signal.getsignal(number) for number in HANDLED] == before


@pytest.mark.parametrize("number", HANDLED)
async def test_the_first_signal_cancels_and_later_ones_dont_cut_the_cleaning_up_short(number: int):
    said: list[str] = []
    cleaned = False

    async def work() -> None:
        nonlocal cleaned
        try:
            os.kill(os.getpid(), number)
            await anyio.sleep_forever()
        finally:
            with anyio.move_on_after(5, shield=True):
                for _ in range(3):
                    os.kill(os.getpid(), signal.SIGINT)
                while len(said) < 4:
                    await anyio.lowlevel.checkpoint()
            cleaned = True

    with anyio.fail_after(10):
        assert await until_signalled(work, said.append) == number
    assert cleaned
    assert said[0].startswith("stopping")
    assert all(line.startswith("still removing") for line in said[1:])
    assert {signal.getsignal(number) for number in HANDLED} == {signal.SIG_IGN}


async def test_under_nohup_a_hang_up_stops_nothing():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)

    async def work() -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        await anyio.lowlevel.checkpoint()

    assert await until_signalled(work, print) is None


async def test_what_the_work_raises_comes_out_by_itself():
    async def work() -> None:
        raise StoreError("the disk is full")

    with pytest.raises(StoreError, match="the disk is full"):
        await until_signalled(work, print)


PROGRAM = """
import sys, time
import anyio
from harness.cli.signals import until_signalled

async def work():
    print("ready", flush=True)
    await anyio.sleep_forever()

async def main():
    return await until_signalled(work, lambda line: None)

number = anyio.run(main)
print("stopped", flush=True)
until = time.monotonic() + 0.3
while time.monotonic() < until:
    pass
print("summary", flush=True)
sys.exit(128 + number)
"""


def test_signals_in_a_row_never_keep_the_summary_from_being_printed():
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    while process.poll() is None:
        process.send_signal(signal.SIGINT)
        time.sleep(0.001)
    output, errors = process.communicate(timeout=30)
    assert (process.returncode, output) == (130, "stopped\nsummary\n"), errors
