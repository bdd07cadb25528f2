# SPDX-License-Identifier: Apache-2.0
"""mmbench hostile: each act of a hostile tenant has the outcome that it must have, and no token differs."""

import json
import subprocess

import pytest

from programs import BIN, LONG, SANITIZE, limit

SAMPLE = ["tail-far", "head-back", "entries-changed", "gates-lie", "any-field", "mapped-unasked", "hello-field",
          "hello-twice", "ack-again", "pages-left", "release-twice", "fd-lingering", "fd-with-hello", "flood-joins",
          "places", "load-closed", "forked", "stopped", "dies"]


def hostile(*words):
    return subprocess.run([str(BIN / "mmbench"), "hostile", *map(str, words)], capture_output=True, text=True,
                          check=False, timeout=limit(1200 if LONG else 300))


@pytest.mark.parametrize("seed", [1, 2] if LONG else [1])
def test_outcomes(seed):
    acts = "all" if LONG else ",".join(SAMPLE[::3] if SANITIZE else SAMPLE)
    done = hostile("--act", acts, "--seconds", 2 if LONG else 0.2, "--seed", seed, "--json")
    assert done.stdout, done.stderr
    result = json.loads(done.stdout)
    wrong = [act for act in result["acts"] if act["unexpected"]]
    assert not wrong and result["unexpected"] == 0
    assert result["token_mismatches"] == result["refused"] == result["pages_leaked"] == 0
    assert result["tokens"] > 0 and done.returncode == 0, done.stderr
    assert all(act["rounds"] >= 1 for act in result["acts"])
    assert len(result["acts"]) == (len(acts.split(",")) if acts != "all" else len(hostile("--list").stdout.splitlines()))


def test_words():
    lines = hostile("--list").stdout.splitlines()
    assert len(lines) >= 100 and all(len(line.split()) > 3 for line in lines)
    done = hostile("--act", "flags,no-such-act")
    assert done.returncode == 2 and "no-such-act" in done.stderr
