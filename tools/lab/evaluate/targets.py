# SPDX-License-Identifier: Apache-2.0
"""The targets: a table of limits, and how many points reach each of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .results import Result

# Memory is never short where unlimited gains no more than this, so that remapping must not begin.
THROUGHPUT_SAME = 1.001
TTFT_SAME = 1.01


def on_gh200(result: Result) -> bool:
    """Tells whether a point is of the figures that have all policies on a gh200-96."""
    return result.point.section in ("fig8", "fig12")


def on_gh200_fits(result: Result) -> bool:
    """Tells whether such a point's demand fits what weights can make room for."""
    return on_gh200(result) and result.fits()


def on_gh200_beyond(result: Result) -> bool:
    """Tells whether it does not."""
    return on_gh200(result) and not result.fits()


def on_h200_c1(result: Result) -> bool:
    """Tells whether a point is of C1 behind PCIe."""
    return result.point.section == "pcie" and result.point.chart.startswith("h200-C1")


def on_h200_stated(result: Result) -> bool:
    """Tells whether a point is of C2 behind PCIe at the rates that the target names."""
    return result.point.section == "pcie" and result.point.chart.endswith("-stated")


def compares_policies(result: Result) -> bool:
    """Tells whether the point's chart compares policies, and not variants of remap."""
    return not result.point.variant


def nothing_to_gain(result: Result) -> bool:
    """Tells whether memory is never short in a point."""
    return compares_policies(result) and memory_suffices(result)


def memory_suffices(result: Result) -> bool:
    """Tells whether recompute preempts nobody and unlimited memory changes nothing."""
    return result.value("recompute", "preemptions") == 0 and \
        result.over("unlimited", "recompute", "throughput_tok_s") <= THROUGHPUT_SAME and \
        result.over("recompute", "unlimited", "ttft_p99_s") <= TTFT_SAME


def is_paired(result: Result) -> bool:
    """Tells whether the point is compared with one of another variant."""
    return result.base is not None


def is_paired_idle(result: Result) -> bool:
    """Tells whether memory is never short in the point that it is compared with."""
    return result.base is not None and memory_suffices(result.base) and result.has("remap")


def least_tenant(result: Result) -> float:
    """Returns the least of the lower bounds of the tenants' ratios."""
    return min((ratio.low for ratio in result.tenants_over_base()), default=math.nan)


def lower_bound(other: str, key: str) -> Callable[[Result], float]:
    """Makes the lower bound of the paired ratio of remap to another policy."""
    return lambda result: result.paired("remap", other, key).low


@dataclass(frozen=True)
class Target:
    """A limit that each point which it is about must reach."""

    name: str
    about: Callable[[Result], bool]
    value: Callable[[Result], float]  # NaN: the point says nothing
    limit: float
    less: bool = False  # whether less is better


WORSE = "lower bound of the paired ratio ≥ 0.99"

TARGETS = (
    Target("gh200-96, demand fits what weights can give: G ≥ 0.95",
           on_gh200_fits, lambda r: r.gain("remap"), 0.95),
    Target("the same: P99 TTFT ≤ 1.10 × unlimited",
           on_gh200_fits, lambda r: r.over("remap", "unlimited", "ttft_p99_s"), 1.10, less=True),
    Target("gh200-96, beyond that: throughput ≥ 0.90 of the certified bound",
           on_gh200_beyond, lambda r: r.of_bound("remap"), 0.90),
    Target("h200-pcie5, 96 GiB, C1: throughput ≥ 0.97 of unlimited",
           on_h200_c1, lambda r: r.over("remap", "unlimited", "throughput_tok_s"), 0.97),
    Target("h200-pcie5, 96 GiB, C2, ShareGPT-like, 2 and 4 requests/s: ≥ 2 × recompute",
           on_h200_stated, lambda r: r.over("remap", "recompute", "throughput_tok_s"), 2.0),
    Target(f"never worse than recompute: throughput, {WORSE}",
           compares_policies, lower_bound("recompute", "throughput_tok_s"), 0.99),
    Target(f"never worse than recompute: attainment, {WORSE}",
           compares_policies, lower_bound("recompute", "attainment"), 0.99),
    Target(f"never worse than elastic: throughput, {WORSE}",
           compares_policies, lower_bound("elastic", "throughput_tok_s"), 0.99),
    Target(f"never worse than elastic: attainment, {WORSE}",
           compares_policies, lower_bound("elastic", "attainment"), 0.99),
    Target("with nothing to gain nothing is streamed (1: so it is)", nothing_to_gain,
           lambda r: 0.0 if r.value("remap", "bytes_streamed") > 0 else 1.0, 1),
    Target(f"cold=on never worse than cold=off: throughput, {WORSE}",
           is_paired, lambda r: r.over_base("throughput_tok_s").low, 0.99),
    Target(f"cold=on never worse than cold=off: tokens/s of requests that attain their goals, "
           f"{WORSE}", is_paired, lambda r: r.over_base("attained_tok_s").low, 0.99),
    Target(f"cold=on never worse than cold=off: throughput of each tenant, {WORSE}",
           is_paired, least_tenant, 0.99),
    Target("with nothing to gain no cold block is streamed (1: so it is)", is_paired_idle,
           lambda r: 0.0 if r.value("remap", "cold_bytes") > 0 else 1.0, 1),
)


@dataclass
class Tally:
    """How many of a target's points reach it, and the one that is farthest from it."""

    target: Target
    of: int = 0
    reached: int = 0
    margin: float = math.inf  # smallest value / limit, or limit / value where less is better
    value: float = math.nan
    where: str = ""

    def count(self, result: Result) -> None:
        """Counts a point that the target is about; one without a number says nothing."""
        target, value = self.target, self.target.value(result)
        if not math.isfinite(value):
            return
        self.of += 1
        self.reached += value <= target.limit if target.less else value >= target.limit
        if target.less:
            margin = target.limit / value if value else math.inf
        else:
            margin = value / target.limit
        if not self.where or margin < self.margin:
            self.margin, self.value, self.where = margin, value, result.point.id

    @property
    def verdict(self) -> str:
        """Says in a word or two whether the target is reached."""
        if not self.of:
            return "–"
        return "reached" if self.reached == self.of else "not reached"


def tally_targets(results: Iterable[Result]) -> list[Tally]:
    """Compares the points that have been run with each target."""
    tallies = [Tally(target) for target in TARGETS]
    for result in results:
        if result.run is None:
            continue
        for tally in tallies:
            if tally.target.about(result):
                tally.count(result)
    return tallies
