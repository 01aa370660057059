"""How the grades of a task's steps become one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from harness.outcome import Attribution, Grade, GradingStatus, RewardComponent
from harness.record import StepRecord
from harness.task.model import StepReward


def reaches(grade: Grade, threshold: float | Mapping[str, float] | None) -> bool:
    """Whether a step's grade lets the next step run. A number is compared with the component ``reward``, as in Harbor."""
    if threshold is None:
        return True
    values = {component.name: component.value for component in grade.components}
    if not isinstance(threshold, Mapping):
        return values.get("reward", grade.reward if grade.reward is not None else -math.inf) >= threshold
    return all(values.get(name, -math.inf) >= least for name, least in threshold.items())


def combine(steps: Sequence[StepRecord], strategy: StepReward) -> Grade:
    """The task's grade from those of the steps that ran: their mean, or the last one's. One failed grading fails it all."""
    grades = [(step.name, step.grade) for step in steps if step.grade is not None]
    last_name, last = grades[-1]
    failed = next(((name, grade) for name, grade in grades if grade.status is not GradingStatus.GRADED), None)
    base = Grade(
        status=GradingStatus.NONE,
        integrity=last.integrity,
        runs=tuple(run for _, grade in grades for run in grade.runs),
        changed_paths=tuple(dict.fromkeys(path for _, grade in grades for path in grade.changed_paths)),
        holes=last.holes,
    )
    if failed is not None:
        name, grade = failed
        update = {
            "status": GradingStatus.FAILED,
            "attribution": grade.attribution,
            "message": f"step {name}: {grade.message}",
        }
        return base.model_copy(update=update)
    counted = [(last_name, last)] if strategy is StepReward.FINAL else grades
    reward = sum(grade.reward or 0.0 for _, grade in counted) / len(counted)
    names = {name for name, _ in counted}
    components = tuple(
        _scaled(component, name, grade, counts=name in names)
        for name, grade in grades
        for component in grade.components
    )
    by_policy = next((grade for _, grade in grades if grade.attribution is Attribution.POLICY), None)
    update = {"status": GradingStatus.GRADED, "reward": reward, "components": components}
    if by_policy is not None:
        update |= {"attribution": by_policy.attribution, "message": by_policy.message}
    return base.model_copy(update=update)


def _scaled(component: RewardComponent, step: str, grade: Grade, *, counts: bool) -> RewardComponent:
    """The component under its step's name, weighted so that every step that counts weighs the same."""
    total = sum(other.weight for other in grade.components)
    weight = component.weight / total if counts and total else 0.0
    return component.model_copy(update={"name": f"{step}/{component.name}", "weight": weight})
