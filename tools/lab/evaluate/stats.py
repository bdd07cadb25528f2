# SPDX-License-Identifier: Apache-2.0
"""Ratios of two policies over paired windows, with Student's interval: workload/stats.h here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

TINY = 1e-300


@dataclass(frozen=True)
class Ratio:
    """A geometric mean of ratios, and its interval."""

    ratio: float = math.nan
    low: float = math.nan  # of one window the ratio itself; 0 if windows are lost
    high: float = math.nan
    n: int = 0  # windows in which both values are above 0
    lost: int = 0  # windows in which only the second value is


def _beta_fraction(x: float, a: float, b: float) -> float:
    """Evaluates the continued fraction of the incomplete beta function by Lentz's method."""
    c, d = 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (TINY if abs(d) < TINY else d)
    value = d
    for m in range(1, 500):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d = 1 / (1 + even * d)
        c = 1 + even / c
        value *= d * c
        d = 1 / (1 + odd * d)
        c = 1 + odd / c
        value *= d * c
        if abs(d * c - 1) < 1e-15:
            break
    return value


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Computes the regularised incomplete beta function."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) +
                     a * math.log(x) + b * math.log1p(-x))
    if x < (a + 1) / (a + b + 2):
        return front * _beta_fraction(x, a, b) / a
    return 1 - front * _beta_fraction(1 - x, b, a) / b


def _tail(t: float, degrees: float) -> float:
    """Returns the probability of a value above t, which is at least 0."""
    return _incomplete_beta(degrees / (degrees + t * t), degrees / 2, 0.5) / 2


def t_quantile(p: float, degrees: float) -> float:
    """Computes a quantile of Student's distribution."""
    tail = p if p < 0.5 else 1 - p
    low, high = 0.0, 1.0
    while _tail(high, degrees) > tail and high < 1e300:
        high *= 2
    for _ in range(200):
        if high - low <= 1e-12 * high:
            break
        t = (low + high) / 2
        if _tail(t, degrees) > tail:
            low = t
        else:
            high = t
    return -high if p < 0.5 else high


def paired_ratio(a: Sequence[float], b: Sequence[float], confidence: float = 0.95) -> Ratio:
    """Computes a / b pair by pair; ratios are compared by their logarithms."""
    lost = sum(y > 0 and not x > 0 for x, y in zip(a, b))
    logs = [math.log(x / y) for x, y in zip(a, b) if x > 0 and y > 0]
    n = len(logs)
    if not n:
        return Ratio(low=0.0 if lost else math.nan, lost=lost)
    mean = math.fsum(logs) / n
    half = 0.0
    if n > 1:
        squares = math.fsum((value - mean) ** 2 for value in logs)
        half = t_quantile(0.5 + confidence / 2, n - 1) * math.sqrt(squares / (n - 1) / n)
    low = 0.0 if lost else math.exp(mean - half)
    return Ratio(math.exp(mean), low, math.exp(mean + half), n, lost)


def geometric_mean(values: Sequence[float]) -> float:
    """Returns the mean of logarithms as a value, so that 2 and 1/2 average to 1."""
    return math.exp(math.fsum(math.log(value) for value in values) / len(values))
