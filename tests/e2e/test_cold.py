# SPDX-License-Identifier: Apache-2.0
"""Cold blocks: every token is the same while full KV blocks are streamed from host memory in each step."""

import itertools
import json
import os
import signal
import threading
import time

import pytest

import models
from daemon import RpcError
from plans import run_while_plans_change
from programs import LONG, count, limit, some, wait_until
from tenant import Tenant, make_requests, plain_tokens, read_output

# Layers in four classes, in three, and in two that do not divide them.
SHAPES = {
    "llama-8": ["--family", "llama", "--layers", 8],
    "opt-8": ["--family", "opt", "--kv-heads", 4, "--layers", 8],
    "llama-5": ["--family", "llama", "--layers", 5],
    "opt-6": ["--family", "opt", "--kv-heads", 4, "--layers", 6],
    "llama-4": ["--family", "llama", "--layers", 4],
}
# Of the weights, and of a quarter or so of the KV that the requests would take.
POOLS = {"llama-8": "3400K", "opt-8": "4800K", "llama-5": "2400K", "opt-6": "3600K", "llama-4": "2000K"}
BLOCK = ["--block-tokens", 8]
MANY = 150


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    """cases(shape) -> model, requests, their tokens without mmd."""
    folder = tmp_path_factory.mktemp("cold")
    made = {}

    def case(shape):
        if shape not in made:
            model = models.model(folder / shape, 7, *SHAPES[shape], "--tied")
            requests = make_requests(folder / f"{shape}.jsonl", 16, prompt=(24, 72), output=(40, 70))
            made[shape] = model, requests, plain_tokens(folder, model, requests)
        return made[shape]

    return case


def daemon(start, shape, **options):
    return start(**{"policy": "remap", "pool": POOLS[shape], "page": "16K", "extra": ["--swap-max", "64M"],
                    **options})


def cold_tenant(serve, d, case, entries, extra=()):
    return serve("t", case[0], case[1], d, sync=True,
                 extra=["--verify", *BLOCK, "--cold", entries, "--swap", "8M", *extra]).ready()


def check(tenant, case, d, share=0):
    """The tokens are right, and blocks were cold: @share in 1000 of all that was read at least."""
    summary = tenant.wait(120)
    assert read_output(tenant.output) == case[2]
    print(json.dumps({k: summary[k] for k in (
        "steps", "steps_void", "preemptions", "cold_blocks", "cold_permille", "cold_entries_max",
        "swapped_out_bytes", "plan_changes", "layers_remapped_max", "graph_launches")}),
          "streamed", d.status()["cold_bytes_streamed"])
    assert summary["refused"] == 0 and summary["cold_permille"] >= share, summary
    assert summary["cold_out_bytes"] > 0 and summary["cold_entries_max"] > 0, summary
    assert d.status()["cold_bytes_streamed"] > 0
    return summary


@pytest.mark.parametrize("shape", some(list(SHAPES), ["opt-8", "llama-5"]))
def test_most_blocks_are_cold(start, serve, cases, shape):
    """In each number of classes; memory is so short that half of what is read comes from the host."""
    d = daemon(start, shape)
    case = cases(shape)
    check(cold_tenant(serve, d, case, MANY).go(), case, d, share=500)


@pytest.mark.parametrize("entries", [1, 7])
def test_few_entries(start, serve, cases, entries):
    d = daemon(start, "opt-8")
    case = cases("opt-8")
    summary = check(cold_tenant(serve, d, case, entries).go(), case, d)
    assert summary["cold_entries_max"] <= entries


def test_fixed_share(start, serve, cases):
    """Where KV has a fixed share, the window is a part of it."""
    d = daemon(start, "llama-8", policy="swap", pool="8M")
    case = cases("llama-8")
    check(cold_tenant(serve, d, case, 60, ["--kv-share", "1M"]).go(), case, d, share=100)
    assert d.status()["pages"]["kv"] == 0


