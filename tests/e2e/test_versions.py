# SPDX-License-Identifier: Apache-2.0
"""Versions that meet: this mmd and this libclient with later ones (tests/abi/wire/future.py), and with what was frozen."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

import abi
from daemon import Daemon
from programs import BUILD, TOP, limit, read_until, wait_until
from tenant import make_requests, plain_tokens
from wire import FEATURES, Raw, Refused, hello

FUTURE = BUILD / "tests" / "future"
TODAY_TENANT = BUILD / "tests" / "wire-tenant"
FUTURE_TENANT = FUTURE / "build" / "bin" / "wire-tenant"
PAGE = 16384
NOVEL = 1 << 40


@pytest.fixture(scope="session")
def future():
    """A later mmd and a later tenant, with the software GPU that all here share."""
    launcher = [f"-DCMAKE_C_COMPILER_LAUNCHER={name}" for name in ["ccache"] if any(
        os.access(pathlib.Path(place, name), os.X_OK) for place in os.environ["PATH"].split(":"))]
    subprocess.run([sys.executable, TOP / "tests" / "abi" / "wire" / "future.py", FUTURE, *launcher], check=True)
    library = FUTURE / "build" / "lib" / "libmm-softgpu.so"
    library.parent.mkdir(exist_ok=True)
    if not library.is_symlink():
        library.symlink_to(BUILD / "lib" / "libmm-softgpu.so")


class FutureDaemon(Daemon):
    def args(self):
        return [str(FUTURE / "build" / "bin" / "mmd"), *super().args()[1:]]


def tenant_start(program, d, timeout_ms=120000):
    return subprocess.Popen([program, d.dir / "tenant.sock", str(timeout_ms), str(PAGE)], env=d.env, text=True,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def tenant_run(program, d):
    """Runs a tenant to its end. Returns what it was told: policy, driver, features."""
    tenant = tenant_start(program, d)
    out = tenant.communicate("\n", limit(60))[0].splitlines()
    assert [line.split()[0] for line in out] == ["info", "ready", "call", "closed"], out
    assert out[2] == "call 0 ", out
    _, policy, driver, features = out[0].split()
    return policy, driver, int(features, 16)


def test_today(start):
    d = start(policy="recompute", pool="4M", page="16K")
    policy, driver, features = tenant_run(TODAY_TENANT, d)
    assert (policy, driver) == ("recompute", "software")
    assert features & abi.MM_FEAT_KV_FIXED and not features & abi.MM_FEAT_KV_SWAP


def test_later_daemon(future, root, start, serve, model_dirs):
    """A policy and a driver that nobody has heard of, a feature unasked, longer welcome and regions."""
    d = start(FutureDaemon, policy="clairvoyant", pool="8M", page="16K")
    policy, driver, features = tenant_run(TODAY_TENANT, d)
    assert (policy, driver) == ("clairvoyant", "novel-gpu")
    assert features & abi.MM_FEAT_KV_SWAP and not features & (NOVEL | abi.MM_FEAT_KV_FIXED)
    # An engine that serves: it decides by features, not by the name.
    requests = make_requests(root / "requests", 6)
    assert serve("engine", model_dirs[0], requests, d).tokens() == plain_tokens(root, model_dirs[0], requests)
    with Raw(d).greet() as client:
        assert client.welcome["size_bytes"] == abi.mm_welcome.size + 128
        assert client.welcome["features"] & NOVEL
        assert os.fstat(client.fds[0]).st_size == abi.mm_tenant_region.size + 3 * 4096
        assert os.fstat(client.fds[1]).st_size == abi.mm_mmd_region.size + 3 * 4096


def test_later_tenant(future, start):
    """One that knows more than this mmd: what it says more is 0, what it gets less it does without."""
    d = start(policy="swap", pool="4M", page="16K", extra=["--swap-max", "16M"])
    policy, driver, features = tenant_run(FUTURE_TENANT, d)
    assert (policy, driver) == ("swap", "software")
    assert features & abi.MM_FEAT_KV_FIXED and features & abi.MM_FEAT_KV_SWAP and not features & NOVEL


def test_both_later(future, start):
    d = start(FutureDaemon, policy="clairvoyant", pool="4M", page="16K")
    assert tenant_run(FUTURE_TENANT, d)[:2] == ("clairvoyant", "novel-gpu")


FROZEN = f"""
import sys
import abi
from kvclient import KvClient
import pathlib
from programs import wait_until

class Place:
    dir = pathlib.Path(sys.argv[1])

with KvClient(Place, {PAGE}) as client:
    client.want(2)
    wait_until(lambda: client.look() and len(client.chunks) == 2, 30, "two chunks")
    assert len(client.pages) == 2
    client.push(abi.MM_OP_BYE)
    assert client.pop()["opcode"] == abi.MM_EV_REPLY
