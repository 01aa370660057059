"""Groups: which attempts are run again, and which groups a trainer gets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from harness.group import (
    Aborted,
    AdmissionOptions,
    Admitted,
    Cancelled,
    Filtered,
    Flat,
    Group,
    NoSignal,
    Outcome,
    Stale,
    Ungraded,
    admit,
    partial,
    wants_retry,
)
from harness.outcome import DISPOSITIONS, Attribution, Cause, Ending
from harness.record import AttemptRecord
from tests.groups import group, record, task

DEFAULT = AdmissionOptions()
POLICY_ERROR = record(Ending.ERROR, reward=0.0, attribution=Attribution.POLICY)


def verdict(*attempts: float | Ending | Cause | AttemptRecord, **options: object) -> Outcome:
    return admit(group(*attempts), AdmissionOptions.model_validate(options))


# --- admission


def test_a_group_whose_attempts_are_all_graded_and_differ_is_admitted_whole():
    outcome = verdict(0.0, 1.0, 1.0)
    assert isinstance(outcome, Admitted)
    assert (outcome.attempts, outcome.flat) == (outcome.group.deciding, None)


def test_one_aborted_attempt_drops_the_whole_group_with_its_cause():
    outcome = verdict(0.0, 1.0, Cause.SANDBOX_LOST, 1.0)
    assert isinstance(outcome, Aborted)
    assert outcome.causes == (Cause.SANDBOX_LOST,)


def test_a_group_with_several_causes_counts_once_by_the_most_frequent_and_of_several_by_the_first():
    often = verdict(Cause.SANDBOX_LOST, Cause.SERVER_UNREACHABLE, Cause.SERVER_UNREACHABLE)
    tied = verdict(Cause.SANDBOX_LOST, Cause.SERVER_UNREACHABLE)
    assert isinstance(often, Aborted)
    assert isinstance(tied, Aborted)
    assert (often.cause, tied.cause) == (Cause.SERVER_UNREACHABLE, Cause.SANDBOX_LOST)


@pytest.mark.parametrize("ending", [Ending.ERROR, Ending.HARNESS_FAILED, Ending.ENV_DONE])
def test_an_ungraded_attempt_drops_its_group_and_is_counted_apart_by_ending(ending: Ending):
    outcome = verdict(0.0, 1.0, ending)
    assert isinstance(outcome, Ungraded)
    assert outcome.ending is ending


@pytest.mark.parametrize(
    ("rewards", "flat"),
    [
        ((1.0, 1.0), Flat.ALL_PASS),
        ((0.0, 0.0), Flat.ALL_FAIL),
        ((0.5, 0.5), Flat.EQUAL),
        ((0.1 + 0.2, 0.3), Flat.EQUAL),
    ],
)
def test_identical_rewards_carry_no_signal(rewards: tuple[float, ...], flat: Flat):
    outcome = verdict(*rewards)
    assert isinstance(outcome, NoSignal)
    assert outcome.flat is flat


@pytest.mark.parametrize(
    ("option", "admitted"),
    [
        ("train_on_all_fail", {Flat.ALL_FAIL}),
        ("train_on_zero_advantage", {Flat.ALL_PASS, Flat.EQUAL}),
    ],
)
def test_groups_without_a_signal_are_admitted_when_asked_for_and_say_so(option: str, admitted: set[Flat]):
    found: set[Flat] = set()
    for rewards in ((1.0, 1.0), (0.0, 0.0), (0.5, 0.5)):
        outcome = verdict(*rewards, **{option: True})
        if isinstance(outcome, Admitted):
            assert outcome.flat is not None
            found.add(outcome.flat)
    assert found == admitted


@pytest.mark.parametrize("ending", [Ending.TIMEOUT, Ending.TRUNCATION, Ending.MAX_STEPS, Ending.LIMIT_REACHED])
def test_what_the_policy_can_cause_is_trained_on_by_default(ending: Ending):
    assert isinstance(verdict(1.0, record(ending, reward=0.0)), Admitted)


@pytest.mark.parametrize(
    ("option", "ending"), [("train_on_timeout", Ending.TIMEOUT), ("train_on_truncation", Ending.TRUNCATION)]
)
def test_an_ending_that_the_options_keep_out_drops_its_group(option: str, ending: Ending):
    outcome = verdict(1.0, record(ending, reward=0.0), **{option: False})
    assert isinstance(outcome, Filtered)
    assert outcome.endings == (ending,)


def test_train_on_error_admits_only_errors_that_are_the_policys():
    assert isinstance(verdict(1.0, POLICY_ERROR), Filtered)
    assert isinstance(verdict(1.0, POLICY_ERROR, train_on_error=True), Admitted)
    assert isinstance(verdict(1.0, Ending.ERROR, train_on_error=True), Ungraded)
    forged = record(Ending.ERROR, reward=0.0, attribution=Attribution.GRADER)
    assert isinstance(verdict(1.0, forged, train_on_error=True), Filtered)


def test_partial_admits_what_has_a_grade_and_only_when_enough_has():
    attempts = (0.0, 1.0, Cause.SANDBOX_LOST, Ending.ERROR)
    outcome = verdict(*attempts, partial=partial(2))
    assert isinstance(outcome, Admitted)
    assert [attempt.reward for attempt in outcome.attempts] == [0.0, 1.0]
    assert isinstance(verdict(*attempts, partial=partial(3)), Aborted)
    assert isinstance(verdict(0.0, Ending.ERROR, partial=partial(2)), Ungraded)
    assert isinstance(verdict(Ending.ERROR, Ending.ERROR, partial=partial(1)), Ungraded)


def test_partial_looks_for_a_signal_in_what_is_left():
    outcome = verdict(1.0, 1.0, record(Ending.TIMEOUT, reward=0.0), train_on_timeout=False, partial=partial(2))
    assert isinstance(outcome, NoSignal)


def test_a_cancelled_attempt_cancels_its_group_even_under_partial():
    assert isinstance(verdict(0.0, 1.0, Ending.CANCELLED, partial=partial(2)), Cancelled)


def test_a_group_is_stale_when_the_weights_moved_on_too_far_or_when_an_attempt_says_so():
    options = AdmissionOptions(max_staleness=2)
    assert isinstance(admit(group(0.0, 1.0, version=5), options, version=7), Admitted)
    stale = admit(group(0.0, 1.0, version=5), options, version=8)
    assert isinstance(stale, Stale)
    assert stale.lag == 3
    assert isinstance(admit(group(0.0, 1.0), options, version=8), Admitted), "nobody numbered its weights"
    assert isinstance(verdict(0.0, Ending.STALE), Stale)


def test_the_last_attempt_of_a_slot_decides():
    lost = record(Cause.SANDBOX_LOST)
    again = record(1.0, retry_of=lost.id)
    outcome = admit(Group("g", task("t"), ((lost, again), (record(0.0),))), DEFAULT)
    assert isinstance(outcome, Admitted)
    assert outcome.attempts[0] is again


ENDINGS = st.sampled_from([ending for ending in Ending if ending is not Ending.ABORTED])
RECORDS = st.one_of(
    st.floats(0, 1).map(record),
    st.sampled_from(Cause).map(record),
    ENDINGS.map(record),
    st.just(POLICY_ERROR),
    st.just(record(Ending.TIMEOUT, reward=0.0)),
)
OPTIONS = st.builds(
    AdmissionOptions,
    train_on_zero_advantage=st.booleans(),
    train_on_all_fail=st.booleans(),
    train_on_truncation=st.booleans(),
    train_on_timeout=st.booleans(),
    train_on_error=st.booleans(),
    partial=st.none() | st.integers(1, 4).map(partial),
    max_staleness=st.none() | st.integers(0, 3),
)


@given(st.lists(RECORDS, min_size=1, max_size=5), OPTIONS, st.integers(0, 5))
def test_admission_never_changes_what_is_on_record_and_admits_only_what_is_graded(
    attempts: list[AttemptRecord], options: AdmissionOptions, version: int
):
    subject = group(*attempts, version=0)
    before = [attempt.model_dump_json() for attempt in attempts]
    outcome = admit(subject, options, version=version)
    assert outcome.group is subject
    assert [slot[-1].model_dump_json() for slot in subject.slots] == before
    if isinstance(outcome, Admitted):
        assert all(attempt.reward is not None for attempt in outcome.attempts)
        assert len(outcome.attempts) == len(attempts) or options.partial is not None
        rewards = {attempt.reward for attempt in outcome.attempts}
        assert outcome.flat is not None or len(rewards) > 1


@pytest.mark.parametrize("options", [{"partial": {"min_k": 0}}, {"max_staleness": -1}, {"train_on_timout": True}])
def test_options_that_make_no_sense_are_refused(options: dict[str, object]):
    with pytest.raises(ValidationError):
        AdmissionOptions.model_validate(options)


# --- retries


@pytest.mark.parametrize("cause", list(Cause))
def test_an_aborted_attempt_is_run_again_up_to_the_number_of_retries(cause: Cause):
    slot = [record(cause)]
    assert not wants_retry(slot, 0)
    assert wants_retry(slot, 1)
    slot.append(record(cause))
    assert not wants_retry(slot, 1)
    assert wants_retry(slot, 2)


@pytest.mark.parametrize("ending", [ending for ending in Ending if ending is not Ending.ABORTED])
def test_an_ungraded_attempt_is_run_again_where_the_table_says_so(ending: Ending):
    assert wants_retry([record(ending)], 1) is DISPOSITIONS[ending].retried


def test_a_cancelled_attempt_is_never_run_again():
    assert not wants_retry([record(Ending.CANCELLED)], 100)


@pytest.mark.parametrize("last", [record(0.0), record(1.0), POLICY_ERROR])
def test_a_graded_attempt_is_never_run_again_whatever_its_reward(last: AttemptRecord):
    assert not wants_retry([last], 100)


def test_what_our_own_code_failed_gets_one_fresh_retry_and_no_more():
    failed = record(Ending.HARNESS_FAILED)
    assert wants_retry([failed], 5)
    assert not wants_retry([failed], 0)
    assert not wants_retry([failed, failed], 5)
    assert not wants_retry([failed, record(Cause.SANDBOX_LOST), failed], 5)
    assert wants_retry([failed, record(Cause.SANDBOX_LOST)], 5)
