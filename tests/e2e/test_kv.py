# SPDX-License-Identifier: Apache-2.0
"""The KV arena: in either layout tokens are the same, chunks come and go, and go back when unused."""

import os
import signal

import pytest

from programs import wait_until
from tenant import make_requests, plain_tokens

LAYOUTS = ["block-major", "separate"]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("policy", ["recompute", "elastic", "remap"])
def test_layouts(root, start, serve, model_dirs, policy, layout):
    """Two tenants that want more KV than there is, one after the other and both at once."""
    requests = [make_requests(root / f"{i}.jsonl", 10, prompt=(16, 64), output=(40, 80), seed=i)
                for i in range(2)]
    want = [plain_tokens(root, model, path) for model, path in zip(model_dirs, requests)]
    d = start(policy=policy, pool="4800K", page="16K")
    extra = ["--verify", "--kv-layout", layout, "--kv-share", "512K", "--kv-idle", "20"]
    tenants = [serve(f"t{i}", model_dirs[i], requests[i], d, extra=extra, sync=True).ready()
               for i in range(2)]
    for tenant in tenants:
        tenant.go()
    assert [tenant.tokens(120) for tenant in tenants] == want


@pytest.mark.parametrize("layout", LAYOUTS)
def test_shrinks_as_load_falls(root, start, serve, model_dirs, layout):
    """One that has served all it had, and stays, keeps no chunk."""
    d = start(policy="elastic", pool="4M", page="16K")
    requests = make_requests(root / "r.jsonl", 8, prompt=(16, 64), output=(40, 80))
    want = plain_tokens(root, model_dirs[0], requests)
    tenant = serve("t", model_dirs[0], requests, d, extra=["--kv-layout", layout, "--kv-idle", "20"],
                   sync=True).ready().go()
    tenant.wait_requests(8)
    wait_until(lambda: d.status()["pages"]["kv"] == 0, 60, "the chunks to go back")
    assert tenant.tokens() == want


SWAP = {"policy": "swap", "pool": "4M", "page": "16K", "extra": ["--swap-max", "64M"]}


def swap_case(root, serve, model, d, layout, swap=None):
    """Little KV memory, so that requests are preempted again and again."""
    path = make_requests(root / "s.jsonl", 12, prompt=(16, 64), output=(60, 90))
    want = plain_tokens(root, model, path)
    extra = ["--verify", "--kv-layout", layout, "--kv-share", "512K", "--block-tokens", "8"]
    tenant = serve("t", model, path, d, extra=extra + (["--swap", swap] if swap else []), sync=True)
    return want, tenant.ready()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_swap_identity(root, start, serve, model_dirs, layout):
    want, tenant = swap_case(root, serve, model_dirs[0], start(**SWAP), layout)
    summary = tenant.go().wait(120)
    assert tenant.tokens() == want
    assert summary["preemptions"] > 0 and summary["swaps_failed"] == 0
    assert summary["swapped_in_bytes"] == summary["swapped_out_bytes"] > 0
    # Nothing was computed twice: that is what swapping is for.
    lengths = [len(ids) for ids in want.values()]
    assert summary["computed_tokens"] < 12 * 64 + sum(lengths)


@pytest.mark.parametrize("swap", ["200K", "128M"])
def test_swap_space_too_small_or_refused(root, start, serve, model_dirs, swap):
    want, tenant = swap_case(root, serve, model_dirs[0], start(**SWAP), "block-major", swap)
    summary = tenant.go().wait(120)
    assert tenant.tokens() == want
    assert summary["preemptions"] > 0
    if swap == "128M":
        assert summary["swapped_out_bytes"] == 0
        assert "no swap space" in tenant.log.read_text() and "swap-max" in tenant.log.read_text()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_swap_survives_xfer(root, start, serve, model_dirs, layout):
    """Killed again and again while blocks come and go; what was being copied is copied again."""
    d = start(**SWAP)
    want, tenant = swap_case(root, serve, model_dirs[0], d, layout)
    tenant.go()
    for n in range(1, 7):
        tenant.wait_requests(n)
        old = wait_until(lambda: d.status()["xfer"]["up"] and d.status()["xfer"]["pid"], 60, "xfer")
        os.kill(old, signal.SIGKILL)
        wait_until(lambda: d.status()["xfer"]["up"] and d.status()["xfer"]["pid"] != old, 60,
                   "another xfer")
    summary = tenant.wait(120)
    assert tenant.tokens() == want
    assert summary["swapped_in_bytes"] > 0
