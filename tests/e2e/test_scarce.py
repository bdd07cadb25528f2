# SPDX-License-Identifier: Apache-2.0
"""
What runs out: descriptors, memory, room in the log's pipe; and clocks that jump.

A role gets less and less of something while tenants work, and gets it back. Until then a tenant is served, with the
right tokens, or ends with one sentence, and mmd goes on or ends with one; afterwards all is as it was.
"""

import errno
import os
import signal

import pytest

import below as below_module
from faults import Work
from programs import LONG, PATIENT, SANITIZE, count, last_line, wait_until
from tenant import make_requests, plain_tokens

library = pytest.mark.skipif(bool(SANITIZE), reason="a sanitizer stands in the library's place")


@pytest.fixture
def seed():
    """One sample for all runs of a build: a failure is the build's, and not the draw's."""
    value = int(os.environ.get("MM_TEST_SEED", 1))
    print(f"MM_TEST_SEED={value}")
    return value


def scarce(place, work, below, role, classes, error, amounts):
    """The same work, in which after so many calls none of these succeeds, for as many more."""
    ended = refused = 0
    for good in amounts:
        d = place.up()
        below.arm(role, good + 1, count=50, classes=classes, value=error)
        served = work.run(d)
        fired = below.fired(role)
        below.disarm()
        stays = place.judge()
        ended += not stays
        refused += served.count(False)
        print(f"{role}: {good} good, {fired} bad: {served}" + ("" if stays else f", mmd ended: {last_line(d.log)}"))
        # With all that it needs again, everybody is served.
        assert all(work.run(place.up())) and place.judge(), f"{role}: after {fired} bad calls"
    print(f"{role}: {len(amounts)} runs, mmd ended {ended} times, {refused} tenants not served")
    place.down()


@library
@pytest.mark.parametrize("role", ["core", "keeper", "xfer", "load"])
@pytest.mark.parametrize("what", ["files", "memory"])
def test_exhausted(root, place, below, model_dirs, rng, role, what):
    classes, error = (below_module.FD, errno.EMFILE) if what == "files" else (below_module.MEMORY, errno.ENOMEM)
    amounts = range(0, 400, 4) if LONG else sorted(rng.sample(range(200), 2))
    place = place(below, policy="remap", pool="3M", page="16K", extra=PATIENT)
    scarce(place, Work(root, model_dirs), below, role, classes, error, amounts)


def test_log_stands_still(start, serve, root, model_dirs):
    """Nobody reads mmd's log: mmd goes on, and says later how many lines were lost."""
    d = start(policy="remap", pool="3M", page="16K", extra=["--log-level", "debug"])
    requests = make_requests(root / "r.requests", 5, output=(20, 40))
    want = plain_tokens(root, model_dirs[0], requests)
    relay, = d.pids("log")
    os.kill(relay, signal.SIGSTOP)
    begun = d.log.stat().st_size
    try:
        for i in range(count(40, 10)):
            assert serve(f"t{i}", model_dirs[0], requests, d).tokens() == want
        assert d.log.stat().st_size == begun
    finally:
        os.kill(relay, signal.SIGCONT)
    wait_until(lambda: d.log.stat().st_size > begun, 60, "lines that were in the pipe")
    assert serve("last", model_dirs[0], requests, d).tokens() == want


@library
@pytest.mark.parametrize("clock", ["realtime_ns", "monotonic_ns"])
def test_clocks_jump(root, place, below, model_dirs, clock):
    """The date is set; or a role was away for hours, as after a suspend of its virtual machine: nobody notices."""
    work = Work(root, model_dirs)
    place = place(below, policy="remap", pool="3M", page="16K", extra=PATIENT)
    hour = 3600 * 10**9
    jumps = [hour, 10 * 365 * 24 * hour, -5 * 365 * 24 * hour] if clock == "realtime_ns" else [hour, 30 * 24 * hour]
    each = [("core",), ("xfer",), ("load",), ("keeper",)] if LONG else [("core",)]
    for roles in [*each, ("core", "xfer", "load", "keeper", "spool", "log")]:
        for jump in jumps:
            d = place.up()
            for role in roles:
                below.jump(role, **{clock: jump})
            assert all(work.run(d)) and place.judge(), f"{roles}: {jump // hour} hours"
            for role in roles:
                below.jump(role)
            place.down()  # time does not go back in a process
