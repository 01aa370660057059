"""Evaluation: each statement about what is left out, what is counted and what has no number, by name; then properties."""

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.evaluation import evaluate, report_on
from harness.outcome import Cause, Ending, Integrity
from harness.phases import Phase
from harness.record import BenchmarkPlan, RunRecord
from harness.report import EvaluationReport
from harness.sample import Sample
from tests.samples import a_record, a_step, aborted, attempt, graded

UNGRADED = [Ending.ENV_DONE, Ending.ERROR, Ending.HARNESS_FAILED, Ending.CANCELLED, Ending.TIMEOUT]


def plan(n: int, tasks: int = 1, benchmark: str = "b") -> BenchmarkPlan:
    return BenchmarkPlan(benchmark=benchmark, n=n, tasks=tasks)


# --- statements ---------------------------------------------------------------------------------------------------


def test_statement_19_one_aborted_sample_drops_every_sample_of_its_attempt():
    split = graded(1.0, 1, attempt="split")
    report = evaluate([graded(0.0, 0), split, split, replace(split, ending=Ending.ABORTED, cause=Cause.COLLECT_FAILED)])
    assert report.mean_reward == 0.0
    assert (report.graded, report.aborted, report.attempts) == (1, 1, 2)
    assert report.aborted_by_cause == {Cause.COLLECT_FAILED: 1}


def test_statement_20_the_aborted_ratio_counts_attempts_and_causes_are_counted():
    split = aborted(3, Cause.COLLECT_FAILED, attempt="split")
    samples = [graded(1.0, 0), graded(0.0, 1), aborted(2, Cause.SANDBOX_LOST), split, split, split]
    metrics = evaluate(samples).metrics
    assert metrics["eval/b-aborted_ratio"] == 0.5
    assert metrics["eval/b-aborted/SandboxLost"] == 1
    assert metrics["eval/b-aborted/CollectFailed"] == 1


def test_statement_21_all_aborted_leaves_no_score_key_and_a_ratio_of_one():
    report = evaluate([aborted(0), aborted(1)], plans=[plan(2)])
    assert report.metrics == {"eval/b-aborted_ratio": 1.0, "eval/b-aborted/SandboxLost": 2}
    assert report.mean_reward is None
    assert report.standard_error is None
    assert report.interval is None
    assert report.pass_at_k == {}


def test_statement_22_an_attempt_that_was_split_counts_once():
    split = graded(1.0, 0, attempt="split")
    report = evaluate([split, split, split, graded(0.0, 1)], plans=[plan(2)])
    assert report.mean_reward == 0.5
    assert (report.attempts, report.passed) == (2, 1)
    assert report.pass_at_k == {1: 0.5, 2: 1.0}


def test_statement_23_pass_at_k_goes_by_each_benchmarks_own_n():
    own = [graded(float(index == 0), index, benchmark="own") for index in range(4)]
    default = [graded(float(index == 0), index, benchmark="default") for index in range(2)]
    report = evaluate([*own, *default], plans=[plan(4, benchmark="own")], n=2)
    assert {score.benchmark: score.pass_at_k for score in report.benchmarks} == {
        "own": {1: 0.25, 2: 0.5, 4: 1.0},
        "default": {1: 0.5, 2: 1.0},
    }
    assert report.pass_at_k == {}, "benchmarks that differ have none in common"


def test_statement_23_only_tasks_whose_attempts_were_all_graded_enter_pass_at_k():
    whole = [graded(0.0, 0, task="whole"), graded(0.0, 1, task="whole")]
    broken = [graded(1.0, 0, task="broken"), aborted(1, task="broken")]
    absent = [graded(1.0, 0, task="absent")]
    report = evaluate([*whole, *broken, *absent], plans=[plan(2, tasks=3)])
    assert report.pass_at_k == {1: 0.0, 2: 0.0}
    assert report.complete_tasks == 1
    assert report.mean_reward == 0.5, "their grades still enter the mean"


def test_statement_23_without_an_index_pass_at_k_is_skipped_with_a_warning():
    report = evaluate([graded(1.0, None), graded(0.0, None)], n=2)
    assert report.mean_reward == 0.5
    assert not any("pass@" in name for name in report.metrics)
    assert report.warnings == ("benchmark b: its attempts carry no index, so pass@k is left out",)


def test_statement_24_a_benchmark_without_samples_is_there_without_a_score():
    report = evaluate([graded(1.0)], plans=[plan(1), plan(2, tasks=5, benchmark="empty")])
    empty = next(score for score in report.benchmarks if score.benchmark == "empty")
    assert (empty.attempts, empty.planned, empty.mean_reward, empty.aborted_ratio) == (0, 10, None, None)
    assert not any(name.startswith("eval/empty") for name in report.metrics)


@pytest.mark.parametrize("ending", UNGRADED)
def test_statement_24_no_reward_without_an_abort_is_left_out_and_counted_by_ending(ending: Ending):
    # Miles scores it as before; here a number is a grade (DESIGN §5), so it is no zero.
    report = evaluate([graded(1.0, 0), attempt(ending, 1)], plans=[plan(2)])
    assert report.mean_reward == 1.0
    assert report.pass_at_k == {}
    assert report.ungraded_by_ending == {str(ending): 1}
    assert report.metrics[f"eval/b-ungraded/{ending}"] == 1
    assert report.metrics["eval/b-aborted_ratio"] == 0.0


