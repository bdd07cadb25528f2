# SPDX-License-Identifier: Apache-2.0
"""Models that are given back, loaded again, and updated; the arena stays."""

import contextlib
import errno
import gc
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

pytest.importorskip("cffi", reason="python3-cffi is not installed")

import abi  # noqa: E402
import mmd  # noqa: E402
from conftest import PACKAGE  # noqa: E402
from mmd import _cdef  # noqa: E402
from programs import limit, wait_until  # noqa: E402
from test_core import DOWN, LAYERS, NORM, Taken, forward, refused  # noqa: E402


def stored(model):
    return [bytes(model.store(DOWN.format(layer))) for layer in range(LAYERS)]


def run(model, step):
    """What the layers have in a step."""
    read = []
    step.run(lambda: (read.clear(), forward(model, read)))
    return read


@contextlib.contextmanager
def plans_change(d, name="engine"):
    """While the block runs, the operator changes the plan again and again."""
    stop = threading.Event()

    def change():
        plans = 0
        while not stop.is_set():
            d.ctl("plan", "set", name, "--layers", (1, 5, 3, 4, 2)[plans % 5], check=False)
            plans += 1

    changer = threading.Thread(target=change)
    changer.start()
    try:
        yield
    finally:
        stop.set()
        changer.join()


def is_empty(d):
    """Whether no tenant has a page of a model, and the host no copy."""
    pages = d.status()["pages"]
    return pages["param"] == pages["slot"] == pages["revoking"] == 0 and not d.status()["stores"]


def test_again_and_again(daemon, connect, model_dirs):
    """Another model and the same, at any moment of plan changes, beside an arena that stays."""
    d = daemon()
    client = connect(d)
    page = client.info.page_bytes
    arena = client.arena(page, chunks=8)
    assert arena.want(4, timeout=limit(60))
    data = os.urandom(page)
    client.write(arena.va(), data)
    step = mmd.Step(client)
    gated = 0
    with plans_change(d):
        for turn in range(8):
            model = client.load(model_dirs[turn % 2])
            assert client.model is model and model.is_loaded
            want = stored(model)
            for _ in range(1 + 3 * turn):
                assert run(model, step) == want
                gated += step.info.gated > 0
            model.unload()
            model.unload()
            assert client.model is None and not model.is_loaded
            with step:
                pass  # a step without a model
            assert client.read(arena.va(), page) == data and len(arena.usable()) == 4
            wait_until(lambda: is_empty(d), 20, "the model's pages")
            wait_until(lambda: d.free_pages() == d.pool_pages() - 4, 20, "all pages, scrubbed")
    assert gated > 0
    assert d.tenant("engine")["model_ready"] is False


def test_reload(daemon, connect, model_dirs):
    client = connect(daemon())
    model = client.load(model_dirs[0])
    want = stored(model)
    assert "loaded" in refused(errno.EEXIST, model.reload)
    for _ in range(3):
        model.unload()
        model.reload()
        assert client.model is model and stored(model) == want
        assert run(model, mmd.Step(client)) == want


def test_what_is_refused(daemon, connect, model_dirs):
    d = daemon()
    client = connect(d)
    model = client.load(model_dirs[0])
    weight = model.tensor(NORM)
    taken, view = Taken(weight), model.store(NORM)
    assert "2 exported tensors" in refused(errno.EBUSY, model.unload)
    taken.done()
    del view
    with mmd.Step(client):
        assert "step" in refused(errno.EBUSY, model.unload)
        forward(model)
    with model.hold(timeout=limit(60)):
        assert "held" in refused(errno.EBUSY, model.unload)
    assert refused(errno.EEXIST, client.load, model_dirs[1])
    assert run(model, mmd.Step(client)) == stored(model), "it is as before"
    gc.collect()
    model.unload()
    for call in (lambda: model.info, lambda: model.tensor(NORM), lambda: list(model.tensors()),
                 lambda: model.store(NORM), lambda: model.compute([1]), lambda: model.begin(0),
                 lambda: model.end(0), lambda: model.hold().__enter__(), lambda: Taken(weight),
                 lambda: model.update({})):
        assert "unloaded" in refused(errno.EBADF, call)
    other = client.load(model_dirs[1])
    # Tensors of the model before are not those of the next one.
    assert "unloaded" in refused(errno.EBADF, Taken, weight)
    assert run(other, mmd.Step(client)) == stored(other)


