# SPDX-License-Identifier: Apache-2.0
"""
Faults from below: a call of the C library or of the driver fails, in one role, while tenants work.

A run without faults lists the sites (places in the program) from which each role calls; then a call at one of them
fails, and the same work is done again, and so on: a sample by seed, or all of them with MM_TEST_LONG. Whichever it is:
a tenant is served, with the right tokens, or ends with one sentence; mmd goes on, or ends with one sentence; nothing
hangs, and afterwards every page is free and no descriptor and no process is left. testing.md says how to repeat one.
"""

import os
import signal
import subprocess
import threading
import time

import pytest

import below as below_module
import daemon as daemon_module
from below import FAIL
from faults import BAD_END, KeyedWork, PartsWork, Work
from programs import LONG, PATIENT, SANITIZE, last_line, limit, wait_until
from test_restart import await_core, core_of
from tenant import Tenant, make_requests
from test_tier import disk, end_lease, files_of, on_disk  # pylint: disable=unused-import # disk is a fixture

pytestmark = pytest.mark.skipif(bool(SANITIZE), reason="a sanitizer stands in the library's place")

HOLD_S = float(os.environ.get("MM_BELOW_HOLD_S", 12 if LONG else 3))
POINTS = int(os.environ.get("MM_BELOW_POINTS", 0 if LONG else 12))  # of each role; 0: all
ONLY = os.environ.get("MM_BELOW_ONLY", "")  # key:nth of a site, to repeat one


@pytest.fixture
def seed():
    """One sample for all runs of a build: a failure is the build's, and not the draw's. MM_TEST_LONG has all points."""
    value = int(os.environ.get("MM_TEST_SEED", 1))
    print(f"MM_TEST_SEED={value}")
    return value


def points_of(sites, rng, most=POINTS):
    """(site, nth): the first and the last call at each site, or @most of them; 0: all."""
    if ONLY:
        key, nth = ONLY.split(":")
        return [(site, int(nth)) for site in [*sites, below_module.Site("core", 0, 0, "any call")]
                if site.key == int(key, 0)]
    found = [(site, nth) for site in sites for nth in sorted({1, site.calls})]
    return found if not most or most >= len(found) else rng.sample(found, most)


class Loop:
    """The same work again and again, each time with another call that fails."""

    def __init__(self, root, place, below, model_dirs, role, work=Work):
        self.work, self.place, self.below, self.role = work(root, model_dirs), place, below, role
        self.victim_env = below.client_env() if role == "client" else None
        self.struck = self.ended = self.refused = self.points = 0
        self.must_survive = False
        self.failures = []
        self.log = root / "mmd.log"

    def learn(self):
        """The work without a fault: each site that it comes by, with the number of its calls."""
        self.place.up()
        self.below.forget_counts()
        served = self.work.run(self.place.daemon, self.victim_env)
        sites = [site for site in self.below.sites(self.role) if site.calls]
        assert all(served) and self.place.judge()
        return sites

    def strike(self, site, nth, action=FAIL, **order):
        """One point; what is wrong with it is kept for the end, when all are known."""
        text = f"MM_BELOW_ONLY={site.key:#x}:{nth} ({site}, call {nth} of {site.calls})"
        begun = time.monotonic()
        d = self.place.up()
        log_at = self.log.stat().st_size
        self.points += 1
        try:
            self.below.arm(self.role, nth, action, site.key, **order)
            served = self.work.run(d, self.victim_env)
            self.below.disarm()
            outcome = self.judged(d, served, self.place.judge())
        except AssertionError as e:
            outcome = self.failed(text, e)
        self.tell(site, text, outcome, begun, log_at)

    def failed(self, text, why):
        self.failures.append(f"{text}: {why}")
        self.place.kill()
        return f"FAILED: {why}"

    def tell(self, site, text, outcome, begun, log_at):
        """What became of a point, with the log since it began where that is of use."""
        lines = self.log.read_bytes()[log_at:].decode(errors="replace")
        bad = BAD_END.search(lines)
        if site.is_ours and bad:
            self.failures.append(f"{text}: {bad.group()}")
        seconds = time.monotonic() - begun
        print(f"{text}: {seconds:.2f} s, {outcome}")
        if bad or outcome.startswith("FAILED") or seconds > 10:
            print("    " + "\n    ".join(lines.splitlines()[-40:]))

    def judged(self, d, served, stays):
        struck = self.below.fired(self.role) > 0
        self.struck += struck
        self.ended += not stays
        self.refused += served.count(False)
        assert struck or (stays and all(served)), "something failed, and it was not the call"
        said = "".join(f", {name} not served: {last_line(self.work.root / f'{name}.log')}"
                       for name, good in zip(self.work.names, served) if not good)
        said += "" if stays else f", mmd ended: {last_line(d.log)}"
        assert not self.must_survive or (stays and all(served)), "somebody has noticed" + said
        assert served[0] or not stays or self.role != "client", "another tenant has noticed"
        return ("struck" if struck else "not reached") + said

    def finish(self):
        print(f"{self.role}: {self.points} points, {self.struck} struck, mmd ended {self.ended} times, "
              f"{self.refused} tenants not served, {len(self.failures)} failed")
        assert not self.failures, "\n".join(self.failures)
        self.place.down()


