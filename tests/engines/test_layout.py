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
from programs import limit, wait_until  # noqa: E402

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


def commit(client, tensors, order=sorted, key=None):
    layout = client.layout(LAYERS)
    for name in order(tensors):
        dtype, shape, data = tensors[name]
        layout.put(name, data, dtype, shape)
    return layout.commit(key=key)


def shared(model):
    return bool(model.info.load_flags & _cdef.MM_LOAD_F_SHARED)


def step_bytes(client, model, found):
    """What a step reads: name -> bytes, of each layer between its gates."""
    got = {t.name: client.read(t.va, t.bytes) for t in found.values() if t.layer is None}
    for layer in range(LAYERS):
        model.begin(layer)
        client.synchronize()
        for t in found.values():
            if t.layer == layer:
                got[t.name] = client.read(t.va, t.bytes)
        model.end(layer)
    return got


def stream(d, client, model, tensors):
    """Every byte of every type, in steps in which layers are away: how many of these there were."""
    found = {t.name: t for t in model.tensors()}
    stop, gated, deadline = threading.Event(), 0, time.monotonic() + limit(120)
    name = next(t["name"] for t in d.ctl("status")["tenants"]
                if t["tenant"] == client.info.tenant_id)

    def change():
        plans = 0
        while not stop.is_set():
            d.ctl("plan", "set", name, "--layers", (1, 5, 3, 4, 2)[plans % 5], check=False)
            plans += 1

    changer = threading.Thread(target=change)
    changer.start()
    step = mmd.Step(client)
    try:
        while gated < 40 or client.info.plan_changes < 10:
            assert time.monotonic() < deadline, (gated, client.info.plan_changes)
            got = step.run(lambda: step_bytes(client, model, found))
            assert got == {name: data for name, (_, _, data) in tensors.items()}
            gated += step.info.gated > 0
    finally:
        stop.set()
        changer.join()
    print(f"layout: {gated} steps gated, {client.info.plan_changes} plan changes, identical")
    return gated


def test_given_away_and_streamed_back(daemon, connect):
    d = daemon(pool="8M")
    client = connect(d)
    tensors = weights()
    model = commit(client, tensors)
    assert {t.name: (t.dtype, t.shape) for t in model.tensors()} == {
        name: (dtype, shape) for name, (dtype, shape, _) in tensors.items()}
    found = {t.name: t for t in model.tensors()}
    assert found["embed"].layer is None and found["layers.3.scale"].layer is None, "they stay"
    stream(d, client, model, tensors)


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


# ---- keys

KEY = b"models/llama@4f2a int8 tp0/1 engine 0.32.0"
KINDS = {"int8": ("I8", (384, 128)), "fp8": ("F8_E4M3", (256, 128)), "fused": ("BF16", (448, 64))}


def tenant(d, name):
    return next(t for t in d.ctl("status")["tenants"] if t["name"] == name)


def keys_of(d):
    """The keys of all stores, as mmctl shows them."""
    return sorted(key["key"] for store in d.ctl("status")["stores"] for key in store["keys"])


def of_kind(kind, seed=1):
    dtype, shape = KINDS[kind]
    rng = random.Random(seed)
    length = math.prod(shape) * (2 if dtype == "BF16" else 1)
    made = {f"layers.{n}.w": (dtype, shape, rng.randbytes(length)) for n in range(LAYERS)}
    return made | {f"layers.{n}.scale": ("F32", (16,), rng.randbytes(64)) for n in range(LAYERS)}


@pytest.mark.parametrize("kind", KINDS)
def test_second_tenant_of_a_key_loads_nothing(daemon, connect, kind):
    """It reads nothing, mmd fills nothing, and it computes on the same bytes with layers away."""
    d = daemon(pool="16M")
    tensors = of_kind(kind)
    first = commit(connect(d, "first"), tensors, key=KEY)
    client = connect(d, "second")
    second = client.attach(KEY)
    assert shared(second) and not shared(first) and second.path is None
    assert second.info.digest == first.info.digest != bytes(32)
    facts = tenant(d, "second")
    print(f"{kind}: bytes read: {facts['load_read_bytes']}, filled: {facts['load_filled_bytes']}")
    assert facts["load_read_bytes"] == facts["load_filled_bytes"] == 0
    made = sum(len(data) for _, _, data in tensors.values())
    facts = tenant(d, "first")
    assert facts["load_filled_bytes"] >= made and facts["load_read_bytes"] >= 2 * made
    assert {t.name: (t.dtype, t.shape) for t in second.tensors()} == {
        name: (dtype, shape) for name, (dtype, shape, _) in tensors.items()}
    assert stream(d, client, second, tensors) >= 40


def test_key_outlives_its_committer(daemon, connect):
    """While one tenant of the key is there; without any it is gone, and so are the bytes."""
    d = daemon(pool="16M")
    one = connect(d, "one")
    with pytest.raises(KeyError):
        one.attach(KEY)
    commit(one, of_kind("int8"), key=KEY)
    two = connect(d, "two")
    digest = two.attach(KEY).info.digest
    one.close()
    three = connect(d, "three")
    assert three.attach(KEY, digest).info.digest == digest
    two.close()
    three.close()
    wait_until(lambda: not d.ctl("status")["stores"], 20, "the store to go")
    four = connect(d, "four")
    with pytest.raises(KeyError):
        four.attach(KEY)
    # What was refused has left nothing behind.
    assert commit(four, of_kind("int8"), key=KEY).info.digest == digest


