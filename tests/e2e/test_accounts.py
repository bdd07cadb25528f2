# SPDX-License-Identifier: Apache-2.0
"""Accounts: who is charged, what quotas do, and what crosses from one domain to another."""

import errno
import json
import os
import pathlib
import signal
import subprocess
import time

import pytest

import abi
import wire
from children import as_user, ended, joined, spawn, told
from daemon import RpcError, alive, descendants
from isolated import isolated
from kvclient import KvClient
from programs import BIN, last_line, limit, wait_until
from tenant import make_requests, plain_tokens
from wire import Raw, Refused

PAGE = 16384
LOAD_WAITS_S = 10  # for a file, in mmd/load
ROOT = os.geteuid() == 0
GROUP_A, GROUP_B = 54321, 54322
needs_users = pytest.mark.skipif(not ROOT, reason="another user needs root")
needs_groups = pytest.mark.skipif(not ROOT, reason="two accounts by group need root")


def start_with(start, accounts, **options):
    extra = ["--accounts", json.dumps(accounts), *options.pop("extra", ())]
    return start(policy="remap", pool="4M", page="16K", extra=extra, **options)


def two_groups(**both):
    return [{"name": "a", "gid": GROUP_A, **both}, {"name": "b", "gid": GROUP_B, **both}]


def account(d, name):
    found = [a for a in d.ctl("quota", "show")["accounts"] if a["account"] == name]
    return found[0] if found else None


def spoken(d, *args):
    """What mmctl says to people, by line."""
    return subprocess.run([str(BIN / "mmctl"), "--dir", str(d.dir), *args], capture_output=True, text=True,
                          timeout=limit(60), check=True).stdout.splitlines()


def mine():
    return f"uid:{os.geteuid()}"


# ---- quotas while mmd runs

def test_outcomes(start):
    d = start_with(start, [{"name": "web", "uid": 99999, "min": "1M"}])
    first = d.ctl("quota", "set", "web", "--max", "2M", "--weight", "200", "--priority", 5)
    assert first["outcome"] == "applied" and first["max_bytes"] == 2 << 20
    assert (first["weight"], first["priority"], first["min_bytes"]) == (200, 5, 1 << 20)
    second = d.ctl("quota", "set", "web", "--on-timeout=quarantine", f"--revision={first['revision']}")
    assert second["outcome"] == "applied" and second["revision"] > first["revision"]
    assert second["max_bytes"] == 2 << 20, "what is not said stays"

    for args, outcome, reason in [
            (["web", "--max", "3M", "--revision", first["revision"]], "stale", "revision"),
            (["web", "--min", "3M"], "conflict", "min is more than max"),
            (["uid:7", "--min", "3500K"], "conflict", "mins of all accounts"),
            (["uid:7", "--max", "1M", "--revision", "1"], "stale", "revision")]:
        code, text, errors = d.ctl("quota", "set", *args, check=False)
        assert code == 1 and json.loads(text)["outcome"] == outcome, (text, errors)
        assert reason in json.loads(text)["reason"] and outcome in errors
    now = account(d, "web")
    assert now["revision"] == second["revision"] and now["state"] == "applied"
    assert now["on_timeout"] == "quarantine"
    assert account(d, "uid:7") is None


@pytest.mark.parametrize("args,code,word", [
    ([], 2, "ACCOUNT"), (["web", "--max"], 2, "--max"), (["web", "--max", "1.5G"], 2, "size"),
    (["web", "--weight", "x"], 2, "number"), (["web", "other"], 2, "other"),
    (["nobody", "--max", "1M"], 1, "no such account"), (["web", "--weight", "0"], 1, "weight"),
    (["web", "--max", "1K"], 1, "one page"), (["web", "--on-timeout", "maim"], 2, "kill, quarantine"),
    (["uid:4294967295"], 1, "no such account"), (["web", "--device", "7"], 1, "device")])
def test_bad_quota(start, args, code, word):
    d = start_with(start, [{"name": "web", "uid": 99999}])
    got, _, errors = d.ctl("quota", "set", *args, check=False)
    assert got == code and word in errors, errors


