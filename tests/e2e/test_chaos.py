# SPDX-License-Identifier: Apache-2.0
"""
kill -9 of tenants, of xfer and of load at random moments inside one long run each; then all at once.

Whatever is killed: bystanders' tokens stay what they are, every page is accounted for at any time and
free at the end, and nothing hangs. The number of kills is MM_CHAOS_KILLS.
"""

import json
import os
import signal
import subprocess
import time

import pytest

import models
from daemon import alive, role_of
from programs import BIN, PATIENT, SANITIZE, LONG, check_report, limit, wait_until
from tenant import make_requests, plain_tokens

KILLS = int(os.environ.get("MM_CHAOS_KILLS", (8 if SANITIZE else 40) * (25 if LONG else 1)))


class Bystander:
    """A tenant that must not notice: it serves the same requests over and over."""

    def __init__(self, serve, root, daemon, name, model, seed, extra=(), n=10, prompt=(8, 24), output=(30, 60)):
        self.serve, self.daemon, self.name, self.model, self.extra = serve, daemon, name, model, extra
        self.requests = make_requests(root / f"{name}.requests", n, prompt=prompt, output=output, seed=seed)
        self.want = plain_tokens(root, model, self.requests)
        self.rounds, self.tenant, self.summaries = 0, None, []

    def poke(self):
        """Judges a finished round and starts the next."""
        if self.tenant is not None:
            if self.tenant.running():
                return
            self.finish()
        self.tenant = self.serve(self.name, self.model, self.requests, self.daemon,
                                 extra=["--verify", *self.extra])

    def has_model(self):
        """Of this round: mmd may not have forgotten the one before yet."""
        ready = [t for t in self.daemon.tenants() if t["pid"] == self.tenant.process.pid and t["model_ready"]]
        return ready or not self.tenant.running()

    def finish(self):
        self.summaries.append(self.tenant.wait(120))
        assert self.tenant.tokens() == self.want, f"{self.name}: other tokens in round {self.rounds}"
        self.rounds += 1
        self.tenant = None


def bystanders(serve, root, daemon, models_of_them):
    """Two of them, t0 and t1."""
    return [Bystander(serve, root, daemon, f"t{i}", models_of_them[i], i) for i in range(2)]


def kill_role(d, role, rng):
    """At a random moment: True when there was one and it is gone."""
    time.sleep(rng.uniform(0, 0.05))
    for pid in d.pids(role):
        if role_of(pid) == role:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                return False
            wait_until(lambda p=pid: not alive(p), 10, f"{role} to die")
            return True
    return False


def await_xfer(d):
    """After six deaths in a row without one that proved itself mmd gives up, and rightly."""
    def up():
        xfer = d.status()["xfer"]
        return xfer["proven"] and xfer["pid"] in d.pids("xfer")  # core may not know of its death yet

    wait_until(up, 60, "xfer to be up again")


def cycle_plans(d, name, rng):
    """Keeps the plan moving, so that kills meet every phase of a change."""
    d.ctl("plan", "set", name, "--layers", rng.randrange(8), "--slots", rng.choice([1, 2, "auto"]), check=False)


def test_kill_tenants(root, start, serve, model_dirs, rng):
    d = start(policy="remap", pool="8M", page="16K")
    witness = Bystander(serve, root, d, "witness", model_dirs[0], 1)
    requests = make_requests(root / "victim.requests", 20, output=(40, 90))
    for _ in range(KILLS):
        witness.poke()
        victim = serve("victim", model_dirs[1], requests, d)
        if rng.random() < 0.7:
            wait_until(lambda v=victim: d.tenant("victim") or not v.running(), 20, "victim to join")
        time.sleep(rng.uniform(0, 0.3))
        if rng.random() < 0.5:
            cycle_plans(d, rng.choice(["victim", "witness"]), rng)
        victim.kill()
        check_report(victim.log)
        d.check_accounts()
    witness.finish()
    assert d.pids("xfer") and d.process.poll() is None


