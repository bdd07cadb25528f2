# SPDX-License-Identifier: Apache-2.0
"""The report: evaluation.md with its tables, and evaluation.json with the numbers behind them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence

from . import cases
from .charts import Chart, list_charts
from .pays import Compared, pays_paragraph
from .results import KEYS, Result
from .stats import Ratio, geometric_mean
from .targets import Tally, tally_targets

WINDOWS_CLAIM = 8  # intervals over fewer windows are too wide for a claim
SHORT = {True: "short", False: "all loads"}

INTRODUCTION = """\
Computed from the runs below. G = (remap − recompute) / (unlimited − recompute) of throughput, \
where unlimited gains at least 2 %. *Fits*: the most KV that was in use at one time under \
unlimited memory is at most the shares' KV and what weights can make room for without a step that \
waits (`tools/lab/workload/bound.h`). *Bound*: no schedule on this device with this memory serves \
these windows faster (`tools/lab/workload/bound.c` has the proof). Intervals are 95 %, Student's, \
of the logarithms of paired ratios over windows."""

ELSEWHERE = """\
Two more are measured by programs of their own: the time of a step within 3 % of protocol.md's \
expression by `mmbench steps`, the cost of deciding by `mmbench decide`."""


@dataclasses.dataclass(frozen=True)
class Metric:
    """A table of each chart."""

    title: str
    key: str
    scale: float
    digits: int
    median: bool = False  # only of sections that list the median of TBT, too


METRICS = (
    Metric("output tokens/s", "throughput_tok_s", 1, 1),
    Metric("output tokens/s while requests arrive", "window_tok_s", 1, 1),
    Metric("requests that attain the fixed goals, %", "attainment", 100, 1),
    Metric("P99 TTFT, s", "ttft_p99_s", 1, 3),
    Metric("P99 TBT, ms", "tbt_p99_s", 1e3, 1),
    Metric("P50 TBT, ms", "tbt_p50_s", 1e3, 2, median=True),
)
AVERAGE_KEYS = ("throughput_tok_s", "ttft_p99_s", "tbt_p99_s")


@dataclasses.dataclass(frozen=True)
class Average:
    """Geometric means of remap over recompute, over the points of a section with one mix."""

    section: str
    models: str
    short: bool  # only the points in which recompute preempts
    n: int
    ratios: dict[str, float]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Makes the lines of a table in Markdown."""
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head),
            *("| " + " | ".join(row) + " |" for row in rows)]


def cell(value: float, digits: int) -> str:
    """Prints a number, or a dash if there is none."""
    return f"{value:.{digits}f}" if math.isfinite(value) else "–"


def percent(ratio: float) -> str:
    """Prints a ratio as a difference in per cent."""
    return f"{100 * (ratio - 1):+.1f} %"


# ---- averages, as the paper states them


def average_of(section: str, models: str, short: bool, results: Sequence[Result]) -> Average:
    """Computes the means of the points that have all three ratios."""
    ratios = [[result.over("remap", "recompute", key) for key in AVERAGE_KEYS]
              for result in results]
    whole = [row for row in ratios if all(math.isfinite(ratio) and ratio > 0 for ratio in row)]
    means = {key: geometric_mean([row[i] for row in whole]) if whole else math.nan
             for i, key in enumerate(AVERAGE_KEYS)}
    return Average(section, models, short, len(whole), means)


def list_averages(results: Sequence[Result]) -> list[Average]:
    """Computes the averages of the sections that list them, for each mix of models."""
    averages = []
    for section in cases.SECTIONS:
        of_section = [result for result in results if section.averages and result.run is not None
                      and result.point.section == section.name]
        for models in (*cases.LABELS["models"], ""):
            every = [result for result in of_section if result.point.models == models]
            scarce = [result for result in every if result.value("recompute", "preemptions") > 0]
            averages += [average_of(section.name, models, False, every),
                         average_of(section.name, models, True, scarce)]
    return [average for average in averages if average.n]


def averages_lines(section: cases.Section, averages: Iterable[Average]) -> list[str]:
    """Prints a section's averages, and beside them the paper's."""
    rows = [(f"{a.models or 'others'}, {SHORT[a.short]}", str(a.n),
             *(percent(a.ratios[key]) for key in AVERAGE_KEYS))
            for a in averages if a.section == section.name]
    for paper in section.stated:
        stated = (paper.throughput, paper.ttft_p99, paper.tbt_p99)
        rows.append((f"{paper.models}, the paper's", "", *(f"{value:+.1f} %" for value in stated)))
    return ["Ours over recompute, geometric means over the cases below; *short* are those in which "
            "recompute preempts:", "",
            *table(("cases", "n", "throughput", "P99 TTFT", "P99 TBT"), rows), ""]


def policy_cell(results: Sequence[Result], policy: str, key: str) -> str:
    """Prints a policy's mean over recompute, and of how many cases where it is not of all."""
    ratios = [result.over(policy, "recompute", key) for result in results]
    whole = [ratio for ratio in ratios if math.isfinite(ratio) and ratio > 0]
    if not whole:
        return "–"
    return percent(geometric_mean(whole)) + (f" ({len(whole)})" if len(whole) < len(ratios) else "")


