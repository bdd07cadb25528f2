# SPDX-License-Identifier: Apache-2.0
"""mmctl shutdown: tenants are told, have their time, are ended and killed; then mmd ends, and says what is left."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

import abi
import wire
from daemon import alive
from programs import BIN, limit, wait_until
from tenant import make_requests
from wire import Raw, Refused

HELLO = wire.hello(features=wire.FEATURES | abi.MM_FEAT_LEAVE | abi.MM_FEAT_RESUME)


def shutdown(d, *args):
    return subprocess.Popen([str(BIN / "mmctl"), "--dir", str(d.dir), "--json", "shutdown", *map(str, args)],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=d.env)


def result(ctl, d, status=0):
    """Its answer; mmd and all its roles have ended by then."""
    everyone = d.pids()
    out, err = ctl.communicate(timeout=limit(60))
    assert ctl.returncode == status, err
    assert d.process.wait(limit(20)) == 0, "mmd ends in order"
    wait_until(lambda: not any(map(alive, everyone)), 5, f"roles to end: {everyone}")
    d.process = None
    return json.loads(out)


def told(client):
    event = client.pop()
    assert event and event["opcode"] == abi.MM_EV_LEAVE
    return event["arg"][0] / 1e9 - time.monotonic()


def test_dry_run(start):
    d = start()
    with Raw(d).greet(HELLO) as client, Raw(d).greet() as other:
        answer = d.ctl("shutdown", "--within", 9, "--dry-run")
        assert answer["dry_run"] and answer["within_s"] == 9
        tenants = {t["tenant"]: t for t in answer["tenants"]}
        assert tenants[client.tenant_id]["told"] and not tenants[other.tenant_id]["told"]
        assert tenants[client.tenant_id]["pid"] == os.getpid()
        with Raw(d).greet(HELLO):
            assert len(d.tenants()) == 3, "it has changed nothing"


def test_tenants_leave(start):
    """The time is no wait: mmd ends when the last tenant has gone."""
    d = start()
    with Raw(d).greet(HELLO) as client:
        ctl = shutdown(d, "--within", 3600)
        assert 3000 < told(client) <= 3600
        with pytest.raises(Refused, match="shutting down"):
            Raw(d).greet()
        # Another request replaces the time, and tells it.
        again = shutdown(d, "--within", 600)
        assert 300 < told(client) <= 600
        # A core that takes over goes on with it.
        os.kill(*d.pids("core"), signal.SIGKILL)
        assert 200 < told(client) <= 600
        with pytest.raises(Refused, match="shutting down"):
            Raw(d).greet()
        client.push(abi.MM_OP_BYE)
    answer = result(ctl, d)
    again.communicate(timeout=limit(60))
    assert len(answer["tenants"]) == 1 and not answer["dry_run"]


# A tenant that does not leave: it goes on when its connection has ended.
STUBBORN = textwrap.dedent("""
    import sys, time
    sys.path[:0] = sys.argv[3:]
    import pathlib, types, wire
    client = wire.Raw(types.SimpleNamespace(dir=pathlib.Path(sys.argv[1]))).greet()
    pathlib.Path(sys.argv[2]).touch()
    time.sleep(1000)
""")


def test_who_stays_is_killed(root, start):
    d = start()
    there = root / "there"
    stubborn = subprocess.Popen([sys.executable, "-c", STUBBORN, d.dir, there, *sys.path])
    wait_until(there.exists, 20, "the tenant to be there")
    answer = result(shutdown(d, "--within", 0), d)
    assert [t["told"] for t in answer["tenants"]] == [False]
    assert stubborn.wait(limit(20)) == -signal.SIGKILL


def test_release(root, start, serve, model_dirs):
    """An engine leaves when it is told; afterwards nobody has the device."""
    d = start()
    holder = serve("one", model_dirs[0], make_requests(root / "requests.jsonl", 4), d, sync=True).ready()
    assert d.free_pages() < d.pool_pages()
    answer = result(shutdown(d, "--release", "--within", 60), d)
    assert [t["told"] for t in answer["tenants"]] == [True]
    assert [one["device"] for one in answer["devices"]] == [0]
    assert not answer["devices"][0]["holders"], answer
    assert holder.process.wait(limit(20)) == 1


def test_keeper_is_killed(root, start, serve, model_dirs):
    """Nothing outlives keeper: tenants are told by the end of their connections, and the device is free again."""
    d = start()
    engine = serve("one", model_dirs[0], make_requests(root / "requests.jsonl", 4), d, sync=True).ready()
    everyone = d.pids()
    with Raw(d).greet(HELLO) as client:
        os.kill(d.process.pid, signal.SIGKILL)
        assert client.pop() is None, "its connection has ended"
    assert d.process.wait(limit(20)) == -signal.SIGKILL
    wait_until(lambda: not any(map(alive, everyone)), 20, f"roles to end: {everyone}")
    assert engine.process.wait(limit(20)) == 1
    d.process = None
    # The next one gets the place, the device and all of its memory.
    d.start()