def test_others_keep_the_host_copy(daemon, connect, model_dirs):
    d = daemon()
    first, second = (connect(d, name) for name in ("first", "second"))
    models = [client.load(model_dirs[0]) for client in (first, second)]
    want = stored(models[1])
    models[0].unload()
    assert len(d.status()["stores"]) == 1
    with plans_change(d, "second"):
        for _ in range(20):
            assert run(models[1], mmd.Step(second)) == want
    models[0].reload()
    assert models[0].info.load_flags & _cdef.MM_LOAD_F_SHARED
    models[1].unload()
    assert run(models[0], mmd.Step(first)) == want
    models[0].unload()
    wait_until(lambda: is_empty(d), 20, "the last copy's end")


def test_xfer_dies_meanwhile(daemon, connect, model_dirs):
    """The model goes all the same, and the next one has its bytes."""
    d = daemon()
    client = connect(d)
    rng = random.Random(7)
    with plans_change(d):
        for turn in range(6):
            model = client.load(model_dirs[turn % 2])
            want = stored(model)
            assert run(model, mmd.Step(client)) == want
            killer = threading.Timer(rng.random() / 50, os.kill, (d.xfer_of(0), signal.SIGKILL))
            killer.start()
            model.unload()
            killer.join()
            wait_until(lambda: d.xfer_of(0), 60, "another xfer")
    wait_until(lambda: is_empty(d), 60, "the pages")


def test_the_tenant_dies_meanwhile(daemon, script, connect, model_dirs):
    """Killed while it gives its model back: the pages come home, and others go on."""
    d = daemon()
    other = connect(d, "other")
    model = other.load(model_dirs[1])
    want = stored(model)
    for delay in (0.0, 0.001, 0.004, 0.02):
        done = script(d, """
            import os, signal, sys, threading, time
            client = mmd.Client("victim")
            model = client.load(sys.argv[1])
            timer = threading.Timer(float(sys.argv[2]), os.kill, (os.getpid(), signal.SIGKILL))
            timer.start()
            while True:
                model.unload()
                model.reload()
        """, model_dirs[0], delay)
        assert done.returncode == -signal.SIGKILL, done.stderr
        assert run(model, mmd.Step(other)) == want
        wait_until(lambda: len(d.status()["stores"]) == 1 and len(d.tenants()) == 1, 60, "its end")
    assert d.status()["pages"]["revoking"] == 0


