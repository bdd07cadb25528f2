# SPDX-License-Identifier: Apache-2.0
"""Points as charts: the points of a chart that have the same variant and policy are a curve."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .cases import LISTED_POLICIES, VARIANT_POLICIES
from .results import Result


@dataclass(frozen=True)
class Line:
    """A curve of a chart."""

    label: str  # in the legend
    variant: str
    policy: str


@dataclass(frozen=True)
class Chart:
    """The points that one table, or one plot, shows."""

    section: str
    name: str
    lines: tuple[Line, ...]
    rates: tuple[float, ...]  # ascending
    by_policy: bool  # the lines are policies, not variants
    points: dict[tuple[str, float], Result]  # by variant and rate

    def at(self, line: Line, rate: float) -> Result | None:
        """Returns the point of a line at a rate, if there is one."""
        return self.points.get((line.variant, rate))


def list_lines(results: list[Result]) -> tuple[Line, ...]:
    """Lists the lines of a chart: policies, recompute and the variants of remap, or all there is."""
    variants = list(dict.fromkeys(result.point.variant for result in results))
    if variants == [""]:
        asked = {policy for result in results for policy in result.point.policies}
        return tuple(Line(policy, "", policy) for policy in LISTED_POLICIES if policy in asked)
    asked = {(result.point.variant, policy) for result in results
             for policy in result.point.policies}
    policies = {policy for _, policy in asked}
    if policies != set(VARIANT_POLICIES):
        return tuple(Line(variant if len(policies) == 1 else f"{variant} {policy}", variant, policy)
                     for variant in variants for policy in LISTED_POLICIES
                     if (variant, policy) in asked)
    return (Line("recompute", variants[0], "recompute"),
            *(Line(variant, variant, "remap") for variant in variants))


def list_charts(results: Iterable[Result], section: str) -> list[Chart]:
    """Lists the charts of a section in the order of its points."""
    by_name: dict[str, list[Result]] = {}
    for result in results:
        if result.point.section == section:
            by_name.setdefault(result.point.chart, []).append(result)
    return [Chart(section, name, list_lines(found),
                  tuple(sorted({result.point.rate for result in found})),
                  not found[0].point.variant,
                  {(result.point.variant, result.point.rate): result for result in found})
            for name, found in by_name.items()]
