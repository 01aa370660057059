"""Result files: one valid form, everything else is a grader failure and never a number."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import GraderError
from harness.graders.reward import read_rewards
from harness.outcome import weighted_mean
from harness.task.model import RewardSpec


def reward_of(files: dict[str, bytes], **specs: RewardSpec) -> float | None:
    return weighted_mean(read_rewards(files, specs))


@pytest.mark.parametrize("text", [b"1", b"1.0\n", b" 0.5 ", b"0", b"1e0", b".25", b"+1", b"-0"])
def test_a_number_in_reward_txt(text: bytes):
    assert reward_of({"reward.txt": text}) == float(text)


def test_reward_json_wins_over_reward_txt():
    assert reward_of({"reward.json": b'{"reward": 1}', "reward.txt": b"0"}) == 1.0


def test_a_mapping_without_the_primary_name_is_averaged():
    assert reward_of({"reward.json": b'{"a": 1, "b": 0}'}) == 0.5


def test_beside_the_primary_reward_the_others_are_informative():
    components = read_rewards({"reward.json": b'{"reward": 1, "seconds": 12.5}'}, {})
    assert weighted_mean(components) == 1.0
    assert {part.name: part.value for part in components} == {"reward": 1.0, "seconds": 12.5}


def test_declared_bounds_and_weights():
    specs = {"score": RewardSpec(low=0, high=10, weight=3), "style": RewardSpec(weight=1)}
    assert reward_of({"reward.json": b'{"score": 5, "style": 1}'}, **specs) == pytest.approx((0.5 * 3 + 1) / 4)


BAD = [
    b"",
    b"  \n",
    b"nan",
    b"NaN",
    b"inf",
    b"-inf",
    b"infinity",
    b"1e999",
    b"1 1",
    b"one",
    b"0x1",
    b"1_0",
    b"\xff",
    b"1.1",
    b"-0.1",
    b"7.5",
    b"true",
    "\uff11".encode(),  # a full-width digit
]


@pytest.mark.parametrize("text", BAD)
def test_a_bad_reward_txt_is_the_graders_failure(text: bytes):
    with pytest.raises(GraderError, match=r"reward"):
        read_rewards({"reward.txt": text}, {})


BAD_JSON = [
    b"",
    b"{}",
    b"0.5",
    b"[1]",
    b"null",
    b'"1"',
    b'{"reward": true}',
    b'{"reward": "1"}',
    b'{"reward": null}',
    b'{"reward": NaN}',
    b'{"reward": Infinity}',
    b'{"reward": 1e999}',
    b'{"reward": 2}',
    b'{"reward": -1}',
    b'{"reward": {"a": 1}}',
    b'{"reward": 1, "reward": 0}',
    b'{"reward": 1',
    b"\xff",
    b'{"reward": ' + b"9" * 400 + b"}",
    b"[" * 50_000,
]


@pytest.mark.parametrize("text", BAD_JSON)
def test_a_bad_reward_json_is_the_graders_failure_even_beside_a_good_reward_txt(text: bytes):
    with pytest.raises(GraderError, match=r"reward"):
        read_rewards({"reward.json": text, "reward.txt": b"1"}, {})


def test_no_result_file_is_the_graders_failure():
    with pytest.raises(GraderError, match="neither"):
        read_rewards({}, {})


def test_a_declared_reward_must_be_there():
    with pytest.raises(GraderError, match="style"):
        read_rewards({"reward.json": b'{"score": 1}'}, {"style": RewardSpec()})


@given(st.dictionaries(st.sampled_from(["reward.txt", "reward.json"]), st.binary(max_size=40)))
def test_whatever_the_files_hold_the_reward_is_valid_or_the_grader_failed(files: dict[str, bytes]):
    try:
        reward = reward_of(files)
    except GraderError:
        return
    assert reward is not None
    assert 0 <= reward <= 1
