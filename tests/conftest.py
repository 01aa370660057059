"""Which tests run here, and a loud end when one that should have run did not.

Marks name what a test needs: ``engine`` a Docker engine that answers, ``network`` the package registries, ``harbor`` a Python that Harbor
can use, ``gpu`` a GPU. A test whose need isn't met is skipped with the reason. With HARNESS_REQUIRE_ALL=1, which ``make test`` sets, a
skipped test fails the session, unless it needs a GPU or, outside CI, Harbor: a check that silently stops checking is worse than none.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytest
import structlog
from hypothesis import settings

# A busy machine is slow at times: how long one example takes says nothing about it.
settings.register_profile("harness", deadline=None)
settings.load_profile("harness")

MAY_SKIP = ("gpu",) if os.environ.get("CI") else ("gpu", "harbor")
_skipped: list[str] = []
"""Tests, and modules with tests, that were skipped though they may not be."""


@cache
def _no_engine() -> str | None:
    script = Path(__file__).resolve().parents[1] / "scripts" / "engine.py"
    result = subprocess.run([sys.executable, str(script), "status"], capture_output=True, text=True, check=False)
    return f"{result.stderr.strip()}; `make engine` starts one" if result.returncode else None


def _no_network() -> str | None:
    return "HARNESS_OFFLINE is set" if os.environ.get("HARNESS_OFFLINE") else None


@cache
def _no_harbor() -> str | None:
    from bench.harbor_environment import SetupError, find_interpreter

    try:
        find_interpreter()
    except SetupError as error:
        return str(error)
    return None


def _no_gpu() -> str | None:
    return None if Path("/dev/nvidiactl").exists() else "no GPU"


NEEDS: dict[str, Callable[[], str | None]] = {
    "engine": _no_engine,
    "network": _no_network,
    "harbor": _no_harbor,
    "gpu": _no_gpu,
}
"""For each mark, what is missing here; None when nothing is."""


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    for item in items:
        for mark, missing in NEEDS.items():
            if item.get_closest_marker(mark) and (reason := missing()):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(autouse=True)
def plain_logging() -> None:
    """The command line sets a level for the whole process; a test that calls it must not silence the next one's events."""
    structlog.reset_defaults()


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    return report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail") and not any(mark in report.keywords for mark in MAY_SKIP):
        _skipped.append(f"{report.nodeid}: {_reason(report)}")


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.skipped:
        _skipped.append(f"{report.nodeid}: {_reason(report)}")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if _skipped and os.environ.get("HARNESS_REQUIRE_ALL") and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not _skipped:
        return
    required = bool(os.environ.get("HARNESS_REQUIRE_ALL"))
    title = "skipped, but must run here: the session fails" if required else "skipped"
    terminalreporter.section(title, red=required, yellow=not required)
    for line in _skipped:
        terminalreporter.write_line(line)
