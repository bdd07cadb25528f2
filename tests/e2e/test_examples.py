# SPDX-License-Identifier: Apache-2.0
"""The tutorial's programs, run as the tutorial says, while mmd takes from them."""

import json
import math
import random
import signal
import subprocess
import time

import pytest

import hostile_files as hf
from models import random_model
from programs import BIN, TOP, limit, read_until, wait_until
from tenant import make_requests

EXAMPLES = BIN.parent / "examples"


@pytest.fixture
def example(start):
    """example(daemon, name, *args) -> process with text pipes; killed when the test is over."""
    del start
    processes = []

    def starter(d, name, *args):
        env = dict(d.env, MMD_SOCKET=str(d.dir / "tenant.sock"))
        processes.append(subprocess.Popen([str(EXAMPLES / name), *map(str, args)], env=env, text=True,
                                          stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                          stderr=subprocess.PIPE))
        return processes[-1]

    yield starter
    for p in processes:
        if p.poll() is None:
            p.kill()
        p.communicate()


def test_tutorial_is_woven():
    subprocess.run([str(TOP / "Documentation" / "examples" / "weave.py"), "--check"], check=True)


DOWN = "model.layers.{}.mlp.down_proj.weight"

# What a model may lack, or have in an odd size: its number of layers, and tensors that are of none.
ODD_MODELS = {
    "no resident tensor": (3, {}),
    "an empty resident tensor": (3, {"model.empty.weight": [0, 1 << 40, 1 << 40]}),
    "empty in a layer": (3, {"model.layers.1.nothing.weight": [9, 0]}),
    "a scalar": (3, {"model.scale": []}),
    "one layer": (1, {}),
}


def odd_model(folder, layers, other, dtypes=(("F16", 16),)):
    """One tensor after the other has the next of @dtypes, which come with their bits."""
    folder.mkdir()
    shapes = {DOWN.format(layer): [100, 90 + 2 * layer] for layer in range(layers)} | other
    header, at = {}, 0
    for i, (name, shape) in enumerate(shapes.items()):
        dtype, bits = dtypes[i % len(dtypes)]
        size = bits * math.prod(shape) // 8
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    body = random.Random(3).randbytes(at)
    hf.join(folder / "model.safetensors", header, body)
    (folder / "config.json").write_text(json.dumps({"num_hidden_layers": layers}))
    return folder


# Engines bring weights of types that mmd knows the sizes of only; the example wants ascending ones.
QUANTISED = [("F4", 4), ("F6_E3M2", 6), ("U8", 8), ("F8_E4M3", 8), ("BOOL", 8), ("I16", 16), ("I32", 32),
             ("I64", 64)]


@pytest.mark.parametrize("make", [lambda folder: random_model(folder, seed=5),
                                  lambda folder: odd_model(folder, 8, {}),
                                  lambda folder: odd_model(folder, 8, {}, QUANTISED)],
                         ids=["usual", "no resident tensor", "quantised"])
def test_tenant(root, start, example, make):
    """Every step under a plan that changes all the time; every layer holds its own bytes."""
    d = start(pool="8M", page="16K")
    model = make(root / "model")
    deadline = time.monotonic() + limit(60)
    sets = 0
    while sets < 10:  # as often as it takes: one run may be over before mmctl has started
        assert time.monotonic() < deadline, f"only {sets} plans were set"
        tenant = example(d, "tenant", model, 300)
        while tenant.poll() is None:
            code, _, errors = d.ctl("plan", "set", "tenant", "--layers", 1 + sets % 5, check=False)
            # It has no model yet, or has left between two looks.
            assert code == 0 or "no such tenant" in errors or "no model" in errors, errors
            sets += code == 0
        out, errors = tenant.communicate()
        assert tenant.returncode == 0 and out == "0 layers were wrong\n", errors