def test_first_commit_has_the_key(daemon, connect):
    """Other bytes are refused; the same ones share, also under other keys, of which few can be."""
    d = daemon(pool="16M")
    first = commit(connect(d, "first"), of_kind("int8"), key=KEY)
    other = connect(d, "other")
    with pytest.raises(mmd.Error) as caught:
        commit(other, of_kind("int8", seed=2), key=KEY)
    assert caught.value.errno == errno.EEXIST and "llama@4f2a" in str(caught.value)
    assert not shared(commit(other, of_kind("int8", seed=2), key=KEY + b"?"))
    assert shared(commit(connect(d, "same"), of_kind("int8"), key=KEY))
    for number in range(7):
        with mmd.Client(f"c{number}", d.dir / "tenant.sock") as client:
            assert shared(commit(client, of_kind("int8"), key=f"key {number}"))
    last = connect(d, "last")
    with pytest.raises(mmd.Error) as caught:
        commit(last, of_kind("int8"), key="one more")
    assert caught.value.errno == errno.ENOSPC and "8 keys" in str(caught.value)
    with pytest.raises(KeyError):
        last.attach("one more")
    assert last.attach("key 6").info.digest == first.info.digest
    assert len(keys_of(d)) == 9


def test_digest_is_demanded(daemon, connect):
    d = daemon(pool="16M")
    digest = commit(connect(d, "first"), of_kind("fp8"), key=KEY).info.digest
    client = connect(d, "second")
    with pytest.raises(mmd.Error) as caught:
        client.attach(KEY, bytes(32))
    assert caught.value.errno == errno.ESTALE and "digest" in str(caught.value)
    with pytest.raises(ValueError, match="32 bytes"):
        client.attach(KEY, digest[:31])
    assert client.attach(KEY, digest).info.digest == digest


def test_keys_of_any_bytes(daemon, connect):
    """They are compared as they are, and shown so that a terminal or a log cannot take harm."""
    d = daemon(pool="16M")
    hostile = [bytes(range(256)), b"a\0", b"a", b"a\0\0", b'"},{\x1b[31m\\x00', "ключ".encode()]
    with mmd.Client("keeps", d.dir / "tenant.sock") as keeps:
        made = commit(keeps, of_kind("int8"), key=hostile[0])
        for number, key in enumerate(hostile[1:]):
            client = connect(d, f"c{number}")
            with pytest.raises(KeyError):
                client.attach(key)
            assert shared(commit(client, of_kind("int8"), key=key))
        shown = keys_of(d)
        assert len(set(shown)) == len(hostile)
        assert all(text.isascii() and text.isprintable() for text in shown)
        assert "a\\x00" in shown and "a" in shown and "a\\x00\\x00" in shown
        assert '\\x22},{\\x1b[31m\\x5cx00' in shown
        for number, key in enumerate(hostile):
            assert connect(d, f"d{number}").attach(key).info.digest == made.info.digest
    client = connect(d, "bad")
    for key, number in ((b"", errno.EINVAL), (bytes(257), errno.E2BIG)):
        with pytest.raises(mmd.Error) as caught:
            client.attach(key)
        assert caught.value.errno == number and "key" in str(caught.value)
        with pytest.raises(mmd.Error) as caught:
            commit(client, of_kind("int8"), key=key)
        assert caught.value.errno == number and "key" in str(caught.value)
    with pytest.raises(TypeError):
        client.attach(7)


def test_only_what_is_sealed_has_a_key(daemon, connect, model_dirs):
    """A key of a file, which its owner may change, would be a name for a path, not for bytes."""
    client = connect(daemon(pool="16M"))
    with open(next(model_dirs[0].glob("*.safetensors")), "rb") as file:
        with pytest.raises(mmd.Error) as caught:
            client.load(files=[file.fileno()], layers=LAYERS, key=KEY)
        assert caught.value.errno == errno.EINVAL and "sealed" in str(caught.value)
        with pytest.raises(mmd.Error) as caught:
            client.load(model_dirs[0], key=KEY)
        assert caught.value.errno == errno.EINVAL and "engine made" in str(caught.value)
        assert client.load(files=[file.fileno()], layers=LAYERS).info.n_layers == LAYERS


def test_a_thousand_keys(daemon, connect):
    """A key that nobody uses leaves nothing, and many tries do not keep others out."""
    d = daemon(pool="16M")
    for number in range(1000):
        with mmd.Client("many", d.dir / "tenant.sock") as client:
            if number % 10:
                with pytest.raises(KeyError):
                    client.attach(f"key {number}")
            else:
                commit(client, {f"layers.{n}.w": ("I8", (8, 8), number.to_bytes(64, "big"))
                                for n in range(2)} | of_kind("int8"), key=f"key {number}")
    wait_until(lambda: not d.ctl("status")["stores"], 20, "the stores to go")
    with pytest.raises(KeyError):
        connect(d).attach("key 0")


def test_attach_waits_for_the_commit(daemon, connect):
    """Two engines that start at once: both ask, one makes, and who asks meanwhile gets the same."""
    d = daemon(pool="32M")
    tensors = {f"layers.{n}.w": ("U8", (1024, 1024), random.Random(n).randbytes(1 << 20))
               for n in range(LAYERS)}
    maker, waiter, result = connect(d, "maker"), connect(d, "waiter"), []

    def make():
        result.append(commit(maker, tensors, key=KEY))

    thread = threading.Thread(target=make)
    thread.start()
    model, deadline = None, time.monotonic() + limit(60)
    while model is None:
        assert time.monotonic() < deadline
        try:
            model = waiter.attach(KEY)
        except KeyError:
            pass
    thread.join()
    assert model.info.digest == result[0].info.digest
