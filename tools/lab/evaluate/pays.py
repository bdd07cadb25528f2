# SPDX-License-Identifier: Apache-2.0
"""Says in a paragraph where remapping pays, and where it does not."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .stats import Ratio, geometric_mean

# Within this part of throughput, or of requests, a difference counts for none.
SAME = 0.02


@dataclass(frozen=True)
class Compared:
    """Remap in one case, compared with the better of recompute and elastic."""

    where: str
    throughput: Ratio
    attainment: float  # difference of the parts of requests that attain their goals; NaN: unknown


def kind_of(found: Compared) -> str:
    """Tells whether remapping pays in a case, costs, or changes nothing."""
    gains = found.throughput.ratio > 1 + SAME or found.attainment > SAME
    loses = found.throughput.ratio < 1 - SAME or found.attainment < -SAME
    return "mixed" if gains and loses else "pays" if gains else "costs" if loses else "same"


def list_places(found: Sequence[Compared]) -> str:
    """Lists where some cases are, with their mean ratio and difference of attainment."""
    by_place: dict[str, list[Compared]] = {}
    for one in found:
        by_place.setdefault(one.where, []).append(one)
    parts = []
    for place, of in by_place.items():
        ratios = [one.throughput.ratio for one in of if one.throughput.ratio > 0]
        known = [one.attainment for one in of if math.isfinite(one.attainment)]
        gain = f"× {geometric_mean(ratios):.2f}" if ratios else "–"
        points = f", {100 * sum(known) / len(known):+.0f} points" if known else ""
        parts.append(f"{place} ({len(of)}: {gain}{points})")
    return "; ".join(parts)


def pays_paragraph(cases: Iterable[Compared]) -> str:
    """Makes the paragraph; in brackets the cases, their throughput, and points of attainment."""
    kinds: dict[str, list[Compared]] = {"pays": [], "same": [], "mixed": [], "costs": []}
    for one in cases:
        if math.isfinite(one.throughput.ratio):
            kinds[kind_of(one)].append(one)
    said = {
        "pays": "**Where remapping pays** against the better of recompute and elastic",
        "same": "**Where it makes no difference** (within 2 %)",
        "mixed": "**Where it gains one of throughput and attainment for the other**",
        "costs": "**Where it costs**",
    }
    return " ".join(f"{said[kind]}: {list_places(found) if found else 'nowhere'}."
                    for kind, found in kinds.items())
