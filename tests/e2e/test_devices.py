# SPDX-License-Identifier: Apache-2.0
"""Several devices in one mmd: each with its pool and xfer, and what happens on one stays there."""

import os
import signal
import subprocess

import pytest

from daemon import RpcError, alive, flag_of
from models import random_model
from programs import BIN, limit, read_until, wait_until
from tenant import make_requests, plain_tokens
from wire import Raw, Refused, hello

EXAMPLE = BIN.parent / "examples" / "two_devices"


@pytest.fixture
def case(root, model_dirs):
    """A model, what to ask of it, and what it answers."""
    requests = make_requests(root / "requests.jsonl", 8, output=(30, 60))
    return model_dirs[0], requests, plain_tokens(root, model_dirs[0], requests)


def serve_on(serve, d, device, case, name=None, **options):
    return serve(name or f"t{device}", case[0], case[1], d,
                 extra=["--verify", "--device", str(device)], **options)


def uuid_of(d, device):
    return bytes.fromhex(d.device(device)["device"]["uuid"])


def check_sums(d):
    """Every device's pages add up to its pool, and the pools to what mmd has."""
    status = d.status()
    for device in status["devices"]:
        assert sum(device["pages"].values()) == device["pool_pages"], device
        assert device["pages_accounted"]
    assert status["pool_pages"] == sum(x["pool_pages"] for x in status["devices"])
    for state, pages in status["pages"].items():
        assert pages == sum(x["pages"][state] for x in status["devices"])
    return status


def test_tenants_on_both(start, serve, case):
    """Each on its device, from one host copy; a plan on one leaves the other alone."""
    d = start(devices=2, pool="8M,4M", page="16K")
    assert [x["pool_pages"] for x in d.status()["devices"]] == [512, 256]
    assert sorted(flag_of(pid, "device") for pid in d.pids("xfer")) == ["0", "1"]
    tenants = [serve_on(serve, d, i, case, sync=True).ready() for i in range(2)]
    status = check_sums(d)
    assert {t["name"]: t["device"] for t in status["tenants"]} == {"t0": 0, "t1": 1}
    assert len({t["tenant"] for t in status["tenants"]}) == 2
    assert [s["refs"] for s in status["stores"]] == [2]
    assert all(x["pages"]["param"] > 0 for x in status["devices"])
    d.ctl("plan", "set", "t1", "--layers", 3)
    wait_until(lambda: d.tenant("t1")["alpha"] == 3, 10, "the plan to be in force")
    for t in tenants:
        t.go()
    for t in tenants:
        assert t.tokens() == case[2], t.name
    status = check_sums(d)
    assert [x["bytes_streamed"] > 0 for x in status["devices"]] == [False, True]
    assert [x["alpha_sum_max"] for x in status["devices"]] == [0, 3]


@pytest.mark.parametrize("victim", [0, 1])
def test_kill_xfer(start, serve, case, victim):
    """The death of one xfer is nothing to the other device, and loses nothing on its own."""
    d = start(devices=2, pool="8M", page="16K")
    other = 1 - victim
    tenants = [serve_on(serve, d, i, case, sync=True).ready() for i in range(2)]
    for i in range(2):
        d.ctl("plan", "set", f"t{i}", "--layers", 3, "--device", i)
        wait_until(lambda i=i: d.tenant(f"t{i}")["alpha"] == 3, 10, "the plan to be in force")
    spared = d.xfer_of(other)
    for t in tenants:
        t.go()
    for n in range(3):
        os.kill(d.xfer_of(victim), signal.SIGKILL)
        wait_until(lambda n=n: d.device(victim)["xfer"]["restarts"] == n + 1
                   and d.device(victim)["xfer"]["up"], 20, "the next xfer")
    for t in tenants:
        assert t.tokens() == case[2], t.name
    assert d.xfer_of(other) == spared and alive(spared)
    assert d.device(other)["xfer"]["restarts"] == 0
    check_sums(d)


def example_line(out, device):
    """steps, steps with layers cycling, wrong"""
    words = [line for line in out.splitlines() if line.startswith(f"device {device}:")][0].split()
    return int(words[2]), int(words[4]), int(words[8])