@pytest.mark.parametrize(
    "ending", [Ending.TIMEOUT, Ending.MAX_STEPS, Ending.LIMIT_REACHED, Ending.TRUNCATION, Ending.MISSING_SUBMIT]
)
def test_what_the_policy_can_cause_counts(ending: Ending):
    assert evaluate([graded(1.0, 0), attempt(ending, 1, reward=0.0)]).mean_reward == 0.5


def test_an_error_of_the_policys_counts_as_the_zero_it_is():
    assert evaluate([graded(1.0, 0), attempt(Ending.ERROR, 1, reward=0.0)]).mean_reward == 0.5


def test_a_stale_grade_is_a_grade_and_is_not_counted():
    report = evaluate([graded(1.0, 0), attempt(Ending.STALE, 1, reward=0.0)], plans=[plan(2)])
    assert (report.mean_reward, report.graded, report.ungraded, report.complete_tasks) == (1.0, 2, 0, 0)


def test_the_last_attempt_of_a_chain_of_retries_decides_and_the_others_are_counted_apart():
    first = aborted(0, Cause.SANDBOX_UNAVAILABLE, attempt="one")
    second = aborted(0, Cause.SANDBOX_LOST, attempt="two", retry_of="one")
    third = graded(1.0, 0, attempt="three", retry_of="two")
    report = evaluate([third, first, second], plans=[plan(1)])
    assert (report.attempts, report.mean_reward, report.aborted, report.aborted_ratio) == (1, 1.0, 0, 0.0)
    assert report.retried == 2
    assert report.retried_by_ending == {"ABORTED/SandboxLost": 1, "ABORTED/SandboxUnavailable": 1}
    assert report.pass_at_k == {1: 1.0}


def test_a_retry_that_is_aborted_too_leaves_its_place_ungraded():
    report = evaluate([aborted(0, attempt="one"), aborted(0, attempt="two", retry_of="one"), graded(1.0, 1)])
    assert (report.attempts, report.aborted, report.aborted_ratio) == (2, 1, 0.5)


def test_a_retry_without_an_index_finds_its_place_through_its_chain():
    samples = [graded(0.0, None, attempt="two", retry_of="one"), aborted(None, attempt="one"), graded(1.0, None)]
    report = evaluate(samples)
    assert (report.attempts, report.retried, report.mean_reward) == (2, 1, 0.5)


def test_a_chain_that_bites_its_tail_still_has_one_place():
    report = evaluate([graded(1.0, 0, attempt="one", retry_of="two"), graded(1.0, 0, attempt="two", retry_of="one")])
    assert (report.attempts, report.retried) == (1, 1)


def test_copies_of_a_task_are_tasks_of_their_own():
    one = graded(1.0, 0, task="one")
    copy = graded(0.0, 0, task="copy")
    report = evaluate([one, replace(copy, task=replace(copy.task, digest=one.task.digest))])
    assert (report.attempts, report.tasks, report.mean_reward) == (2, 2, 0.5)


def test_parts_of_an_attempt_with_different_rewards_are_an_error_that_names_it():
    part = graded(1.0, 0, attempt="split")
    with pytest.raises(ValueError, match="attempt split has several rewards"):
        evaluate([part, replace(part, reward=0.5)])


def test_a_run_that_mixes_tiers_has_a_mean_for_each():
    live = [graded(1.0, 0, task=name, integrity=Integrity.LIVE) for name in ("a", "b")]
    report = evaluate([*live, graded(0.0, 0, task="c")])
    assert report.mean_reward_by_integrity == {Integrity.PRISTINE: 0.0, Integrity.LIVE: 1.0}
    assert [(tier.integrity, tier.attempts, tier.standard_error) for tier in report.tiers] == [
        (Integrity.PRISTINE, 1, None),
        (Integrity.LIVE, 2, 0.0),
    ]


def test_steps_are_scored_over_the_counted_attempts_that_reached_them():
    whole = graded(0.5, 0, steps=(a_step("build", 1.0), a_step("deploy", 0.0)))
    early = graded(0.0, 1, steps=(a_step("build", 0.0),))
    lost = aborted(2, steps=(a_step("build", 1.0),))
    (task,) = evaluate([whole, early, lost]).benchmarks[0].by_task
    assert [(step.step, step.reached, step.passed, step.mean_reward) for step in task.steps] == [
        ("build", 2, 1, 0.5),
        ("deploy", 1, 0, 0.0),
    ]


def test_planned_attempts_without_a_verdict_are_seen(tmp_path: Path):
    record = a_record(tmp_path, graded(1.0))
    run = RunRecord(
        id="r", created_at=1.0, command=(), agent="nop", attempts=6, benchmarks=(plan(2, tasks=3),), folder=tmp_path
    )
    report = report_on(run, [record])
    assert (report.planned, report.attempts, report.tasks) == (6, 1, 3)
    assert report.wall_s is None
    assert report.phase_seconds == {Phase.AGENT_RUN: 2.0, Phase.GRADING: 0.5}