def test_kill_xfer(root, start, serve, model_dirs, rng):
    d = start(policy="remap", pool="8M", page="16K")
    tenants = bystanders(serve, root, d, model_dirs)
    killed = 0
    while killed < KILLS:
        for t in tenants:
            t.poke()
        cycle_plans(d, rng.choice(["t0", "t1"]), rng)
        wait_until(lambda: d.pids("xfer"), 20, "xfer to be started again")
        # Some kills come while the new one still adopts, most while it works.
        time.sleep(rng.choice([0, 0.02, 0.2]))
        killed += kill_role(d, "xfer", rng)
        d.check_accounts()
        if killed % 3 == 0:
            await_xfer(d)
    for t in tenants:
        t.finish()
    wait_until(lambda: d.pids("xfer"), 20, "xfer to be started again")


def test_kill_load(root, start, serve, model_dirs, rng):
    """Models arrive all the time; a load that dies costs its own tenant the model, nobody else."""
    d = start(policy="remap", pool="16M", page="16K")
    witness = Bystander(serve, root, d, "witness", model_dirs[0], 1)
    requests = make_requests(root / "n.requests", 1, output=(2, 2))
    killed = arrived = refused = 0
    while killed < KILLS:
        witness.poke()
        wait_until(witness.has_model, 20, "the witness to have its model")
        # A new model each time: one that is known already needs no load for long.
        model = models.random_model(root / f"m{arrived}", seed=arrived, layers=4)
        newcomer = serve("newcomer", model, requests, d)
        arrived += 1
        wait_until(lambda: d.pids("load") or not newcomer.running(), 20, "a load", every=0.0005)
        time.sleep(rng.choice([0, 0.001, 0.005]))
        killed += kill_load_now(d)
        wait_until(lambda n=newcomer: not n.running(), 60, "the newcomer to be served or refused")
        check_report(newcomer.log)
        refused += newcomer.process.returncode != 0
        d.check_accounts()
        assert arrived < 20 * KILLS, f"only {killed} of {arrived} loads could be hit"
    witness.finish()
    # libclient tries again after one death, so most newcomers are served all the same.
    died = d.status()["load_deaths"]
    print(f"{killed} kills, {died} loads died, {refused} of {arrived} models were refused")
    assert died >= max(1, killed // 4), f"{killed} kills, but only {died} loads died"
    good = serve("good", model_dirs[1], requests, d)
    good.wait()


def kill_load_now(d):
    for pid in d.pids("load"):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
        return 1
    return 0


@pytest.mark.parametrize("policy", ["recompute", "elastic", "remap"])
def test_kill_everything(root, start, serve, model_dirs, rng, policy):
    """All at once, under each policy, with memory short."""
    d = start(policy=policy, pool="3M", page="16K", extra=PATIENT)
    witness = Bystander(serve, root, d, "witness", model_dirs[0], 1, extra=["--kv-share", "256K"])
    requests = make_requests(root / "v.requests", 20, output=(40, 90))
    victims = {}
    for _ in range(max(KILLS // 5, 4)):
        witness.poke()
        name = f"v{rng.randrange(2)}"
        if name in victims:
            victims.pop(name).kill()
        victims[name] = serve(name, model_dirs[1], requests, d, extra=["--kv-share", "256K"])
        if rng.random() < 0.3:
            await_xfer(d)
            role = rng.choice(["xfer", "load"])
            if role == "load":  # whose second death costs a tenant its model
                wait_until(witness.has_model, 60, "the witness to have its model")
            kill_role(d, role, rng)
        time.sleep(rng.uniform(0, 0.2))
        d.check_accounts()
    witness.finish()
    for victim in victims.values():
        victim.kill()
    wait_until(lambda: d.pids("xfer"), 20, "xfer to be started again")


def test_all_at_once(seed):
    """mmbench chaos: kills, hostile tenants of other users, faults of the device, all at the same time."""
    done = subprocess.run([str(BIN / "mmbench"), "chaos", "--seconds", str(60 if LONG else 2 if SANITIZE else 4), "--seed",
                           str(seed), "--json"], capture_output=True, text=True, check=False,
                          timeout=limit(400))
    assert done.stdout, done.stderr
    result = json.loads(done.stdout)
    print(result)
    assert done.returncode == 0, result["first"]
    assert result["token_mismatches"] == result["pages_leaked"] == result["foreign_bytes_read"] == 0
    assert result["tenant_kills"] + result["kills_missed"] >= 4 and result["xfer_kills"] >= 1
    assert result["hostile_acts"] > 0 and result["tokens"] > 0 and result["pages_read"] >= 1536
