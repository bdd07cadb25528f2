# SPDX-License-Identifier: Apache-2.0
"""The cases that mmevaluate runs, and the paper's numbers.

This file is data. A row of CASES is a chart, or several of them: `{models}`, `{lengths}` and so on
in its name are replaced by each label of the row, whose flags of mmsim are added to the row's. A
row with `variants` compares these with each other under remap; others compare policies. To add a
case, add a row; to add a section, add it to SECTIONS as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field

ALL_POLICIES = ("recompute", "elastic", "swap", "naive", "naive-bounded", "remap", "unlimited")
SAFE_POLICIES = ("recompute", "elastic", "remap", "unlimited")
VARIANT_POLICIES = ("recompute", "remap")
PIE_POLICIES = ("recompute", "swap", "pie", "remap")
LISTED_POLICIES = ("recompute", "elastic", "swap", "pie", "naive", "naive-bounded", "remap",
                   "unlimited")  # in the order of tables

# A load is a part of what the device could serve if it never waited.
LOADS = {
    "usual": (0.02, 0.1, 0.2, 0.35, 0.5, 0.75, 1, 2),
    "grid": (0.02, 0.25, 1, 2),
}
QUICK_LOADS = {
    "usual": (0.1, 0.35, 0.75),
    "grid": (0.02, 1),
}

# What stands in braces in a chart's name, by label, with its flags. `@alpaca` is that of --alpaca.
LABELS = {
    "models": {
        "C1": "--combo C1",
        "C2": "--combo C2",
        # Other shares than the paper's: 20 % of 80 GB cannot hold Llama-3-8B, nor 65 % OPT-30B.
        "pair": "--shapes OPT-13B:40%,Llama-3-8B:30%",
    },
    "lengths": {
        "alpaca": "--lengths @alpaca",
        "sharegpt": "--lengths sharegpt",
        "long-short": "--lengths long,short",
        "short-long": "--lengths short,long",
    },
    "device": {
        "gh200": "--profile gh200-96",
        # The pool is limited, so that memory is short.
        "h200": "--profile h200-pcie5 --pool 96G",
        "h100": "--profile h100-pcie5 --max-len 2048",
        "a100": "--profile a100-pcie4 --max-len 2048",
    },
    "sharing": {
        "drain": "--turns drain",
        "quantum": "--turns quantum",
        "spatial": "--sharing spatial",
        "mig": "--sharing mig",
    },
    # Parts of the rate that the tenants have, in their order.
    "rates": {"1-1": "", "1-4": "", "4-1": ""},
}

PAPER_MODELS = ("C1", "C2")
BOTH_LENGTHS = ("alpaca", "sharegpt")

# Every switch of `mmd --controller` that is on by default; a test compares them with mmd's table.
SWITCHES = ("reversion",)

MODES = {"beside": "--controller mode=beside", "turns": "--controller mode=turns"}
ABLATION = {"default": "", **{f"{name}-off": f"--controller {name}=off" for name in SWITCHES}, **MODES}
ORDERS = {"mru": ""}
SLOTS = {"one-slot": "--slots 1", "two-slots": "--slots 2", "chosen": "--slots auto"}
REVERSION = {"on": "--controller reversion=on", "off": "--controller reversion=off"}
KV_SIZES = {f"{gb}GB": f"--shapes OPT-30B:{share}%" for gb, share in
            ((3, 62.4), (5, 64.4), (7, 66.3), (9, 68.3), (12, 71.2))}
LEAST_KV = {f"{gb}GB": f"--shapes OPT-30B:{share}%" for gb, share in
            ((3, 62.4), (4, 63.4), (5, 64.4), (6, 65.3), (7, 66.3), (8, 67.3), (12, 71.2))}
COLD = {"cold-off": "--controller cold=off", "cold-on": "--controller cold=on"}
# Layers of KV away, by how many times the KV is there: n / (n - m + 2).
EXPANSIONS_48 = {"1.00": "--pie-layers 2", "1.26": "--pie-layers 12", "1.50": "--pie-layers 18",
                 "1.78": "--pie-layers 23", "2.00": "--pie-layers 26", "2.18": "--pie-layers 28",
                 "2.53": "--pie-layers 31", "3.00": "--pie-layers 34", "3.43": "--pie-layers 36",
                 "4.00": "--pie-layers 38", "4.80": "--pie-layers 40"}
EXPANSIONS_40 = {"1.00": "--pie-layers 2", "1.25": "--pie-layers 10", "1.38": "--pie-layers 13",
                 "1.48": "--pie-layers 15", "1.60": "--pie-layers 17", "1.82": "--pie-layers 20",
                 "2.00": "--pie-layers 22", "2.22": "--pie-layers 24", "2.50": "--pie-layers 26",
                 "3.08": "--pie-layers 29"}
CAPS = {"capped": "", "uncapped": "--controller rho=1,link-slows=1"}
LINKS = {
    "300": "--profile gh200-96,h2d_gbps=300",
    "375": "--profile gh200-96,h2d_gbps=375",
    "419": "--profile gh200-96",
    "427": "--profile gh200-96,h2d_gbps=427",
}


@dataclass(frozen=True)
class Paper:
    """Averages that the paper states for ours over its baseline, in per cent."""

    models: str
    throughput: float
    ttft_p99: float
    tbt_p99: float


@dataclass(frozen=True)
class Section:
    """A figure of the paper, or a question of our own."""

    name: str
    title: str
    paper: str  # the paper's experiment, and what it found
    differ: str = ""  # why these results differ, as far as the model explains it
    averages: bool = False  # whether means of ratios to recompute are listed, as the paper does
    stated: tuple[Paper, ...] = ()  # the paper's averages
    median_too: bool = False  # whether the median of TBT is listed, too


@dataclass(frozen=True)
class Case:
    """One chart, or one for each combination of the labels: models, lengths and so on."""

    section: str
    chart: str
    flags: str = ""
    device: tuple[str, ...] = ()
    sharing: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    lengths: tuple[str, ...] = ()
    rates: tuple[str, ...] = ()
    variants: dict[str, str] = field(default_factory=dict)  # curves by label, with their flags
    policies: tuple[str, ...] = ALL_POLICIES
    loads: str = "usual"
    given: tuple[float, ...] = ()  # requests/s, in place of loads
    quick: bool = True  # whether --quick runs it
    quick_policies: tuple[str, ...] = ()  # if --quick runs other ones
    first_policies: tuple[str, ...] = ()  # if the first variant runs other ones
    paired: bool = False  # each variant is compared with the first one, window by window


# Each axis in the order in which its flags are added, and charts follow each other.
AXES = ("device", "sharing", "models", "lengths", "rates")

MIRAGE = "MIRAGE on vLLM 0.7.3 and a GH200 with 96 GB, Azure coding arrivals, Alpaca and ShareGPT."

SECTIONS = (
    Section(
        "fig8", "Figure 8: temporal sharing", MIRAGE,
        "The paper states neither its rates nor how long a turn is; averages depend on which loads "
        "enter them: at loads where KV suffices there is nothing to gain, beyond saturation a "
        "queue without end makes any TTFT. Its baseline is vLLM 0.7.3 (preemption pauses all "
        "decodes); ours is vLLM V1's behaviour (chunked prefill, nobody else waits), which loses "
        "less to a preemption.",
        averages=True,
        stated=(Paper("C1", 39.9, -96.7, -54.4), Paper("C2", 45.3, -74.8, -44.8))),
    Section(
        "fig9", "Figure 9: unequal rates", "C2 with different rates of its two models.",
        "The pairs of rates are not stated there; here 1:1, 1:4 and 4:1.",
        averages=True, stated=(Paper("C2", 86.7, -99.3, -82.5),)),
    Section(
        "fig10", "Figure 10: short and long requests",
        "C2, one model with requests of 634 tokens, the other of 1,734 on average, and the "
        "reverse.",
        "How the tokens divide into prompt and output is not stated; here as in ShareGPT, 18 % are "
        "output.",
        averages=True, stated=(Paper("C2", 65.6, -98.1, -57.1),)),
    Section(
        "fig11", "Figure 11: whose layers go first, MRU or LRU",
        "C1 by round robin: MRU has an up to 22.0 % lower tail latency than LRU.",
        "The paper's LRU takes from the model that is served next, whose layers then come back "
        "during its first step. Here layers that are needed for the next turn are returned in bulk "
        "where that pays, so less hangs on the order."),
    Section(
        "fig12", "Figure 12: spatial sharing without isolation (MPS)", "C1.",
        "All models compute at once and alternate layer by layer here; that compute-bound and "
        "memory-bound kernels overlap on a real device is not modelled.",
        averages=True, stated=(Paper("C1", 6.6, -20.7, -65.5),)),
    Section(
        "fig13", "Figure 13: spatial sharing with isolation (MIG)", "C1.",
        "Each model has its fraction of memory, compute and link here; MIG's real slices are "
        "sevenths.",
        averages=True, stated=(Paper("C1", 7.9, -34.8, -57.4),)),
    Section(
        "fig14", "Figure 14: against Pie",
        "OPT-13B, Alpaca, rates not stated: over Pie throughput +47.1 %, P99 TTFT -93.6 %, P99 TBT "
        "equal.",
        "Not reproduced. Pie moves m/(m - 2) times what it gains, and both ways; streaming weights "
        "moves (a + 2)/a times what it gains, one way: on this model of a device the KV that hides "
        "is 1.21 of what there was for weights and 1.16 for Pie. Where writing back is dropped "
        "(the chart with cold=on) the sign turns: a full block never changes again.",
        averages=True),
    Section(
        "pie7", "Figure 7 of Pie: KV memory on the device",
        "Pie on a GH200, OPT-30B, ShareGPT: up to 1.9 times vLLM with 3 GB, equal with 12 GB.",
        "Pie is played with cold blocks (mmsim.md). The longest prompts need all of their KV on the "
        "device, where 3 GB hold one of them.",
        averages=True),
    Section(
        "pie6", "Figure 6 of Pie: how far KV is expanded",
        "Pie on a GH200, Poisson arrivals, best expansion over none: 1.86 times OPT-30B with "
        "ShareGPT, 1.58 OPT-30B with Alpaca, 1.54 OPT-13B with ShareGPT, 1.27 Llama-13B with "
        "Alpaca. With 3 GB throughput grows from 1 to 2, with 7 GB until 1.4 to 1.6.",
        "Rates and lengths are not stated; here as many requests as keep a queue, and none longer "
        "than 1,024 tokens, since a prompt is computed with all of its KV on the device. What is "
        "away must come and go within a step: 3 GB expanded to 2.5 times move 5.0 GB each way, "
        "which a link of 419 GB/s does in a step of 20 ms, so that the best lies beyond 2, where "
        "their curve ends; 7 GB use the step up sooner. One chart seeks the least KV under pie that "
        "reaches the throughput of recompute with 12 GB; theirs is 12 / 1.67 = 7.2 GB."),
    Section(
        "pie8", "Figure 8 of Pie: by rate",
        "OPT-30B with 3 GB: 1.2 to 1.6 times with Alpaca, 1.6 to 1.9 with ShareGPT; no effect below "
        "15 and 3 requests/s.",
        "There is something to gain from the rate on at which 3 GB, 2,243 tokens of OPT-30B, fill "
        "up: requests/s times the seconds that one stays times the tokens that it has on average. "
        "Lengths are not stated; what is near the paper's rate with Alpaca is below it with the "
        "ShareGPT-like lengths here."),
    Section(
        "pie9", "Figure 9 of Pie: adaptation",
        "Less than 2 % below the best fixed expansion, of which 2.08 was found; latency falls until "
        "2.0 and rises at 2.2.",
        "The curve `adapts` is the policy's own choice. Where their link has no more time at 2.2, "
        "the one modelled here has."),
    Section(
        "fig15", "Figure 15: one slot or two",
        "OPT-13B, Alpaca: always m = α + 1 loses up to 12.7 % throughput against m = α + 2 or "
        "choosing.",
        "By the exact expressions one slot is looser only while (α + 1)(α + 2) < n; what is chosen "
        "follows measured times."),
    Section(
        "fig16", "Figure 16: Dynamic Reversion on and off",
        "OPT-13B, Alpaca: at 1 request/s P50 TBT falls by 49 %; at 10 hardly anything changes.",
        "Without reversion layers that were taken once stay away; how much that costs depends on "
        "whether the window has a burst that takes them.",
        median_too=True),
    Section(
        "fig17", "Figure 17: capped or not",
        "OPT-13B, Alpaca, 10 requests/s: the cap lowers P99 latency by 58 % and P50 by 44 %.",
        "A single model has nobody idle to take from: what is capped here is what it takes from "
        "itself.",
        median_too=True),
    Section(
        "pcie", "PCIe", "Not in the paper, whose argument rests on NVLink-C2C.",
        "Ours alone: h200-pcie5 with its pool limited to 96 GiB, so that memory is short, and an "
        "A100.",
        averages=True),
    Section(
        "link", "How much hangs on the link's bandwidth",
        "Published measurements of a GH200's link run from 300 to 427 GB/s."),
    Section(
        "ablation", "Decisions beyond the paper, each switched off", "Not in the paper.",
        "Every switch of `mmd --controller` that is on by default, off by itself."),
    Section(
        "never-worse", "Never worse", "Not in the paper.",
        "Every profile, combination, length mix and way of sharing, from idle to twice what the "
        "device could serve at most."),
    Section(
        "cold-never-worse", "Never worse with cold blocks", "Not in the papers.",
        "The same cases under remap with cold=on against cold=off, window by window."),
)

PIE = "--profile gh200-96 --sharing spatial --max-len 1024"
PIE_30B = f"{PIE} --shapes OPT-30B:62.4%"
SINGLE = "--profile gh200-96 --shapes OPT-13B:35% --sharing spatial"

CASES = (
    Case("fig8", "drain-{models}-{lengths}", "--profile gh200-96 --turns drain",
         models=PAPER_MODELS, lengths=BOTH_LENGTHS),
    Case("fig8", "quantum-{models}-{lengths}", "--profile gh200-96 --turns quantum",
         models=PAPER_MODELS, lengths=BOTH_LENGTHS, quick_policies=SAFE_POLICIES),
    Case("fig9", "{models}-rates-{rates}", "--profile gh200-96",
         models=("C2",), lengths=("sharegpt",), rates=("1-1", "1-4", "4-1")),
    Case("fig10", "{models}-{lengths}", "--profile gh200-96",
         models=("C2",), lengths=("long-short", "short-long")),
    Case("fig11", "{models}-{lengths}", "--profile gh200-96 --turns quantum",
         models=("C1",), lengths=BOTH_LENGTHS, variants=ORDERS, policies=VARIANT_POLICIES),
    Case("fig12", "{models}-{lengths}", "--profile gh200-96 --sharing spatial",
         models=("C1",), lengths=BOTH_LENGTHS),
    Case("fig13", "{models}-{lengths}", "--profile gh200-96 --sharing mig",
         models=("C1",), lengths=BOTH_LENGTHS),
    Case("fig14", "OPT-13B-{lengths}", SINGLE, lengths=("alpaca",), policies=PIE_POLICIES,
         given=(60, 90, 120)),
    Case("fig14", "OPT-13B-{lengths}-cold", f"{SINGLE} --controller cold=on",
         lengths=("alpaca",), policies=VARIANT_POLICIES, given=(60, 90, 120)),
    Case("pie7", "OPT-30B-{lengths}", "--profile gh200-96 --sharing spatial",
         lengths=("sharegpt",), variants=KV_SIZES, policies=("recompute", "pie", "remap"),
         given=(2,)),
    Case("pie6", "OPT-30B-3GB-{lengths}", f"{PIE_30B} --arrivals steady", lengths=("sharegpt",),
         variants=EXPANSIONS_48, policies=("pie",), given=(8,)),
    Case("pie6", "OPT-30B-3GB-{lengths}", f"{PIE_30B} --arrivals steady", lengths=("alpaca",),
         variants=EXPANSIONS_48, policies=("pie",), given=(80,)),
    Case("pie6", "OPT-13B-3GB-{lengths}", f"{PIE} --shapes OPT-13B:29% --arrivals steady",
         lengths=("sharegpt",), variants=EXPANSIONS_40, policies=("pie",), given=(15,)),
    Case("pie6", "OPT-13B-7GB-{lengths}", f"{PIE} --shapes OPT-13B:32.9% --arrivals steady",
         lengths=("sharegpt",), variants=EXPANSIONS_40, policies=("pie",), given=(15,)),
    Case("pie6", "Llama-2-13B-3GB-{lengths}",
         f"{PIE} --shapes Llama-2-13B:29.1% --arrivals steady", lengths=("alpaca",),
         variants=EXPANSIONS_40, policies=("pie",), given=(150,)),
    Case("pie6", "OPT-30B-least-KV-{lengths}", f"{PIE} --arrivals steady", lengths=("sharegpt",),
         variants=LEAST_KV, policies=("recompute", "pie"), given=(15,)),
    Case("pie6", "OPT-30B-least-KV-{lengths}", f"{PIE} --arrivals steady", lengths=("alpaca",),
         variants=LEAST_KV, policies=("recompute", "pie"), given=(150,)),
    Case("pie8", "OPT-30B-3GB-{lengths}", f"{PIE_30B} --arrivals steady", lengths=("sharegpt",),
         policies=("recompute", "pie"), given=(0.5, 1, 1.5, 2, 3, 4, 5)),
    Case("pie8", "OPT-30B-3GB-{lengths}", f"{PIE_30B} --arrivals steady", lengths=("alpaca",),
         policies=("recompute", "pie"), given=(5, 10, 15, 20, 25, 30)),
    Case("pie9", "OPT-30B-3GB-{lengths}", f"{PIE_30B} --arrivals steady", lengths=("sharegpt",),
         variants={"adapts": "", **EXPANSIONS_48}, policies=("pie",), given=(1.5, 2.5, 8)),
    Case("pie9", "OPT-13B-7GB-{lengths}", f"{PIE} --shapes OPT-13B:32.9% --arrivals steady",
         lengths=("sharegpt",), variants={"adapts": "", **EXPANSIONS_40}, policies=("pie",),
         given=(4, 15)),
    # One model with a share of the device, as in sections 7.5 and 7.6 of the paper.
    Case("fig15", "OPT-13B-{lengths}", SINGLE,
         lengths=("alpaca",), variants=SLOTS, policies=VARIANT_POLICIES),
    Case("fig16", "OPT-13B-{lengths}", SINGLE,
         lengths=("alpaca",), variants=REVERSION, policies=VARIANT_POLICIES),
    Case("fig17", "OPT-13B-{lengths}", SINGLE,
         lengths=("alpaca",), variants=CAPS, policies=VARIANT_POLICIES),
    Case("pcie", "{device}-{models}-{lengths}-stated", device=("h200",),
         models=("C2",), lengths=("sharegpt",), given=(2, 4)),
    Case("pcie", "{device}-{models}-{lengths}", device=("h200",),
         models=PAPER_MODELS, lengths=BOTH_LENGTHS),
    Case("pcie", "{device}-{models}-{lengths}", device=("a100",),
         models=("pair",), lengths=BOTH_LENGTHS, policies=SAFE_POLICIES, quick=False),
    Case("link", "{models}-{lengths}",
         models=("C2",), lengths=("sharegpt",), variants=LINKS, policies=VARIANT_POLICIES),
    Case("ablation", "{device}-{models}-{lengths}", device=("gh200",),
         models=PAPER_MODELS, lengths=("sharegpt",), variants=ABLATION, policies=VARIANT_POLICIES),
    Case("ablation", "{device}-{models}-{lengths}", device=("h200",),
         models=("C2",), lengths=("sharegpt",), variants=ABLATION, policies=VARIANT_POLICIES),
    Case("never-worse", "{device}-{sharing}-{models}-{lengths}", device=("gh200", "h200"),
         sharing=("drain", "quantum", "spatial", "mig"), models=PAPER_MODELS,
         lengths=BOTH_LENGTHS, policies=SAFE_POLICIES, loads="grid"),
    Case("never-worse", "{device}-{sharing}-{models}-{lengths}", device=("h100", "a100"),
         sharing=("drain", "quantum", "spatial", "mig"), models=("pair",),
         lengths=BOTH_LENGTHS, policies=SAFE_POLICIES, loads="grid", quick=False),
    Case("cold-never-worse", "{device}-{sharing}-{models}-{lengths}", device=("gh200", "h200"),
         sharing=("drain", "quantum", "spatial", "mig"), models=PAPER_MODELS,
         lengths=BOTH_LENGTHS, variants=COLD, policies=("remap",),
         first_policies=("recompute", "remap", "unlimited"), loads="grid", paired=True),
)
