# SPDX-License-Identifier: Apache-2.0
"""The least that must work: a daemon, a tenant, its tokens, and all memory back."""

import json
import subprocess

import pytest

from programs import BIN, check_report, limit
from tenant import make_requests, plain_tokens

POLICIES = ["recompute", "elastic", "remap"]


@pytest.mark.parametrize("policy", POLICIES)
def test_one_tenant(root, start, serve, model_dirs, policy):
    d = start(policy=policy, pool="16M", page="64K")
    requests = make_requests(root / "requests.jsonl", 8)
    want = plain_tokens(root, model_dirs[0], requests)
    assert len(want) == 8 and all(want.values())
    tenant = serve("one", model_dirs[0], requests, d, extra=["--verify", "--kv-share", "4M"])
    assert tenant.tokens() == want


def test_two_tenants_share_a_model(root, start, serve, model_dirs):
    d = start(pool="16M", page="64K")
    requests = make_requests(root / "requests.jsonl", 12)
    want = plain_tokens(root, model_dirs[0], requests)
    tenants = [serve(name, model_dirs[0], requests, d) for name in ("a", "b")]
    for tenant in tenants:
        assert tenant.tokens() == want


def test_again_and_again(root, start, serve, model_dirs):
    """Memory of one tenant after the other comes back whole."""
    d = start(pool="4M", page="64K")
    requests = make_requests(root / "requests.jsonl", 3, output=(4, 8))
    want = plain_tokens(root, model_dirs[0], requests)
    for i in range(5):
        assert serve(f"t{i}", model_dirs[0], requests, d).tokens() == want
        d.check_accounts()


def check_ratios(result):
    """Of each policy to recompute, from the very numbers beside them."""
    assert result["ratios_to"] == "recompute" and set(result["ratios"]) == {"elastic", "remap"}
    base = result["results"]["recompute"]
    keys = {"throughput": "throughput_tok_s", "preemptions": "preemptions",
            **{f"{what}_p{n}": f"{what}_p{n}_s" for what in ("ttft", "tbt") for n in (50, 99)}}
    for policy, ratios in result["ratios"].items():
        assert set(ratios) == set(keys)
        for key, of in keys.items():
            want = result["results"][policy][of] / base[of] if base[of] else None
            assert ratios[key] == (want and pytest.approx(want)), (policy, key)


def test_mmbench(root, model_dirs):
    """A short run of the benchmark: its JSON is what it promises, and it leaves nothing behind."""
    done = subprocess.run(
        [str(BIN / "mmbench"), "serve", "--models", ",".join(map(str, model_dirs)), "--synthetic",
         "--duration", "12", "--page", "64K", "--token-scale", "0.3", "--json", "--verify",
         "--keep", str(root / "k")],
        capture_output=True, timeout=limit(120), check=False)
    assert done.returncode == 0, done.stderr.decode()
    result = json.loads(done.stdout.decode().splitlines()[-1])
    assert result["schema"] == 1 and result["device"] == "software" and result["tenants"] == 3
    assert result["mode"] == "functional" and result["token_mismatches"] == 0
    common = {"requests", "tokens", "throughput_tok_s", "ttft_p50_s", "ttft_p99_s", "tbt_p50_s",
              "tbt_p99_s", "preemptions"}
    for policy in POLICIES:
        got = result["results"][policy]
        assert common <= set(got) and got["requests"] > 0 and got["throughput_tok_s"] > 0
    assert {"layers_remapped_max", "bytes_streamed", "stall_p99_s"} <= set(result["results"]["remap"])
    check_ratios(result)
    words = done.stdout.decode()
    assert "What it means: remap against recompute" in words and "What to try next" in words
    assert "DIFFER" not in words
    for log in (root / "k").rglob("*.log"):
        check_report(log)
