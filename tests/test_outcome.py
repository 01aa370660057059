"""Endings, causes and grades: the tables are total, and what can't be is refused."""

import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from harness.outcome import (
    CAUSE_DISPOSITIONS,
    DISPOSITIONS,
    PRECEDENCE,
    Attribution,
    Cause,
    Ending,
    Grade,
    GradingStatus,
    InfraAbort,
    Integrity,
    RewardComponent,
    Verdict,
    settle,
    weighted_mean,
)


def graded(reward: float, **more: object) -> Grade:
    return Grade(status=GradingStatus.GRADED, reward=reward, integrity=Integrity.PRISTINE, **more)  # pyright: ignore[reportArgumentType]


def test_the_tables_are_total():
    assert set(DISPOSITIONS) == set(Ending)
    assert set(CAUSE_DISPOSITIONS) == set(Cause)
    assert sorted(PRECEDENCE) == sorted(Ending)


@pytest.mark.parametrize(
    "ending",
    [Ending.TIMEOUT, Ending.MAX_STEPS, Ending.LIMIT_REACHED, Ending.TRUNCATION, Ending.MISSING_SUBMIT, Ending.ENV_DONE],
)
def test_what_the_policy_can_cause_is_counted(ending: Ending):
    assert Verdict(ending=ending, grade=graded(0.0)).counted


@pytest.mark.parametrize("ending", list(Ending))
def test_without_a_grade_there_is_no_reward_and_nothing_is_counted(ending: Ending):
    verdict = Verdict(ending=ending, cause=Cause.SANDBOX_LOST if ending is Ending.ABORTED else None)
    assert verdict.reward is None
    assert not verdict.counted
    assert verdict.grading is GradingStatus.NONE


@pytest.mark.parametrize("ending", [Ending.ABORTED, Ending.HARNESS_FAILED, Ending.CANCELLED])
def test_these_endings_never_carry_a_reward(ending: Ending):
    cause = Cause.SANDBOX_LOST if ending is Ending.ABORTED else None
    with pytest.raises(ValidationError, match="can't have a reward"):
        Verdict(ending=ending, cause=cause, grade=graded(0.0))


def test_an_error_has_a_reward_only_when_the_policy_broke_the_grader():
    with pytest.raises(ValidationError, match="attributed to the policy"):
        Verdict(ending=Ending.ERROR, grade=graded(0.0))
    assert Verdict(ending=Ending.ERROR, grade=graded(0.0, attribution=Attribution.POLICY)).reward == 0.0


def test_a_cause_goes_with_an_abort_and_with_nothing_else():
    with pytest.raises(ValidationError, match="don't go together"):
        Verdict(ending=Ending.ENV_DONE, cause=Cause.SANDBOX_LOST)
    with pytest.raises(ValidationError, match="don't go together"):
        Verdict(ending=Ending.ABORTED)


@pytest.mark.parametrize("status", [GradingStatus.FAILED, GradingStatus.NONE])
def test_only_a_graded_grade_has_a_reward(status: GradingStatus):
    with pytest.raises(ValidationError):
        Grade(status=status, reward=0.0, integrity=Integrity.LIVE)
    with pytest.raises(ValidationError):
        Grade(status=GradingStatus.GRADED, integrity=Integrity.LIVE)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.1, 1.1])
def test_a_component_outside_its_bounds_is_refused(value: float):
    with pytest.raises(ValidationError):
        RewardComponent(name="r", value=value)


def test_all_weights_zero_is_ungraded_not_zero():
    assert weighted_mean((RewardComponent(name="r", value=1.0, weight=0.0),)) is None
    assert weighted_mean(()) is None


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0.1, 10)), min_size=1))
def test_the_weighted_mean_lies_within_the_scale(parts: list[tuple[float, float]]):
    components = tuple(RewardComponent(name=str(n), value=v, weight=w) for n, (v, w) in enumerate(parts))
    mean = weighted_mean(components)
    assert mean is not None
    assert -1e-9 <= mean <= 1 + 1e-9


@given(st.lists(st.sampled_from(Ending), min_size=1))
def test_settling_endings_doesnt_depend_on_their_order(endings: list[Ending]):
    assert settle(*endings) is settle(*reversed(endings))
    assert settle(*endings) in endings


def test_an_infra_abort_keeps_its_cause_through_pickling():
    abort = pickle.loads(pickle.dumps(InfraAbort(Cause.SERVER_UNREACHABLE, "refused")))
    assert (abort.cause, abort.detail, abort.exit_status) == (Cause.SERVER_UNREACHABLE, "refused", "ServerUnreachable")


def test_an_unknown_cause_is_refused():
    with pytest.raises(ValueError, match="Nonsense"):
        InfraAbort("Nonsense")
