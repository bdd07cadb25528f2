# SPDX-License-Identifier: Apache-2.0
"""Runs of `mmevaluate --bars`: two builds of mmsim play the same cases, and searches over cases."""

from __future__ import annotations

import concurrent.futures
import functools
import itertools
import math
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .barcases import Case, Sizes
from .runs import MalformedError, RunError, Simulator, Task, take_list, take_number
from .stats import Ratio, paired_ratio

KEYS = ("seconds", "throughput_tok_s", "window_tok_s", "attainment", "attained_tok_s", "ttft_p99_s",
        "tbt_p99_s", "plan_changes", "preemptions", "bytes_streamed", "jain")
WINDOW_KEYS = ("seconds", "throughput_tok_s", "window_tok_s", "attainment", "attained_tok_s",
               "ttft_p99_s")
TENANT_KEYS = ("own_tok_s", "window_tok_s", "attainment", "attained_tok_s", "ttft_p99_s")


@dataclass(frozen=True)
class Played:
    """What one policy made of a case."""

    numbers: dict[str, float]
    windows: dict[str, list[float]]
    tenants: list[dict[str, float]]  # over all windows
    tenant_windows: list[dict[str, list[float]]]

    def over(self, other: Played, key: str, tenant: int | None = None) -> Ratio:
        """Returns the paired ratio to another one of the same windows."""
        if tenant is None:
            return paired_ratio(self.windows[key], other.windows[key])
        return paired_ratio(self.tenant_windows[tenant][key], other.tenant_windows[tenant][key])


def take_policy(found: Any) -> Played:
    """Takes what one policy made of a case out of mmsim's JSON."""
    windows = take_list(found, "windows")
    parts = [take_list(window, "tenants") for window in windows]
    tenants = take_list(found, "tenants")
    if any(len(part) != len(tenants) for part in parts):
        raise MalformedError("a window lacks a tenant")
    return Played(
        {key: take_number(found, key) for key in KEYS},
        {key: [take_number(window, key) for window in windows] for key in WINDOW_KEYS},
        [{key: take_number(tenant, key) for key in TENANT_KEYS} for tenant in tenants],
        [{key: [take_number(part[t], key) for part in parts] for key in TENANT_KEYS}
         for t in range(len(tenants))])


def take_case(policies: Iterable[str], output: Any) -> dict[str, Played]:
    """Takes what each policy made of a case out of mmsim's JSON."""
    results = output.get("results") if isinstance(output, dict) else None
    if not isinstance(results, dict):
        raise MalformedError("no results in the JSON")
    return {policy: take_policy(results.get(policy)) for policy in policies}


@dataclass
class Runner:
    """Plays cases with several builds of mmsim, and searches; whatever was played is kept.

    Threads: all methods may be called by several at once. `lock` guards `done` and `failures`.
    """

    simulators: dict[str, Simulator]  # by build: "ours", and "today" if there is one
    sizes: Sizes
    jobs: int
    progress: Callable[[str], None]
    done: dict[Any, concurrent.futures.Future] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    pool: concurrent.futures.ThreadPoolExecutor = field(init=False)

    def __post_init__(self) -> None:
        self.pool = concurrent.futures.ThreadPoolExecutor(self.jobs)

    def stop(self) -> None:
        """Ends all runs."""
        for simulator in self.simulators.values():
            simulator.stop()
        self.pool.shutdown(cancel_futures=True)

    def play(self, build: str, name: str, words: Sequence[str], policies: Sequence[str],
             may_fail: bool = False) -> dict[str, Played] | None:
        """Plays one line, unless that was done; None: it failed."""
        words = (*words, "--policy", ",".join(policies))
        task = Task(f"{build}-{name}", words, functools.partial(take_case, tuple(policies)))
        with self.lock:
            mine = (build, words) not in self.done
            future = self.done.setdefault((build, words), concurrent.futures.Future())
        if mine:
            try:
                future.set_result(self.run(self.simulators[build], task, may_fail))
            except BaseException as error:
                future.set_exception(error)
                raise
            self.progress(task.name)
        return future.result()

    def run(self, simulator: Simulator, task: Task, may_fail: bool) -> dict[str, Played] | None:
        """Runs a line, or takes what was kept of it; None: it failed."""
        found = simulator.kept(task)
        if found is not None:
            return found
        try:
            return simulator.run(task)
        except RunError as error:
            if not may_fail:
                with self.lock:
                    self.failures.append(f"{task.name}: {error}")
            return None

    def case(self, build: str, case: Case, policies: Sequence[str], windows: int = 0,
             more: Sequence[str] = (), tag: str = "", may_fail: bool = False
             ) -> dict[str, Played] | None:
        """Plays a case of the table, with other flags behind its own."""
        count = windows or self.sizes.windows
        name = f"{case.name}{tag}-{'+'.join(policies)}-{count}"
        return self.play(build, name, (*case.words(self.sizes, count), *more), policies, may_fail)

    def map(self, function: Callable[..., Any], items: Iterable[tuple]) -> list[Any]:
        """Calls a function that plays with each of some arguments, `jobs` at once."""
        futures = [self.pool.submit(function, *item) for item in items]
        return [future.result() for future in futures]


# ---- searches


def search_grid(levels: Sequence[Sequence[int]], steps: Sequence[int],
                score: Callable[[list[tuple[int, ...]]], list[float]]) -> tuple[int, ...]:
    """Finds a point with a high score: a coarse grid, then ever smaller steps along each axis.

    levels: of each coordinate, ascending; its first and last are its limits. score: of many at
    once; -inf: impossible. A score that is equal counts for the point that came first.
    """
    known: dict[tuple[int, ...], float] = {}

    def look(wanted: Iterable[tuple[int, ...]]) -> None:
        new = [point for point in dict.fromkeys(wanted) if point not in known]
        known.update(zip(new, score(new)))

    look(itertools.product(*levels))
    best = max(known, key=known.__getitem__)
    for step in steps:
        while True:
            look(best[:i] + (min(max(best[i] + change, level[0]), level[-1]),) + best[i + 1:]
                 for i, level in enumerate(levels) for change in (-step, step))
            better = max(known, key=known.__getitem__)
            if better == best:
                break
            best = better
    return best


def bisect_rate(attained: Callable[[float], float], goal: float, least: float, most: float,
                within: float = 0.04) -> float:
    """Finds the highest rate at which `attained` is at least `goal`; 0: not even at `least`.

    It assumes that more requests are never attained better, and goes by halves of the logarithm.
    """
    if attained(least) < goal:
        return 0.0
    if attained(most) >= goal:
        return most
    while most / least > 1 + within:
        middle = math.sqrt(least * most)
        if attained(middle) >= goal:
            least = middle
        else:
            most = middle
    return least
