"""Text for terminals: what comes from a sandbox can't move the cursor, and numbers read the same everywhere."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from harness.outcome import Cause, Ending

if TYPE_CHECKING:
    from rich.console import Console

    from harness.report import Score, TierScore

_WIDE = 200
"""Columns where the output is no terminal: tables that another program reads are not cut."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, those that change the direction of what follows, and halves of characters, which can't be printed."""


def console() -> Console:
    """For tables on standard output."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else _WIDE)


def printable(text: str) -> str:
    """The text with control characters shown as escapes (``\\x1b``); tabs and newlines stay."""
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text)


def reward(value: float | None) -> str:
    """A dash for what is not graded, so that it never looks like a zero."""
    return "—" if value is None else f"{value:.4g}"


def estimate(score: Score | TierScore) -> str:
    """A mean with its standard error, where it has one."""
    if score.mean_reward is None or score.standard_error is None:
        return reward(score.mean_reward)
    return f"{reward(score.mean_reward)} ± {score.standard_error:.2g}"


def seconds(value: float | None) -> str:
    if value is None:
        return "…"
    if value < 60:
        return f"{value:.2f}s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes}m{rest:02d}s" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02d}m"


def counted(count: int, what: str) -> str:
    """``1 attempt``, ``2 attempts``."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def ending(value: Ending, cause: Cause | None) -> str:
    return f"{value} ({cause})" if cause else str(value)
