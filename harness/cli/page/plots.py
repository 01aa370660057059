"""Where the marks of the page's plots go. Lengths across are per cent of a plot's width; nothing here is text from a task."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from harness.estimators import Interval

_WIDTH, _HEIGHT = 300.0, 150.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 34.0, 14.0, 16.0, 24.0


@dataclass(frozen=True, slots=True)
class Bar:
    """A value on 0..1 with its interval. ``value`` is None for what has no grade: it has no length, not the length 0."""

    value: float | None
    low: float | None = None
    high: float | None = None

    @property
    def length(self) -> str:
        return _percent(self.value or 0.0)

    @property
    def begin(self) -> str:
        return _percent(self.low or 0.0)

    @property
    def end(self) -> str:
        return _percent(self.high or 0.0)


def bar(value: float | None, interval: Interval | None = None) -> Bar:
    """The bar of a mean."""
    return Bar(value) if interval is None else Bar(value, interval.low, interval.high)


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a whole: how far it reaches, and how far its graded part does."""

    length: str
    graded: str


def share(count: float, most: float, ungraded: float = 0.0) -> Share:
    """``count`` beside the largest count, ``ungraded`` of it without a grade."""
    scale = 1 / most if most else 0.0
    return Share(_percent(count * scale), _percent((count - ungraded) * scale))


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a curve, in the units of its picture. ``value`` is what it stands for at ``k``."""

    k: int
    value: float
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Curve:
    """pass@k over k, the k's evenly spaced by their logarithm."""

    points: tuple[Point, ...]
    width: float = _WIDTH
    height: float = _HEIGHT
    left: float = _LEFT
    right: float = _WIDTH - _RIGHT
    top: float = _TOP
    bottom: float = _HEIGHT - _BOTTOM

    @property
    def path(self) -> str:
        return " ".join(f"{point.x:.1f},{point.y:.1f}" for point in self.points)

    @property
    def middle(self) -> float:
        return (self.top + self.bottom) / 2


def curve(pass_at_k: Mapping[int, float]) -> Curve:
    """The picture of pass@k. Needs at least one k."""
    most = math.log2(max(pass_at_k)) or 1.0
    across, down = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    return Curve(
        tuple(
            Point(k, value, _LEFT + across * math.log2(k) / most, _TOP + down * (1 - value))
            for k, value in pass_at_k.items()
        )
    )


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.2f}%"
