"""How the grades of steps become one grade."""

import pytest

from harness.outcome import Ending, Grade, GradingStatus, Integrity, RewardComponent, weighted_mean
from harness.record import StepRecord
from harness.steps import combine, reaches
from harness.task.model import StepReward


def step(name: str, *values: float, failed: bool = False) -> StepRecord:
    components = tuple(RewardComponent(name=f"r{n}", value=value) for n, value in enumerate(values))
    grade = Grade(
        status=GradingStatus.FAILED if failed else GradingStatus.GRADED,
        reward=None if failed else weighted_mean(components),
        components=() if failed else components,
        integrity=Integrity.PRISTINE,
        message="it broke" if failed else "",
    )
    return StepRecord(name=name, ending=Ending.ENV_DONE, grade=grade)


def test_the_mean_weighs_every_step_alike_however_many_components_it_has():
    grade = combine([step("one", 1.0), step("two", 0.0, 1.0, 0.5, 0.5)], StepReward.MEAN)
    assert grade.reward == pytest.approx(0.75)
    assert weighted_mean(grade.components) == pytest.approx(0.75)
    assert grade.components[0].name == "one/r0"


def test_final_takes_the_last_step_that_ran():
    grade = combine([step("one", 1.0), step("two", 0.25)], StepReward.FINAL)
    assert grade.reward == 0.25
    assert weighted_mean(grade.components) == pytest.approx(0.25)


@pytest.mark.parametrize("strategy", list(StepReward))
def test_one_failed_grading_leaves_the_whole_without_a_reward(strategy: StepReward):
    grade = combine([step("one", 1.0), step("two", failed=True)], strategy)
    assert grade.status is GradingStatus.FAILED
    assert grade.reward is None
    assert grade.message == "step two: it broke"


@pytest.mark.parametrize(
    ("threshold", "passes"),
    [(None, True), (0.5, True), (0.51, False), ({"r0": 0.5}, True), ({"r0": 0.6}, False), ({"absent": 0.0}, False)],
)
def test_the_threshold_of_a_step(threshold: float | dict[str, float] | None, passes: bool):
    grade = step("one", 0.5).grade
    assert grade is not None
    assert reaches(grade, threshold) is passes


def test_a_number_is_compared_with_the_reward_component_where_there_is_one():
    components = (RewardComponent(name="reward", value=0.2), RewardComponent(name="other", value=1.0))
    grade = Grade(status=GradingStatus.GRADED, reward=0.6, components=components, integrity=Integrity.LIVE)
    assert not reaches(grade, 0.5)
