# SPDX-License-Identifier: Apache-2.0
"""Three tenants in memory that is really short: layers move to whoever needs KV, and come back."""

import subprocess
import threading
import time

import pytest

from programs import BIN, PATIENT, last_line, limit, some, wait_until
from tenant import make_requests, plain_tokens


class Watch(threading.Thread):
    """Samples the daemon, and that its books are right, all the time."""

    def __init__(self, d):
        super().__init__(daemon=True)
        self.mmd, self.done, self.samples, self.failure = d, threading.Event(), [], None

    def run(self):
        try:
            while not self.done.is_set():
                status = self.mmd.status()
                assert sum(status["pages"].values()) == status["pool_pages"], status["pages"]
                self.samples.append(status)
                time.sleep(0.02)
        except Exception as error:  # shown by finish(), in the test's own thread
            self.failure = error

    def finish(self):
        self.done.set()
        self.join(limit(60))
        assert not self.is_alive(), "mmd does not answer"
        if self.failure:
            raise self.failure
        return self.samples


@pytest.mark.parametrize("policy", some(["elastic", "remap"], ["remap"]))
def test_bursts(root, start, serve, model_dirs, policy):
    """Staggered bursts; the pool holds three models and little more, and all three stay to the end."""
    d = start(policy=policy, pool="3200K", page="16K", extra=PATIENT)
    requests, want = [], []
    for i, model in enumerate(model_dirs):
        path = make_requests(root / f"{i}.jsonl", 14, prompt=(16, 64), output=(60, 120), seed=i)
        requests.append(path)
        want.append(plain_tokens(root, model, path))
    watch = Watch(d)
    watch.start()
    tenants = []
    for i, model in enumerate(model_dirs):
        tenants.append(serve(f"t{i}", model, requests[i], d,
                             extra=["--verify", "--kv-share", "256K"], sync=True))
        tenants[-1].ready().go().wait_requests(1)
    # The last one bursts while the others stand: memory is short however fast each of them was.
    for tenant, tokens in reversed(list(zip(tenants, want))):
        assert tenant.tokens(120) == tokens
    watch.finish()
    most = d.status()["alpha_sum_max"]
    if policy == "elastic":
        assert most == 0
        return
    assert most >= 1, "no layer was ever taken: memory was not short"


def test_layers_come_back(root, start, serve, model_dirs):
    """One tenant idles while the other is short; when that has ended, the idle one is whole again."""
    d = start(policy="remap", pool="2200K", page="16K")
    late = make_requests(root / "late.jsonl", 2, output=(2, 4))
    many = make_requests(root / "many.jsonl", 16, prompt=(32, 64), output=(80, 120))
    want_late = plain_tokens(root, model_dirs[0], late)
    want_many = plain_tokens(root, model_dirs[1], many)
    # It stands with its model in memory until go(), however long the other takes.
    idle = serve("idle", model_dirs[0], late, d, extra=["--verify"], sync=True).ready()

    def burst():
        """Once is enough, unless mmd is so slow that all has been computed before it has moved a layer."""
        assert serve("busy", model_dirs[1], many, d, extra=["--verify"]).tokens(120) == want_many
        return d.status()["alpha_sum_max"] >= 1

    wait_until(burst, 60, "a layer to be taken: memory was not short")
    wait_until(lambda: d.status()["alpha_sum"] == 0, 60, "layers to come back")
    assert idle.running(), f"the idle tenant has ended: {last_line(idle.log)}"
    assert idle.go().tokens() == want_late


def explained(d, name):
    """What plan why says of a tenant and its device."""
    device = d.ctl("plan", "why", name)["devices"][0]
    assert [t["name"] for t in device["tenants"]] == [name]
    return device, device["tenants"][0]


def test_why(root, start, serve, model_dirs):
    """While one lends to another, plan why says who and why; when the load is gone, that nobody does."""
    d = start(policy="remap", pool="2200K", page="16K")
    few = make_requests(root / "few.jsonl", 2, output=(2, 4))
    endless = make_requests(root / "endless.jsonl", 400, prompt=(32, 64), output=(200, 400))
    want = plain_tokens(root, model_dirs[0], few)
    idle = serve("idle", model_dirs[0], few, d, extra=["--verify"], sync=True).ready()
    assert explained(d, "idle")[1]["has"]["alpha"] == 0
    busy = serve("busy", model_dirs[1], endless, d)
    seen = {}

    def lends():
        device, tenant = explained(d, "idle")
        if tenant["has"]["alpha"] and tenant["target"]["alpha"]:
            seen.update(device=device, tenant=tenant)
        return seen

    wait_until(lends, 60, "a layer to be lent")
    assert seen["tenant"]["role"] == "idle" and seen["tenant"]["target"]["why"] == "idle"
    assert any("to those that compute, because it is idle" in s for s in seen["tenant"]["sentences"]), seen
    assert any("those of idle" in s for s in seen["device"]["sentences"]), seen
    done = subprocess.run([str(BIN / "mmctl"), "--dir", str(d.dir), "plan", "why"], check=True,
                          capture_output=True, text=True, timeout=limit(20))
    for part in ("device 0:", "idle (tenant ", "busy (tenant ", "busy has work and computes"):
        assert part in done.stdout, done.stdout
    assert "turns: No model takes turns" in subprocess.run(
        [str(BIN / "mmctl"), "--dir", str(d.dir), "status"], check=True, capture_output=True, text=True,
        timeout=limit(20)).stdout
    busy.kill()
    wait_until(lambda: explained(d, "idle")[1]["has"]["alpha"] == 0, 60, "the layers to return")
    device, tenant = explained(d, "idle")
    assert "No model has layers away." in device["sentences"], device
    assert "No model with work lacks KV cache." in device["sentences"], device
    assert any(s.startswith("Nobody lacks memory") for s in tenant["sentences"]), tenant
    assert idle.go().tokens() == want
    code, _, errors = d.ctl("plan", "why", "nobody", check=False)
    assert code == 1 and "nobody: no such tenant" in errors
