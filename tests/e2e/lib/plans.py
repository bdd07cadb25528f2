# SPDX-License-Identifier: Apache-2.0
"""Plans of a tenant, changed by hand."""

import itertools
import threading

from programs import limit


class PlanChanger(threading.Thread):
    """mmctl plan set, up and down, as fast as it goes, until told to stop."""

    def __init__(self, mmd, tenant, plans):
        super().__init__(daemon=True)
        self.mmd, self.tenant, self.plans = mmd, tenant, plans
        self.done, self.sets, self.errors = threading.Event(), 0, []

    def run(self):
        for alpha, slots in itertools.cycle(self.plans):
            if self.done.is_set():
                return
            code, _, errors = self.mmd.ctl("plan", "set", self.tenant, "--layers", alpha, "--slots",
                                           slots, check=False)
            # When the tenant has left between two looks there is nothing to change any more.
            if code and not self.done.is_set() and "no such tenant" not in errors \
                    and "no model" not in errors:
                self.errors.append(errors)
            self.sets += 1

    def finish(self):
        self.done.set()
        self.join(limit(30))
        assert not self.is_alive(), "mmctl plan set hangs"


def run_while_plans_change(mmd, tenant, name, plans):
    """Lets @tenant, which is ready, do its work while its plans change: its summary, and how often one was set."""
    changer = PlanChanger(mmd, name, plans)
    changer.start()
    tenant.go()
    try:
        summary = tenant.wait()
    finally:
        changer.finish()
    assert not changer.errors, changer.errors
    return summary, changer.sets
