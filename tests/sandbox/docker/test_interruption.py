"""Which failures an engine's interruption explains."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest

from harness.evidence import Case
from harness.faults import EngineState, SandboxState
from harness.ports import Labels, SandboxSpec
from harness.sandbox.docker.interruption import Interruption, explained
from harness.task.image import ResolvedImage

SPEC = SandboxSpec(image=ResolvedImage(id="sha256:0", ref="x"), labels=Labels("r", "a", "agent", 10))
RUNNING, STOPPED, MISSING, UNKNOWN = (
    SandboxState.RUNNING,
    SandboxState.STOPPED,
    SandboxState.MISSING,
    SandboxState.UNKNOWN,
)
SOUND, RESTARTED, UNREACHABLE = EngineState.SOUND, EngineState.RESTARTED, EngineState.UNREACHABLE


@dataclass(frozen=True)
class Row:
    """An interruption at 1000 s (unix time 5000, over at 5010), a case that began at 900 s, and what follows."""

    why: str
    restarted: bool | None
    state: SandboxState
    says: EngineState
    stopped_at: float | None = None
    failed: float = 1005.0
    began: float = 900.0


ROWS = [
    Row("the engine's process is another, the sandbox ended with it", True, STOPPED, RESTARTED, 5003.0),
    Row("the same where its process can't be seen", None, STOPPED, RESTARTED, 5003.0),
    Row("ended when the engine came back and found it dead", True, STOPPED, RESTARTED, 5012.0),
    Row("the sandbox lived on and was killed later", True, STOPPED, SOUND, 5300.0, 1300.0),
    Row("the sandbox was killed long before", True, STOPPED, SOUND, 4900.0),
    Row("only the connection broke: that stops no sandbox", False, STOPPED, SOUND, 5003.0),
    Row("nothing says when it stopped", True, STOPPED, RESTARTED),
    Row("it is missing since a restart", True, MISSING, RESTARTED),
    Row("it is missing, but the engine's process is the same", False, MISSING, SOUND),
    Row("a call failed as the connections broke", False, RUNNING, UNREACHABLE),
    Row("a call failed as the engine restarted", True, RUNNING, RESTARTED),
    Row("a call failed long after", True, RUNNING, SOUND, failed=1200.0),
    Row("nothing has failed and it runs", True, RUNNING, SOUND, failed=math.inf),
    Row("the engine can't say how it is", None, UNKNOWN, UNREACHABLE),
    Row("it was before this attempt", True, STOPPED, SOUND, 5003.0, began=1001.0),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.why)
def test_an_interruption_explains(row: Row):
    interruption = Interruption(1000.0, 5000.0, until=5010.0, restarted=row.restarted)
    case = Case("id", SPEC, row.began, row.failed)
    assert explained([interruption], case, state=row.state, stopped_at=row.stopped_at) is row.says


def test_without_an_interruption_the_engine_is_sound():
    assert explained([], Case("id", SPEC, 0, 10), state=MISSING, stopped_at=None) is SOUND