@pytest.mark.parametrize("role", ["core", "xfer", "load", "keeper", "log", "client"])
def test_one_fails(root, place, below, model_dirs, rng, role):
    loop = Loop(root, place(below, policy="remap", pool="3M", page="16K", extra=PATIENT), below, model_dirs, role)
    for site, nth in points_of(loop.learn(), rng):
        loop.strike(site, nth)
    loop.finish()


@pytest.mark.parametrize("role", ["core", "xfer", "spool", "load", "keeper"] if LONG else ["core", "xfer", "spool"])
def test_parts_fail(root, place, below, model_dirs, disk, rng, role):  # pylint: disable=redefined-outer-name
    """As test_one_fails(), beside what engines do besides: swap, memory, holds, turns, keys; stores lie on a disk."""
    options = {"policy": "remap", "pool": "16M", "page": "64K", "extra": [*PATIENT, "--swap-max", "4M", *on_disk(disk)]}
    loop = Loop(root, place(below, **options), below, model_dirs, role, PartsWork)
    for site, nth in points_of(loop.learn(), rng, (POINTS + 5) // 6):
        loop.strike(site, nth)
    loop.finish()


STUCK = 700  # CUDA_ERROR_ILLEGAL_ADDRESS: the context is gone, and each later call says so


def test_stuck(root, place, below, model_dirs, rng):
    """Sticky errors of the driver in xfer: a new xfer goes on with a new context, and nobody notices."""
    loop = Loop(root, place(below, policy="remap", pool="3M", page="16K", extra=PATIENT), below, model_dirs, "xfer")
    sites = [site for site in loop.learn() if site.is_driver]
    for site, nth in points_of(sites, rng):
        loop.strike(site, nth, below_module.STICKY, value=STUCK)
    loop.finish()


def kill_at_each(loop, action, rng, most=POINTS):
    """At the sites of core, and at any of its calls, all counted as one site."""
    loop.must_survive = True
    kill = below_module.KILL if action == "before" else below_module.KILL_AFTER
    sites = loop.learn()
    for site, nth in points_of(sites, rng, most):
        loop.strike(site, nth, kill)
    if not ONLY:
        every = below_module.Site("core", 0, sum(site.calls for site in sites), "any call")
        for nth in range(1, every.calls + 1) if not most else rng.sample(range(1, every.calls + 1), most):
            loop.strike(every, nth, kill)
    loop.finish()


@pytest.mark.parametrize("action", ["before", "after"])
def test_core_killed(root, place, below, model_dirs, rng, action):
    """
    SIGKILL in place of an error: before a call, and when it has been made. Each of core's acts that others see is a
    call, so a core is killed between any two of them; the next one goes on, and no tenant notices.
    """
    kill_at_each(Loop(root, place(below, policy="remap", pool="3M", page="16K", extra=PATIENT), below, model_dirs,
                      "core"), action, rng)


@pytest.mark.parametrize("action", ["before", "after"])
def test_core_killed_with_stores(root, place, below, model_dirs, disk, rng, action):  # pylint: disable=redefined-outer-name
    """As test_core_killed(); all stores lie on a disk, and one is found by its key: spools, keys and their ends."""
    options = {"policy": "remap", "pool": "5M", "page": "16K", "extra": [*PATIENT, *on_disk(disk)]}
    kill_at_each(Loop(root, place(below, **options), below, model_dirs, "core", KeyedWork), action, rng,
                 most=(POINTS + 11) // 12)


class Holder(threading.Thread):
    """Lets a process go on that an order has stopped, when every deadline has passed meanwhile."""

    def __init__(self, below, role):
        super().__init__(daemon=True)
        self.below, self.role, self.over = below, role, threading.Event()

    def run(self):
        while not self.over.is_set() and not self.below.fired(self.role):
            time.sleep(0.01)
        if self.below.fired(self.role):
            time.sleep(HOLD_S)
            self.below.resume(self.role)

    def end(self):
        self.over.set()
        self.join()


DEADLINES = ["--reclaim-timeout", "500", "--stop-timeout", "1000"]


def stop_at_each(loop, rng, most=2):
    """A process stands still at one call for longer than what it could be late for, and then goes on."""
    points = points_of(loop.learn(), rng)
    for i, (site, nth) in enumerate(points[:None if LONG or ONLY else most]):
        if loop.role == "core" and i % 4 == 3:
            loop.place.down()  # more than five such deaths of core in a minute would end this mmd
        holder = Holder(loop.below, loop.role)
        holder.start()
        try:
            loop.strike(site, nth, below_module.STOP)
        finally:
            holder.end()
    loop.finish()


@pytest.mark.parametrize("role", ["xfer", "load", "keeper", "log", "client"])
def test_stopped(root, place, below, model_dirs, rng, role):
    loop = Loop(root, place(below, policy="remap", pool="3M", page="16K", extra=DEADLINES), below, model_dirs, role)
    loop.work.may_kill = role == "client"  # who keeps pages that others must have
    stop_at_each(loop, rng)


def test_core_stopped(root, place, below, model_dirs, rng):
    """keeper kills a core that stands still; another one goes on, and nobody notices."""
    extra = [*PATIENT, "--core-timeout", str(min(1000, int(HOLD_S * 400)))]
    loop = Loop(root, place(below, policy="remap", pool="3M", page="16K", extra=extra), below, model_dirs, "core")
    loop.must_survive = True
    stop_at_each(loop, rng)
    assert LONG or ONLY or "core.killed" in loop.log.read_text()


def test_spool_stopped(root, place, below, model_dirs, disk, rng):  # pylint: disable=redefined-outer-name
    options = {"policy": "remap", "pool": "5M", "page": "16K", "extra": [*DEADLINES, *on_disk(disk)]}
    stop_at_each(Loop(root, place(below, **options), below, model_dirs, "spool", KeyedWork), rng, most=1)


class Beginning(Loop):
    """mmd begins, serves a tenant and ends, each time with another call that fails."""

    def learn(self):
        self.below.forget_counts()
        assert self.begin() and self.place.judge()
        self.place.down()
        return [site for site in self.below.sites(self.role) if site.calls]

    def begin(self):
        """Whether mmd is up. If not it has ended, and said why."""
        d = self.place.daemon = self.place.made()
        with open(d.log, "ab") as log:
            d.process = subprocess.Popen(d.args(), env=d.env, stderr=log, stdin=subprocess.DEVNULL, stdout=log)

        def decided():
            if d.process.poll() is not None:
                return True
            try:
                return d.free_pages() == d.pool_pages()
            except (OSError, ValueError, AssertionError, daemon_module.RpcError):
                return False  # the question itself may be what fails

        wait_until(decided, 60, "mmd to be up, or to end")
        if d.process.poll() is None:
            d.fds_at_start, d.first_xfer = d.settled_fds(), d.pids("xfer")
        return d.process.poll() is None

    def strike(self, site, nth, action=FAIL, **order):
        text = f"MM_BELOW_ONLY={site.key:#x}:{nth} ({site}, call {nth} of {site.calls})"
        begun, log_at = time.monotonic(), self.log.stat().st_size
        self.points += 1
        try:
            self.below.arm(self.role, nth, action, site.key, **order)
            up = self.begin()
            self.below.disarm()
            d = self.place.daemon
            if up:
                t = self.work.tenant(d, "first", 0)
                assert self.work.judged(t, self.work.want[0]), "a tenant is not served"
            stays = self.place.judge()
            self.struck += self.below.fired(self.role) > 0
            self.ended += not stays
            self.place.down()
            assert stays == up and (up or self.below.fired(self.role)), "mmd ended, and it was not the call"
            outcome = "mmd is up" if up else f"mmd ended: {last_line(d.log)}"
        except AssertionError as e:
            outcome = self.failed(text, e)
        self.tell(site, text, outcome, begun, log_at)


@pytest.mark.parametrize("role", ["keeper", "core", "xfer", "log"])
def test_begins(root, place, below, model_dirs, rng, role):
    loop = Beginning(root, place(below, policy="remap", pool="1M", page="16K"), below, model_dirs, role)
    for site, nth in points_of(loop.learn(), rng):
        loop.strike(site, nth)
    loop.finish()


def test_page_without_descriptor(root, place, below, model_dirs):
    """keeper has no memory for names while the pool is made, so that core lacks pages once it has died: a page that is
    free is created anew at once, none is lost or given to anybody, and tenants are served."""
    loop = Beginning(root, place(below, policy="remap", pool="3M", page="16K"), below, model_dirs, "keeper")
    lost = 0
    for site in [s for s in loop.learn() if s.name == "calloc"]:
        for nth in range(1, min(site.calls, 4) + 1):
            below.arm("keeper", nth, FAIL, site.key)
            up = loop.begin()
            below.disarm()
            if not up:
                assert loop.place.ended()
                continue
            d = loop.place.daemon
            os.kill(core_of(d), signal.SIGKILL)
            await_core(d)
            lost += "page.lost" in d.log.read_text()
            wait_until(lambda d=d: d.free_pages() == d.pool_pages(), 20, "the pages to be made anew")
            d.fds_at_start = d.settled_fds()  # keeper holds them all again
            served = loop.work.run(d)
            assert all(served) and loop.place.judge()
            loop.place.down()
            d.log.rename(d.log.with_suffix(f".{site.key:x}.{nth}"))
    assert lost, "no page lost its descriptor"


def test_unreadable_is_not_forgotten(root, place, below, model_dirs, disk):  # pylint: disable=redefined-outer-name
    """xfer says once that a layer cannot be read. A core that dies of having read that leaves no tenant at a gate that
    nobody opens: its successor ends it."""
    d = place(below, policy="remap", pool="16M", page="64K", extra=on_disk(disk)).up()
    requests = make_requests(root / "u.requests", 6, output=(30, 60))
    Tenant(root, "good", model_dirs[0], requests, d).wait()
    struck = 0
    for site in [s for s in below.sites("core") if s.name == "recvmsg"]:
        for nth in (1, 2):
            bad = Tenant(root, "bad", model_dirs[1], requests, d, sync=True).ready()
            d.put_plan("bad", 3, 1)
            core = core_of(d)
            [file] = [fd for fd, name, _ in files_of(core) if name.startswith(str(disk))]
            end_lease(core, int(file.name))
            os.truncate(file, 4096)
            below.arm("core", nth, below_module.KILL_AFTER, site.key)
            bad.go()
            assert bad.process.wait(limit(60)) != 0, "it was served"
            struck += below.fired("core")
            below.disarm()
            await_core(d)
            wait_until(lambda: not d.answers() or not d.tenants(), 60, "it to go")
    assert struck, "no core has died"


assert below_module.LIBRARY.exists() or SANITIZE, below_module.LIBRARY
