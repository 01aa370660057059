"""The statistics: against brute force, against published tables, and against their own special cases."""

import math
from itertools import combinations
from statistics import stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.estimators import clustered_standard_error, mean, pass_at_k, pass_ks, student_t, t_interval

REWARDS = st.floats(0, 1)


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.data())
def test_pass_at_k_is_the_share_of_draws_that_hold_a_pass(passes: list[bool], data: st.DataObject):
    k = data.draw(st.integers(1, len(passes)))
    draws = list(combinations(passes, k))
    assert pass_at_k(len(passes), sum(passes), k) == pytest.approx(sum(map(any, draws)) / len(draws))


@given(st.integers(1, 200), st.data())
def test_pass_at_k_grows_with_k_from_the_pass_rate_to_whether_any_passed(attempts: int, data: st.DataObject):
    passed = data.draw(st.integers(0, attempts))
    values = [pass_at_k(attempts, passed, k) for k in range(1, attempts + 1)]
    assert values == sorted(values)
    assert values[0] == pytest.approx(passed / attempts)
    assert values[-1] == (passed > 0)


@pytest.mark.parametrize(("attempts", "passed", "k"), [(4, 1, 0), (4, 1, 5), (4, 5, 1), (4, -1, 1)])
def test_pass_at_k_refuses_what_it_cant_estimate(attempts: int, passed: int, k: int):
    with pytest.raises(ValueError, match="can't be estimated"):
        pass_at_k(attempts, passed, k)


@pytest.mark.parametrize(
    ("attempts", "ks"), [(0, ()), (1, (1,)), (2, (1, 2)), (3, (1, 2, 3)), (5, (1, 2, 4, 5)), (8, (1, 2, 4, 8))]
)
def test_k_doubles_up_to_the_number_of_attempts(attempts: int, ks: tuple[int, ...]):
    assert pass_ks(attempts) == ks


@given(st.lists(REWARDS, min_size=2, max_size=30))
def test_with_one_attempt_a_task_the_clustered_error_is_the_ordinary_one(rewards: list[float]):
    ordinary = stdev(rewards) / math.sqrt(len(rewards))
    assert clustered_standard_error([reward] for reward in rewards) == pytest.approx(ordinary, abs=1e-9)


@given(st.lists(REWARDS, min_size=2, max_size=12), st.integers(2, 5))
def test_repeating_every_attempt_adds_no_certainty(rewards: list[float], times: int):
    once = clustered_standard_error([reward] for reward in rewards)
    repeated = clustered_standard_error([reward] * times for reward in rewards)
    assert repeated == pytest.approx(once, abs=1e-9)


def test_the_clustered_error_by_hand():
    # Two tasks of two attempts, mean 0.5: the tasks' sums of deviations are +1 and -1; sqrt((1 + 1) * 2 / 1) / 4.
    assert clustered_standard_error([[1.0, 1.0], [0.0, 0.0]]) == pytest.approx(0.5)
    # Attempts that differ only within their tasks say nothing against the mean of the tasks.
    assert clustered_standard_error([[1.0, 0.0], [0.0, 1.0]]) == 0


@pytest.mark.parametrize("clusters", [[], [[1.0]], [[1.0, 0.0, 1.0]], [[1.0], []]])
def test_one_task_has_no_standard_error(clusters: list[list[float]]):
    assert clustered_standard_error(clusters) is None


def test_no_values_have_no_mean():
    assert mean([]) is None
    assert mean([0.0]) == 0.0


@pytest.mark.parametrize(
    ("confidence", "degrees", "expected"),
    [
        (0.95, 1, 12.7062), (0.95, 2, 4.3027), (0.95, 3, 3.1824), (0.95, 4, 2.7764), (0.95, 7, 2.3646),
        (0.95, 10, 2.2281), (0.95, 30, 2.0423), (0.95, 120, 1.9799), (0.95, 20_000, 1.9601),
        (0.99, 5, 4.0321), (0.99, 8, 3.3554), (0.90, 6, 1.9432), (0.90, 15, 1.7531),
    ],
)  # fmt: skip
def test_students_t_is_that_of_the_published_tables(confidence: float, degrees: int, expected: float):
    assert student_t(confidence, degrees) == pytest.approx(expected, abs=5e-5)


@given(st.floats(0, 1), st.floats(0, 1), st.integers(2, 50))
def test_an_interval_holds_its_centre_and_stays_within_what_is_possible(centre: float, error: float, clusters: int):
    interval = t_interval(centre, error, clusters, low=0.0, high=1.0)
    assert 0 <= interval.low <= centre <= interval.high <= 1
