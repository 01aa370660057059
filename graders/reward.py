"""Reading a reward strictly: finite numbers within declared bounds, or a `GraderError` that says what was wrong."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import cast

from pydantic import ValidationError

from harness.errors import GraderError
from harness.outcome import RewardComponent
from harness.task.model import RewardSpec
from harness.task.places import RESULTS

REWARD_JSON = "reward.json"
REWARD_TEXT = "reward.txt"
MAX_REWARD_BYTES = 64 * 1024
PRIMARY = "reward"
"""The component that a single number is; in a mapping that has it, the others are informative unless declared."""

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def read_rewards(files: Mapping[str, bytes], specs: Mapping[str, RewardSpec]) -> tuple[RewardComponent, ...]:
    """Components from the result files. ``reward.json`` (a mapping of numbers) wins over ``reward.txt`` (one number).

    Raises GraderError when there is none, or when what is there isn't valid.
    """
    if REWARD_JSON in files:
        values = _from_json(files[REWARD_JSON])
    elif REWARD_TEXT in files:
        values = {PRIMARY: _from_text(files[REWARD_TEXT])}
    else:
        raise GraderError(f"the grader wrote neither {REWARD_JSON} nor {REWARD_TEXT} to {RESULTS}")
    missing = sorted(specs.keys() - values.keys())
    if missing:
        raise GraderError(f"the task declares the reward {missing[0]!r}, which the result file doesn't have")
    return tuple(_component(name, value, specs, primary=PRIMARY in values) for name, value in values.items())


def _component(name: str, value: float, specs: Mapping[str, RewardSpec], *, primary: bool) -> RewardComponent:
    spec = specs.get(name)
    if spec is None:
        spec = RewardSpec(weight=0.0 if specs or (primary and name != PRIMARY) else 1.0)
        if spec.weight == 0:
            # Informative only, and nobody declared its bounds: those of its own value.
            spec = RewardSpec(low=min(0.0, value), high=max(1.0, value), weight=0.0)
    try:
        return RewardComponent(name=name, value=value, low=spec.low, high=spec.high, weight=spec.weight)
    except ValidationError as error:
        reason = str(error.errors()[0]["msg"]).removeprefix("Value error, ")
        raise GraderError(f"{reason}; bounds are declared in [harness.rewards]") from error


def _from_text(raw: bytes) -> float:
    text = _decoded(raw, REWARD_TEXT).strip()
    if not text:
        raise GraderError(f"{REWARD_TEXT} is empty")
    if not _NUMBER.fullmatch(text):
        raise GraderError(f"{REWARD_TEXT} holds {text[:40]!r}, which is not one finite number")
    return _finite(float(text), REWARD_TEXT)


def _from_json(raw: bytes) -> dict[str, float]:
    text = _decoded(raw, REWARD_JSON)
    try:
        document: object = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise GraderError(f"{REWARD_JSON} is not valid JSON: {error}") from error
    if not isinstance(document, dict):
        raise GraderError(f"{REWARD_JSON} holds {type(document).__name__}; it must hold a mapping of names to numbers")
    if not document:
        raise GraderError(f"{REWARD_JSON} holds no reward")
    values: dict[str, float] = {}
    for name, value in cast("dict[str, object]", document).items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise GraderError(f"{REWARD_JSON}: {name!r} is not a number")
        values[name] = _finite(value, f"{REWARD_JSON}: {name!r}")
    return values


def _decoded(raw: bytes, name: str) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise GraderError(f"{name} is not UTF-8 text") from error


def _finite(value: int | float, where: str) -> float:
    try:
        number = float(value)
    except OverflowError as error:
        raise GraderError(f"{where} is too large") from error
    if not math.isfinite(number):
        raise GraderError(f"{where} is not finite")
    return number


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice")
    return found


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a finite number")
