# SPDX-License-Identifier: Apache-2.0
"""
kill -9 of core while all that mmd does goes on at once: plans change by KV pressure, KV goes to the host and back,
turns go round, models are loaded and shared, layers come from a disk, quotas change.

No token is lost or changed, no page is quarantined, and each of these things did happen, which is counted. The number
of kills is MM_RESTART_KILLS.
"""

import os
import re
import threading
import time

import models
from programs import LONG, wait_until
from test_chaos import Bystander
from test_restart import await_core, check_resumed, kill_core
from test_restart_stores import Held
from test_tier import BUDGET, disk, on_disk  # pylint: disable=unused-import # disk is a fixture

KILLS = int(os.environ.get("MM_RESTART_KILLS", 12 * (80 if LONG else 1)))
POOL = 3200  # KiB
IN_TURNS = ["--turns", "quantum", "--quantum", "20", "--kv-share", "256K", "--block-tokens", "8", "--swap-tokens", "4",
            "--kv-idle", "20"]


class Operator(threading.Thread):
    """Changes the quota of the tenants' account all the time, by mmctl: limits, weights, priorities."""

    def __init__(self, d, rng):
        super().__init__(daemon=True)
        self.d, self.over, self.outcomes, self.failed = d, threading.Event(), {}, []
        self.account = f"uid:{os.geteuid()}"
        self.draw = type(rng)(rng.random())

    def run(self):
        while not self.over.wait(self.draw.uniform(0.05, 0.3)):
            change = self.draw.choice([["--max", f"{self.draw.randrange(POOL * 3 // 4, POOL)}K"], ["--max", "0"],
                                       ["--min", f"{self.draw.randrange(0, 512)}K"],
                                       ["--weight", self.draw.randrange(1, 1000)],
                                       ["--priority", self.draw.randrange(8)]])
            code, text, errors = self.d.ctl("quota", "set", self.account, *change, check=False)
            outcome = re.search(r'"outcome": ?"(\w+)"', text)
            if outcome:
                self.outcomes[outcome[1]] = self.outcomes.get(outcome[1], 0) + 1
            if code:
                self.failed.append((change, text, errors))

    def end(self):
        self.over.set()
        self.join()


class Everything:
    """The tenants, and what became of them."""

    def __init__(self, root, serve, d, model_dirs, rng):
        self.d, self.rng = d, rng
        # The first model finds room in host memory, the second lies on disk.
        self.steady = [Bystander(serve, root, d, f"t{i}", model_dirs[i], i, IN_TURNS, n=12, prompt=(32, 64),
                                 output=(60, 100)) for i in range(2)]
        short = {"n": 2, "output": (4, 8)}
        self.guests = {"filled": Bystander(serve, root, d, "filled", models.random_model(root / "m", seed=9, layers=4),
                                           7, **short),
                       "shared": Bystander(serve, root, d, "shared", model_dirs[1], 8, **short)}
        self.guest = None
        self.on_disk = set()  # stores that were seen
        self.operator = Operator(d, rng)

    def begin(self):
        for t in self.steady:
            t.poke()
            wait_until(t.has_model, 60, "the models", every=0.001)
        self.operator.start()

    def poke(self):
        for t in self.steady:
            t.poke()
        if self.guest is not None and self.guest.tenant.running():
            return
        if self.guest is not None:
            self.guest.finish()
        self.guest = self.guests[self.rng.choice(["filled", "shared"])]
        self.guest.poke()

    def finish(self):
        self.operator.end()
        for t in (*self.steady, self.guest):
            t.finish()

    def counts(self):
        """What happened so far, by what it is."""
        status = self.d.status()
        self.on_disk |= {s["store"] for s in status["stores"] if s["tier"] == "disk"}
        log = self.d.log.read_text(errors="replace")
        done = [s for t in (*self.steady, *self.guests.values()) for s in t.summaries]
        ended = re.findall(r"event=load.ended .* result=0 shared=(\d)", log)
        return {
            "plan changes": status["plan_changes"], "layers taken": status["takes"],
            "layers returned": status["returns"], "grants": status["grants"], "turns": status["turns"],
            "bytes swapped out": sum(s["swapped_out_bytes"] for s in done),
            "bytes swapped in": sum(s["swapped_in_bytes"] for s in done),
            "bytes streamed": status["bytes_streamed"], "stores on disk": len(self.on_disk),
            "loads that filled a store": ended.count("0"), "loads that shared one": ended.count("1"),
            "quotas applied": self.operator.outcomes.get("applied", 0),
            "requests": sum(s["requests"] for s in done), "tokens": sum(s["tokens"] for s in done),
        }


def check_no_doubt(d):
    """Each page is in one state, and for none it had to be doubted which."""
    d.check_accounts()
    assert d.page_states()["quarantine"] == 0, d.page_states()


def test_kill_core(root, start, serve, model_dirs, disk, rng):  # pylint: disable=redefined-outer-name
    d = start(policy="remap", pool=f"{POOL}K", page="16K",
              extra=[*on_disk(disk, BUDGET + (1 << 20)), "--swap-max", "64M", "--controller", "mode=turns"])
    held = Held(d)
    all_of_it = Everything(root, serve, d, model_dirs, rng)
    all_of_it.begin()
    killed, least = 0, max(1, KILLS // 50)
    until = time.monotonic() + 3000
    while min(all_of_it.counts().values()) < least or killed < KILLS:
        all_of_it.poke()
        time.sleep(rng.uniform(0.02, 0.4))
        killed += kill_core(d)
        await_core(d)
        check_no_doubt(d)
        assert time.monotonic() < until, all_of_it.counts()
    all_of_it.finish()
    check_no_doubt(d)
    print(f"{killed} kills, {all_of_it.counts()}")
    check_resumed(d, killed)
    held.check()
