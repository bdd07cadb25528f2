# SPDX-License-Identifier: Apache-2.0
"""The cases of `mmevaluate --bars`: devices, models, modes, loads, arrivals, lengths, as flags of mmsim."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

DEVICES = {
    "gh200": "--profile gh200-96",
    # The pool is limited, so that memory is short.
    "pcie": "--profile h200-pcie5 --pool 96G",
}
MODES = {
    "quantum": "--turns quantum",  # where mmd may choose, it chooses between turns and side by side
    "drain": "--turns drain",
    "space": "--sharing spatial",
}
POLICIES = {
    "quantum": ("recompute", "elastic", "remap", "ideal", "unlimited"),
    "drain": ("recompute", "elastic", "remap", "unlimited"),
    "space": ("recompute", "elastic", "remap", "unlimited"),
}
COMPARED = ("recompute", "elastic", "remap")  # what a case that falls short is played again with

# Requests/s of load 1: what unlimited memory completes in space at saturation, by commit f9e82bb.
# They are constants, so that two commits are compared at the same rates.
FULL = {
    ("gh200", "C1", "sharegpt"): 6.49, ("gh200", "C2", "sharegpt"): 4.01,
    ("pcie", "C1", "sharegpt"): 7.24, ("pcie", "C2", "sharegpt"): 4.45,
    ("gh200", "C1", "alpaca"): 197, ("gh200", "C2", "alpaca"): 120,
    ("pcie", "C1", "alpaca"): 208, ("pcie", "C2", "alpaca"): 126,
}

# A day of a dozen models on a device of 144 GB, most of them idle most of the time.
DAY_SHAPES = (("OPT-6.7B", 10, 0.12), ("OPT-6.7B", 10, 0.06), ("Llama-3-8B", 11.4, 0.12),
              ("Llama-3-8B", 11.4, 0.06), ("OPT-13B", 19.2, 0.12), *(("Qwen2.5-3B", 5.2, 0.02),) * 7)
DAY_FLAGS = " ".join((
    "--profile gh200-96,memory_mib=147456 --max-len 2048 --arrivals day --shapes",
    ",".join(f"{name}:{share}%" for name, share, _ in DAY_SHAPES), "--rate",
    ",".join(f"{rate:g}" for _, _, rate in DAY_SHAPES)))


@dataclass(frozen=True)
class Sizes:
    """How much is played."""

    windows: int = 8
    seconds: int = 100
    again: int = 32  # windows of a case that falls short
    seed: int = 1
    trace: str | None = None
    alpaca: str = "alpaca"
    quick: bool = False
    day_s: int = 86400


@dataclass(frozen=True)
class Case:
    """One case at one load."""

    device: str
    models: str
    mode: str
    load: float
    arrivals: str  # "trace", or a name of mmsim --arrivals
    lengths: str = "sharegpt"
    whole: bool = False  # the whole device is given out

    @property
    def name(self) -> str:
        """Names the case, and its files."""
        parts = [self.device, self.models, *(["whole"] if self.whole else []), self.mode,
                 f"{self.load:g}", self.arrivals, self.lengths]
        return "-".join(parts)

    @property
    def rate(self) -> float:
        """Returns the requests/s of all tenants together."""
        return FULL[self.device, self.models, self.lengths] * self.load

    def words(self, sizes: Sizes, windows: int) -> tuple[str, ...]:
        """Makes the flags of mmsim, without policies."""
        arrivals = f"--trace {sizes.trace}" if self.arrivals == "trace" else \
            f"--arrivals {self.arrivals}"
        flags = " ".join((DEVICES[self.device], "--combo", self.models,
                          "--shares whole" if self.whole else "", MODES[self.mode]))
        lengths = sizes.alpaca if self.lengths == "alpaca" else self.lengths
        return (*flags.split(), "--rate", f"{self.rate:.6g}", "--seconds", str(sizes.seconds),
                "--windows", str(windows), "--seed", str(sizes.seed), *arrivals.split(),
                "--lengths", lengths)


def list_arrivals(sizes: Sizes) -> list[str]:
    """Lists where arrivals come from: the trace that was given, and those of our own making."""
    own = ["gaps"] if sizes.quick else ["bursts", "steady"]
    return ["trace", *([] if sizes.quick else own)] if sizes.trace else own


def list_grid(sizes: Sizes) -> Iterator[Case]:
    """Lists the cases in which ours may not be worse than anything of today's."""
    modes = ("quantum", "space") if sizes.quick else tuple(MODES)
    loads = (0.6, 1.0) if sizes.quick else (0.35, 0.6, 1.0)
    first, *others = list_arrivals(sizes)
    for device, models, mode, load in itertools.product(DEVICES, ("C1", "C2"), modes, loads):
        yield Case(device, models, mode, load, first)
        if mode == "drain":
            continue
        for arrivals in others if load >= 0.6 else ():
            yield Case(device, models, mode, load, arrivals)
        if not sizes.quick and load == 1:
            yield Case(device, models, mode, load, first, "alpaca")
