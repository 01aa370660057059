"""The statistics of an evaluation: means, standard errors and intervals clustered by task, and pass@k.

Sums are exact before they are rounded (`math.fsum`), so that no result depends on the order of the attempts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from harness.outcome import Record

CONFIDENCE = 0.95


class Interval(Record):
    """A confidence interval: ``low..high`` at ``confidence``."""

    low: float
    high: float
    confidence: float = CONFIDENCE


def mean(values: Sequence[float]) -> float | None:
    """None when there are none: no value is not zero."""
    return math.fsum(values) / len(values) if values else None


def clustered_standard_error(clusters: Iterable[Sequence[float]]) -> float | None:
    """Standard error of the mean over all values, where those of one cluster (a task's attempts) may go together.

    The cluster-robust estimator with the correction G / (G - 1) for G clusters (Miller, Adding Error Bars to Evals, 2024;
    Cameron and Miller, 2015): with one value in each cluster it is the ordinary standard error. None for fewer than two
    clusters: nothing can be said about other tasks then.
    """
    filled = [values for values in clusters if values]
    if len(filled) < 2:
        return None
    count = sum(len(values) for values in filled)
    centre = math.fsum(value for values in filled for value in values) / count
    squares = math.fsum(math.fsum(value - centre for value in values) ** 2 for values in filled)
    return math.sqrt(squares * len(filled) / (len(filled) - 1)) / count


def t_interval(centre: float, error: float, clusters: int, *, low: float, high: float) -> Interval:
    """Student's t interval with ``clusters - 1`` degrees of freedom, cut to what is possible (``low..high``)."""
    reach = student_t(CONFIDENCE, clusters - 1) * error
    return Interval(low=max(low, centre - reach), high=min(high, centre + reach))


def student_t(confidence: float, degrees: int) -> float:
    """The t with P(|T| <= t) = confidence, for ``degrees`` >= 1 degrees of freedom.

    The distribution is a finite sum in the angle atan(t / sqrt(degrees)) (Abramowitz and Stegun 26.7.3 and 26.7.4), which
    is inverted by bisection.
    """
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, degrees) < confidence else (low, middle)
    return math.tan(low) * math.sqrt(degrees)


def _within(angle: float, degrees: int) -> float:
    """P(|T| <= tan(angle) * sqrt(degrees))."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = degrees % 2
    term = cosine if odd else 1.0
    total = 0.0 if degrees == 1 else term
    for step in range(2 + odd, degrees - 1, 2):
        term *= cosine * cosine * (step - 1) / step
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


def pass_at_k(attempts: int, passed: int, k: int) -> float:
    """The chance that at least one of ``k`` attempts, drawn without replacement from those made, passed.

    The unbiased estimator 1 - C(n - c, k) / C(n, k) (Chen et al., 2021). Raises ValueError unless 1 <= k <= attempts.
    """
    if not 1 <= k <= attempts or not 0 <= passed <= attempts:
        raise ValueError(f"pass@{k} can't be estimated from {passed} of {attempts} attempts")
    return 1 - math.comb(attempts - passed, k) / math.comb(attempts, k)


def pass_ks(attempts: int) -> tuple[int, ...]:
    """1, 2, 4, … up to the number of attempts, and that number itself."""
    powers = [1 << power for power in range(attempts.bit_length())]
    return tuple(dict.fromkeys([*(k for k in powers if k < attempts), attempts])) if attempts else ()