def test_a_tenant_that_does_not_answer(daemon, connect, model_dirs):
    """It keeps its pages until it ends, and nobody else gets them, or waits for it."""
    d = daemon()
    other = connect(d, "other")
    model = other.load(model_dirs[1])
    want = stored(model)
    text = """
        import sys
        client = mmd.Client("deaf")
        model = client.load(sys.argv[1])
        print("loaded", flush=True)
        sys.stdin.readline()
        model.unload()
    """
    env = dict(d.env, PYTHONPATH=str(PACKAGE), MMD_SOCKET=str(d.dir / "tenant.sock"))
    with subprocess.Popen([sys.executable, "-c", "import mmd\n" + textwrap.dedent(text),
                           str(model_dirs[0])], env=env, text=True, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as deaf:
        assert deaf.stdout.readline() == "loaded\n"
        d.ctl("plan", "set", "deaf", "--layers", 3)
        wait_until(lambda: d.tenant("deaf")["alpha"] == 3, 60, "the plan")
        held = d.tenant("deaf")
        os.kill(d.xfer_of(0), signal.SIGSTOP)
        deaf.stdin.write("go\n")
        deaf.stdin.flush()
        wait_until(lambda: d.tenant("deaf")["plan_phase"] == "quiescing", 20, "the model's end")
        deaf.send_signal(signal.SIGSTOP)
        os.kill(d.xfer_of(0), signal.SIGCONT)
        pages = held["pages_param"] + held["pages_slot"]
        wait_until(lambda: d.status()["pages"]["revoking"] == pages, 20, "the switch")
        for _ in range(20):
            assert run(model, mmd.Step(other)) == want
        assert d.status()["pages"]["revoking"] == pages and len(d.status()["stores"]) == 2
        deaf.kill()
    wait_until(lambda: d.status()["pages"]["revoking"] == 0 and len(d.status()["stores"]) == 1, 60,
               "its pages")
    assert run(model, mmd.Step(other)) == want


def test_mmd_ends_meanwhile(daemon, connect, model_dirs):
    d = daemon()
    client = connect(d)
    model = client.load(model_dirs[0])
    d.ctl("plan", "set", "engine", "--layers", 3)
    wait_until(lambda: d.tenant("engine")["alpha"] == 3, 60, "the plan")
    os.kill(d.xfer_of(0), signal.SIGSTOP)  # its cycle does not end
    why = []
    thread = threading.Thread(target=lambda: why.append(refused(errno.ECONNRESET, model.unload)))
    thread.start()
    wait_until(lambda: d.tenant("engine")["plan_phase"] == "quiescing", 20, "the model's end")
    refused(errno.EBADF, lambda: model.info)
    d.kill()
    thread.join()
    assert why and refused(errno.ECONNRESET, model.unload)


# ---- updates


def changed(model, seed):
    """New bytes for every second layer."""
    rng = random.Random(seed)
    return {DOWN.format(layer): rng.randbytes(model.tensor(DOWN.format(layer)).bytes)
            for layer in range(0, LAYERS, 2)}


def test_update(daemon, connect, model_dirs):
    """The new bytes are there, streamed too; who shares the old copy keeps the old ones."""
    d = daemon()
    first, second = (connect(d, name) for name in ("engine", "second"))
    model, other = (client.load(model_dirs[0]) for client in (first, second))
    old = stored(other)
    infos, step, gated = model.info, mmd.Step(first), 0
    deadline = time.monotonic() + limit(120)
    with plans_change(d):
        for seed in range(4):
            changes = changed(model, seed)
            model.update(changes)
            want = [changes.get(DOWN.format(layer), old[layer]) for layer in range(LAYERS)]
            assert stored(model) == want and model.info.device_bytes == infos.device_bytes
            assert client_layers(model) == client_layers(other)
            before = gated
            while gated < before + 5:
                assert time.monotonic() < deadline, "no layers cycle"
                assert run(model, step) == want
                gated += step.info.gated > 0
            assert run(other, mmd.Step(second)) == old
    assert len(d.status()["stores"]) == 2
    with pytest.raises(ValueError, match="folder"):
        model.unload()
        model.reload()


def test_update_of_a_model_on_disk(daemon, connect, model_dirs, tmp_path):
    """Its bytes are read from the device, with layers away before."""
    chunk = 64 << 10
    stage = abi.MM_STAGE_BUFFERS_DEFAULT * (chunk + abi.MM_STAGE_BLOCK_BYTES)
    d = daemon(extra=["--chunk", str(chunk), "--stage", str(stage), "--host-store-max",
                      str(stage + (64 << 10)), "--store-dir", str(tmp_path)])
    client = connect(d)
    model = client.load(model_dirs[0])
    assert model.store(NORM) is None and d.status()["stores"][0]["tier"] == "disk"
    step = mmd.Step(client)
    old = run(model, step)
    d.ctl("plan", "set", "engine", "--layers", 3)
    wait_until(lambda: d.tenant("engine")["alpha"] == 3, 60, "the plan")
    changes = changed(model, 5)
    model.update(changes)
    want = [changes.get(DOWN.format(layer), old[layer]) for layer in range(LAYERS)]
    assert run(model, step) == want
    with plans_change(d):
        for _ in range(20):
            assert run(model, step) == want
    assert model.store(NORM) is None


def client_layers(model):
    return {tensor.name: tensor.layer for tensor in model.tensors()}


def test_update_refuses(daemon, connect, model_dirs):
    client = connect(daemon())
    model = client.load(model_dirs[0])
    want = stored(model)
    with pytest.raises(KeyError, match="nothing"):
        model.update({"nothing": b""})
    with pytest.raises(ValueError, match="4 bytes"):
        model.update({NORM: bytes(4)})
    view = model.store(NORM)
    assert "exported" in refused(errno.EBUSY, model.update, {})
    del view
    with mmd.Step(client):
        assert "step" in refused(errno.EBUSY, model.update, {})
        forward(model)
    assert stored(model) == want and run(model, mmd.Step(client)) == want
    model.unload()
    packed = client.load(model_dirs[0], [mmd.Pack([DOWN.format("*")], transpose=True)])
    with pytest.raises(ValueError, match="packing list"):
        packed.update({})


def test_no_room_for_the_new_ones(daemon, connect, model_dirs):
    """Somebody else takes the pages in between: the client says so, and has no model."""
    d = daemon(pool="2M")
    client, greedy = connect(d), connect(d, "greedy")
    model = client.load(model_dirs[0])
    arena = greedy.arena(greedy.info.page_bytes, chunks=d.pool_pages())
    model.unload()
    wait_until(lambda: d.free_pages() == d.pool_pages(), 20, "scrubbed pages")
    assert arena.want(d.pool_pages() - 2, timeout=limit(60))
    greedy.hint(used=arena.usable_count, running=1)
    with pytest.raises(mmd.Error) as caught:
        model.reload()
    assert caught.value.errno in (errno.ENOSPC, errno.EDQUOT) and not model.is_loaded
    arena.release(arena.usable())
    model.reload()
    assert run(model, mmd.Step(client)) == stored(model)
