# SPDX-License-Identifier: Apache-2.0
"""
Each part of libclient with a real mmd, while one call fails: fault-tenant uses the arena, memory, swap space, a model,
holding and unloading it, turns, keys, a group; the first fault fails, the second, and so on until a run comes by
untouched. In builds with fault points these are meant, under a sanitizer that sees leaks; in others, calls of the C
library and of the driver (libmm-below.so), of which a draw is taken without MM_TEST_LONG. Whichever fails, the tenant
has done all, or ends with one sentence and no descriptor more than without a fault, and mmd is as before.
"""

import os
import subprocess
import time

import pytest

import below as below_module
from programs import BUILD, LONG, SANITIZE, check_report, last_line, limit

TENANT = BUILD / "tests" / "fault-tenant"
SCENARIOS = ("kv", "mem", "swap", "model", "hold", "unload", "turns", "keys", "groups")
POINTS = int(os.environ.get("MM_BELOW_POINTS", 0 if LONG else 6))  # of each scenario; 0: all
POINTS_MAX = 20000
DONE, FAILED = 0, 1
# A device that does not give something back keeps it, and its descriptor, whatever libclient does.
KEEPS = ("cuMemUnmap", "cuMemRelease", "cuMemAddressFree", "cuDevicePrimaryCtxRelease")


class Tenant:
    def __init__(self, root, d, model, scenario):
        self.root, self.d, self.words = root, d, [str(TENANT), scenario, str(model)]
        self.log = root / f"{scenario}.log"
        self.fds = None  # that are left without a fault

    def live(self, env=None, keeps=lambda: False):
        """(exit status, whether the armed fault point was reached)."""
        with open(self.log, "wb") as log:
            done = subprocess.run(self.words, stdout=subprocess.PIPE, stderr=log, text=True, check=False, timeout=limit(60),
                                  env={**self.d.env, "MMD_SOCKET": str(self.d.dir / "tenant.sock"), **(env or {})})
        check_report(self.log)
        said = [line for line in self.log.read_text().splitlines() if line.startswith("fault-tenant: ")]
        assert (done.returncode, len(said)) in ((DONE, 0), (FAILED, 1)), f"{done.returncode}: {said}"
        words = done.stdout.split()
        if words:  # it may also fail before it has begun
            left = int(words[1])
            self.fds = left if self.fds is None else self.fds
            assert left <= self.fds or keeps(), f"{left} descriptors are left, without a fault {self.fds}: {said}"
        return done.returncode, words and words[3] == "1"


def slow_say(tenant, what, begun):
    """What a tenant has waited for long, it may have waited for in vain."""
    seconds = time.monotonic() - begun
    if seconds > 5:
        print(f"{what}: {seconds:.1f} s, {last_line(tenant.log)}")


def fault_points(tenant, rng):
    """Those of the program: the n-th of a process fails, until none is left to fail."""
    reached = 0
    numbers = range(1, POINTS_MAX)
    if POINTS:
        last = 8
        while tenant.live({"MM_FAULT_NTH": str(last)})[1]:
            last *= 2
        numbers = rng.sample(range(1, last), POINTS)
    for nth in numbers:
        begun = time.monotonic()
        code, fired = tenant.live({"MM_FAULT_NTH": str(nth)})
        assert fired or code == DONE, f"point {nth}: {last_line(tenant.log)}, and it was not the fault"
        reached += fired
        tenant.d.check_idle()
        slow_say(tenant, f"point {nth}", begun)
        if not fired and not POINTS:
            break
    return reached


def fault_calls(tenant, rng):
    """Calls from below: the n-th of a process fails."""
    orders = below_module.Below()
    reached = 0
    try:
        orders.disarm()
        orders.arm("client", POINTS_MAX)  # counts
        assert tenant.live(orders.client_env())[0] == DONE
        total = orders.calls("client")
        assert 50 < total < POINTS_MAX, total
        for nth in range(1, total + 1) if not POINTS else rng.sample(range(1, total + 1), POINTS):
            orders.arm("client", nth)
            begun = time.monotonic()
            try:
                code, _ = tenant.live(orders.client_env(), lambda: any(name in orders.fired_site("client") for name in KEEPS))
                assert orders.fired("client") or code == DONE, "it was not the call"
                tenant.d.check_idle()
            except AssertionError as e:
                raise AssertionError(f"call {nth} of {total}, {orders.fired_site('client')}: {e}") from None
            reached += orders.fired("client")
            slow_say(tenant, f"call {nth} of {total}, {orders.fired_site('client')}", begun)
    finally:
        orders.close()
    return reached


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_one_fails(start, root, model_dirs, rng, scenario):
    d = start(policy="remap", pool="8M", page="64K", extra=["--swap-max", "4M"], devices=2 if scenario == "groups" else 1)
    tenant = Tenant(root, d, model_dirs[0], scenario)
    assert tenant.live()[0] == DONE, last_line(tenant.log)
    reached = (fault_points if SANITIZE else fault_calls)(tenant, rng)
    print(f"{scenario}: {reached} faults")
    assert reached or POINTS
    assert tenant.live()[0] == DONE
