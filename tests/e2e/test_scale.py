# SPDX-License-Identifier: Apache-2.0
"""Many tenants, one after the other and all at once, and a pool larger than the host's memory."""

import contextlib
import os
import pathlib
import signal
import subprocess

import pytest

import abi
from models import random_model
from programs import BIN, SANITIZE, count, limit, read_until, wait_until
from wire import Raw, Refused

KV_ONLY, TENANT = BIN.parent / "examples" / "kv_only", BIN.parent / "examples" / "tenant"


def example(d, program, *args):
    env = dict(d.env, MMD_SOCKET=str(d.dir / "tenant.sock"))
    return subprocess.Popen([str(program), *map(str, args)], env=env, text=True, stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def orderly(process, expected=0):
    out, errors = process.communicate(timeout=limit(120))
    assert process.returncode == expected, errors
    return out, errors


def forked(work):
    """Runs work() in a child that then dies as a killed process does, with what that returned; waits for that."""
    pid = os.fork()
    if pid == 0:
        try:
            kept = work()
            assert kept is not None
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)  # work() has failed
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


def hold_pages(d, clients=1):
    held = [Raw(d).greet() for _ in range(clients)]
    for client in held:
        client.push(abi.MM_OP_KV_DECLARE, (1 << 14, 1, 64, 0))
        client.push(abi.MM_OP_KV_WANT, (2,))
    for client in held:
        wait_until(lambda: client.drain() and len(client.fds) > 3, 10, "pages")
    return held


def resident_kib(d):
    """Of all of mmd's processes, without what they share; one may end while they are counted."""
    total = 0
    for pid in [d.process.pid, *d.pids()]:
        with contextlib.suppress(OSError):
            fields = pathlib.Path(f"/proc/{pid}/status").read_text().split("\n")
            total += sum(int(f.split()[1]) for f in fields if f.startswith("RssAnon:"))
    return total


def test_leaks(root, start, rng):
    """1000 tenants come and go in every way; mmd is then what it was before."""
    d = start(pool="4M", page="16K")
    model = random_model(root / "model", seed=9, layers=4)

    def one(i):
        # Those that have left have their places until xfer has let go of them.
        wait_until(lambda: len(d.tenants()) < abi.MM_DEVICE_TENANTS_MAX, 30, "a place for one more")
        if i % 50 == 0:
            tenant = example(d, TENANT, model, 3)
            if rng.random() < 0.5:
                wait_until(lambda: d.tenant("tenant") or tenant.poll() is not None, 60, "the tenant")
                tenant.kill()
                tenant.communicate()
            else:
                orderly(tenant)
        elif i % 10 == 0:
            orderly(example(d, KV_ONLY, 4, 2))
        elif i % 3 == 0:
            forked(lambda: Raw(d).greet())
        else:
            forked(lambda: hold_pages(d))

    def at_rest():
        wait_until(lambda: not d.tenants(), 30, "the tenants to be forgotten")
        wait_until(lambda: not d.pids("load"), 30, "loads to end")
        return resident_kib(d)

    tenants = count(1000, 60)
    # Memory grows with the most tenants there ever were at once: how many of them overlap is the machine's.
    forked(lambda: hold_pages(d, abi.MM_DEVICE_TENANTS_MAX))
    for i in range(tenants // 10):
        one(i)
    before = at_rest()
    for i in range(tenants // 10, tenants):
        one(i)
    after = at_rest()
    print(f"anonymous memory: {before} KiB, then {after} KiB")
    # fds and pages: judged when the daemon is ended.
    assert SANITIZE or after - before < 1024, f"anonymous memory: {before} KiB, then {after} KiB"
    status = d.status()
    assert status["kills"] == 0 and status["pages"].get("quarantine", 0) == 0, status


def test_64_at_once(start):
    """Each with pages of its own; the next one is refused and told why; one leaves, one may come."""
    d = start(pool="4M", page="16K")
    real = [example(d, KV_ONLY, 2, 2) for _ in range(count(abi.MM_DEVICE_TENANTS_MAX, 12))]
    for process in real:
        read_until(process, "ready: 2 chunks\n", 60)
    raw = [Raw(d).greet() for _ in range(abi.MM_DEVICE_TENANTS_MAX - len(real))]
    assert len(d.tenants()) == abi.MM_DEVICE_TENANTS_MAX
    assert d.page_states()["kv"] == 2 * len(real)
    with pytest.raises(Refused) as refused, Raw(d) as client:
        client.greet()
    assert str(abi.MM_DEVICE_TENANTS_MAX) in refused.value.reason or "many" in refused.value.reason, refused.value.reason
    out, errors = orderly(example(d, KV_ONLY, 1, 1), expected=3)
    assert not out and "many" in errors, errors
    orderly(real.pop())
    wait_until(lambda: len(d.tenants()) < abi.MM_DEVICE_TENANTS_MAX, 30, "one to be gone")
    orderly(example(d, KV_ONLY, 1, 1))
    for process in real:
        assert "0 bytes damaged" in orderly(process)[0]
    for client in raw:
        client.close()


def test_pool_larger_than_the_host(start):
    """100 GiB in 16 MiB pages: only what is written to takes memory."""
    d = start(pool="100G", page="16M", gpu_memory=101 << 30)
    assert d.pool_pages() == 6400
    pages = pathlib.Path(d.env["MM_SOFTGPU_DIR"])
    written = sum(512 * f.stat().st_blocks for f in pages.rglob("*") if f.is_file())
    for pid in d.pids("xfer"):
        written += sum(blocks_bytes(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd"))
    assert written < 64 << 20, f"{written >> 20} MiB of a pool that nobody has used"
    assert SANITIZE or resident_kib(d) < 128 << 10
    out, _ = orderly(example(d, KV_ONLY, 2, 2))
    assert "0 bytes damaged" in out


def blocks_bytes(fd):
    """What the file that is open there takes; 0 where none is, any more."""
    try:
        return 512 * os.stat(fd).st_blocks if os.readlink(fd).startswith("/") else 0
    except OSError:
        return 0
