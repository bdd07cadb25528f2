# SPDX-License-Identifier: Apache-2.0
"""
kill -9 of core at random moments, and of what is beside it: another core goes on, and no tenant notices.

Tokens stay what they are, no page is lost, no process keeps a descriptor too many, and nobody waits long. The
number of kills is MM_RESTART_KILLS.
"""

import os
import re
import signal
import time

import pytest

import abi
import wire
from daemon import Daemon, role_of
from programs import BUILD, LONG, SANITIZE, wait_until
from test_chaos import Bystander, bystanders, cycle_plans
from test_groups import ranks, ranks_of, steps_of  # pylint: disable=unused-import # ranks is a fixture

KILLS = int(os.environ.get("MM_RESTART_KILLS", (8 if SANITIZE else 30) * (20 if LONG else 1)))
QUIET = int(os.environ.get("MM_RESTART_KILLS", (4 if SANITIZE else 10) * (20 if LONG else 1)))


def core_of(d):
    """The pid of core; None while there is none."""
    found = [pid for pid in d.pids("core") if role_of(pid) == "core"]
    return found[0] if found else None


def kill_core(d):
    """Whatever it does just now. Return: whether there was one."""
    pid = core_of(d)
    if pid is None:
        return False
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def await_core(d):
    """Until a core answers, whatever was killed before."""
    wait_until(d.answers, 30, "core to go on")


def away_ms(d):
    """How long there was no core, each time."""
    return [int(us) / 1000 for us in re.findall(r"core.resumed .*away_us=(\d+)", d.log.read_text(errors="replace"))]


def check_resumed(d, kills):
    """Each core that was killed when it served was followed by one that served again."""
    times = away_ms(d)
    assert times, "no core was followed by another one"
    print(f"{kills} kills, {len(times)} cores went on, away for {max(times):.0f} ms at most, "
          f"{sorted(times)[len(times) // 2]:.0f} ms in the middle")
    d.check_accounts()


def test_kill_core(root, start, serve, model_dirs, rng):
    """Two tenants trade KV memory and change their plans all the time."""
    d = start(policy="remap", pool="8M", page="16K")
    tenants = bystanders(serve, root, d, model_dirs)
    killed = 0
    while killed < KILLS:
        for t in tenants:
            t.poke()
        cycle_plans(d, rng.choice(["t0", "t1"]), rng)
        time.sleep(rng.uniform(0.02, 0.5))
        killed += kill_core(d)
    await_core(d)
    for t in tenants:
        t.finish()
    check_resumed(d, killed)


def test_kill_core_and_xfer(root, start, serve, model_dirs, rng):
    """Both at once: the next core starts the next xfer."""
    d = start(policy="remap", pool="8M", page="16K")
    tenants = bystanders(serve, root, d, model_dirs)
    for i in range(QUIET):
        for t in tenants:
            t.poke()
        cycle_plans(d, rng.choice(["t0", "t1"]), rng)
        time.sleep(rng.uniform(0.1, 0.5))
        victims = [pid for pid in (core_of(d), *d.pids("xfer")) if pid]
        rng.shuffle(victims)
        for pid in victims:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if i % 3 == 2:
            await_core(d)
            wait_until(lambda: d.status()["xfer"]["proven"], 60, "xfer to be up again")
    await_core(d)
    for t in tenants:
        t.finish()
    check_resumed(d, QUIET)


def test_join_and_leave(root, start, serve, model_dirs, rng):
    """Tenants come and go while core dies: in the middle of a handshake, of a load, of an end."""
    d = start(policy="remap", pool="8M", page="16K")
    witness = Bystander(serve, root, d, "witness", model_dirs[0], 1)
    guest = Bystander(serve, root, d, "guest", model_dirs[1], 2, extra=["--kv-timeout", "60000"])
    killed = 0
    while killed < QUIET:
        witness.poke()
        guest.poke()
        time.sleep(rng.uniform(0, 0.2))
        killed += kill_core(d)
        await_core(d)
        if rng.random() < 0.3 and guest.tenant is not None:
            guest.tenant.kill()
            guest.tenant = None
    if guest.tenant is not None:
        guest.finish()
    witness.finish()
    check_resumed(d, killed)


