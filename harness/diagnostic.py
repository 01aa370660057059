"""What is kept of a failure that is not the policy's: the chain of exceptions, where they were raised, and the ends of the logs."""

from __future__ import annotations

import traceback
from pathlib import Path

from harness.outcome import Record

_MESSAGE = 1000
_LOCATIONS = 20
_TAIL_BYTES = 4096


class Diagnostic(Record):
    """For the person who mends it."""

    chain: tuple[str, ...]
    """``Type: message``, the exception first, then what it came from."""
    locations: tuple[str, ...]
    """``file:line in function``, the innermost last, of the exception that everything came from."""
    agent_log: str = ""
    """The end of the agent's log."""
    grader_log: str = ""
    """The end of the grader's log."""


def diagnose(error: BaseException, *, agent_log: Path, grader_log: Path) -> Diagnostic:
    """Never raises: a log that can't be read is empty."""
    chain = _chain(error)
    frames = traceback.extract_tb(chain[-1].__traceback__)[-_LOCATIONS:]
    return Diagnostic(
        chain=tuple(f"{type(link).__qualname__}: {link}"[:_MESSAGE] for link in chain),
        locations=tuple(f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in frames),
        agent_log=_tail(agent_log),
        grader_log=_tail(grader_log),
    )


def _chain(error: BaseException) -> list[BaseException]:
    """The exception, its causes and contexts, and the members of groups, each once."""
    found: list[BaseException] = []
    waiting = [error]
    while waiting:
        link = waiting.pop(0)
        if link in found:
            continue
        found.append(link)
        if isinstance(link, BaseExceptionGroup):
            waiting.extend(link.exceptions)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        follows = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
        if follows is not None:
            waiting.append(follows)
    return found


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL_BYTES))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""