def test_what_is_not_as_asked_for_is_said(start):
    """A pool of 4M, pages of 16K; what was asked, what it is, and why."""
    d = start_with(start, [{"name": "web", "uid": 99999, "max": "1G", "connections_max": 1000}],
                   extra=["--account-max", "1G"])
    assert account(d, "web")["max_bytes"] == 4 << 20
    for word in ["account=web device=0 key=max asked=1073741824 set=4194304",
                 "account=web device=0 key=connections_max asked=1000 set=64",
                 "account=(unnamed) device=0 key=account-max asked=1073741824 set=4194304"]:
        wait_until(lambda w=word: f"event=account.limit_cut {w}\n" in d.log.read_text(), 20, f"the log to say {word}")

    large = d.ctl("quota", "set", "web", "--max", "1000G")
    assert (large["outcome"], large["max_bytes"]) == ("applied", 4 << 20)
    assert [(a["key"], a["requested"], a["set"]) for a in large["adjusted"]] == \
        [("max_bytes", 1000 << 30, 4 << 20)]
    assert "pool" in large["adjusted"][0]["reason"]
    odd = d.ctl("quota", "set", "web", "--min", "17K", "--max", "100K")
    assert [(a["key"], a["set"]) for a in odd["adjusted"]] == \
        [("min_bytes", 32 << 10), ("max_bytes", 96 << 10)]
    assert "whole pages" in odd["adjusted"][0]["reason"]
    for exact in [["--max", "4M"], ["--max", "0"], ["--weight", "7"], ["--priority", "3"]]:
        assert d.ctl("quota", "set", "web", *exact)["adjusted"] == []
    said = spoken(d, "quota", "set", "web", "--max", "1000G")
    assert said[0] == "web: applied" and said[1:3] == spoken(d, "quota", "show"), said
    assert said[3:] == ["  max is 4M, not 1000G: the device's pool has no more"], said


def test_set_answers_as_show_does(start):
    """All that is in force: bounds of turns and goals, too."""
    d = start_with(start, [{"name": "web", "uid": 99999}])
    args = ["--turn-quantum-max", "700", "--turn-priority-max", "3", "--goal-ttft", "900", "--goal-tpot", "45678"]
    told_json = d.ctl("quota", "set", "web", *args)
    shown = account(d, "web")
    assert {k: told_json[k] for k in shown} == shown
    assert (shown["turn_quantum_max_ms"], shown["turn_priority_max"]) == (700, 3)
    assert (shown["goal_ttft_ms"], shown["goal_tpot_us"]) == (900, 45678)
    said = spoken(d, "quota", "set", "web", "--weight", "7")
    assert said == ["web: applied", *spoken(d, "quota", "show")]
    assert " 7 0 700 3 900 45678 kill " in " ".join(said[2].split()), said


def test_show_of_a_device(start):
    d = start_with(start, [{"name": "web", "uid": 99999}])
    assert [a["account"] for a in d.ctl("quota", "show", "--device", 0)["accounts"]] == ["web"]
    code, _, errors = d.ctl("quota", "show", "--device", 7, check=False)
    assert code == 1 and "device 7" in errors, errors


def test_bad_params(start):
    d = start_with(start, [])
    for params in [{}, {"account": 7}, {"account": mine(), "max_bytes": "x"},
                   {"account": mine(), "weight": -1}, {"account": mine(), "nonsense": 1}]:
        with pytest.raises(RpcError) as e:
            d.rpc("quota.set", params)
        assert e.value.code == -32602, params


@isolated()
def deferred(d):
    with KvClient(d, PAGE) as client:
        client.hold(32)
        set_to = d.ctl("quota", "set", mine(), "--max", 8 * PAGE, "--on-timeout", "quarantine")
        assert set_to["outcome"] == "deferred" and set_to["state"] == "deferred"
        client.want(40)
        wait_until(lambda: client.look() and client.denials, 20, "a denial")
        assert len(client.chunks) == 32, "nothing is granted above the max"
        client.release(20)
        wait_until(lambda: account(d, mine())["used_bytes"] == 12 * PAGE, 20, "pages to come back")
        assert account(d, mine())["state"] == "deferred"
        client.release(4)
        wait_until(lambda: account(d, mine())["state"] == "applied", 20, "the quota to be in force")
        client.want(8)
        client.look()
        assert account(d, mine())["used_bytes"] == 8 * PAGE


def test_deferred_until_pages_come_back(start):
    deferred(start_with(start, []))