def policy_lines(section: cases.Section, results: Sequence[Result]) -> list[str]:
    """Prints what each policy makes of a section, for each mix of models."""
    of_section = [result for result in results if result.run is not None and
                  result.point.section == section.name and not result.point.variant]
    policies = [name for name in cases.LISTED_POLICIES if name != "recompute"
                and any(result.has(name) for result in of_section)]
    lines = ["Each policy over recompute, geometric means over all loads; in brackets of how many "
             "cases, if not of all:", ""]
    rows = []
    for models in dict.fromkeys(result.point.models for result in of_section):
        mix = [result for result in of_section if result.point.models == models]
        rows += [(f"{models or 'others'}, {metric.title.split(',')[0]}", str(len(mix)),
                  *(policy_cell(mix, policy, metric.key) for policy in policies))
                 for metric in METRICS if not metric.median]
    return [*lines, *table(("cases", "n", *policies), rows), ""] if rows else []


# ---- charts


def judgement_cells(result: Result | None) -> tuple[str, str, str]:
    """Prints G, the part of the certified bound, and whether weights can make room."""
    if result is None or result.run is None:
        return "–", "–", "–"
    fits = {True: "yes", False: "no"}[result.fits()] if result.has("unlimited") else "–"
    return cell(result.gain("remap"), 3), cell(result.of_bound("remap"), 3), fits


def metric_lines(chart: Chart, metric: Metric) -> list[str]:
    """Prints the table of one number of a chart."""
    judged = chart.by_policy and metric is METRICS[0]
    head = ["requests/s", *(line.label for line in chart.lines)]
    rows = []
    for rate in chart.rates:
        found = [chart.at(line, rate) for line in chart.lines]
        values = [metric.scale * result.value(line.policy, metric.key) if result else math.nan
                  for line, result in zip(chart.lines, found)]
        rows.append([f"{rate:.4g}", *(cell(value, metric.digits) for value in values),
                     *(judgement_cells(found[0]) if judged else ())])
    return [f"{metric.title}:", "",
            *table(head + (["G", "of bound", "fits"] if judged else []), rows), ""]


def traffic_lines(chart: Chart) -> list[str]:
    """Prints the table of what each policy did."""
    rows = []
    for rate in chart.rates:
        row = [f"{rate:.4g}"]
        for line in chart.lines:
            result = chart.at(line, rate)
            if result is None or not result.has(line.policy):
                row.append("–")
                continue
            done = [result.value(line.policy, key)
                    for key in ("preemptions", "bytes_streamed", "plan_changes")]
            row.append(f"{done[0]:.0f} / {done[1] / 2 ** 30:.0f} / {done[2]:.0f}")
        rows.append(row)
    head = ["requests/s", *(line.label for line in chart.lines)]
    return ["preemptions / GiB streamed / plan changes:", "", *table(head, rows), ""]


def ratio_cell(ratio: Ratio) -> str:
    """Prints a ratio with its interval."""
    return f"{cell(ratio.ratio, 3)} [{cell(ratio.low, 3)}, {cell(ratio.high, 3)}]"


def paired_lines(section: cases.Section, results: Iterable[Result]) -> list[str]:
    """Prints how the points of a section compare with those of the first variant."""
    rows = [(f"{result.point.chart}, {result.point.variant}", f"{result.point.rate:.4g}",
             ratio_cell(result.over_base("throughput_tok_s")),
             ratio_cell(result.over_base("attained_tok_s")),
             "; ".join(map(ratio_cell, result.tenants_over_base())),
             cell(result.value("remap", "cold_bytes") / 2 ** 30, 1))
            for result in results if result.point.section == section.name and result.base]
    if not rows:
        return []
    return ["Over the first variant, paired by window, with intervals of 95 %:", "",
            *table(("chart", "requests/s", "throughput", "tokens/s that attain their goals",
                    "throughput of each tenant", "GiB of cold blocks streamed"), rows), ""]


def chart_lines(chart: Chart, section: cases.Section, results: Iterable[Result],
                plotted: bool) -> list[str]:
    """Prints a chart: what failed, the plot, and its tables."""
    lines = [f"### {chart.name}", ""]
    for result in results:
        if result.failure and (result.point.section, result.point.chart) == \
                (chart.section, chart.name):
            lines += [f"**Failed**: `mmsim {result.point.line}`: {result.failure}", ""]
    if plotted:
        name = f"{chart.section}-{chart.name}"
        lines += [f"![{chart.section} {chart.name}](figures/{name}.svg)", ""]
    for metric in METRICS:
        if not metric.median or section.median_too:
            lines += metric_lines(chart, metric)
    return lines + traffic_lines(chart)


# ---- all of it