print("frozen", client.welcome["policy"].split(b"\\0")[0].decode())
"""


@pytest.mark.parametrize("later", [False, True])
def test_frozen_tenant(future, start, later):
    """A tenant by hand that knows the wire as it was frozen, byte by byte."""
    d = start(FutureDaemon if later else Daemon, policy="remap", pool="4M", page="16K")
    env = d.env | {"MM_ABI_JSON": str(TOP / "tests" / "abi" / "frozen" / "abi.json"), "PYTHONDONTWRITEBYTECODE": "1",
                   "PYTHONPATH": str(TOP / "tests" / "e2e" / "lib"), "MM_BUILD": str(BUILD)}
    out = subprocess.run([sys.executable, "-c", FROZEN, d.dir], env=env, check=True, capture_output=True, text=True,
                         timeout=limit(60)).stdout
    assert out == "frozen remap\n"


GREW = 16


def test_lengths_of_hello(start):
    """What a longer one says must be 0, and a shorter one than the first version is none."""
    d = start(policy="remap", pool="4M", page="16K")
    size = abi.mm_hello.size
    with Raw(d) as client:
        client.greet(hello(size_bytes=size + GREW) + bytes(GREW))
        assert client.welcome["size_bytes"] == abi.mm_welcome.size
    for wrong in [hello(size_bytes=size + GREW) + bytes(GREW - 1) + b"\1", hello(size_bytes=size + GREW),
                  hello() + bytes(GREW), hello(size_bytes=size - 8)[:size - 8], hello(size_bytes=0),
                  hello(size_bytes=5000) + bytes(5000 - size)]:
        with Raw(d) as client, pytest.raises((Refused, ConnectionResetError)):
            client.greet(wrong)
    d.check_accounts()


def test_required_facts(start):
    """A feature that is known and not in use under this policy is refused to one that needs it."""
    d = start(policy="remap", pool="4M", page="16K")
    for bit, good in [(abi.MM_FEAT_KV_SWAP, True), (abi.MM_FEAT_KV_FIXED, False), (NOVEL, False)]:
        with Raw(d) as client:
            if good:
                client.greet(hello(features=FEATURES, features_required=bit))
                assert client.welcome["features"] == FEATURES | bit
            else:
                with pytest.raises(Refused, match="required features"):
                    client.greet(hello(features_required=bit))


def test_session_tokens(start):
    d = start(policy="remap", pool="4M", page="16K")
    tokens = set()
    for _ in range(5):
        with Raw(d) as client:
            client.greet(hello(features=FEATURES | abi.MM_FEAT_RESUME))
            tokens.add(client.welcome["session"])
            assert client.welcome["features"] & abi.MM_FEAT_RESUME
    assert len(tokens) == 5 and bytes(16) not in tokens


def core_of(d):
    pid, = d.pids("core")
    return pid


# A call waits for one timeout, and for another where core's beat stands still. Who lets core go on between the two
# may be late by almost the second one.
TIMEOUT_MS, WHILE_MS, GOOD_MS = 10000, 10500, 4000


def test_core_stopped_for_a_while(start):
    """For longer than the client's timeout: the call waits, because core's beat stands still."""
    d = start(policy="remap", pool="4M", page="16K", extra=["--core-timeout", "0"])
    tenant = tenant_start(TODAY_TENANT, d, TIMEOUT_MS)
    try:
        read_until(tenant, "ready", 60)
        os.kill(core_of(d), signal.SIGSTOP)
        tenant.stdin.write("\n")
        tenant.stdin.flush()
        with pytest.raises(subprocess.TimeoutExpired):
            tenant.wait(WHILE_MS / 1000)
        os.kill(core_of(d), signal.SIGCONT)
        assert read_until(tenant, "call ", 30)[-1] == "call 0 \n"
        assert tenant.communicate(None, limit(30))[0] == "closed\n"
    finally:
        os.kill(core_of(d), signal.SIGCONT)
        tenant.kill()
        tenant.communicate()


def test_core_stopped_for_good(start):
    """The call fails after one more timeout, and says what is the matter."""
    d = start(policy="remap", pool="4M", page="16K", extra=["--core-timeout", "0"])
    tenant = tenant_start(TODAY_TENANT, d, GOOD_MS)
    try:
        read_until(tenant, "ready", 60)
        os.kill(core_of(d), signal.SIGSTOP)
        tenant.stdin.write("\n")
        tenant.stdin.flush()
        line = read_until(tenant, "call ", 30)[-1]
        assert line.startswith("call -") and "is restarting" in line, line
    finally:
        os.kill(core_of(d), signal.SIGCONT)
        tenant.kill()
        tenant.communicate()
    wait_until(lambda: not d.tenants(), 30, "mmd to forget the tenant")