def test_a_run_recorded_before_plans_were_kept_is_still_reported(tmp_path: Path):
    run = RunRecord(id="r", created_at=1.0, command=(), agent="nop", attempts=2, folder=tmp_path)
    report = report_on(run, [a_record(tmp_path, graded(1.0, index)) for index in range(2)])
    assert report.pass_at_k == {1: 1.0, 2: 1.0}


def test_nothing_at_all_is_an_empty_report():
    report = evaluate([])
    assert (report.attempts, report.mean_reward, report.aborted_ratio, report.metrics) == (0, None, None, {})


# --- properties ---------------------------------------------------------------------------------------------------

ENDINGS = [ending for ending in Ending if ending is not Ending.ABORTED]


@st.composite
def places(draw: st.DrawFn) -> list[Sample]:
    """The attempts of two benchmarks: graded, aborted and ungraded ones."""
    samples: list[Sample] = []
    for benchmark in ("b", "c"):
        for task in range(draw(st.integers(0, 3))):
            for index in range(draw(st.integers(0, 4))):
                name = f"{benchmark}{task}"
                kind = draw(st.sampled_from(["graded", "aborted", "ungraded"]))
                identifier = f"{name}-{index}"
                if kind == "graded":
                    reward = draw(st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.7, 1.0]))
                    samples.append(graded(reward, index, task=name, benchmark=benchmark, attempt=identifier))
                elif kind == "aborted":
                    cause = draw(st.sampled_from(Cause))
                    samples.append(aborted(index, cause, task=name, benchmark=benchmark, attempt=identifier))
                else:
                    ending = draw(st.sampled_from(ENDINGS))
                    samples.append(attempt(ending, index, task=name, benchmark=benchmark, attempt=identifier))
    return samples


@given(places(), st.randoms(use_true_random=False))
def test_the_order_of_attempts_changes_nothing(samples: list[Sample], random: Random):
    shuffled = list(samples)
    random.shuffle(shuffled)
    assert evaluate(shuffled, n=4) == evaluate(samples, n=4)


@given(places())
def test_counts_add_up(samples: list[Sample]):
    report = evaluate(samples, n=4)
    for score in (report, *report.benchmarks):
        assert score.attempts == score.graded + score.ungraded == sum(score.endings.values())
        assert score.ungraded == sum(score.ungraded_by_ending.values())
        assert score.aborted == sum(score.aborted_by_cause.values())
        assert score.planned >= score.attempts
        assert (score.mean_reward is None) == (score.passed + score.failed == 0)
    for score in report.benchmarks:
        assert score.attempts == sum(task.attempts for task in score.by_task)
        assert score.ungraded == sum(task.ungraded for task in score.by_task)
    assert report.attempts == len(samples)


@given(places(), st.lists(st.sampled_from(Cause), max_size=5))
def test_aborted_attempts_never_change_the_mean_or_its_error(samples: list[Sample], causes: list[Cause]):
    more = [aborted(10 + number, cause, task="b0", benchmark="b") for number, cause in enumerate(causes)]
    before, after = evaluate(samples, n=4), evaluate([*samples, *more], n=4)
    assert (after.mean_reward, after.standard_error, after.interval) == (
        before.mean_reward,
        before.standard_error,
        before.interval,
    )
    assert after.pass_at_k == before.pass_at_k
    assert after.aborted == before.aborted + len(causes)


@given(places(), st.integers(1, 3))
def test_splitting_attempts_changes_nothing(samples: list[Sample], parts: int):
    assert evaluate([sample for sample in samples for _ in range(parts)], n=4) == evaluate(samples, n=4)


@given(places())
def test_retried_attempts_are_only_counted(samples: list[Sample]):
    replaced = [
        replace(
            sample, attempt=f"{sample.attempt}-before", ending=Ending.ABORTED, cause=Cause.SANDBOX_LOST, reward=None
        )
        for sample in samples
    ]
    retries = [replace(sample, retry_of=f"{sample.attempt}-before") for sample in samples]
    before, after = evaluate(samples, n=4), evaluate([*replaced, *retries], n=4)
    assert after.retried == len(samples)
    assert after.metrics == before.metrics


@given(places())
def test_pass_at_1_is_the_pass_rate_where_every_attempt_was_graded(samples: list[Sample]):
    whole = [graded(float(len(sample.attempt) % 2 == index % 2), index, task=sample.task.task)
             for sample in {sample.task: sample for sample in samples}.values() for index in range(3)]  # fmt: skip
    report = evaluate(whole, n=3)
    if whole:
        assert report.pass_at_k[1] == pytest.approx(report.passed / report.attempts)


@given(places())
def test_a_report_survives_the_disk(samples: list[Sample]):
    report = evaluate(samples, n=4)
    text = report.model_dump_json()
    assert EvaluationReport.model_validate_json(text) == report
    assert (json.loads(text)["mean_reward"] is None) == (report.mean_reward is None)
