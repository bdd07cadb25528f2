# SPDX-License-Identifier: Apache-2.0
"""What the runs of a point found: numbers by policy, ratios of policies, gain, fits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from .points import Point
from .runs import MalformedError, take_list, take_number
from .stats import Ratio, paired_ratio

# A gain below this part of throughput is within the noise, and so would be a quotient by it.
GAIN_LEAST = 0.02

# What of a run's results is kept, and goes into evaluation.json.
KEYS = ("throughput_tok_s", "window_tok_s", "attainment", "attained_tok_s", "jain", "ttft_p50_s",
        "ttft_p99_s", "tbt_p50_s", "tbt_p99_s", "preemptions", "bytes_streamed", "plan_changes",
        "kv_peak_bytes")
WINDOW_KEYS = ("throughput_tok_s", "window_tok_s", "attainment", "attained_tok_s")


def quotient(a: float, b: float) -> float:
    """Returns a / b, as IEEE 754 has it: nothing is raised for b = 0."""
    if b:
        return a / b
    return math.nan if not a or math.isnan(a) else math.copysign(math.inf, a)


@dataclass
class Result:
    """A point with what its two runs printed, or with why one of them failed."""

    point: Point
    failure: str = ""
    # policy -> number by key, "windows", "tenants" (output by window) and "cold_bytes"; None if it
    # failed
    run: dict | None = None
    bound_tok_s: float = math.nan  # certified bound of throughput over all windows
    kv_fits_bytes: float = math.nan  # KV for which there is room without a step that waits
    base: Result | None = None  # the same under the variant that it is compared with

    def has(self, policy: str) -> bool:
        """Tells whether the point has been run under a policy."""
        return self.run is not None and policy in self.run

    def value(self, policy: str, key: str) -> float:
        """Returns a number of a policy over all windows; NaN if the point has none."""
        return self.run[policy][key] if self.has(policy) else math.nan

    def over(self, a: str, b: str, key: str) -> float:
        """Returns a number of policy a, divided by that of policy b."""
        return quotient(self.value(a, key), self.value(b, key))

    def windows(self, policy: str, key: str) -> list[float]:
        """Returns a number of a policy for each window."""
        return self.run[policy]["windows"][key] if self.has(policy) else []

    def paired(self, a: str, b: str, key: str) -> Ratio:
        """Returns the ratio of two policies, window by window, with its interval of 95 %."""
        return paired_ratio(self.windows(a, key), self.windows(b, key))

    def over_base(self, key: str) -> Ratio:
        """Returns the ratio to the base under remap, window by window."""
        return paired_ratio(self.windows("remap", key), self.base.windows("remap", key)) \
            if self.base else Ratio()

    def tenants_over_base(self) -> list[Ratio]:
        """Returns the ratio of each tenant's throughput to that in the base under remap."""
        if not self.base or not self.has("remap") or not self.base.has("remap"):
            return []
        return [paired_ratio(ours, his) for ours, his in
                zip(self.run["remap"]["tenants"], self.base.run["remap"]["tenants"])]

    def gain(self, policy: str) -> float:
        """Returns (policy - recompute) / (unlimited - recompute); NaN with nothing to gain."""
        low, high, ours = (self.value(name, "throughput_tok_s")
                           for name in ("recompute", "unlimited", policy))
        if not high - low > GAIN_LEAST * low:
            return math.nan
        return (ours - low) / (high - low)

    def of_bound(self, policy: str) -> float:
        """Returns which part of the certified bound a policy has reached."""
        return quotient(self.value(policy, "throughput_tok_s"), self.bound_tok_s)

    def fits(self) -> bool:
        """Tells whether the peak of KV under unlimited memory fits what weights make room for."""
        return self.value("unlimited", "kv_peak_bytes") <= self.kv_fits_bytes


def join_bases(results: Sequence[Result]) -> None:
    """Gives each result of a chart of pairs the one that it is compared with."""
    by_place = {(r.point.section, r.point.chart, r.point.variant, r.point.rate): r for r in results}
    for result in results:
        at = result.point
        if at.base:
            result.base = by_place[at.section, at.chart, at.base, at.rate]


def take_tenants(windows: Sequence[dict]) -> list[list[float]]:
    """Takes the output of each tenant in each window."""
    parts = [take_list(window, "tenants") for window in windows]
    if len({len(part) for part in parts}) > 1:
        raise MalformedError("a window lacks a tenant")
    return [[take_number(tenant, "own_tok_s") for tenant in tenants] for tenants in zip(*parts)]


def take_cold(output: dict, policy: str) -> float:
    """Sums what was streamed of cold blocks; a tenant without any lacks the number."""
    details = output.get("details")
    played = take_list(details, policy) if details is not None else []
    return sum(take_number(tenant, "cold_bytes") for window in played
               for tenant in take_list(window, "tenants") if "cold_bytes" in tenant)


def take_run(policies: Iterable[str], output: Any) -> dict[str, dict]:
    """Takes what is needed out of mmsim's JSON; each policy that was asked for must be there."""
    taken = {}
    results = output.get("results") if isinstance(output, dict) else None
    for policy in policies:
        found = results.get(policy) if isinstance(results, dict) else None
        if not isinstance(found, dict) or not isinstance(found.get("windows"), list):
            raise MalformedError(f"no results of {policy} in the JSON")
        taken[policy] = {key: take_number(found, key) for key in KEYS}
        taken[policy]["tenants"] = take_tenants(found["windows"])
        taken[policy]["cold_bytes"] = take_cold(output, policy)
        taken[policy]["windows"] = {key: [take_number(window, key) for window in found["windows"]]
                                    for key in WINDOW_KEYS}
    return taken


def take_bound(output: Any) -> tuple[float, float]:
    """Takes throughput and KV out of the JSON of `mmsim --bound`."""
    return take_number(output, "throughput_tok_s"), take_number(output, "kv_fits_bytes")
