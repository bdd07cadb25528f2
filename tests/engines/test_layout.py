# SPDX-License-Identifier: Apache-2.0
"""Weights that an engine has made itself: committed, given away, streamed back, shared."""

import ctypes
import errno
import math
import random
import threading
import time

import pytest

pytest.importorskip("cffi", reason="python3-cffi is not installed")

import mmd  # noqa: E402
from mmd import _cdef  # noqa: E402
from programs import limit  # noqa: E402

LAYERS = 8
# As engines have them: fused matrices of eight bits, their scales, and what is of no layer.
SHAPES = {"layers.{}.qkv": ("I8", (384, 128)), "layers.{}.gate_up": ("F8_E4M3", (256, 128)),
          "layers.{}.packed": ("U8", (64, 512)), "layers.{}.scale": ("F32", (384,)),
          "embed": ("BF16", (512, 32))}


def weights(seed=1):
    """name -> type, shape, bytes."""
    rng = random.Random(seed)
    made = {}
    for pattern, (dtype, shape) in SHAPES.items():
        width = {"F32": 4, "BF16": 2}.get(dtype, 1)
        for layer in range(LAYERS if "{}" in pattern else 1):
            made[pattern.format(layer)] = dtype, shape, rng.randbytes(math.prod(shape) * width)
    return made


def commit(client, tensors, order=sorted):
    layout = client.layout(LAYERS)
    for name in order(tensors):
        dtype, shape, data = tensors[name]
        layout.put(name, data, dtype, shape)
    return layout.commit()


def shared(model):
    return bool(model.info.load_flags & _cdef.MM_LOAD_F_SHARED)


def test_given_away_and_streamed_back(daemon, connect):
    """Every byte of every type, in steps in which layers are away."""
    d = daemon(pool="8M")
    client = connect(d)
    tensors = weights()
    model = commit(client, tensors)
    assert {t.name: (t.dtype, t.shape) for t in model.tensors()} == {
        name: (dtype, shape) for name, (dtype, shape, _) in tensors.items()}
    found = {t.name: t for t in model.tensors()}
    assert found["embed"].layer is None and found["layers.3.scale"].layer is None, "they stay"
    stop, gated, deadline = threading.Event(), 0, time.monotonic() + limit(120)

    def change():
        plans = 0
        while not stop.is_set():
            d.ctl("plan", "set", "engine", "--layers", (1, 5, 3, 4, 2)[plans % 5], check=False)
            plans += 1

    changer = threading.Thread(target=change)
    changer.start()

    def step_bytes():
        got = {t.name: client.read(t.va, t.bytes) for t in found.values() if t.layer is None}
        for layer in range(LAYERS):
            model.begin(layer)
            client.synchronize()
            for t in found.values():
                if t.layer == layer:
                    got[t.name] = client.read(t.va, t.bytes)
            model.end(layer)
        return got

    step = mmd.Step(client)
    try:
        while gated < 40 or client.info.plan_changes < 10:
            assert time.monotonic() < deadline, (gated, client.info.plan_changes)
            got = step.run(step_bytes)
            assert got == {name: data for name, (_, _, data) in tensors.items()}
            gated += step.info.gated > 0
    finally:
        stop.set()
        changer.join()
    print(f"layout: {gated} steps gated, {client.info.plan_changes} plan changes, identical")


def test_second_tenant_shares(daemon, connect):
    """The same names, types and bytes are one host copy, in whatever order they were put."""
    d = daemon(pool="16M")
    first = commit(connect(d, "first"), weights())
    assert not shared(first)
    assert shared(commit(connect(d, "second"), weights(), order=lambda t: sorted(t, reverse=True)))
    assert not shared(commit(connect(d, "other"), weights(seed=2)))


def test_bad_tensors(daemon, connect):
    client = connect(daemon())
    layout = client.layout(2)
    layout.put("layers.0.w", bytes(64), "I8", (8, 8))
    for name, data, dtype, shape, say in (
            ("layers.0.w", bytes(64), "I8", (8, 8), "once"),
            ("a\"b", bytes(64), "I8", (8, 8), "letters"),
            ("x" * 120, bytes(64), "I8", (8, 8), "119"),
            ("short", bytes(63), "I8", (8, 8), "63 bytes"),
            ("long", bytes(65), "F32", (4, 4), "65 bytes"),
            ("gaps", memoryview(bytes(128))[::2], "I8", (8, 8), "bytes"),
            ("type", bytes(64), "I7", (8, 8), "no type I7")):
        with pytest.raises(ValueError, match=say):
            layout.put(name, data, dtype, shape)
    with pytest.raises(TypeError):
        layout.put("text", "text", "I8", (4,))
    with pytest.raises(mmd.Error) as caught:
        layout.commit()  # two layers, of which only one has a tensor
    assert caught.value.errno == errno.EBADMSG and "layer 1" in str(caught.value)
    layout.put("layers.0.w", (ctypes.c_uint8 * 64)(), "I8", (8, 8))
    layout.put("layers.1.w", bytearray(64), "I8", (8, 8))
    model = layout.commit()
    assert model.info.n_layers == 2 and model.info.n_tensors == 2