@pytest.mark.parametrize("shape, extra", [("llama-8", ["--graphs", "on"]), ("llama-5", ["--graphs", "on"]),
                                          ("opt-8", ["--break-steps", 200])])
def test_steps_that_are_replayed_or_break_off(start, serve, cases, shape, extra):
    d = daemon(start, shape)
    case = cases(shape)
    summary = check(cold_tenant(serve, d, case, MANY, extra).go(), case, d, share=300)
    assert summary["graph_launches" if "--graphs" in extra else "steps_broken"] > 0


def cold_of(d):
    """What status says of the tenant's cold blocks; none are live without it."""
    return next((t["cold"] for t in d.tenants() if t["cold"]), {"live": 0, "limit_streamed": 0})


class LimitChanger(threading.Thread):
    """The limit of entries, up and down, next to the layers that mmctl takes and gives back."""

    def __init__(self, d, limits):
        super().__init__(daemon=True)
        self.d, self.limits, self.end, self.sets = d, limits, threading.Event(), 0

    def run(self):
        for n in itertools.cycle(self.limits):
            if self.end.wait(0.02):
                return
            try:
                self.d.rpc("plan.cold", {"name": "t", "cold": n})
                self.sets += 1
            except (RpcError, OSError):
                pass  # it has left, or mmd begins anew

    def finish(self):
        self.end.set()
        self.join(limit(30))
        assert not self.is_alive(), "plan.cold hangs"


def change(d, tenant, plans, limits):
    changer = LimitChanger(d, limits)
    changer.start()
    try:
        return run_while_plans_change(d, tenant, "t", plans)[0]
    finally:
        changer.finish()
        assert changer.sets > 0


PLANS = [(0, 1), (1, 1), (2, 2), (3, 1), (2, 1), (3, 2), (2, "auto")]


@pytest.mark.parametrize("shape", some(["llama-8", "opt-6"], ["llama-8"]))
def test_while_plans_and_limits_change(start, serve, cases, shape):
    """Weights and blocks are streamed together, and neither number stays as it is."""
    d = daemon(start, shape)
    case = cases(shape)
    changes = seen = 0
    while changes < count(30, 5):
        tenant = cold_tenant(serve, d, case, MANY, ["--graphs", "on" if seen % 2 else "off"])
        changes += change(d, tenant, PLANS, ["auto", MANY, 9, "auto", 0, 40])["plan_changes"]
        check(tenant, case, d)
        seen += 1
    assert d.status()["bytes_streamed"] > 0
    print(f"{changes} plan changes in {seen} runs")


@pytest.mark.parametrize("role", ["xfer", "core"])
def test_survives_a_role(start, serve, cases, role):
    """Killed again and again while blocks are streamed; limits and windows stay as they were."""
    d = daemon(start, "llama-8")
    case = cases("llama-8")
    tenant = cold_tenant(serve, d, case, MANY).go()
    for n in (1, 3, 5, 7):
        tenant.wait_requests(n)
        for pid in d.pids(role):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: d.answers() and d.status()["xfer"]["up"], 60, f"another {role}")
    check(tenant, case, d, share=300)


