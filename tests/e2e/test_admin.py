# SPDX-License-Identifier: Apache-2.0
"""The admin socket and mmctl."""

import json
import os
import pathlib
import resource
import signal
import socket
import stat
import subprocess
import time

import pytest

from daemon import RpcError
from tenant import make_requests
from programs import BIN, limit, wait_until

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602


@pytest.fixture
def d(start):
    return start(policy="remap", pool="8M", page="16K")


def error_of(d, data):
    reply = json.loads(d.raw_rpc(data))
    return reply["error"]["code"], reply["id"]


@pytest.mark.parametrize("data,code,request_id", [
    (b"{\n", PARSE_ERROR, None),
    (b"\xff\xfe\n", PARSE_ERROR, None),
    (b"[]\n", INVALID_REQUEST, None),
    (b"7\n", INVALID_REQUEST, None),
    (b'{"id":1,"method":"status"}\n', INVALID_REQUEST, 1),
    (b'{"jsonrpc":"1.0","id":1,"method":"status"}\n', INVALID_REQUEST, 1),
    (b'{"jsonrpc":"2.0","id":1}\n', INVALID_REQUEST, 1),
    (b'{"jsonrpc":"2.0","id":1,"method":7}\n', INVALID_REQUEST, 1),
    (b'{"jsonrpc":"2.0","id":"x","method":"frobnicate"}\n', METHOD_NOT_FOUND, "x"),
    (b'{"jsonrpc":"2.0","id":1,"method":"plan.set","params":[]}\n', INVALID_PARAMS, 1),
    (b'{"jsonrpc":"2.0","id":1,"method":"plan.set","params":{}}\n', INVALID_PARAMS, 1),
    (b'{"jsonrpc":"2.0","id":1,"method":"plan.set","params":{"name":"t","layers":"x"}}\n',
     INVALID_PARAMS, 1),
    (b'{"jsonrpc":"2.0","id":1,"method":"plan.set","params":{"name":"t","layers":-7}}\n',
     INVALID_PARAMS, 1),
    (b'{"jsonrpc":"2.0","id":1,"method":"plan.cold","params":{"name":"t"}}\n', INVALID_PARAMS, 1),
    (b'{"jsonrpc":"2.0","id":1,"method":"plan.cold","params":{"name":"t","cold":-1}}\n',
     INVALID_PARAMS, 1),
    (b'{"jsonrpc":"2.0","id":1,"method":"plan.cold","params":{"name":"t","cold":65537}}\n',
     INVALID_PARAMS, 1),
    (b'{"jsonrpc":"2.0","id":1,"method":"plan.cold","params":{"name":[],"cold":"auto"}}\n',
     INVALID_PARAMS, 1),
], ids=repr)
def test_json_rpc_errors(d, data, code, request_id):
    assert error_of(d, data) == (code, request_id)
    assert d.status()


def test_two_questions_in_one_packet(d):
    one = b'{"jsonrpc":"2.0","id":1,"method":"status"}\n'
    reply = d.raw_rpc(one + b'{"jsonrpc":"2.0","id":2,"method":"status"}\n')
    assert json.loads(reply.splitlines()[0])["id"] == 1


def test_endless_line(d):
    """A line without an end is cut off, not collected."""
    try:
        d.raw_rpc(b"x" * (8 << 20))
    except OSError:
        pass
    assert d.status()


def test_rights(d):
    admin, tenant = (os.stat(d.dir / name) for name in ("admin.sock", "tenant.sock"))
    assert stat.S_IMODE(admin.st_mode) == 0o600
    assert stat.S_IMODE(tenant.st_mode) == 0o666


def test_status_and_pool(d):
    status = d.ctl("status")
    assert status["schema"] == 1 and status["policy"] == "remap"
    assert status["pool_pages"] == 512 and status["page_bytes"] == 16384
    assert sum(status["pages"].values()) == 512
    pool = d.ctl("pool", "show")
    assert pool["schema"] == 1
    knobs = status["controller"]
    assert knobs["reversion"] == "on" and knobs["turn-cost"] == 25 and knobs["dwell-ms"] == 200
    assert pool["controller"] == knobs
    code, text, errors = d.ctl("plan", "show", "nobody", check=False)
    assert code in (0, 1) and (text or errors)