def test_the_file_is_checked(root):
    config = root / "mmd.json"
    for accounts, word in [({}, "list"), ([{"name": "a"}], "cgroup, uid and gid"),
                           ([{"name": "a", "uid": 1, "min": "9M"}], "sum up"),
                           ([{"name": "a", "uid": 1}, {"name": "a", "uid": 2}], "twice")]:
        config.write_text(json.dumps({"driver": "software", "pool": "8M", "accounts": accounts}))
        done = subprocess.run([str(BIN / "mmd"), "--config", str(config), "--dir", str(root / "x")],
                              capture_output=True, timeout=limit(60))
        assert done.returncode == 2 and word in done.stderr.decode(), done.stderr


# ---- places

KEPT = []  # connections of a child, as long as it lives


def take_places(d):
    """As many as one gets: how many, and why not one more."""
    while True:
        try:
            KEPT.append(Raw(d).greet())
        except Refused as e:
            return len(KEPT), e.result, e.reason


@needs_users
def test_no_user_takes_all_places(start, root):
    """Half of what others leave; who has none yet finds one as long as there is one."""
    d = start_with(start, [])
    root.chmod(0o711)
    takers = [as_user(54321 + i, take_places, d) for i in range(7)]
    try:
        assert [taker[0][0] for taker in takers] == [32, 16, 8, 4, 2, 1, 1]
        (_, result, reason), first = takers[0][0], account(d, "uid:54321")
        assert result == -errno.EDQUOT and "uid:54321" in reason, reason
        assert "32 of the device's 64 places" in reason and "connections_max" in reason, reason
        assert (first["places"], first["places_max"], first["connections_max"]) == (32, 16, None)
        late = as_user(54330, take_places, d)
        takers.append(late)
        assert late[0][:2] == [0, -errno.EUSERS], late
    finally:
        ended(*takers)


@needs_users
def test_what_the_operator_says_of_places_counts(start, root):
    d = start_with(start, [{"name": "few", "uid": 54321, "connections_max": 3},
                           {"name": "many", "uid": 54322, "connections_max": 40}])
    root.chmod(0o711)
    takers = [as_user(54321, take_places, d), as_user(54322, take_places, d)]
    try:
        assert [taker[0][0] for taker in takers] == [3, 40], takers
        assert "connections_max is 3;" in takers[0][0][2] and "few" in takers[0][0][2]
        # mmd's own user could end mmd: no limit of this kind is for it.
        assert spawn_and_count(d) == 64 - 43
    finally:
        ended(*takers)


def spawn_and_count(d):
    count, pid, let_go = as_user(os.geteuid(), take_places, d)
    ended((count, pid, let_go))
    return count[0]


@needs_users
def test_no_user_takes_all_loads(start, root):
    """Half of those that may run at once, over all devices; who is told -EAGAIN comes again (libclient)."""
    d = start_with(start, [], devices=2)
    root.chmod(0o711)
    uuids = [bytes.fromhex(d.device(i)["device"]["uuid"]) for i in range(2)]

    def open_models():
        results, begun = [], time.monotonic()
        for i in range(34):
            KEPT.append(Raw(d).greet(wire.hello(device_uuid=uuids[i % 2])))
            KEPT[-1].push(abi.MM_OP_MODEL_OPEN, user_data=i + 1)
            results.append(KEPT[-1].pop()["result"])
        return results, time.monotonic() - begun

    def attempt():
        """The results, unless on a slow host the first of them have ended, for want of files, before the last began."""
        taker = as_user(54321, open_models)
        ended(taker)
        wait_until(lambda: not d.tenants() and not d.pids("load"), 60, "all to be over")
        results, lasted_s = taker[0]
        return results if lasted_s < LOAD_WAITS_S else None

    assert wait_until(attempt, 60, "so many at once") == [0] * 32 + [-errno.EAGAIN] * 2