def test_stopped_over_a_deadline(start, serve, cases):
    """Within a step or between two, while a limit falls: it counts when the tenant goes on, and no token is wrong."""
    d = daemon(start, "llama-8", extra=["--swap-max", "64M", "--reclaim-timeout", "100"])
    case = cases("llama-8")
    falls = waited = runs = 0
    while falls < count(40, 10):
        tenant = cold_tenant(serve, d, case, MANY).go()
        pid = tenant.process.pid
        wait_until(lambda: tenant.process.poll() is not None or cold_of(d)["live"] > 1, 60, "blocks are cold")
        while (now := cold_of(d)) and now["live"] > 1:
            os.kill(pid, signal.SIGSTOP)
            d.rpc("plan.cold", {"name": "t", "cold": now["live"] // 2})
            time.sleep(0.3)
            waited += cold_of(d)["limit_streamed"] == MANY
            os.kill(pid, signal.SIGCONT)
            wait_until(lambda: cold_of(d)["limit_streamed"] < MANY, 60, "the limit counts")
            falls += 1
            try:
                d.rpc("plan.cold", {"name": "t", "cold": "auto"})
            except RpcError:
                pass  # it has left
        check(tenant, case, d)
        runs += 1
        assert runs < 100
    print(f"{falls} limits fell in {runs} runs, {waited} of them while it was stopped")
    assert waited > 0


def refusal(root, case, d, extra):
    tenant = Tenant(root, "refused", *case[:2], d, extra=extra)
    assert tenant.process.wait(timeout=limit(30)) == 1
    text = tenant.log.read_text().splitlines()
    tenant.kill()
    assert len(text) == 1, text
    return text[0]


def test_refusals(root, start, cases):
    """One sentence, and nothing is served."""
    case = cases("llama-4")
    d = daemon(start, "llama-4")
    assert "swap space, which has 8: give it 320.0 KiB or more" in refusal(
        root, case, d, [*BLOCK, "--cold", 40, "--swap", "64K"])
    assert "would take all KV memory" in refusal(
        root, case, d, [*BLOCK, "--cold", 65536, "--swap", "64M"])


def test_share_too_small(root, start, cases):
    case = cases("llama-4")
    d = daemon(start, "llama-4", policy="swap")
    assert "the share has 8" in refusal(
        root, case, d, [*BLOCK, "--cold", 100, "--swap", "8M", "--kv-share", "128K"])


@pytest.mark.skipif(not LONG, reason="MM_TEST_LONG is not set")
@pytest.mark.parametrize("cold, remap, swap, graphs, turns, reclaim", itertools.product([0, 1], repeat=6))
def test_matrix(root, start, serve, cases, cold, remap, swap, graphs, turns, reclaim):
    """Two tenants' tokens, with each of these and without: entries, layers taken by hand, room in the
    swap space beyond entries, graphs, turns, memory that each takes from the other."""
    case = cases("llama-8")
    d = start(policy="remap", pool="6000K" if reclaim else "8M", page="16K",
              extra=["--swap-max", "64M", *(["--controller", "mode=turns"] if turns else [])])
    extra = ["--verify", *BLOCK, "--graphs", "on" if graphs else "off", "--kv-idle", "20" if reclaim else "500"]
    extra += ["--cold", MANY] if cold else []
    extra += ["--swap", "8M" if swap else MANY * 16384 if cold else 0]
    extra += ["--turns", "quantum", "--quantum", "20"] if turns else []
    tenants = [serve(name, case[0], case[1], d, extra=extra, sync=True).ready() for name in ("t", "u")]
    if remap:
        tenants[1].go()
        summary, _ = run_while_plans_change(d, tenants[0], "t", PLANS)
    else:
        for tenant in tenants:
            tenant.go()
        summary = tenants[0].wait(120)
    summaries = [summary, tenants[1].wait(120)]
    for tenant in tenants:
        assert read_output(tenant.output) == case[2], tenant.name
    streamed = d.status()["cold_bytes_streamed"]
    print("MATRIX", json.dumps({
        "cold": cold, "remap": remap, "swap": swap, "graphs": graphs, "turns": turns, "reclaim": reclaim,
        "permille": [s["cold_permille"] for s in summaries], "streamed": streamed,
        "preemptions": [s["preemptions"] for s in summaries],
        "plans": [s["plan_changes"] for s in summaries], "graph_launches": summaries[0]["graph_launches"],
        "weights_streamed": d.status()["bytes_streamed"], "released": summaries[0]["kv_chunks_released"]}))
    assert all(s["refused"] == 0 for s in summaries)
    assert (summaries[0]["graph_launches"] > 0) == bool(graphs)
    assert (streamed > 0) == bool(cold)