def test_plan_show_and_set(d, root, serve, model_dirs):
    requests = make_requests(root / "r.jsonl", 20, output=(60, 90))
    tenant = serve("t", model_dirs[0], requests, d, sync=True).ready()
    d.ctl("plan", "set", "t", "--layers", 2)
    wait_until(lambda: d.status()["alpha_sum"] == 2, 10, "the plan")
    plan = d.ctl("plan", "show", "t")
    assert plan["schema"] == 1
    assert '"alpha": 2' in json.dumps(plan) or '"alpha":2' in json.dumps(plan)
    d.ctl("plan", "set", "t", "--layers", "auto")
    code, _, errors = d.ctl("plan", "set", "nobody", "--layers", 1, check=False)
    assert code == 1 and "nobody" in errors
    with pytest.raises(RpcError):
        d.rpc("plan.set", {"name": "nobody", "layers": 1})
    code, _, errors = d.ctl("plan", "set", "t", "--layers", "auto", "--cold", 1, check=False)
    assert code == 1 and "t: it has declared no cold blocks" in errors
    tenant.go().wait()


def test_plan_why_without_tenants(d):
    """The device is explained; who is not there, or no name, is refused by what is wrong."""
    answer = d.rpc("plan.why")
    assert answer["schema"] == 1 and len(answer["devices"]) == 1
    device = answer["devices"][0]
    assert device["device"] == 0 and device["tenants"] == [] and device["pool_bytes"] == 8 << 20
    assert all(s.endswith(".") for s in device["sentences"]) and device["sentences"]
    for params, what in ({"name": "nobody"}, "nobody: no such tenant"), ({"name": 7}, "name: want"), \
            ({"device": 9}, "device: want"), ({"name": "nobody", "device": "x"}, "device: want"):
        with pytest.raises(RpcError, match=what):
            d.rpc("plan.why", params)
    code, _, errors = d.ctl("plan", "why", "a", "b", check=False)
    assert code == 2 and "plan why" in errors


def test_keeper_out_of_fds(d):
    """Who connects meanwhile waits and is served later; mmd neither spins nor fills its log."""
    keeper = d.process.pid
    before = resource.prlimit(keeper, resource.RLIMIT_NOFILE)
    begun = time.monotonic()
    # What is open stays so; no more, whatever has just been closed.
    resource.prlimit(keeper, resource.RLIMIT_NOFILE, (0, before[1]))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
        s.settimeout(limit(60))
        s.connect(str(d.dir / "admin.sock"))
        s.sendall(b'{"jsonrpc": "2.0", "id": 1, "method": "status"}\n')
        wait_until(lambda: d.log.read_text().count("event=accept.failed") >= 2, 60, "two refusals")
        resource.prlimit(keeper, resource.RLIMIT_NOFILE, before)
        assert s.recv(100).startswith(b"{")
    elapsed = time.monotonic() - begun
    assert d.log.read_text().count("event=accept.failed") <= elapsed + 2


def state(process):
    return pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def test_mmctl_stopped_and_continued(root):
    """As by Ctrl-Z and fg, while it waits for the answer: it goes on waiting."""
    answer = b'{"jsonrpc":"2.0","id":1,"result":{"plans":[]}}\n'
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(root / "admin.sock"))
        listener.listen()
        asker = subprocess.Popen([str(BIN / "mmctl"), "--dir", str(root), "--json", "plan", "show"],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        listener.settimeout(limit(60))
        s, _ = listener.accept()
        s.settimeout(limit(60))
        with s:
            asked = b""
            while not asked.endswith(b"\n"):
                asked += s.recv(4096)
            for _ in range(3):
                wait_until(lambda: state(asker) in "SZ", 60, "mmctl to wait")
                asker.send_signal(signal.SIGSTOP)
                wait_until(lambda: state(asker) == "T", 60, "mmctl to stop")
                asker.send_signal(signal.SIGCONT)
            s.sendall(answer)
            out, errors = asker.communicate(timeout=limit(60))
    assert asker.returncode == 0, errors
    assert json.loads(out)["plans"] == []