@needs_users
def test_idle_places_are_given_back(start, root):
    """A tenant that never begins is told why it has to go; one that began, and mmd's own, stay."""
    d = start_with(start, [], extra=["--idle-timeout", "300"])
    root.chmod(0o711)

    def begins():
        """On a slow host one may be told to go before it has said a word."""
        while True:
            client = Raw(d).greet()
            client.push(abi.MM_OP_KV_DECLARE, (PAGE, 1, 4, 0), user_data=1)
            event = client.pop()
            if event and event["opcode"] == abi.MM_EV_REPLY and event["result"] == 0:
                return client
            client.close()

    def body():
        with begins() as began, Raw(d).greet(wire.hello(features=wire.FEATURES | abi.MM_FEAT_REASON)) as idle:
            idle.bell()  # what mmd has not read does not keep its last words from us
            said = []
            while not said or said[-1]:
                said.append(idle.socket.recv(4096))
            assert b"within --idle-timeout\0" in said[-2], said
            began.push(abi.MM_OP_KV_DECLARE, (PAGE, 1, 4, 0), user_data=2)
            return began.pop() is not None

    with Raw(d).greet() as ours:
        told_so = as_user(54321, body)
        ended(told_so)
        assert told_so[0] is True
        wait_until(lambda: "within --idle-timeout" in d.log.read_text(), 20, "the log to say why")
        ours.push(abi.MM_OP_KV_DECLARE, (PAGE, 1, 4, 0), user_data=3)
        assert ours.pop() is not None


# ---- who is who

@needs_groups
def test_the_group_decides(start):
    d = start_with(start, two_groups(connections_max=1))

    def body():
        with KvClient(d, PAGE, name=b"one") as client:
            client.hold(4)
            assert d.tenant("one")["account"] == "a"
            assert account(d, "a")["used_bytes"] == 4 * PAGE
            assert account(d, "a")["connections"] == 1
            with pytest.raises(Refused) as e:
                Raw(d).greet()
            assert "account a has as many connections" in e.value.reason

    assert joined(spawn(body, GROUP_A)) == 0
    with KvClient(d, PAGE, name=b"other") as client:
        client.hold(1)
        assert d.tenant("other")["account"] == mine()
        client.release()


def test_the_cgroup_decides(start):
    if not any(line.startswith("0::") for line in open("/proc/self/cgroup")):
        pytest.skip("no unified cgroup hierarchy here")
    d = start_with(start, [{"name": "user", "uid": os.geteuid()}, {"name": "all", "cgroup": "/"}])
    with Raw(d).greet():
        wait_until(lambda: d.tenant("raw"), 10, "the tenant")
        assert d.tenant("raw")["account"] == "all"


