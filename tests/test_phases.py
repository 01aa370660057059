"""Phases: the table, and stamps that show where an attempt died."""

import json
from pathlib import Path

import pytest

from harness.phases import NEXT, Phase, PhaseClock, PhaseStamp, advance


def test_every_phase_has_its_successors_and_all_but_the_last_can_end_in_teardown():
    assert set(NEXT) == {None, *Phase}
    assert all(Phase.TEARDOWN in following for phase, following in NEXT.items() if phase not in (None, Phase.TEARDOWN))
    assert not NEXT[Phase.TEARDOWN]


def test_an_attempt_goes_through_its_phases_in_order():
    current = None
    for phase in Phase:
        current = advance(current, phase)
    assert current is Phase.TEARDOWN


@pytest.mark.parametrize(
    ("current", "following"),
    [
        (None, Phase.SANDBOX),
        (Phase.IMAGE, Phase.AGENT_RUN),
        (Phase.AGENT_RUN, Phase.GRADING),
        (Phase.TEARDOWN, Phase.IMAGE),
    ],
)
def test_what_the_table_doesnt_have_is_refused(current: Phase | None, following: Phase):
    with pytest.raises(ValueError, match="can't follow"):
        advance(current, following)


def test_a_later_step_goes_back_to_the_agent():
    assert advance(Phase.GRADING, Phase.AGENT_RUN) is Phase.AGENT_RUN


def test_a_stamp_is_on_disk_when_its_phase_begins(tmp_path: Path):
    clock = PhaseClock(tmp_path / "phases.jsonl")
    with clock.phase(Phase.QUEUE):
        lines = (tmp_path / "phases.jsonl").read_text().splitlines()
        assert [json.loads(line)["event"] for line in lines] == ["begin"]
        assert clock.stamps[0].end is None
    lines = (tmp_path / "phases.jsonl").read_text().splitlines()
    assert [json.loads(line)["event"] for line in lines] == ["begin", "end"]


def test_a_phase_that_raises_is_still_stamped_and_its_listener_told(tmp_path: Path):
    seen: list[PhaseStamp] = []
    clock = PhaseClock(tmp_path / "phases.jsonl", seen.append)
    with pytest.raises(RuntimeError), clock.phase(Phase.QUEUE):
        raise RuntimeError
    assert [stamp.end is None for stamp in seen] == [True, False]
    assert clock.current is Phase.QUEUE
    assert clock.began(Phase.QUEUE)
    assert not clock.began(Phase.IMAGE)
