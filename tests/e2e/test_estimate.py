# SPDX-License-Identifier: Apache-2.0
"""mmctl plan estimate: what it says of published models, by profiles, without an mmd."""

import json
import subprocess

import pytest

from programs import BIN, limit


def run(*args):
    return subprocess.run([str(BIN / "mmctl"), "plan", "estimate", *map(str, args)], capture_output=True, text=True,
                          check=False, timeout=limit(60))


def estimate(model, profile, *args):
    done = run(model, "--profile", profile, "--json", *args)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_step_times_are_those_of_the_guide():
    """Documentation/timing.md: one sequence of 512 tokens."""
    for model, profile, ms in (("OPT-13B", "h100-pcie5", 10.1), ("Llama-3-8B", "gh200-96", 5.0), ("OPT-30B", "a100-pcie4", 38.3)):
        (row,) = estimate(model, profile, "--context", 512, "--batch", 1)["batches"]
        assert row["home"]["step_ns"] / 1e6 == pytest.approx(ms, rel=0.01)
        assert row["home"]["layers_away"] == 0 and row["home"]["link_part"] == 0


def test_a_faster_link_hides_more():
    hidden, away, gains = [], [], []
    for gbps in (10, 100, 400, 2000):
        got = estimate("OPT-13B", f"gh200-96,h2d_gbps={gbps},link_slows_in=0", "--pool", "40G", "--batch", 64)
        (row,) = got["batches"]
        hidden.append(row["layers_hidden"])
        away.append(row["chosen"]["layers_away"])
        gains.append(row["chosen"]["tokens_per_s"] / row["home"]["tokens_per_s"])
        # One layer is hidden from just this rate on.
        assert (gbps >= row["link_gbps_hidden"]) == (row["layers_hidden"] >= 1)
    assert hidden == sorted(hidden) and away == sorted(away) and hidden[-1] > hidden[0] == 0
    assert away[0] == 0 and away[-1] > 0 and gains[-1] > 1.05 and min(gains) >= 0.99, (away, gains)


def test_memory_that_layers_set_free_runs_requests():
    got = estimate("OPT-13B", "gh200-96,h2d_gbps=2000", "--pool", "40G", "--batch", 64)
    (row,) = got["batches"]
    more = (row["chosen"]["requests"] - row["home"]["requests"]) * got["request_bytes"]
    assert 0 < more <= row["chosen"]["layers_away"] * (got["layer_bytes"] + (2 << 20)) + got["request_bytes"]
    for point in (row["home"], row["chosen"]):
        assert point["tokens_per_s"] == pytest.approx(point["requests"] / point["step_ns"] * 1e9, rel=1e-6)


def test_nothing_to_gain_is_said():
    """All fits, or the link is too slow: no layer is away, and a sentence says why."""
    done = run("Llama-3-8B", "--profile", "h200-pcie5", "--batch", "1,4")
    assert done.returncode == 0 and "nothing to gain" in done.stdout
    done = run("OPT-13B", "--profile", "h100-pcie5", "--pool", "40G", "--batch", "64")
    assert done.returncode == 0 and "does not pay" in done.stdout
    done = run("OPT-13B", "--profile", "gh200-96,h2d_gbps=2000", "--pool", "40G", "--batch", "64")
    assert done.returncode == 0 and "It pays" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_folders(model_dirs):
    got = estimate(model_dirs[0], "gh200-96", "--pool", "64M", "--page", "64K", "--context", 64, "--batch", 2)
    assert got["layers"] == 8 and got["batches"][0]["home"]["requests"] == 2


@pytest.mark.parametrize("args,says", [
    (("OPT-13B", "--profile", "h100"), "no device profile 'h100'"),
    (("OPT-13B", "--profile", "gh200-96", "--pool", "1G"), "larger than the pool"),
    (("opt-1", "--profile", "gh200-96"), "built in (OPT-6.7B"),
    (("/nowhere", "--profile", "gh200-96"), "/nowhere"),
])
def test_refusals(args, says):
    done = run(*args)
    assert done.returncode == 1 and says in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("args,says", [
    (("OPT-13B",), "--profile"),
    (("--profile", "gh200-96"), "MODEL"),
    (("OPT-13B", "--profile", "gh200-96", "--batch", "0"), "--batch"),
    (("OPT-13B", "--profile", "gh200-96", "--batch", ","), "--batch"),
    (("OPT-13B", "--profile", "gh200-96", "--context", "-1"), "--context"),
])
def test_usage(args, says):
    done = run(*args)
    assert done.returncode == 2 and says in done.stderr
