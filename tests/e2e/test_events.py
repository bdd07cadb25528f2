# SPDX-License-Identifier: Apache-2.0
"""`mmctl events` and the method behind it: what has happened, in order, also across the death of core."""

import contextlib
import json
import os
import signal
import socket
import subprocess

import pytest

from daemon import RpcError
from kvclient import KvClient
from programs import BIN, limit, wait_until

RING, AT_ONCE = 2048, 256


@pytest.fixture
def d(start):
    return start(pool="8M", page="64K")


def events(d, **params):
    return d.rpc("events", params)


def all_events(d):
    found, answer = [], events(d)
    while answer["events"]:
        found += answer["events"]
        answer = events(d, after=answer["last"])
    return found


def make_events(d, n):
    """As many changes of a quota, which are an event each, with a few connections."""
    for begin in range(0, n, 500):
        many = range(begin, min(begin + 500, n))
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s, s.makefile("rb") as stream:
            s.connect(str(d.dir / "admin.sock"))
            s.settimeout(limit(60))
            for i in many:
                request = {"jsonrpc": "2.0", "id": i, "method": "quota.set",
                           "params": {"account": "uid:7", "weight": 1 + i % 9}}
                s.sendall(json.dumps(request).encode() + b"\n")
                assert "result" in json.loads(stream.readline())


class Follower:
    """mmctl events --follow --json, and what it prints."""

    def __init__(self, d, *args):
        self.path = d.root / "followed"
        self.process = subprocess.Popen([BIN / "mmctl", "--dir", d.dir, "events", "--follow", "--json", *args],
                                        stdout=open(self.path, "wb"))

    def lines(self):
        text = self.path.read_text()
        return [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]

    def names(self):
        return [line.get("event", line) for line in self.lines()]

    def end(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def follow():
    with contextlib.ExitStack() as stack:
        def follower(*args):
            one = Follower(*args)
            stack.callback(one.end)
            return one

        yield follower


def test_order_and_schema(d):
    answer = events(d)
    assert answer["schema"] == 1 and answer["missed"] == 0 and answer["last"] == answer["newest"]
    assert [e["seq"] for e in answer["events"]] == list(range(1, answer["last"] + 1))
    assert "mmd.ready" in [e["event"] for e in answer["events"]]
    for event in answer["events"]:
        assert {"seq", "time", "level", "event", "fields"} == set(event)
    assert events(d, after=answer["last"])["events"] == []
    assert len(events(d, after=10 ** 9)["events"]) == len(answer["events"])  # numbers of another mmd
    for wrong in ({"after": -1}, {"after": "1"}, {"after": 1.5}, {"follow": 1}):
        with pytest.raises(RpcError):
            events(d, **wrong)


def test_tenant_memory(d):
    """What a tenant gets and gives back: sums of a second, which add up."""
    client = KvClient(d, 65536).hold(4)
    tenant = d.tenants()[0]["tenant"]

    def sums():
        return [e["fields"] for e in all_events(d) if e["event"] == "tenant.memory"]

    wait_until(lambda: sum(f["granted_bytes"] for f in sums()) == 4 * 65536, 20, "the record of the grants")
    os.kill(d.pids("core")[0], signal.SIGKILL)
    wait_until(d.answers, 20, "the next core")
    client.close()
    d.wait_gone(tenant)
    found = sums()
    assert all(f["tenant"] == tenant and f["account"] == f"uid:{os.getuid()}" for f in found)
    assert sum(f["granted_bytes"] for f in found) == 4 * 65536 and found[-1]["held_bytes"] >= 0
    mine = d.ctl("events", "--tenant", tenant)["events"]
    assert [e["event"] for e in mine][0] == "tenant.joined" and mine[-1]["event"] == "tenant.gone"
    assert d.ctl("events", "--tenant", "nobody")["events"] == []


def test_core_dies(d, follow):
    """Numbers go on, nothing is lost or there twice, and who follows does so."""
    follower = follow(d)
    make_events(d, 3)
    wait_until(lambda: follower.names().count("quota.set") == 3, 20, "three events")
    os.kill(d.pids("core")[0], signal.SIGKILL)
    wait_until(d.answers, 20, "the next core")
    make_events(d, 2)
    wait_until(lambda: follower.names().count("quota.set") == 5, 60, "five events")
    lines = follower.lines()
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert "core.resumed" in follower.names()
    assert [e["seq"] for e in all_events(d)] == [line["seq"] for line in lines]


def test_missed(d):
    """The ring comes round: whoever asks for what is not there any more is said how much that is."""
    make_events(d, RING + 100)
    answer = events(d, after=1)
    newest = answer["newest"]
    assert answer["missed"] == newest - RING - 1 and len(answer["events"]) == AT_ONCE
    found = all_events(d)
    assert [e["seq"] for e in found] == list(range(newest - RING + 1, newest + 1))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s, s.makefile("rb") as stream:
        s.connect(str(d.dir / "view.sock"))
        s.settimeout(limit(60))
        s.sendall(b'{"jsonrpc":"2.0","id":1,"method":"events","params":{"after":%d,"follow":true}}\n' % newest)
        assert json.loads(stream.readline())["result"]["events"] == []
        make_events(d, 3 * RING)  # it reads none of them, until it has missed some
        last, missed, newest = newest, 0, events(d)["newest"]
        while last < newest:
            line = json.loads(stream.readline())
            if line["method"] == "missed":
                missed += line["params"]["events"]
                last += line["params"]["events"]
            else:
                assert line["method"] == "event" and line["params"]["seq"] == last + 1
                last += 1
        assert missed > 0


def test_another_mmd(root, start, follow):
    d = start(pool="1M", page="64K")
    follower = follow(d)
    wait_until(lambda: "mmd.ready" in follower.names(), 20, "the first events")
    d.stop()
    d.start()
    wait_until(lambda: follower.names().count("mmd.ready") == 2, 60, "events of the second one")
    assert {"restarted": 1} in follower.lines()


def test_words(d):
    """For people: within 80 columns; and refusals."""
    done = subprocess.run([BIN / "mmctl", "--dir", d.dir, "events"], capture_output=True, timeout=limit(30), check=True)
    lines = done.stdout.decode().splitlines()
    assert lines and all(len(line) <= 80 for line in lines), lines
    assert d.ctl("events", "--since", "1d")["events"] and not d.ctl("events", "--since", "2199-01-31T12:00:00Z")["events"]
    for wrong in ("yesterday", "10", "10y", "-1s", "2026-01-31", "99999999999999999999d"):
        code, _, errors = d.ctl("events", "--since", wrong, check=False)
        assert code == 2 and "--since" in errors and "10m" in errors, errors