def test_stopped_tenant(root, start, serve, model_dirs, rng):
    """A tenant that is stopped while core is replaced several times goes on where it was."""
    d = start(policy="remap", pool="8M", page="16K")
    tenants = bystanders(serve, root, d, model_dirs)
    for t in tenants:
        t.poke()
    wait_until(tenants[1].has_model, 30, "the model")
    os.kill(tenants[1].tenant.process.pid, signal.SIGSTOP)
    for _ in range(5):
        cycle_plans(d, "t1", rng)
        time.sleep(rng.uniform(0.02, 0.2))
        kill_core(d)
        await_core(d)
    os.kill(tenants[1].tenant.process.pid, signal.SIGCONT)
    for t in tenants:
        t.finish()
    check_resumed(d, 5)


def test_fault_of_core_ends_mmd_at_last(start):
    """A core that fails by itself again and again is not replaced for ever."""
    d = start(pool="4M", page="64K")
    for _ in range(20):
        pid = core_of(d)
        if pid is not None:
            try:
                os.kill(pid, signal.SIGABRT)
            except ProcessLookupError:
                pass
        time.sleep(0.05)
        if d.process.poll() is not None:
            break
    wait_until(lambda: d.process.poll() is not None, 30, "mmd to end")
    assert d.process.returncode == 1
    d.says("core ended by its own fault")
    d.process = None


class Poisoned(Daemon):
    """A build whose core dies of certain requests."""

    def args(self):
        return [str(BUILD / "tests" / "mmd-poisoned"), *super().args()[1:]]


POISON = 0x666  # tests/e2e/poison.c


@pytest.mark.parametrize("chunks, mark", [(POISON, 0), (1, POISON)], ids=["event", "action"])
def test_poison_is_left_out(start, chunks, mark):
    """What core dies of twice is not done a third time, and who asked for it is ended; others are served on."""
    d = start(kind=Poisoned, pool="4M", page="16K")
    with wire.Raw(d).greet() as first, wire.Raw(d).greet() as bad, wire.Raw(d).greet() as other:
        assert first.tenant_id == 0  # of a kind of event that is of no tenant, it would be taken for the culprit
        bad.push(abi.MM_OP_KV_DECLARE, (16384, 1, 8, 0), user_data=mark)
        bad.push(abi.MM_OP_KV_WANT, (chunks,))
        assert bad.ended()
        await_core(d)
        log = d.log.read_text()
        assert log.count("event=event.left_out") == 1 and f"tenant={bad.tenant_id} " in log, log
        assert len(re.findall("core.died status=0x6", log)) == 2
        for t in (first, other):
            t.push(abi.MM_OP_KV_DECLARE, (16384, 1, 8, 0))
            assert t.pop()["result"] == 0
        kill_core(d)
        await_core(d)
        assert sorted(t["tenant"] for t in d.tenants()) == [first.tenant_id, other.tenant_id]


def test_groups(start, ranks, rng):  # pylint: disable=redefined-outer-name
    """Ranks on two devices, whose plans change all the time: chunks stay those of all or of none."""
    d = start(devices=2, pool="8M", page="16K")
    group = ranks(d).ready()
    for _ in range(QUIET):
        name = ranks_of(d)[0]["name"]
        d.ctl("plan", "set", name, "--layers", rng.randrange(6), check=False)
        time.sleep(rng.uniform(0.02, 0.3))
        kill_core(d)
        await_core(d)
        wait_until(lambda: len(ranks_of(d)) == 2, 30, "the ranks")
    before = steps_of(d)
    wait_until(lambda: steps_of(d) > before + 20, 60, "the ranks to go on")
    assert [said[4] for said in group.end()] == [0, 0]
    check_resumed(d, QUIET)