def test_tenant_on_two(root, start):
    """One process with a model and an arena on each device: layers cycle on the one, not on the other."""
    d = start(devices=2, pool="8M", page="16K")
    model = random_model(root / "model", seed=5)
    env = dict(d.env, MMD_SOCKET=str(d.dir / "tenant.sock"))
    with subprocess.Popen([str(EXAMPLE), str(model)], env=env, text=True, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as two:
        try:
            read_until(two, "ready\n", 60)

            def tenant(device):
                return [t for t in d.tenants() if t["device"] == device][0]

            assert {t["pid"] for t in d.tenants()} == {two.pid}
            assert [tenant(i)["kv_chunks"] for i in range(2)] == [4, 4]
            code, _, errors = d.ctl("plan", "set", "two", "--layers", 3, check=False)
            assert code == 1 and "--device" in errors, errors
            before = tenant(0)["plan_epoch"]
            d.ctl("plan", "set", "two", "--layers", 3, "--device", 1)
            wait_until(lambda: tenant(1)["alpha"] == 3, 20, "the plan to be in force")
            steps = tenant(1)["steps"]
            wait_until(lambda: tenant(1)["steps"] > steps + 3, 20, "steps with it")
            assert tenant(0)["alpha"] == 0 and tenant(0)["plan_epoch"] == before
            assert [x["bytes_streamed"] > 0 for x in d.status()["devices"]] == [False, True]
            check_sums(d)
            out, errors = two.communicate("", timeout=limit(60))
        finally:
            two.kill()
    assert two.returncode == 0, out + errors
    assert example_line(out, 0)[1:] == (0, 0), out
    steps, cycling, wrong = example_line(out, 1)
    assert 0 < cycling <= steps and wrong == 0, out


def test_which_device(start):
    """A hello names one that mmd has, or is refused with a list of them."""
    d = start(devices=2, pool="2M", page="16K")
    uuids = [uuid_of(d, i) for i in range(2)]
    assert uuids[0] != uuids[1]
    for wrong, says in ((bytes(16), "2 devices"), (bytes(range(16)), bytes(range(16)).hex())):
        with Raw(d) as raw, pytest.raises(Refused) as refused:
            raw.greet(hello(device_uuid=wrong))
        assert says in refused.value.reason
        assert all(uuid.hex() in refused.value.reason for uuid in uuids)
    for i, uuid in enumerate(uuids):
        with Raw(d) as raw:
            raw.greet(hello(device_uuid=uuid))
            assert [t["device"] for t in d.tenants()] == [i]
        wait_until(lambda: not d.tenants(), 10, "the tenant to be forgotten")
    for params in ({"device": 2}, {"device": "0"}, {"device": -1}):
        with pytest.raises(RpcError):
            d.rpc("pool.show", params)
    assert [x["device"]["ordinal"] for x in d.rpc("pool.show", {"device": 1})["devices"]] == [1]


def test_renumbered(start, serve, case):
    """What is device 0 for a tenant may be device 1 for mmd: the UUID decides."""
    d = start(devices=2, pool="8M", page="16K")
    d.env["MM_SOFTGPU_VISIBLE"] = "1"
    tenant = serve_on(serve, d, 0, case, sync=True).ready()
    assert d.tenant("t0")["device"] == 1
    assert tenant.go().tokens() == case[2]


def test_device_down(start, serve, case):
    """An xfer that cannot start any more takes down its own device only, until it can again."""
    d = start(devices=2, pool="8M", page="16K")
    tenants = [serve_on(serve, d, i, case, sync=True).ready() for i in range(2)]
    state = d.gpu_dir / "device-1" / "state"
    state.rename(d.gpu_dir / "kept")
    state.mkdir()
    os.kill(d.xfer_of(1), signal.SIGKILL)
    wait_until(lambda: d.device(1)["state"] == "down", 30, "device 1 to be down")
    uuid = uuid_of(d, 1)
    with Raw(d) as raw, pytest.raises(Refused) as refused:
        raw.greet(hello(device_uuid=uuid))
    assert "down" in refused.value.reason
    assert tenants[0].go().tokens() == case[2]
    tenants[1].kill()
    state.rmdir()
    (d.gpu_dir / "kept").rename(state)
    wait_until(lambda: d.device(1)["state"] == "up" and d.device(1)["xfer"]["up"], 60,
               "device 1 to be up again")
    assert serve_on(serve, d, 1, case, name="again").tokens() == case[2]


def test_device_that_dies_young(start):
    """Each xfer comes up and is dead before it has done anything: down, said once, until one lives."""
    d = start(devices=2, pool="2M", page="16K")
    spared, killed = d.xfer_of(0), set()

    def kill_next():
        xfer = d.device(1)["xfer"]
        if xfer["up"] and xfer["pid"] not in killed:
            os.kill(xfer["pid"], signal.SIGKILL)
            killed.add(xfer["pid"])
            return True
        return False

    def is_down():
        kill_next()
        return d.device(1)["state"] == "down"

    times = 0
    while not times or d.device(1)["state"] == "up":  # killed late: an xfer that has lived for 3 s is a good one
        wait_until(is_down, 60, "device 1 to be down")
        times += 1
        wait_until(kill_next, 60, "another try, 10 s later")
    wait_until(lambda: d.device(1)["state"] == "up", 60, "device 1 to be up again")

    def said(what):
        return d.log.read_text().count(f"event=pool.{what} device=1 ")

    wait_until(lambda: said("up") >= times, 20, "the log to say so")
    assert (said("down"), said("up")) == (times, times)
    assert d.xfer_of(0) == spared


def refused_start(d):
    done = subprocess.run(d.args(), env=d.env, capture_output=True, timeout=limit(60), check=False)
    return done.returncode, done.stderr.decode()


def test_all_or_nothing(root, start):
    """A device that is not there, has no room or belongs to another mmd: none is managed."""
    from daemon import Daemon

    for extra, says in ((["--device", "0,5"], "device 5"), (["--pool", "2M,4G"], "device 1")):
        d = Daemon(root, devices=2, name="refused")
        d.extra += extra
        code, errors = refused_start(d)
        assert code == 1 and says in errors, errors
    first = start(devices=2, pool="2M", page="16K")
    second = Daemon(root, devices=2, name="second", pool="2M", page="16K")
    second.extra = ["--device", "1"]
    code, errors = refused_start(second)
    assert code == 1 and "another mmd" in errors, errors
    first.check_accounts()
