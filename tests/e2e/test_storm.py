# SPDX-License-Identifier: Apache-2.0
"""Prompts that want more KV than there is, of a model that can lend layers to itself: plans change now and then."""

import itertools
import json
import random
import time

import pytest

from models import model
from programs import some, wait_until
from tenant import make_requests, read_lines

CHANGE_S, AT_ONCE = 0.05, 16


@pytest.fixture
def big_head(root):
    """14.5 MB, of which layers are 3: in a pool of 17 MiB there is room for 544 tokens, or 864 with four layers away."""
    return model(root / "model", 3, "--family", "opt", "--hidden", 128, "--layers", 6, "--heads", 4, "--kv-heads", 4,
                 "--ffn", 256, "--vocab", 20000, "--max-position", 2048)


def with_one_of(path, tokens):
    """The same requests, and one whose prompt has so many tokens."""
    dice = random.Random(tokens)
    lines = [json.dumps(line) for line in read_lines(path)]
    prompt = [dice.randrange(20000) for _ in range(tokens)]
    lines.insert(5, json.dumps({"id": "long", "arrival_s": 0, "prompt": prompt, "max_tokens": 32}))
    path.write_text("".join(line + "\n" for line in lines))
    return path


@pytest.mark.parametrize("rho", some([100, 500], [500]))
def test_more_than_there_is(root, start, serve, big_head, rho):
    """At some price of stalls, by the machine's times, four layers through one slot cost more than six through two."""
    d = start(policy="remap", pool="17M", page="64K", extra=["--controller", f"rho={rho}"])
    path = make_requests(root / "r.jsonl", 16, prompt=(100, 250), output=(80, 160), vocab=20000)
    begun = time.monotonic()
    tenant = serve("opt", big_head, with_one_of(path, 1500), d, extra=["--swap", 0, "--max-batch", 8])
    summary = tenant.wait(120)
    changes, seconds = d.status()["plan_changes"], time.monotonic() - begun
    print(f"{changes} plan changes in {seconds:.1f} s")
    assert changes <= AT_ONCE + seconds / CHANGE_S + 1
    assert summary["refused"] == 1
    errors = {line["id"]: line["error"] for line in read_lines(tenant.output) if "error" in line}
    assert list(errors) == ["long"] and "1532 tokens, all KV memory holds" in errors["long"]
    assert "tenant.protocol" not in d.log.read_text()


def test_plans_set_as_fast_as_can_be(start, serve, root, model_dirs):
    """Whoever asks for plan changes, they come so often and not more."""
    d = start(policy="remap", page="16K", extra=["--controller", "change-ms=1000"])
    requests = make_requests(root / "r.jsonl", 2)
    tenant = serve("t", model_dirs[0], requests, d, sync=True).ready()
    begun = time.monotonic()
    layers = itertools.cycle([1, 2, 3])

    def held_up():
        """Once all that may come at once have come; on a slow host mmd's second between two is soon over."""
        d.rpc("plan.set", {"name": "t", "layers": next(layers)})
        status = d.status()
        return status["plan_changes"] >= AT_ONCE and status["plan_changes_limited"] > 0

    wait_until(held_up, 60, "a change to be held up", every=0)
    changes, seconds = d.status()["plan_changes"], time.monotonic() - begun
    print(f"{changes} plan changes in {seconds:.1f} s")
    assert changes <= AT_ONCE + seconds + 1
    tenant.go().wait()
