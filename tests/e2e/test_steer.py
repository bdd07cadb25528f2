# SPDX-License-Identifier: Apache-2.0
"""What the operator has one tenant do: mmctl revoke, drain, activate, pin."""

import json
import os
import signal
import subprocess
import sys
import textwrap

import abi
from kvclient import KvClient
from programs import BIN, limit, wait_until
from tenant import make_requests

PAGE = 16 << 10


def tenant_of(d, name):
    return next(t for t in d.tenants() if t["name"] == name)


def begin(d, *args):
    return subprocess.Popen([str(BIN / "mmctl"), "--dir", str(d.dir), "--json", *map(str, args)],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=d.env)


def end(ctl, status=0):
    out, err = ctl.communicate(timeout=limit(60))
    assert ctl.returncode == status, err
    return json.loads(out) if out else err


def holder(d, chunks, name=b"greedy"):
    client = KvClient(d, PAGE, name=name)
    client.want(chunks)
    wait_until(lambda: client.look() and len(client.chunks) == chunks, 20, "all of it to be granted")
    return client


def kill_core(d):
    os.kill(*d.pids("core"), signal.SIGKILL)
    wait_until(d.answers, 20, "the next core")


def release(client, n):
    for _ in range(n):
        client.push(abi.MM_OP_KV_RELEASE, (client.chunks.pop(),))


def test_revoke(start):
    """What it holds beyond its share comes back, by the ladder; a question changes nothing."""
    d = start(policy="remap", pool="2M", page="16K")
    with holder(d, 20) as client:
        assert d.ctl("revoke", "greedy", "--dry-run")["bytes"] == 20 * PAGE
        assert tenant_of(d, "greedy")["kv_chunks_revoking"] == 0 and not client.asked
        ctl = begin(d, "revoke", "greedy")
        wait_until(lambda: client.look() and client.asked == 20, 20, "the reclaim")
        assert tenant_of(d, "greedy")["kv_chunks_revoking"] == 20
        why = d.ctl("plan", "why", "greedy")["devices"][0]["tenants"][0]
        assert why["has"]["kv_chunks_revoking"] == 20
        assert any("revoked by the operator" in s for s in why["sentences"]), why["sentences"]
        # A core that takes over goes on with it.
        kill_core(d)
        release(client, 20)
        answer = end(ctl)
        assert answer["outcome"] == "done" and answer["bytes"] == 20 * PAGE
        assert tenant_of(d, "greedy")["kv_chunks"] == 0
        assert d.ctl("revoke", "greedy")["outcome"] == "nothing"


STUBBORN = textwrap.dedent("""
    import sys, time
    sys.path[:0] = sys.argv[3:]
    import pathlib, types, kvclient
    daemon = types.SimpleNamespace(dir=pathlib.Path(sys.argv[1]))
    client = kvclient.KvClient(daemon, 16384, name=b"stubborn")
    client.want(8)
    while client.look() and len(client.chunks) < 8:
        time.sleep(0.01)
    pathlib.Path(sys.argv[2]).touch()
    time.sleep(1000)
""")


def test_who_does_not_give_is_killed(root, start):
    d = start(policy="remap", pool="2M", page="16K", extra=["--reclaim-timeout", "300"])
    there = root / "there"
    stubborn = subprocess.Popen([sys.executable, "-c", STUBBORN, d.dir, there, *sys.path])
    wait_until(there.exists, 20, "the tenant to hold its memory")
    assert end(begin(d, "revoke", "stubborn"))["outcome"] == "gone"
    assert stubborn.wait(limit(20)) == -signal.SIGKILL
    wait_until(lambda: d.free_pages() == d.pool_pages(), 20, "its pages")


def test_drain(start):
    """Nothing new, the tenant is told, and the command ends when it has gone or is empty."""
    d = start(policy="remap", pool="2M", page="16K")
    with holder(d, 4, b"one") as client:
        answer = d.ctl("drain", "one", "--no-wait", "--within", 500)
        assert answer["drains"] and answer["outcome"] == "begun" and not answer["told"]
        client.want(8)
        wait_until(lambda: client.look() and client.denials, 20, "a denial")
        assert len(client.chunks) == 4
        kill_core(d)
        wait_until(lambda: tenant_of(d, "one")["drains"], 20, "a core that goes on with it")
        assert 0 < tenant_of(d, "one")["drain_left_ns"] <= 500e9
        assert d.ctl("drain", "one", "--cancel")["outcome"] == "cancelled"
        client.want(8)
        wait_until(lambda: client.look() and len(client.chunks) == 8, 20, "more memory")
        ctl = begin(d, "drain", "one")
        wait_until(lambda: tenant_of(d, "one")["drains"], 20, "the order")
        release(client, 8)
        assert end(ctl)["outcome"] == "empty"
        # Its time is over at once: its connection ends.
        assert end(begin(d, "drain", "one", "--within", 0))["outcome"] in ("gone", "empty")
        wait_until(lambda: not client.look(), 20, "the end of the connection")


def test_drained_engine_leaves(root, start, serve, model_dirs):
    """mmserve ends when it is told, and its memory is free."""
    d = start()
    engine = serve("one", model_dirs[0], make_requests(root / "requests.jsonl", 4), d, sync=True).ready()
    answer = end(begin(d, "drain", "one", "--within", 300))
    assert answer["told"] and answer["outcome"] in ("gone", "empty")
    assert engine.process.wait(limit(20)) == 1
    wait_until(lambda: d.free_pages() == d.pool_pages(), 20, "its pages")


def test_layers_at_home(root, start, serve, model_dirs):
    """activate brings layers home once, pin keeps them there, over a restart of core."""
    d = start(policy="remap", pool="8M", page="16K")
    engine = serve("t", model_dirs[0], make_requests(root / "requests.jsonl", 4), d, sync=True).ready()
    d.ctl("plan", "set", "t", "--layers", 3)
    wait_until(lambda: tenant_of(d, "t")["alpha"] == 3, 20, "layers to leave")
    answer = end(begin(d, "activate", "t"))
    assert answer["outcome"] == "done" and answer["bytes"] > 0
    tenant = tenant_of(d, "t")
    assert tenant["alpha"] == 0 and tenant["alpha_by_hand"] is None and not tenant["model_activates"]
    assert end(begin(d, "pin", "t"))["model_pinned"]
    kill_core(d)
    d.ctl("plan", "set", "t", "--layers", 3)
    tenant = tenant_of(d, "t")
    assert tenant["model_pinned"] and tenant["alpha"] == 0 and tenant["alpha_by_hand"] == 3
    why = d.ctl("plan", "why", "t")["devices"][0]["tenants"][0]
    assert why["has"]["pinned"]
    d.ctl("unpin", "t")
    wait_until(lambda: tenant_of(d, "t")["alpha"] == 3, 20, "the plan to be in force")
    engine.go()
    engine.tokens(120)


def test_refusals(start):
    d = start(policy="remap", pool="2M", page="16K")
    with holder(d, 4, b"holder"):
        for verb in ("pin", "activate"):
            code, _, errors = d.ctl(verb, "holder", check=False)
            assert code == 1 and "holder: it has no model that is ready" in errors
        code, _, errors = d.ctl("revoke", "holdr", check=False)
        assert code == 1 and "holdr: no such tenant; did you mean holder?" in errors
        code, _, errors = d.ctl("drain", "nobody-at-all", check=False)
        assert code == 1 and errors.strip().endswith("no such tenant")
