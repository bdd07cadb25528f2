# SPDX-License-Identifier: Apache-2.0
"""Points: each row of the table of cases at each of its loads, as a line of mmsim's flags."""

from __future__ import annotations

import itertools
import math
import pathlib
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from . import cases
from .runs import MalformedError, take_number

# Requests from which the highest rate that a device can serve is computed, at this rate.
SATURATION_REQUESTS = 3000
SATURATION_RATE = 3.0


@dataclass(frozen=True)
class Settings:
    """What of the command line changes the numbers."""

    quick: bool = False
    windows: int = 8
    seconds: int = 300
    seed: int = 1
    trace: str | None = None
    alpaca: str = "alpaca"
    only: tuple[str, ...] = ()

    def inputs(self) -> list[pathlib.Path]:
        """Returns the files that runs read by these settings."""
        named = [self.trace, self.alpaca if self.alpaca != "alpaca" else None]
        return [pathlib.Path(path) for path in named if path]


@dataclass(frozen=True)
class Curve:
    """A row of the table with one label of each axis: points that differ in load alone."""

    section: str
    chart: str
    variant: str  # a curve of the chart; "": the curves are the policies
    models: str  # their label; "": the row names its own
    words: tuple[str, ...]  # flags, without rate, policies and the settings
    like: tuple[str, ...]  # flags that load 1 is computed for
    parts: tuple[int, ...]  # of the rate, by tenant; (): equal parts
    policies: tuple[str, ...]
    loads: tuple[float, ...]
    given: tuple[float, ...]
    base: str = ""  # the variant that this one is compared with


@dataclass(frozen=True)
class Point:
    """One case at one load, which is one run of mmsim under all policies over all windows."""

    section: str
    chart: str
    variant: str
    models: str
    load: float | None  # None: the rate is given
    rate: float  # requests/s of all tenants together
    policies: tuple[str, ...]
    words: tuple[str, ...]  # flags of mmsim
    base: str = ""  # the variant that this one is compared with; "": with none

    @property
    def id(self) -> str:
        """Names the point, and its file."""
        variant = f"-{self.variant}" if self.variant else ""
        return f"{self.section}-{self.chart}{variant}-{self.rate:.6g}"

    @property
    def line(self) -> str:
        """The command line, as a shell takes it."""
        return shlex.join(self.words)


def divide_rate(parts: Sequence[int], rate: float) -> str:
    """Divides a rate among tenants: (1, 3) and 4 requests/s give "1,3"."""
    if not parts:
        return f"{rate:.6g}"
    return ",".join(f"{rate * part / sum(parts):.6g}" for part in parts)


def round_rate(rate: float) -> float:
    """Rounds to three significant digits, so that a rate is easy to type."""
    unit = math.pow(10, math.floor(math.log10(rate)) - 2)
    return math.floor(rate / unit + 0.5) * unit


def split_flags(flags: str, settings: Settings) -> tuple[str, ...]:
    """Splits flags of the table into words; only @alpaca may turn into a word with blanks."""
    return tuple(settings.alpaca if word == "@alpaca" else word for word in flags.split())


def expand_case(case: cases.Case, settings: Settings) -> Iterator[Curve]:
    """Makes the curves of a row of the table, chart by chart."""
    axes = [axis for axis in cases.AXES if getattr(case, axis)]
    quick = settings.quick and case.quick_policies
    loads = (cases.QUICK_LOADS if settings.quick else cases.LOADS)[case.loads]
    for labels in itertools.product(*(getattr(case, axis) for axis in axes)):
        by_axis = dict(zip(axes, labels))
        flags = [case.flags, *(cases.LABELS[axis][label] for axis, label in by_axis.items())]
        parts = tuple(int(part) for part in by_axis.get("rates", "").split("-") if part)
        variants = case.variants or {"": ""}
        # All variants get the loads of the first one, so that their curves can be compared.
        like = split_flags(" ".join([*flags, next(iter(variants.values()))]), settings)
        first = next(iter(variants))
        usual = case.quick_policies if quick else case.policies
        for variant, more in variants.items():
            yield Curve(case.section, case.chart.format(**by_axis), variant,
                        by_axis.get("models", ""), split_flags(" ".join([*flags, more]), settings),
                        like, parts, case.first_policies or usual if variant == first else usual,
                        loads, case.given,
                        first if case.paired and variant != first else "")


def list_curves(settings: Settings) -> list[Curve]:
    """Lists the curves that the settings ask for, in the order of the table."""
    return [curve for case in cases.CASES
            if (not settings.only or case.section in settings.only) and
            (case.quick or not settings.quick)
            for curve in expand_case(case, settings)]


def saturation_words(curve: Curve, settings: Settings) -> tuple[str, ...]:
    """Returns the flags of the case that load 1 is computed from: bursts from the seed."""
    return (*curve.like, "--rate", divide_rate(curve.parts, SATURATION_RATE), "--seconds",
            f"{SATURATION_REQUESTS / SATURATION_RATE:g}", "--windows", "1", "--seed",
            str(settings.seed))


def take_saturation(output: Any) -> float:
    """Takes the rate that a device which never waits could serve, out of mmsim --bound."""
    windows = output.get("windows") if isinstance(output, dict) else None
    busy_s = take_number(windows[0] if isinstance(windows, list) and windows else None, "busy_s")
    if not busy_s > 0:
        raise MalformedError(f"busy_s is {busy_s}")
    return SATURATION_REQUESTS / busy_s


def curve_points(curve: Curve, settings: Settings,
                 most: Callable[[Curve], float]) -> Iterator[Point]:
    """Makes the points of a curve; `most` returns the rate of load 1."""
    rates = [(None, rate) for rate in curve.given] or \
        [(load, round_rate(most(curve) * load)) for load in curve.loads]
    of_itself = "--arrivals" in curve.words  # mmsim takes either
    trace = ("--trace", settings.trace) if settings.trace and not of_itself else ()
    for load, rate in rates:
        words = (*curve.words, "--rate", divide_rate(curve.parts, rate), "--policy",
                 ",".join(curve.policies), "--seconds", str(settings.seconds), "--windows",
                 str(settings.windows), "--seed", str(settings.seed), *trace)
        yield Point(curve.section, curve.chart, curve.variant, curve.models, load, rate,
                    curve.policies, words, curve.base)
