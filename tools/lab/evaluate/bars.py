# SPDX-License-Identifier: Apache-2.0
"""The bars of `mmevaluate --bars`: limits for ours, with what today's build has in the same cases."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from . import barcases
from .barcases import Case, Sizes
from .barruns import Played, Runner, bisect_rate, search_grid
from .stats import Ratio, paired_ratio

GROUPS = {
    "ideal": "throughput over ideal rotation, in turns",
    "static": "throughput over the best static plan, in space",
    "worse": "never worse than recompute and elastic",
    "tenants": "no tenant worse than under recompute and elastic",
    "modes": "at least today's best mode",
    "light": "light load",
    "steady": "plans change seldom, no window hangs",
    "whole": "the whole device given out",
    "capacity": "requests/s with 90 % attainment",
    "day": "a day of a dozen models, most of them idle",
}

LAYERS = {"C1": (40, 40, 32), "C2": (48, 32)}
SHAPES = {"C1": ("OPT-13B", "Llama-2-13B", "Llama-3-8B"), "C2": ("OPT-30B", "OPT-6.7B")}
SEARCH_WINDOWS, SEARCH_SECONDS = 3, 60
CAPACITY_WINDOWS = 4
ATTAINMENT = 0.9
CAPACITY_MOST = 4.0  # times the rate of load 1
NEARLY = 0.96  # of a rate: bisect_rate() goes no farther


@dataclass
class Row:
    """One case of a bar."""

    group: str
    what: str
    case: str
    limit: str
    today: Ratio
    ours: Ratio
    verdict: str  # "reached", "missed", "unsure": the interval has the limit in it; "–": no limit

    @property
    def reached(self) -> bool:
        """Tells whether the bar stands."""
        return self.verdict in ("reached", "–")


NONE = Ratio()


def single(value: float) -> Ratio:
    """Makes a number without an interval."""
    return Ratio(value, value, value, 1)


def judge(ratio: Ratio, limit: float, low: bool = False) -> str:
    """Compares a ratio with the least that it may be; `low`: its lower bound is compared."""
    if math.isnan(ratio.ratio) and not ratio.lost:
        return "–"
    if (ratio.low if low else ratio.ratio) >= limit:
        return "reached"
    return "unsure" if ratio.ratio >= limit or (low and ratio.high >= limit) else "missed"


def judge_most(value: float, limit: float) -> str:
    """Compares a number with the most that it may be."""
    return "–" if math.isnan(value) else "reached" if value <= limit else "missed"


class Bars:
    """The bars, over what a runner has played."""

    def __init__(self, runner: Runner) -> None:
        self.runner, self.sizes = runner, runner.sizes
        self.builds = tuple(runner.simulators)
        self.extra: dict[str, object] = {}  # what searches found, for the JSON

    # ---- cases

    def play(self, build: str, case: Case, windows: int = 0) -> dict[str, Played] | None:
        """Plays a case under all policies that its mode has, or again with other windows."""
        swaps = ("elastic-swap",) if case.whole else ()
        policies = barcases.COMPARED if windows else barcases.POLICIES[case.mode] + swaps
        return self.runner.case(build, case, policies, windows)

    def first(self) -> str:
        """Returns where the arrivals of the single cases come from."""
        return barcases.list_arrivals(self.sizes)[0]

    def grid(self) -> list[Case]:
        """Lists the cases in which ours may not be worse."""
        return list(barcases.list_grid(self.sizes))

    def named(self, mode: str, device: str, models: str, loads: Iterable[float],
              whole: bool = False) -> list[Case]:
        """Lists the cases of one mode at some loads."""
        return [Case(device, models, mode, load, self.first(), whole=whole) for load in loads]

    def ideal_cases(self) -> list[tuple[Case, float]]:
        """Lists the cases with ideal rotation, and the part of it that ours must have."""
        return [*((case, 0.95) for case in self.named("quantum", "gh200", "C2", (0.35, 0.6, 1.0))),
                *((case, 0.95) for case in self.named("quantum", "pcie", "C2", (0.6,))),
                *((case, 0.92) for case in self.named("quantum", "gh200", "C1", (1.0,))),
                *((case, 0.90) for case in self.named("quantum", "pcie", "C1", (1.0,)))]

    def static_cases(self) -> list[Case]:
        """Lists the cases with a static plan."""
        some = (1.0,) if self.sizes.quick else (0.6, 1.0)
        light = () if self.sizes.quick else (0.35,)
        return [dataclasses.replace(case, arrivals=arrivals)
                for arrivals in barcases.list_arrivals(self.sizes)
                for case in (*self.named("space", "gh200", "C2", (*light, *some)),
                             *self.named("space", "gh200", "C1", some))]

    def whole_cases(self) -> list[Case]:
        """Lists the cases of the whole device, in turns."""
        if self.sizes.quick:
            return [case for models in LAYERS
                    for case in self.named("quantum", "gh200", models, (1.0,), True)]
        return [*self.named("quantum", "gh200", "C2", (0.35, 0.6, 1.0), True),
                *self.named("quantum", "gh200", "C1", (0.6, 1.0), True),
                *self.named("quantum", "pcie", "C2", (0.6,), True),
                *self.named("quantum", "pcie", "C1", (1.0,), True)]

    def light_cases(self) -> list[Case]:
        """Lists the cases of light load."""
        modes = ("quantum", "space") if self.sizes.quick else tuple(barcases.MODES)
        return [case for mode in modes for device in barcases.DEVICES for models in LAYERS
                for case in self.named(mode, device, models, (0.15,))]

    def play_all(self, cases: Sequence[Case], windows: int = 0) -> None:
        """Plays cases with each build."""
        self.runner.map(self.play, [(build, case, windows) for case in dict.fromkeys(cases)
                                    for build in self.builds])

    # ---- bars

    def row(self, group: str, what: str, case: str, limit: str,
            value: Callable[[str], Ratio], verdict: Callable[[Ratio], str]) -> Row:
        """Makes a row from a number of each build."""
        ours = value("ours")
        today = value("today") if "today" in self.builds else NONE
        return Row(group, what, case, limit, today, ours, verdict(ours))

    def over(self, build: str, case: Case, other: str, key: str, windows: int = 0,
             tenant: int | None = None) -> Ratio:
        """Returns the ratio of remap to another policy of the same build."""
        found = self.play(build, case, windows)
        return found["remap"].over(found[other], key, tenant) if found else NONE

    def ideal(self) -> Iterator[Row]:
        """Throughput over ideal rotation."""
        self.play_all([case for case, _ in self.ideal_cases()])
        for case, limit in self.ideal_cases():
            yield self.row("ideal", "throughput / ideal rotation", case.name, f"≥ {limit:.2f}",
                           lambda build: self.over(build, case, "ideal", "throughput_tok_s"),
                           lambda ratio: judge(ratio, limit))

    def compared(self, group: str, case: Case, other: str, key: str, what: str,
                 tenant: int | None = None) -> Row:
        """Compares with a policy; a case that falls short is played again with more windows."""
        def verdict(ratio: Ratio) -> str:
            return judge(ratio, 0.99, low=True)

        count = 0
        ours = self.over("ours", case, other, key, tenant=tenant)
        if verdict(ours) in ("missed", "unsure") and self.sizes.again > self.sizes.windows:
            count = self.sizes.again
        return self.row(group, what, case.name + (f" ({count} windows)" if count else ""),
                        "low ≥ 0.99", lambda build: self.over(build, case, other, key, count,
                                                              tenant), verdict)

    def worse(self) -> Iterator[Row]:
        """Compares throughput and attainment with recompute and elastic."""
        self.play_all(self.grid())
        wanted = [("worse", case, other, key, f"{what} / {other}") for case in self.grid()
                  for other in ("recompute", "elastic")
                  for key, what in (("throughput_tok_s", "throughput"),
                                    ("attainment", "attainment"))]
        yield from self.runner_rows(wanted)

    def tenants(self) -> Iterator[Row]:
        """Compares each tenant with itself under recompute and elastic, where memory is short."""
        cases = [case for case in self.grid() if case.load >= 0.6 and case.mode != "drain"]
        self.play_all(cases)
        wanted = [("tenants", case, other, key, f"{SHAPES[case.models][t]}: {what} / {other}", t)
                  for case in cases for other in ("recompute", "elastic")
                  for t in range(len(SHAPES[case.models]))
                  for key, what in (("own_tok_s", "throughput"), ("attainment", "attainment"))]
        yield from self.runner_rows(wanted)
        for case in cases:
            for t, name in enumerate(SHAPES[case.models]):
                def ratio(build: str) -> Ratio:
                    found = self.play(build, case)
                    return single(found["remap"].tenants[t]["ttft_p99_s"] /
                                  found["recompute"].tenants[t]["ttft_p99_s"]) if found else NONE
                yield self.row("tenants", f"{name}: P99 TTFT / recompute", case.name, "≤ 1.00",
                               ratio, lambda r: judge_most(r.ratio, 1.0))

    def runner_rows(self, wanted: Sequence[tuple]) -> list[Row]:
        """Makes rows, playing what is missing at the same time."""
        return self.runner.map(self.compared, wanted)

    def modes(self) -> Iterator[Row]:
        """Compares ours, in turns as it likes, with the best of today's modes in hindsight."""
        if "today" not in self.builds:
            return
        joined = [case for case in self.grid()
                  if case.mode == "quantum" and case.arrivals == self.first()]
        others = [dataclasses.replace(case, mode=mode) for case in joined
                  for mode in (("space",) if self.sizes.quick else ("drain", "space"))]
        self.play_all([*joined, *others])
        for case in joined:
            yield from self.best_mode("modes", case, ("remap",), 0.97,
                                      (("throughput_tok_s", "throughput"),
                                       ("attained_tok_s", "attained tokens/s")))

    def best_mode(self, group: str, case: Case, policies: Sequence[str], limit: float,
                  keys: Sequence[tuple[str, str]]) -> Iterator[Row]:
        """Compares remap with the best that today's build has in any mode."""
        ours = self.play("ours", case)
        modes = ("quantum", "space") if self.sizes.quick or case.whole else tuple(barcases.MODES)
        today = {f"{policy} {mode}": found[policy] for mode in modes if
                 (found := self.play("today", dataclasses.replace(case, mode=mode)))
                 for policy in policies}
        for key, what in keys:
            if not ours or not today:
                continue
            name, best = max(today.items(), key=lambda item: item[1].numbers[key])
            ratio = ours["remap"].over(best, key)
            yield Row(group, f"{what} / today's best ({name})", case.name, f"≥ {limit:.2f}",
                      single(1.0), ratio, judge(ratio, limit))

    def light(self) -> Iterator[Row]:
        """Compares first tokens with those of unlimited memory in space."""
        self.play_all(self.light_cases())
        for case in self.light_cases():
            space = dataclasses.replace(case, mode="space")

            def ratio(build: str) -> Ratio:
                found, most = self.play(build, case), self.play(build, space)
                return single(found["remap"].numbers["ttft_p99_s"] /
                              most["unlimited"].numbers["ttft_p99_s"]) if found and most else NONE
            yield self.row("light", "P99 TTFT / unlimited in space", case.name, "≤ 1.10", ratio,
                           lambda r: judge_most(r.ratio, 1.1))
        for case in self.named("space", "gh200", "C1", (0.6,)):
            self.play_all([case])
            yield self.row("light", "P99 TBT, ms", case.name, "≤ 65",
                           lambda build: single(1e3 * found["remap"].numbers["tbt_p99_s"])
                           if (found := self.play(build, case)) else NONE,
                           lambda r: judge_most(r.ratio, 65))

    def steady(self) -> Iterator[Row]:
        """Counts plan changes, and compares the longest window with the median; and Jain's index."""
        self.play_all(self.grid())
        for case in self.grid():
            def changes(build: str) -> Ratio:
                found = self.play(build, case)
                return single(found["remap"].numbers["plan_changes"] /
                              found["remap"].numbers["seconds"]) if found else NONE

            def longest(build: str) -> Ratio:
                found = self.play(build, case)
                lengths = sorted(found["remap"].windows["seconds"]) if found else []
                return single(lengths[-1] / lengths[len(lengths) // 2]) if found else NONE

            def jain(build: str) -> Ratio:
                found = self.play(build, case)
                return single(found["remap"].numbers["jain"]) \
                    if found and found["unlimited"].numbers["jain"] >= 0.9 else NONE
            yield self.row("steady", "plan changes/s", case.name, "≤ 3", changes,
                           lambda r: judge_most(r.ratio, 3))
            yield self.row("steady", "longest window / median", case.name, "≤ 2", longest,
                           lambda r: judge_most(r.ratio, 2))
            yield self.row("steady", "Jain's index", case.name, "≥ 0.90", jain,
                           lambda r: judge(r, 0.9))

    # ---- static plans and splits

    def search(self, case: Case, tag: str, levels: Sequence[Sequence[int]], steps: Sequence[int],
               flags: Callable[[tuple[int, ...]], Sequence[str]], policy: str
               ) -> tuple[tuple[int, ...], Sequence[str]]:
        """Searches for the flags with the highest throughput, in fewer and shorter windows."""
        short = dataclasses.replace(self.sizes, windows=SEARCH_WINDOWS,
                                    seconds=min(SEARCH_SECONDS, self.sizes.seconds))
        def one(point: tuple[int, ...]) -> float:
            words = (*case.words(short, SEARCH_WINDOWS), *flags(point))
            name = f"{case.name}-{tag}-{'_'.join(map(str, point))}"
            found = self.runner.play("ours", name, words, (policy,), may_fail=True)
            return found[policy].numbers["throughput_tok_s"] if found else -math.inf

        best = search_grid(levels, steps, lambda found: self.runner.map(
            one, [(point,) for point in found]))
        return best, flags(best)

    def static(self) -> Iterator[Row]:
        """Compares with the best static plan, beside which KV memory is pooled and swapped."""
        self.play_all(self.static_cases())
        for case in self.static_cases():
            coarse = (6 if case.models == "C2" else 4) - 2 * self.sizes.quick
            levels = [tuple(round(i * (layers - 1) / (coarse - 1)) for i in range(coarse))
                      for layers in LAYERS[case.models]]
            best, flags = self.search(case, "plan", levels, (4, 2, 1), lambda plan: (
                "--plan", ",".join(map(str, plan))), "elastic-swap")
            found = self.runner.case("ours", case, ("elastic-swap",), 0, flags, "-best-plan")
            self.extra[f"plan {case.name}"] = list(best)

            def ratio(build: str) -> Ratio:
                mine = self.play(build, case)
                return mine["remap"].over(found["elastic-swap"], "throughput_tok_s") \
                    if mine and found else NONE
            yield self.row("static", f"throughput / best static plan ({'+'.join(map(str, best))})",
                           case.name, "≥ 1.00", ratio, lambda r: judge(r, 1.0))

    def whole(self) -> Iterator[Row]:
        """The whole device: at least the best of today's, and beside it the best static split."""
        cases = self.whole_cases()
        self.play_all([*cases, *(dataclasses.replace(case, mode="space") for case in cases)])
        for case in cases:
            if "today" in self.builds:
                yield from self.best_mode("whole", case, ("recompute", "elastic", "remap"), 1.0,
                                          (("throughput_tok_s", "throughput"),))
            yield self.row("whole", "throughput / elastic-swap", case.name, "≥ 1.00",
                           lambda build: self.over(build, case, "elastic-swap", "throughput_tok_s"),
                           lambda r: judge(r, 1.0))
            yield self.split_row(case)

    def split_row(self, case: Case) -> Row:
        """Compares with recompute under the best static split of the whole device, in any mode."""
        best: tuple[float, tuple[int, ...], Played] | None = None
        names = SHAPES[case.models]
        for mode in ("quantum", "space"):
            alike = dataclasses.replace(case, mode=mode)
            levels = [tuple(range(66, 86, 3))] if case.models == "C2" else \
                [tuple(range(30, 45, 4)), tuple(range(30, 45, 4))]

            def flags(point: tuple[int, ...]) -> Sequence[str]:
                shares = (*point, 98 - sum(point))
                return ("--shapes", ",".join(f"{name}:{share}%"
                                             for name, share in zip(names, shares)))

            def bare(point: tuple[int, ...]) -> Sequence[str]:
                return flags(point) if 98 - sum(point) > 0 else ("--shapes", "none")
            short = NoCombo(**dataclasses.asdict(alike))
            split, words = self.search(short, "split", levels, (1,), bare, "recompute")
            found = self.runner.case("ours", short, ("recompute",), 0, words, "-best-split")
            if not found:
                continue
            reached = found["recompute"].numbers["throughput_tok_s"]
            if not best or reached > best[0]:
                best = (reached, (*split, 98 - sum(split)), found["recompute"])
        self.extra[f"split {case.name}"] = list(best[1]) if best else None

        def ratio(build: str) -> Ratio:
            mine = self.play(build, case)
            return mine["remap"].over(best[2], "throughput_tok_s") if mine and best else NONE
        split_name = "/".join(map(str, best[1])) if best else "?"
        return self.row("whole", f"throughput / best static split ({split_name})", case.name,
                        "≥ 1.00", ratio, lambda r: judge(r, 1.0))

    # ---- capacity

    def capacity_of(self, build: str, policy: str, case: Case) -> float:
        """Returns the highest rate at which the policy attains its goals."""
        full = barcases.FULL[case.device, case.models, case.lengths]

        def attained(load: float) -> float:
            at = dataclasses.replace(case, load=load)
            name = f"{at.name}-{policy}-capacity"
            found = self.runner.play(build, name, at.words(self.sizes, CAPACITY_WINDOWS), (policy,))
            return found[policy].numbers["attainment"] if found else 0.0
        return full * bisect_rate(attained, ATTAINMENT, 0.02, CAPACITY_MOST)

    def capacity(self) -> Iterator[Row]:
        """Compares the rates at which 90 % of the requests attain their goals."""
        wanted = []
        for place in self.capacity_places():
            for mode in barcases.MODES:
                case = dataclasses.replace(place, mode=mode)
                policies = ("remap",) if mode == "drain" else \
                    ("recompute", "elastic", "remap", "unlimited")
                wanted += [("today" if "today" in self.builds else "ours", policy, case)
                           for policy in policies]
                if mode != "drain" and "today" in self.builds:
                    wanted.append(("ours", "remap", case))
        # Bisections wait for their runs, so they have threads of their own.
        with concurrent.futures.ThreadPoolExecutor(self.runner.jobs) as pool:
            rates = dict(zip(wanted, pool.map(lambda args: self.capacity_of(*args), wanted)))
        self.extra["capacity"] = [
            {"build": build, "policy": policy, "case": case.name, "requests_s": rate}
            for (build, policy, case), rate in rates.items()]
        for place in self.capacity_places():
            mine = rates["ours", "remap", place]
            today = {f"{policy} {case.mode}": rate for (build, policy, case), rate in rates.items()
                     if build == "today" and policy != "unlimited" and
                     dataclasses.replace(case, mode=place.mode) == place}
            name = max(today, key=today.__getitem__) if today else ""
            least = today[name] if today else math.nan
            # Bisection ends within 4 %.
            verdict = "–" if not today else "reached" if mine >= 0.96 * least else "missed"
            yield Row("capacity", "requests/s with 90 % attainment" +
                      (f", today's best: {name}" if name else ""), place.name,
                      f"≥ {least:.2f}" if today else "–", single(least), single(mine), verdict)

    def capacity_places(self) -> list[Case]:
        """Lists the cases of which the capacity is sought, as they are in turns."""
        first, *others = barcases.list_arrivals(self.sizes)
        return [Case(device, models, "quantum", 1.0, arrivals)
                for arrivals in (first, *others[-1:])
                for device in (("gh200",) if self.sizes.quick else tuple(barcases.DEVICES))
                for models in LAYERS]

    # ---- the day

    def day(self) -> Iterator[Row]:
        """A day of a dozen models: ours over recompute, elastic and unlimited."""
        words = (*barcases.DAY_FLAGS.split(), *barcases.MODES["space"].split(), "--seconds",
                 str(self.sizes.day_s), "--windows", "1", "--seed", str(self.sizes.seed))
        policies = ("recompute", "elastic", "remap", "unlimited")
        items = [(build, f"day-{self.sizes.day_s}-{policy}", words, (policy,))
                 for build in self.builds for policy in policies]
        found = dict(zip(((build, policies[0]) for build, _, _, policies in items),
                         self.runner.map(self.runner.play, items)))

        def ratio(build: str, other: str, key: str) -> Ratio:
            mine, his = found[build, "remap"], found[build, other]
            return paired_ratio([mine["remap"].numbers[key]], [his[other].numbers[key]]) \
                if mine and his else NONE
        for other, limit in (("recompute", 0.99), ("elastic", 0.99), ("unlimited", math.nan)):
            for key, what in (("throughput_tok_s", "throughput"), ("attainment", "attainment")):
                yield self.row("day", f"{what} / {other}", f"day of {self.sizes.day_s} s",
                               "–" if math.isnan(limit) else f"≥ {limit:.2f}",
                               lambda build: ratio(build, other, key),
                               lambda r: "–" if math.isnan(limit) else judge(r, limit))

    def rows(self, groups: Sequence[str]) -> list[Row]:
        """Makes the rows of some groups."""
        return [row for group in groups for row in getattr(self, group)()]


@dataclass(frozen=True)
class NoCombo(Case):
    """A case whose models and shares are given behind it."""

    def words(self, sizes: Sizes, windows: int) -> tuple[str, ...]:
        words = list(super().words(sizes, windows))
        at = words.index("--combo")
        del words[at:at + 2]
        at = words.index("--shares")
        del words[at:at + 2]
        return tuple(words)
