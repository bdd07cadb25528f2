# SPDX-License-Identifier: Apache-2.0
"""A plot of each chart, by matplotlib where that is installed."""

from __future__ import annotations

import concurrent.futures
import io
import math
import pathlib
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .charts import Chart
from .runs import write_file

MISSING = "matplotlib is not installed (Debian: python3-matplotlib): tables without plots"
INCHES = (14, 4.4)
MARKERS = "osv^D*Pxph<>1234"


@dataclass(frozen=True)
class Panel:
    """One of the plots that stand side by side."""

    key: str
    label: str
    scale: float
    log: bool


PANELS = (
    Panel("tbt_p99_s", "P99 TBT (ms)", 1e3, True),
    Panel("ttft_p99_s", "P99 TTFT (s)", 1, True),
    Panel("throughput_tok_s", "output tokens/s", 1, False),
)


@dataclass(frozen=True)
class Plot:
    """What is drawn: each line's label, its rates, and the values of each panel."""

    name: str
    lines: tuple[tuple[str, tuple[float, ...], tuple[tuple[float, ...], ...]], ...]


def available() -> bool:
    """Tells whether plots can be drawn."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


def plot_of(chart: Chart) -> Plot | None:
    """Returns what is to be drawn; None if the chart has no number."""
    lines = []
    for line in chart.lines:
        there = [(rate, result) for rate in chart.rates
                 if (result := chart.at(line, rate)) is not None and result.has(line.policy)]
        if there:
            values = tuple(tuple(panel.scale * result.value(line.policy, panel.key)
                                 for _, result in there) for panel in PANELS)
            lines.append((line.label, tuple(rate for rate, _ in there), values))
    return Plot(f"{chart.section}-{chart.name}", tuple(lines)) if lines else None


def draw(plot: Plot) -> str:
    """Draws a plot as SVG. The same numbers give the same bytes."""
    import matplotlib
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "mmevaluate"
    from matplotlib import pyplot, ticker

    marks = sorted({rate for _, rates, _ in plot.lines for rate in rates})
    plain = ticker.FuncFormatter(lambda value, _: f"{value:g}")
    figure, axes = pyplot.subplots(1, len(PANELS), figsize=INCHES)
    for i, (panel, axis) in enumerate(zip(PANELS, axes)):
        for k, (label, rates, values) in enumerate(plot.lines):
            # A logarithmic axis has no place for 0.
            shown = [value if value > 0 or not panel.log else math.nan for value in values[i]]
            axis.plot(rates, shown, label=label, marker=MARKERS[k % len(MARKERS)])
        axis.set_xscale("log")
        axis.set_xticks(marks, [f"{rate:.3g}" for rate in marks], fontsize="small")
        axis.xaxis.set_minor_locator(ticker.NullLocator())
        if panel.log:
            axis.set_yscale("log")
            axis.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
            axis.yaxis.set_minor_locator(ticker.NullLocator())
        axis.yaxis.set_major_formatter(plain)
        axis.set_xlabel("requests/s")
        axis.set_ylabel(panel.label)
        axis.grid(True, alpha=0.4)
    axes[0].legend(fontsize="small")
    figure.tight_layout()
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    pyplot.close(figure)
    return text.getvalue()


def _ignore_interrupts() -> None:
    """A process that draws is ended by the one that started it."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def draw_all(charts: Sequence[Chart], folder: pathlib.Path, at_once: int,
             drawn: Callable[[int, int], None]) -> frozenset[str]:
    """Draws all charts that have numbers, and returns their names.

    drawn() is called for each with how many are drawn, and how many there are.
    """
    plots = [plot for plot in map(plot_of, charts) if plot is not None]
    if not plots:
        return frozenset()
    pool = concurrent.futures.ProcessPoolExecutor(min(at_once, len(plots)),
                                                  initializer=_ignore_interrupts)
    try:
        for number, (plot, text) in enumerate(zip(plots, pool.map(draw, plots)), 1):
            write_file(folder / f"{plot.name}.svg", text)
            drawn(number, len(plots))
    finally:
        pool.shutdown(cancel_futures=True)
    return frozenset(plot.name for plot in plots)
