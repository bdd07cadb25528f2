# SPDX-License-Identifier: Apache-2.0
"""The KV arena: in either layout tokens are the same, chunks come and go, and go back when unused."""

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
