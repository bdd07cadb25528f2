# SPDX-License-Identifier: Apache-2.0
"""
kill -9 of core while models are loaded, attached by keys, streamed from a disk and swapped: stores outlive it.

A load that was under way begins again, its tenant gets one answer, and nothing is left behind: no store, no file,
no descriptor at keeper. The number of kills is MM_RESTART_KILLS.
"""

import errno
import os
import pathlib
import signal
import time

import pytest

import models
from children import as_user, ended
from programs import LONG, SANITIZE, check_report, wait_until
from tenant import make_requests, plain_tokens
from test_chaos import Bystander, bystanders, cycle_plans
from test_keys import KEY, attaches, commits, keys_of, once
from test_kv import SWAP, swap_case
from test_restart import await_core, core_of, kill_core
from test_tier import BUDGET, disk, on_disk  # pylint: disable=unused-import # disk is a fixture

KILLS = int(os.environ.get("MM_RESTART_KILLS", (4 if SANITIZE else 12) * (20 if LONG else 1)))


def names_held(d):
    """The descriptors that keeper holds, by what they are of."""
    kinds = {}
    for fd in pathlib.Path(f"/proc/{d.process.pid}/fd").glob("*"):
        try:
            name = os.readlink(fd).split(":[")[0]
        except OSError:
            continue
        kinds[name] = kinds.get(name, 0) + 1
    return kinds


class Held:
    """What keeper holds must be the same at the end, once a core has taken over and dropped the rest."""

    def __init__(self, d):
        self.d = d
        kill_core(d)
        await_core(d)
        self.before = names_held(d)

    def check(self):
        wait_until(lambda: not self.d.tenants(), 30, "the tenants to go")
        wait_until(lambda: not self.d.status()["stores"], 30, "the stores to go")
        kill_core(self.d)
        await_core(self.d)
        wait_until(lambda: names_held(self.d) == self.before, 30,
                   f"keeper to hold {self.before} again, not {names_held(self.d)}")
        assert self.d.status()["host_store_bytes"] == self.d.status()["xfer"]["stage_bytes"]
        self.d.check_accounts()


def test_loads(root, start, serve, model_dirs, rng):
    """Models arrive all the time, also two tenants with the same one; each arrives, at one try of its tenant."""
    d = start(policy="remap", pool="16M", page="16K")
    held = Held(d)
    witness = Bystander(serve, root, d, "witness", model_dirs[0], 1)
    requests = make_requests(root / "n.requests", 2, output=(4, 8))
    model = models.random_model(root / "m", seed=3, layers=4)
    want = plain_tokens(root, model, requests)
    killed = 0
    while killed < KILLS:
        witness.poke()
        newcomers = [serve(f"n{i}", model, requests, d) for i in range(2)]
        if rng.random() < 0.7:
            wait_until(lambda: d.pids("load") or not newcomers[0].running(), 20, "a load", every=0.0005)
        time.sleep(rng.choice([0, 0.001, 0.005, 0.05]))
        killed += kill_core(d)
        await_core(d)
        for newcomer in newcomers:
            wait_until(lambda n=newcomer: not n.running(), 120, "a newcomer to be served")
            assert newcomer.tokens() == want
            check_report(newcomer.log)
        d.check_accounts()
    witness.finish()
    held.check()


def test_disk(root, start, serve, model_dirs, disk, rng):  # pylint: disable=redefined-outer-name
    """Layers that cycle from a file while cores, and sometimes xfer, come and go."""
    d = start(policy="remap", pool="8M", page="16K", extra=on_disk(disk))
    held = Held(d)
    tenants = bystanders(serve, root, d, model_dirs)
    killed = 0
    while killed < KILLS:
        for t in tenants:
            t.poke()
        cycle_plans(d, rng.choice(["t0", "t1"]), rng)
        time.sleep(rng.uniform(0.02, 0.4))
        killed += kill_core(d)
        if rng.random() < 0.3:
            for pid in d.pids("xfer"):
                os.kill(pid, signal.SIGKILL)
        await_core(d)
    for t in tenants:
        t.finish()
    assert d.process.poll() is None
    held.check()
    wait_until(lambda: not d.pids("spool"), 30, "the spools to go")


@pytest.mark.parametrize("layout", ["block-major"])
def test_swap(root, start, serve, model_dirs, layout, rng):
    """KV goes out and comes in while cores come and go."""
    d = start(**SWAP)
    held = Held(d)
    want, tenant = swap_case(root, serve, model_dirs[0], d, layout)
    tenant.go()
    killed = 0
    while killed < KILLS and tenant.running():
        time.sleep(rng.uniform(0.02, 0.3))
        killed += kill_core(d)
    await_core(d)
    assert tenant.tokens(120) == want
    assert killed
    held.check()


def test_keys(start, root):
    """A key is found after the end of the core to which it was committed, and goes with its owner."""
    d = start(pool="16M", page="16K")
    root.chmod(0o711)
    uid = os.geteuid()
    held = Held(d)
    owner = as_user(uid, commits, d, KEY, 1)
    assert owner[0][0] == 0, owner
    assert [key[0] for key in keys_of(d)] == [KEY.decode()]
    for _ in range(3):
        before = core_of(d)
        assert kill_core(d)
        await_core(d)
        assert core_of(d) != before
        assert [key[0] for key in keys_of(d)] == [KEY.decode()]
        assert once(uid, attaches, d, KEY)[0] == 0
        assert once(uid, attaches, d, KEY + b"x")[0] == -errno.ENOENT
    ended(owner)
    wait_until(lambda: not keys_of(d), 60, "the key to go with its owner")
    held.check()


def test_half_filled(root, start, serve, rng):
    """A store that a load fills when core dies goes, and is filled anew."""
    model = models.random_model(root / "big", seed=7, hidden=512, layers=6, heads=8, kv_heads=2, ffn=1408)
    d = start(pool="64M", page="64K")
    held = Held(d)
    requests = make_requests(root / "requests.jsonl", 1, output=(2, 3))
    want = plain_tokens(root, model, requests)
    for _ in range(3):
        tenant = serve("t", model, requests, d)
        wait_until(lambda: d.status()["stores"] or not tenant.running(), 60, "a store", every=0.001)
        time.sleep(rng.uniform(0, 0.02))
        kill_core(d)
        await_core(d)
        assert tenant.tokens(120) == want
    held.check()
