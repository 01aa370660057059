"""Waiting until a sandbox says that it is ready, with Docker's rules for health checks."""

from __future__ import annotations

import time

import anyio

from harness.errors import StartFailed
from harness.ports import Command, Sandbox
from harness.task.model import Healthcheck


async def wait_until_healthy(sandbox: Sandbox, check: Healthcheck, *, cwd: str) -> None:
    """Run the check until it passes. Raises StartFailed when it failed ``retries`` times in a row after the start period.

    Failures within ``start_period_s`` don't count, and there the check is repeated every ``start_interval_s``.
    """
    began = time.monotonic()
    failures = 0
    while True:
        command = Command(argv=["/bin/sh", "-c", check.command], cwd=cwd, deadline_s=check.timeout_s, keep_bytes=1024)
        result = await sandbox.exec(command)
        if result.exit_status == 0:
            return
        starting = time.monotonic() - began < check.start_period_s
        if not starting:
            failures += 1
        if failures >= check.retries:
            status = "timed out" if result.timed_out else f"exited with status {result.exit_status}"
            said = (result.stderr.text or result.stdout.text).strip()[-300:]
            raise StartFailed(
                f"the health check {check.command!r} {status} {failures} times{f': {said}' if said else ''}"
            )
        await anyio.sleep(check.start_interval_s if starting else check.interval_s)
