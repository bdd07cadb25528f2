# SPDX-License-Identifier: Apache-2.0
"""The report of `mmevaluate --bars`: where remapping pays, the table of bars, and each case."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from .barcases import Case
from .bars import GROUPS, Bars, Row
from .pays import Compared, pays_paragraph
from .report import table
from .stats import Ratio


def number(value: float) -> str:
    """Prints a number, or a dash if there is none."""
    return f"{value:.3f}" if math.isfinite(value) else "–"


def interval(ratio: Ratio) -> str:
    """Prints a number with its interval, if it has one."""
    if math.isnan(ratio.ratio):
        return "0 (lost)" if ratio.lost else "–"
    if ratio.low == ratio.high:
        return number(ratio.ratio)
    return f"{number(ratio.ratio)} [{number(ratio.low)}, {number(ratio.high)}]"


def summary_rows(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Makes a row for each bar: how many cases reach it, and the one that is farthest from it."""
    kinds: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        what = row.what.split(" (")[0].split(", today")[0]
        limit = "today's best" if row.group == "capacity" else row.limit
        if row.group == "tenants":
            what = what.split(": ")[-1]
        if row.verdict != "–":
            kinds.setdefault((row.group, what, limit), []).append(row)
    lines = []
    for (group, what, limit), of in kinds.items():
        less = limit.startswith("≤")

        def far(row: Row) -> float:
            value = row.ours.low if "low" in limit else row.ours.ratio
            return 0.0 if math.isnan(value) else -value if less else value
        worst = min(of, key=far)
        reached = sum(row.reached for row in of)
        unsure = sum(row.verdict == "unsure" for row in of)
        lines.append((group, what, limit,
                      f"{reached} of {len(of)}" + (f", {unsure} unsure" if unsure else ""),
                      "reached" if reached == len(of) else "**missed**",
                      f"{interval(worst.today)} → {interval(worst.ours)} at `{worst.case}`"))
    return lines


def row_cells(row: Row) -> tuple[str, ...]:
    """Prints a row."""
    verdict = row.verdict if row.reached else f"**{row.verdict}**"
    return (row.what, f"`{row.case}`", row.limit, interval(row.today), interval(row.ours), verdict)


def compared_cases(bars: Bars) -> list[Compared]:
    """Compares remap with the better of recompute and elastic in each case that was played."""
    found = []
    for case in bars.grid():
        played = bars.play("ours", case)
        if not played:
            continue
        best = max(("recompute", "elastic"),
                   key=lambda name: played[name].numbers["throughput_tok_s"])
        ours = played["remap"]
        found.append(Compared(where(case), ours.over(played[best], "throughput_tok_s"),
                              ours.numbers["attainment"] -
                              max(played[name].numbers["attainment"]
                                  for name in ("recompute", "elastic"))))
    return found


def where(case: Case) -> str:
    """Names what a case has in common with others."""
    mode = {"quantum": "turns", "drain": "turns that drain", "space": "space"}[case.mode]
    return f"{case.models} on {case.device} in {mode}"


def make_bars_report(head: dict, bars: Bars, rows: Sequence[Row], groups: Sequence[str],
                     played: bool) -> str:
    """Makes bars.md."""
    settings = head["settings"]
    lines = ["# What must be reached", ""]
    if played:
        lines += [pays_paragraph(compared_cases(bars)), ""]
    lines += [f"Made by `{head['command']}`, version {head['version']}, commit {head['commit']}"
              f"{', beside ' + head['today'] if head.get('today') else ''}: {settings['windows']} "
              f"windows of {settings['seconds']} s. Intervals are 95 %, Student's, of logarithms of "
              "paired ratios. *low*: the lower bound must reach the limit; *unsure*: it does not, "
              "and the mean, or the upper bound, does. Goals of attainment are the same for every "
              "policy and mode: a first token within 1 s + 5 × the request's time alone, a mean gap "
              "of 5 × its own alone.", "",
              *table(("bar", "what", "limit", "cases", "", "farthest: today → ours"),
                     summary_rows(rows)), ""]
    if bars.runner.failures:
        lines += ["**Failed:**", "", *(f"- {failure}" for failure in bars.runner.failures), ""]
    for group in groups:
        of = [row for row in rows if row.group == group]
        if of:
            lines += [f"## {group}: {GROUPS[group]}", "",
                      *table(("what", "case", "limit", "today", "ours", ""), map(row_cells, of)), ""]
    if "capacity" in bars.extra:
        lines += ["### Capacities, requests/s", "", *table(
            ("case", "policy", "build", "requests/s"),
            [(entry["case"], entry["policy"], entry["build"], f"{entry['requests_s']:.2f}")
             for entry in bars.extra["capacity"]]), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def ratio_json(ratio: Ratio) -> dict | None:
    """Makes the JSON of a number with its interval."""
    if math.isnan(ratio.ratio):
        return None
    return {"value": ratio.ratio, "low": ratio.low, "high": ratio.high, "windows": ratio.n,
            "lost": ratio.lost}


def make_bars_json(head: dict, bars: Bars, rows: Sequence[Row]) -> dict:
    """Makes bars.json."""
    return {"schema": 1, **head,
            "rows": [{**{key: getattr(row, key) for key in
                         ("group", "what", "case", "limit", "verdict")},
                      "today": ratio_json(row.today), "ours": ratio_json(row.ours)}
                     for row in rows],
            "found": bars.extra, "failures": bars.runner.failures,
            "sizes": dataclasses.asdict(bars.sizes)}