def test_graph(root, start, example):
    """Two graphs, whatever the plan is; what they wait is told now and then."""
    d = start(pool="8M", page="16K")
    model = random_model(root / "model", seed=5)
    deadline = time.monotonic() + limit(60)
    told = 0
    while not told:  # as often as it takes: one run may be over before mmctl has started
        assert time.monotonic() < deadline, "no step was timed"
        engine, sets = example(d, "graph", model, 300), 0
        while engine.poll() is None:
            code, _, errors = d.ctl("plan", "set", "graph", "--layers", 1 + sets % 5, check=False)
            assert code == 0 or "no such tenant" in errors or "no model" in errors, errors
            sets += code == 0
        out, errors = engine.communicate()
        assert engine.returncode == 0, errors
        wrong, captures, gated, told = (int(word) for word in out.split() if word.isdigit())
        assert wrong == 0 and captures <= 2 and told <= gated, out


@pytest.mark.parametrize("name", ODD_MODELS)
def test_odd_models(root, start, example, name):
    """What an honest file may hold is served, also when nothing of it is resident."""
    layers, other = ODD_MODELS[name]
    d = start(pool="2M", page="16K")
    tenant = example(d, "tenant", odd_model(root / "model", layers, other), 20)
    out, errors = tenant.communicate(timeout=limit(60))
    assert tenant.returncode == 0 and out == "0 layers were wrong\n", (out, errors)


def test_tenant_without_mmd(root):
    done = subprocess.run([str(EXAMPLES / "tenant"), str(root), "1"], capture_output=True, text=True,
                          env={"MMD_SOCKET": str(root / "nobody.sock")}, timeout=limit(60))
    assert done.returncode == 3 and "is mmd running?" in done.stderr


def test_kv_only_gives_back(root, start, serve, example):
    """It holds most of the pool and uses little of it; a model that comes gets what it needs."""
    d = start(pool="2304K", page="16K")  # 144 pages, of which two engines hold 128
    engine = example(d, "kv_only", 64, 8)
    other = example(d, "kv_only", 64, 8)
    for e in (engine, other):
        read_until(e, "ready: 64 chunks\n", 60)
    model = random_model(root / "model", seed=6)
    requests = make_requests(root / "r.jsonl", 2)
    tenant = serve("llama", model, requests, d, extra=["--verify"])
    tenant.wait(120)
    assert d.status()["reclaims"] > 0
    for e in (engine, other):
        out, errors = e.communicate(timeout=limit(60))
        assert e.returncode == 0, errors
        words = out.splitlines()[-1].split()
        held, damaged = int(words[0]), int(words[5])
        assert damaged == 0 and held >= 8, out


def test_kv_only_that_looks_late(start, example):
    """It is stopped while it is asked again and again for the same: it gives what is owed, once."""
    d = start(pool="1600K", page="16K")  # 100 pages
    late = example(d, "kv_only", 64, 0)
    read_until(late, "ready: 64 chunks\n", 60)
    late.send_signal(signal.SIGSTOP)
    other = example(d, "kv_only", 56, 56)
    read_until(other, "ready: ", 60)  # it is denied what it lacks, for now
    reclaims = d.status()["reclaims"]
    wait_until(lambda: d.status()["reclaims"] >= reclaims + 4, 60, "to be asked again")
    late.send_signal(signal.SIGCONT)
    # Not by mmd's book, which says so before the engine has mapped them.
    read_until(other, "more: 56 chunks\n", 60)
    ends = [e.communicate(timeout=limit(60)) for e in (late, other)]
    assert [e.returncode for e in (late, other)] == [0, 0], ends
    assert [out.splitlines()[-1] for out, _ in ends] == ["44 chunks at the end, 0 bytes damaged",
                                                         "56 chunks at the end, 0 bytes damaged"]


def test_turns(start, example):
    """Three want more than there is, in turns; all requests are served, and mmd hears of the late ones."""
    d = start(policy="remap", pool="1M", page="16K", extra=["--controller", "mode=turns"])  # 64 pages
    engines = [example(d, "turns", 1000) for _ in range(3)]
    late = 0
    for e in engines:
        out, errors = e.communicate(timeout=limit(120))
        assert e.returncode == 0, errors
        words = out.split()
        assert words[0] == "1000" and int(words[2]) <= 1000, out
        late += int(words[2])
    assert late and d.status()["reclaims"] > 0, "nobody waited for another: the case shows nothing"
