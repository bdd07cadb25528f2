# SPDX-License-Identifier: Apache-2.0
"""Decode steps as graphs: captured once per size whatever mmd does, and the same tokens as without."""

import os
import signal
import time

import pytest

from plans import run_while_plans_change
from programs import limit, some, wait_until
from tenant import make_requests, plain_tokens, read_output

BATCH = 4
GRAPHS = ["--graphs", "on", "--max-batch", str(BATCH), "--verify"]
# A size is a number of rows; contexts are too short for attention to have more than one bound. Each
# has a graph without events around the gates and, when mmd wants to know what it waits, one with.
CAPTURES_MAX = 2 * BATCH


@pytest.fixture
def case(root, model_dirs):
    requests = make_requests(root / "requests.jsonl", 12, output=(40, 80))
    return model_dirs[0], requests, plain_tokens(root, model_dirs[0], requests)


def replayed(summary):
    """It was graphs, and few of them."""
    assert 0 < summary["graph_captures"] <= CAPTURES_MAX < summary["graph_launches"], summary
    return summary


def test_plain(root, case):
    model, requests, want = case
    assert plain_tokens(root, model, requests, extra=GRAPHS) == want


def test_few_are_kept(root, serve, case):
    """With room for one size only, sizes are captured again and again: the tokens are the same."""
    model, requests, want = case
    tenant = serve("t", model, requests, extra=[*GRAPHS, "--graphs-max", "1"])
    assert tenant.tokens() == want


@pytest.mark.parametrize("alpha, slots", some([(7, 1), (4, 2)], [(4, 2)]))
def test_layers_cycle(start, serve, case, alpha, slots):
    model, requests, want = case
    d = start(policy="remap", page="16K")
    tenant = serve("t", model, requests, d, extra=GRAPHS, sync=True).ready()
    d.ctl("plan", "set", "t", "--layers", alpha, "--slots", slots)
    wait_until(lambda: d.tenant("t")["alpha"] == alpha and d.tenant("t")["beta"] == slots, 10,
               "the plan to be in force")
    tenant.go()
    summary = replayed(tenant.wait())
    assert read_output(tenant.output) == want
    assert summary["gated_steps"] == summary["steps"]
    # What is waited at gates is still told, by a part of the steps.
    assert 0 < summary["stall_samples"] < summary["gated_steps"]
    assert d.status()["bytes_streamed"] > 0


@pytest.mark.parametrize("extra", some([[], ["--break-steps", "100"], ["--fused"]], [["--break-steps", "100", "--fused"]]),
                         ids=str)
def test_plans_change(start, serve, case, extra):
    """The same few graphs under many plans."""
    model, requests, want = case
    d = start(policy="remap", page="16K")
    deadline = time.monotonic() + limit(60)
    changes = 0
    while changes <= 2 * CAPTURES_MAX:
        assert time.monotonic() < deadline, f"only {changes} plan changes"
        tenant = serve("t", model, requests, d, extra=[*GRAPHS, *extra], sync=True).ready()
        plans = [(3, 1), (0, 1), (2, 2), (5, 1), (6, 2), (4, "auto")]
        summary, _ = run_while_plans_change(d, tenant, "t", plans)
        assert read_output(tenant.output) == want
        replayed(summary)
        changes += summary["plan_changes"]


@pytest.mark.parametrize("policy", some(["elastic", "remap"], ["remap"]))
def test_short_memory(root, start, serve, model_dirs, policy):
    """KV grows, shrinks and is taken back, layers leave and return, two of the three take turns."""
    d = start(policy=policy, pool="3200K", page="16K")
    tenants, want = [], []
    for i, model in enumerate(model_dirs):
        path = make_requests(root / f"{i}.jsonl", 8, prompt=(16, 48), output=(40, 80), seed=i)
        want.append(plain_tokens(root, model, path))
        extra = [*GRAPHS, "--kv-share", "256K"]
        if i < 2:
            extra += ["--turns", "quantum", "--quantum", "20"]
        tenants.append(serve(f"t{i}", model, path, d, extra=extra, sync=True))
    for t in tenants:
        t.ready()
    for t in tenants:
        t.go()
    for t, tokens in zip(tenants, want):
        replayed(t.wait(120))
        assert read_output(t.output) == tokens


def test_swapped(root, start, serve, model_dirs):
    """Blocks come back from the host to other places: the graph finds them by the table."""
    d = start(policy="swap", pool="4M", page="16K", extra=["--swap-max", "64M"])
    path = make_requests(root / "requests.jsonl", 12, prompt=(16, 64), output=(60, 90))
    want = plain_tokens(root, model_dirs[0], path)
    tenant = serve("t", model_dirs[0], path, d,
                   extra=["--graphs", "on", "--max-batch", "12", "--kv-share", "512K",
                          "--block-tokens", "8"])
    assert tenant.tokens(120) == want
    summary = tenant.wait()
    assert summary["swapped_in_bytes"] > 0 and summary["graph_launches"] > 0


def test_survives_xfer(start, serve, case):
    """Gates are aborted when xfer dies: the replay is void and is repeated."""
    model, requests, want = case
    d = start(policy="remap", page="16K")
    tenant = serve("t", model, requests, d, extra=GRAPHS, sync=True).ready()
    d.ctl("plan", "set", "t", "--layers", 5, "--slots", 1)
    tenant.go()
    tenant.wait_requests(1)
    os.kill(d.status()["xfer"]["pid"], signal.SIGKILL)
    replayed(tenant.wait(120))
    assert read_output(tenant.output) == want