def target_lines(tallies: Iterable[Tally]) -> list[str]:
    """Prints the table of targets."""
    rows = []
    for tally in tallies:
        name = tally.target.name
        if not tally.of:
            rows.append((name, "–", "no case of this run speaks of it", ""))
            continue
        verdict = tally.verdict if tally.reached == tally.of else f"**{tally.verdict}**"
        rows.append((name, verdict, f"{tally.reached} of {tally.of}",
                     f"{tally.value:.3f} at `{tally.where}`"))
    return ["## What must be reached", "", INTRODUCTION, "",
            *table(("target", "", "cases", "farthest from it"), rows), "", ELSEWHERE, ""]


def head_lines(head: dict, results: Sequence[Result]) -> list[str]:
    """Prints by what the report was made, and what to beware of."""
    windows = head["settings"]["windows"]
    failed = sum(bool(result.failure) for result in results)
    lines = ["# The papers' evaluation", "", pays_paragraph(list_compared(results)), "",
             f"Made by `{head['command']}`, version {head['version']}, commit {head['commit']}, on "
             f"{head['host']}: {len(results)} cases. Every number is of `mmsim`: modelled device "
             "time (Documentation/timing.md), mmd's own core, the engine's own scheduler.", ""]
    if failed:
        lines += [f"**{failed} of {len(results)} cases failed: they are in no table and no "
                  "target.**", ""]
    if windows < WINDOWS_CLAIM:
        lines += [f"**With {windows} windows instead of {WINDOWS_CLAIM} intervals are wide: a "
                  "lower bound that is not reached here is no finding.**", ""]
    return lines


def list_compared(results: Iterable[Result]) -> list[Compared]:
    """Compares remap with the better of recompute and elastic, in each case that has them."""
    found = []
    for result in results:
        others = [name for name in ("recompute", "elastic") if result.has(name)]
        if result.point.variant or len(others) < 2 or not result.has("remap"):
            continue
        best = max(others, key=lambda name: result.value(name, "throughput_tok_s"))
        found.append(Compared(
            f"{result.point.section} {result.point.chart}",
            result.paired("remap", best, "throughput_tok_s"), result.value("remap", "attainment") -
            max(result.value(name, "attainment") for name in others)))
    return found


def make_report(head: dict, results: Sequence[Result], plotted: frozenset[str]) -> str:
    """Makes evaluation.md. plotted: the charts, as section-name, of which there is a plot."""
    averages = list_averages(results)
    lines = head_lines(head, results) + target_lines(tally_targets(results))
    for section in cases.SECTIONS:
        charts = list_charts(results, section.name)
        if not charts:
            continue
        lines += [f"## {section.title}", "", f"**The paper.** {section.paper}", ""]
        if section.differ:
            lines += [f"**Why ours differ.** {section.differ}", ""]
        if section.averages:
            lines += averages_lines(section, averages) + policy_lines(section, results)
        lines += paired_lines(section, results)
        for chart in charts:
            lines += chart_lines(chart, section, results,
                                 f"{chart.section}-{chart.name}" in plotted)
    return "\n".join(lines).rstrip("\n") + "\n"


def finite(value: float) -> float | None:
    """Returns a number as JSON can have it."""
    return value if math.isfinite(value) else None


def ratios_json(result: Result) -> dict | None:
    """Makes the JSON of how a point compares with its base."""
    if result.base is None:
        return None

    def numbers(ratio: Ratio) -> list[float | None]:
        return [finite(value) for value in (ratio.ratio, ratio.low, ratio.high)]
    return {"throughput_tok_s": numbers(result.over_base("throughput_tok_s")),
            "attained_tok_s": numbers(result.over_base("attained_tok_s")),
            "tenants": [numbers(ratio) for ratio in result.tenants_over_base()],
            "cold_bytes": finite(result.value("remap", "cold_bytes"))}


def point_json(result: Result) -> dict:
    """Makes the JSON of a point: what it is, and what was found."""
    point = result.point
    found = {policy: {key: result.value(policy, key) for key in KEYS}
             for policy in result.run or ()}
    return {"id": point.id, "section": point.section, "chart": point.chart,
            "variant": point.variant or None, "models": point.models or None, "load": point.load,
            "rate": point.rate, "line": point.line, "failure": result.failure or None,
            "bound_tok_s": finite(result.bound_tok_s),
            "kv_fits_bytes": finite(result.kv_fits_bytes),
            "fits": result.fits() if result.has("unlimited") else None,
            "over_base": ratios_json(result),
            "gain": finite(result.gain("remap")), "of_bound": finite(result.of_bound("remap")),
            "results": found}


def make_json(head: dict, results: Sequence[Result]) -> dict:
    """Makes evaluation.json."""
    targets = [{"target": tally.target.name, "limit": tally.target.limit,
                "less_is_better": tally.target.less, "cases": tally.of, "reached": tally.reached,
                "farthest": {"value": tally.value, "id": tally.where} if tally.of else None}
               for tally in tally_targets(results)]
    averages = [{"section": a.section, "models": a.models, "short": a.short, "n": a.n,
                 **{key: finite(a.ratios[key]) for key in AVERAGE_KEYS}}
                for a in list_averages(results)]
    return {"schema": 1, **head, "targets": targets, "averages": averages,
            "points": [point_json(result) for result in results]}