def test_host_memory_is_charged(start, serve, root, model_dirs):
    """The second tenant of a model costs nothing; another model goes beyond the limit and is refused."""
    one = sum(p.stat().st_size for p in pathlib.Path(model_dirs[0]).glob("*.safetensors"))
    d = start_with(start, [{"name": "me", "uid": os.geteuid(), "host_max": one * 3 // 2}])
    requests = make_requests(root / "r", 2)
    first = serve("first", model_dirs[0], requests, d, sync=True).ready()
    second = serve("second", model_dirs[0], requests, d, sync=True).ready()
    charged = account(d, "me")["host_bytes"]
    assert one // 2 < charged <= one * 3 // 2
    third = serve("third", model_dirs[1], requests, d)
    assert third.process.wait(limit(60)) != 0
    assert "host_max" in last_line(third.log), last_line(third.log)
    first.go()
    first.wait()
    assert account(d, "me")["host_bytes"] == charged
    second.go()
    second.wait()
    wait_until(lambda: account(d, "me")["host_bytes"] == 0, 20, "the copy to go")


# ---- pages across domains

PATTERN = b"my neighbour must not see these!"


def identities(client):
    return {os.fstat(fd).st_ino for fd in client.pages.values()}


class Spy:
    """Opens pages anew: sees their bytes and keeps their numbers, without being one who holds them."""

    def __init__(self, pid):
        self.fds = []
        for name in os.listdir(f"/proc/{pid}/fd"):
            path = f"/proc/{pid}/fd/{name}"
            if "/pages/" in os.readlink(path) or os.stat(path).st_size == PAGE:
                self.fds.append(os.open(path, os.O_RDONLY))

    def numbers(self):
        return {os.fstat(fd).st_ino for fd in self.fds}

    def close(self):
        for fd in self.fds:
            os.close(fd)


def b_gets(d, chunks, seen):
    """Takes so many, and looks for what a has left: bytes and identities."""
    def body():
        with KvClient(d, PAGE, name=b"b") as b:
            b.hold(chunks)
            for page_id in b.pages:
                assert PATTERN not in b.bytes_of(page_id)
                assert b.bytes_of(page_id) == bytes(PAGE)
            assert not identities(b) & seen

    return joined(spawn(body, GROUP_B))


@needs_groups
def test_nothing_crosses(start, tmp_path):
    """The whole pool, from one domain to another: as new."""
    d = start_with(start, two_groups(), gpu_memory=4 << 20)
    ready, go = os.pipe(), os.pipe()

    def body():
        a = KvClient(d, PAGE, name=b"a").hold(256)
        a.fill(PATTERN)
        os.write(ready[1], b"r")
        told(go[0], 1)
        return a

    pid = spawn(body, GROUP_A)
    assert told(ready[0], 1) == b"r"
    spy = Spy(pid)
    assert len(spy.fds) == 256
    assert os.pread(spy.fds[0], len(PATTERN), 0) == PATTERN
    os.write(go[1], b"g")
    assert joined(pid) == 0
    assert b_gets(d, 256, spy.numbers()) == 0
    spy.close()


@needs_groups
def test_what_a_fork_holds_stays_charged(start):
    """a dies, its child keeps eight pages: b gets the others, a pays for the eight until they are back."""
    d = start_with(start, two_groups(), gpu_memory=4 << 20)
    go, out = os.pipe(), os.pipe()

    def body():
        a = KvClient(d, PAGE, name=b"a").hold(256)
        a.fill(PATTERN)
        keeps = list(a.pages.values())[:8]
        if os.fork() == 0:
            for fd in [fd for fd in a.pages.values() if fd not in keeps] + [a.socket.fileno()]:
                os.close(fd)
            os.write(out[1], b"k")
            told(go[0], 1)
            intact = all(os.pread(fd, len(PATTERN), 0) in (PATTERN, bytes(len(PATTERN))) for fd in keeps)
            os.write(out[1], b"+" if intact else b"-")
            os._exit(0)
        told(out[0], 1)
        return a

    assert joined(spawn(body, GROUP_A)) == 0
    assert b_gets(d, 248, set()) == 0

    def wants_all():
        with KvClient(d, PAGE, name=b"b") as b:
            b.want(256)
            wait_until(lambda: b.look() and len(b.chunks) == 248, 30, "all but the last pages")
            wait_until(lambda: account(d, "a")["quarantined_bytes"] == 8 * PAGE, 30,
                       f"the pages to be charged: {account(d, 'a')}")
            os.write(go[1], b"g")
            wait_until(lambda: b.look() and len(b.chunks) == 256, 30, "the last pages")
            for page_id in b.pages:
                assert PATTERN not in b.bytes_of(page_id)

    assert joined(spawn(wants_all, GROUP_B)) == 0
    assert told(out[0], 1) == b"+"
    assert account(d, "a")["quarantined_bytes"] == 0


@needs_groups
def test_one_domain_shares(start):
    """Joined accounts: no page is made anew, none is handed on unscrubbed."""
    d = start_with(start, two_groups(domain="both"), gpu_memory=4 << 20)
    out = os.pipe()

    def body():
        a = KvClient(d, PAGE, name=b"a").hold(256)
        a.fill(PATTERN)
        os.write(out[1], json.dumps(sorted(identities(a))).encode())
        return a

    def other():
        with KvClient(d, PAGE, name=b"b") as b:
            b.hold(256)
            assert identities(b) == set(json.loads(told(out[0])))
            assert all(b.bytes_of(page_id) == bytes(PAGE) for page_id in b.pages)

    assert joined(spawn(body, GROUP_A)) == 0
    assert joined(spawn(other, GROUP_B)) == 0


@needs_groups
def test_a_min_is_there(start):
    d = start_with(start, [{"name": "a", "gid": GROUP_A},
                           {"name": "b", "gid": GROUP_B, "min": "1M"}], gpu_memory=4 << 20)

    def body():
        with KvClient(d, PAGE, name=b"a") as a:
            a.want(256)
            wait_until(lambda: a.look() and a.denials, 20, "a denial")
            assert len(a.chunks) == 192
            assert joined(spawn(other, GROUP_B)) == 0

    def other():
        with KvClient(d, PAGE, name=b"b") as b:
            b.hold(64)

    assert joined(spawn(body, GROUP_A)) == 0


# ---- who does not give

@needs_groups
@pytest.mark.parametrize("on_timeout", ["kill", "quarantine"])
def test_a_stopped_tenant(start, serve, root, model_dirs, on_timeout):
    """It is asked for pages and cannot answer; honest tenants say the same as ever meanwhile."""
    d = start_with(start, two_groups(on_timeout=on_timeout),
                   extra=["--reclaim-timeout", "500", "--stop-timeout", "1000"])
    requests = make_requests(root / "r", 8)
    want = plain_tokens(root, model_dirs[0], requests)
    ready = os.pipe()

    def body():
        a = KvClient(d, PAGE, name=b"a").hold(64)
        a.want(0)
        os.write(ready[1], b"r")
        wait_until(lambda: a.look() and a.asked, 60, "to be asked")
        a.release(48)
        wait_until(lambda: account(d, "a")["state"] == "applied", 30, "what was given to count")
        return a

    pid = spawn(body, GROUP_A)
    assert told(ready[0], 1) == b"r"
    os.kill(pid, signal.SIGSTOP)
    honest = serve("honest", model_dirs[0], requests, d, sync=True).ready()
    assert d.ctl("quota", "set", "a", "--max", 16 * PAGE)["outcome"] == "deferred"
    honest.go()
    if on_timeout == "kill":
        assert joined(pid) == -signal.SIGKILL
        wait_until(lambda: account(d, "a")["state"] == "applied", 30, "its pages to come back")
        assert d.status()["kills"] == 1
    else:
        wait_until(lambda: account(d, "a")["overdue_bytes"] == 48 * PAGE, 30, "its pages to be overdue")
        assert account(d, "a")["used_bytes"] == 64 * PAGE and d.status()["kills"] == 0
        os.kill(pid, signal.SIGCONT)
        assert joined(pid) == 0
        assert account(d, "a")["overdue_bytes"] == 0 and d.status()["kills"] == 0
    assert honest.tokens() == want


# ---- pid namespaces

def unshare(*args):
    """The words that run a program in a pid namespace of its own, or a skip."""
    words = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]
    if subprocess.run([*words, "true"], capture_output=True).returncode != 0:
        pytest.skip("unshare --user --pid is not permitted here")
    return [*words, *args]


def test_a_tenant_in_a_namespace_below(start, serve, root, model_dirs):
    """mmd sees it: by its own pid, not by the one that it has for itself."""
    (root / "gpu").chmod(0o777)  # what is xfer's has no owner in there
    d = start_with(start, [])
    requests = make_requests(root / "r", 2)
    want = plain_tokens(root, model_dirs[0], requests)
    inside = serve("inside", model_dirs[0], requests, d, wrap=unshare(), sync=True).ready()
    pid = d.tenant("inside")["pid"]
    assert pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == "mmserve"
    inside.go()
    assert inside.tokens() == want


def test_mmd_in_a_namespace_below(root):
    """mmd cannot see the tenant: it says so, and what to do."""
    env = dict(os.environ, MM_SOFTGPU_DIR=str(root), MM_SOFTGPU_GRANULARITY="4096",
               MM_SOFTGPU_MEMORY=str(64 << 20))
    args = ["--dir", str(root / "ns"), "--driver", "software", "--pool", "4M", "--page", "16K"]
    with open(root / "ns.log", "wb") as log:
        outer = subprocess.Popen(unshare(str(BIN / "mmd"), *args), env=env, stderr=log, stdout=log)

    class Where:
        dir = root / "ns"

    def refusal():
        assert outer.poll() is None, last_line(root / "ns.log")
        try:
            Raw(Where).greet().close()
        except Refused as e:
            return e
        except OSError:
            return None  # not up yet
        raise AssertionError("a process that mmd cannot see was welcomed")

    try:
        said = wait_until(refusal, 60, "mmd to answer")
        assert said.result == -1 and "pid namespace" in said.reason and "hostPID" in said.reason
    finally:
        everyone = descendants(outer.pid)
        outer.send_signal(signal.SIGKILL)  # --kill-child: the namespace goes with it
        outer.wait()
        wait_until(lambda: not any(map(alive, everyone)), 20, "the namespace to end")
