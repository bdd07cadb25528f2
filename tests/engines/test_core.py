# SPDX-License-Identifier: Apache-2.0
"""The package mmd as a tenant: its calls, and what it refuses."""

import asyncio
import contextlib
import ctypes
import errno
import gc
import os
import signal
import threading
import time

import pytest

pytest.importorskip("cffi", reason="python3-cffi is not installed")

import mmd  # noqa: E402
import mmd.aio  # noqa: E402
from programs import limit, wait_until  # noqa: E402

LAYERS = 8
DOWN = "model.layers.{}.mlp.down_proj.weight"
NORM = "model.norm.weight"


class Managed(ctypes.Structure):
    """A DLManagedTensorVersioned, as a consumer sees it."""

    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32),
                ("manager", ctypes.c_void_p), ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
                ("flags", ctypes.c_uint64), ("data", ctypes.c_void_p),
                ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("rank", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class Taken:
    """What a consumer does with a capsule: it takes the tensor, renames the capsule, deletes."""

    def __init__(self, source):
        capsule = source.__dlpack__(max_version=(1, 0))
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        rename = ctypes.pythonapi.PyCapsule_SetName
        rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
        self.address = get(capsule, b"dltensor_versioned")
        rename(capsule, b"used_dltensor_versioned")
        self.managed = Managed.from_address(self.address)

    def done(self):
        self.managed.deleter(self.address)


def forward(model, out=None):
    """Reads a tensor of each layer in the open step."""
    for layer in range(LAYERS):
        with model.layer(layer):
            model.client.synchronize()
            tensor = model.tensor(DOWN.format(layer))
            read = model.client.read(tensor.va, tensor.bytes)
        if out is not None:
            out.append(read)


@pytest.fixture
def loaded(daemon, connect, model_dirs):
    """loaded(...) -> daemon, client, model."""
    def loader(**options):
        d = daemon(**options)
        client = connect(d)
        return d, client, client.load(model_dirs[0])

    return loader


def refused(number, call, *args, **options):
    with pytest.raises(mmd.Error) as caught:
        call(*args, **options)
    assert caught.value.errno == number, caught.value
    assert caught.value.strerror, "no sentence"
    return caught.value.strerror


# ---- what works


def test_info(loaded):
    d, client, model = loaded()
    info = client.info
    assert info.policy == "remap" and info.driver == "software" and client.is_software
    assert info.pool_pages == d.pool_pages() and info.page_bytes == 16384
    assert model.info.n_layers == LAYERS and len(info.device_uuid) == 16
    tensor = model.tensor(DOWN.format(3))
    assert (tensor.dtype, tensor.shape, tensor.layer) == ("F16", (64, 172), 3)
    assert tensor.bytes == tensor.bytes_needed() == 64 * 172 * 2
    assert model.tensor(NORM).layer is None
    walked = list(model.tensors())
    assert len(walked) == model.info.n_tensors and walked == sorted(walked, key=lambda t: t.name)
    assert sum(t.bytes for t in walked) == model.info.tensor_bytes
    for one in walked:
        other = model.tensor(one.name)
        assert (one.va, one.dtype, one.shape, one.layer) == (other.va, other.dtype, other.shape, other.layer)
    with pytest.raises(KeyError):
        model.tensor("nothing")
    assert d.tenant("engine")["tenant"] == info.tenant_id


def test_steps_while_plans_change(loaded):
    """Each layer has its own bytes in every step, and layers do cycle."""
    d, client, model = loaded()
    want = [bytes(model.store(DOWN.format(layer))) for layer in range(LAYERS)]
    step, gated, plans = mmd.Step(client), 0, 0
    deadline = time.monotonic() + limit(60)
    stop = threading.Event()

    def change():
        nonlocal plans
        while not stop.is_set():
            d.ctl("plan", "set", "engine", "--layers", 1 + plans % 5, check=False)
            plans += 1

    changer = threading.Thread(target=change)
    changer.start()
    try:
        while gated < 20:
            assert time.monotonic() < deadline, "no layers cycle"
            read = []
            step.run(lambda: (read.clear(), forward(model, read)))
            assert read == want
            gated += step.info.gated > 0
    finally:
        stop.set()
        changer.join()
    assert client.info.plan_changes > 0


def test_pack(daemon, connect, model_dirs):
    client = connect(daemon())
    qkv = [f"model.layers.*.self_attn.{name}_proj.weight" for name in "qkv"]
    model = client.load(model_dirs[0], [mmd.Pack(qkv, "model.layers.*.self_attn.qkv")])
    pack = model.tensor("model.layers.2.self_attn.qkv")
    members = [model.tensor(name.replace("*", "2")) for name in qkv]
    assert pack.shape[0] == sum(member.shape[0] for member in members)
    assert [member.va for member in members][0] == pack.va


def test_share_of_kv(daemon, connect):
    """Who declared a share gets it from who holds more; who did not, gets what is free."""
    d = daemon(pool="1M")
    first, second, third = connect(d, "first"), connect(d, "second"), connect(d, "third")
    page = first.info.page_bytes
    held = first.arena(page, chunks=64)
    assert held.want(60, timeout=limit(60))
    without, share = second.arena(page, chunks=64), third.arena(page, chunks=64, share=32)

    def engines(arenas, wanted):
        """What engines do in each of their steps, who never end a request."""
        for arena in arenas:
            chunks = arena.usable()
            owed = arena.owed.chunks
            if owed:
                arena.release(chunks[:owed])
            arena.client.hint(used=len(chunks) - owed, running=1, waiting=1, queued=32)
            with contextlib.suppress(mmd.Error):
                arena.want(60)
        return wanted()

    wait_until(lambda: engines((held, without), lambda: without.usable_count >= 4), 60,
               "what is free")
    wait_until(lambda: engines((held, without, share), lambda: share.usable_count >= 32), 60,
               "the share")


def test_arena(loaded):
    _, client, _ = loaded()
    page = client.info.page_bytes
    arena = client.arena(page, ranges=2, chunks=70)
    assert arena.usable() == [] and arena.owed == (0, 0)
    assert arena.want(66, timeout=limit(60))
    chunks = arena.usable()
    assert len(chunks) == 66 == arena.usable_count and arena.va(1, 2) - arena.va(1) == 2 * page
    data = os.urandom(page)
    client.write(arena.va(1, chunks[5]), data)
    assert client.read(arena.va(1, chunks[5]), page) == data
    assert client.read(arena.va(0, chunks[5]), page) == bytes(page), "not scrubbed"
    arena.release(chunks[60:])
    arena.release(chunks[0])
    assert "named twice" in refused(errno.ENOENT, arena.release, [chunks[1], chunks[1]])
    assert chunks[1] in arena.usable()
    arena.release([])
    assert arena.usable() == chunks[1:60]
    refused(errno.ENOENT, arena.release, chunks[0])
    refused(errno.EINVAL, arena.want, 71)
    for number, chunk in ((2, 0), (0, 70), (0, -1)):
        with pytest.raises(IndexError):
            arena.va(number, chunk)
    with mmd.Step(client):
        assert not arena.want(70, timeout=60), "it has waited in a step"


def test_arena_memory(loaded):
    """Parts of chunks are writable tensors, and do not reach beyond their chunk."""
    _, client, _ = loaded()
    page = client.info.page_bytes
    arena = client.arena(page, chunks=2)
    arena.want(1, timeout=limit(60))
    part = Taken(arena.memory(0, 0, "F32", (3, 4), offset=64))
    assert part.managed.flags == 0 and part.managed.data == arena.va() + 64
    ctypes.memset(part.managed.data, 7, 48)
    assert client.read(arena.va() + 64, 48) == b"\7" * 48
    part.done()
    for dtype, shape, offset in (("F32", (page // 4 + 1,), 0), ("U8", (page,), 1),
                                 ("U8", (1,), -1), ("F99", (1,), 0)):
        with pytest.raises(ValueError):
            arena.memory(0, 0, dtype, shape, offset)


def test_dlpack(loaded):
    _, client, model = loaded()
    source = model.tensor(NORM)
    taken = Taken(source)
    managed = taken.managed
    assert (managed.major, managed.flags) == (1, 1), "it is not read-only"
    assert (managed.device_type, managed.code, managed.bits, managed.lanes) == (1, 2, 16, 1)
    assert managed.rank == 1 and managed.shape[0] == 64 and managed.strides[0] == 1
    assert ctypes.string_at(managed.data, 128) == bytes(model.store(NORM))
    gc.collect()
    assert "exported" in refused(errno.EBUSY, client.close)
    taken.done()
    capsule = source.__dlpack__(max_version=(1, 1))
    refused(errno.EBUSY, client.close)
    del capsule  # nobody has taken it
    for options in ({}, {"max_version": (0, 8)}, {"max_version": (1, 0), "copy": True},
                    {"max_version": (1, 0), "dl_device": (2, 0)}):
        with pytest.raises(BufferError):
            source.__dlpack__(**options)
    client.close()


def test_turns(daemon, connect):
    client = connect(daemon())
    client.arena(16384, chunks=4).want(1, timeout=limit(60))
    assert client.turn_want(), "who has not joined computes at any time"
    client.turn_join(mmd.TurnMode.QUANTUM, priority=1)
    client.hint(waiting=1, queued=1)
    assert client.turn_want(timeout=limit(60))
    with mmd.Step(client):
        refused(errno.EBUSY, client.turn_yield)
    client.turn_yield()
    with pytest.raises(ValueError):
        client.turn_want(timeout=-1)


def test_events_in_a_loop(daemon, connect):
    """They arrive while the loop does other things; closing the client ends the iterator."""
    client = connect(daemon())
    arena = client.arena(16384, chunks=8)

    async def main():
        kinds, ticks = [], 0

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticker = asyncio.create_task(tick())
        loop = asyncio.get_running_loop()
        loop.call_later(0.05, arena.want, 3)
        async for event in mmd.aio.events(client):
            kinds.append((event.kind, event.count))
            if sum(count for _, count in kinds) == 3:
                loop.call_later(0.05, client.close)
        ticker.cancel()
        return kinds, ticks

    kinds, ticks = asyncio.run(main())
    assert {kind for kind, _ in kinds} == {mmd.EventKind.KV_GRANTED} and ticks > 0
    assert client.closed


def test_the_end_of_mmd(daemon, connect):
    """The iterator says so and ends, calls fail with a sentence, and the client can be closed."""
    d = daemon()
    client = connect(d)
    arena = client.arena(16384, chunks=2)
    d.kill()

    async def main():
        return [event async for event in mmd.aio.events(client)]

    events = asyncio.run(main())
    assert events[-1].kind == mmd.EventKind.DISCONNECTED and events[-1].error > 0
    with pytest.raises(mmd.Error) as caught:
        arena.want(1, timeout=1)
    assert caught.value.errno in (errno.ECONNRESET, errno.EPROTO) and caught.value.strerror
    client.close()


# ---- what is refused


def test_no_mmd(root):
    assert "is mmd running" in refused(errno.ENOENT, mmd.Client, "engine", root / "nobody.sock")


def test_bad_folder(daemon, connect, root):
    client = connect(daemon())
    refused(errno.ENOENT, client.load, root / "nothing")
    assert client.model is None
    (root / "bad").mkdir()
    (root / "bad/config.json").write_text("{")
    (root / "bad/model.safetensors").write_bytes(b"x" * 100)
    refused(errno.EBADMSG, client.load, root / "bad")


def test_one_model_and_one_arena(loaded, model_dirs):
    _, client, model = loaded()
    refused(errno.EEXIST, client.load, model_dirs[0])
    assert client.model is model
    client.arena(16384)
    refused(errno.EEXIST, client.arena, 16384)


def test_arena_of_odd_size(daemon, connect):
    refused(errno.EINVAL, connect(daemon()).arena, 1000)


def test_closed_client(loaded):
    _, client, model = loaded()
    arena = client.arena(16384, chunks=2)
    tensor = model.tensor(NORM)
    client.close()
    client.close()
    for call, args in ((client.next_event, ()), (model.tensor, (NORM,)), (model.begin, (0,)),
                       (arena.usable, ()), (arena.want, (1,)), (arena.va, ()), (client.hint, ()),
                       (mmd.Step(client).begin, ()), (client.read, (tensor.va, 2)),
                       (model.store, (NORM,)), (client.synchronize, ())):
        refused(errno.EBADF, call, *args)
    with pytest.raises(mmd.Error):
        tensor.__dlpack__(max_version=(1, 0))


def test_closing_with_live_tensors(loaded):
    _, client, model = loaded()
    view = model.store(NORM)
    half = view[:64]
    del view
    assert "1 exported" in refused(errno.EBUSY, client.close)
    with pytest.raises(TypeError):
        half[0] = 1
    del half
    gc.collect()
    client.close()


def test_block_that_fails_with_live_tensors(daemon, model_dirs):
    """The exception of the block arrives, and the client is closed with its last tensor."""
    d = daemon()
    view = None
    with pytest.raises(ZeroDivisionError):
        with mmd.Client("failing", d.dir / "tenant.sock") as client:
            view = client.load(model_dirs[0]).store(NORM)
            raise ZeroDivisionError
    assert len(bytes(view)) == 128 and d.tenant("failing")
    del client
    with pytest.warns(ResourceWarning):
        del view
        gc.collect()
    wait_until(lambda: not d.tenant("failing"), 60, "the client to be closed")


def test_closing_during_a_call(daemon, connect):
    d = daemon(pool="1M")
    other = connect(d, "other")
    other.arena(16384, chunks=64).want(60, timeout=limit(60))
    client = connect(d)
    arena = client.arena(16384, chunks=64)
    answers = []

    def want():
        with contextlib.suppress(mmd.Error):
            answers.append(arena.want(64, timeout=limit(60)))
        answers.append(None)

    waiter = threading.Thread(target=want)
    waiter.start()
    while waiter.is_alive():  # it is denied after a while
        if client._calls:
            try:
                client.close()
            except mmd.Error as error:
                assert error.errno == errno.EBUSY
                break
    waiter.join()
    assert answers == [None] or client.closed
    client.close()


def test_wrong_order_of_steps(loaded):
    _, client, model = loaded()
    step = mmd.Step(client)
    refused(errno.EINVAL, step.end)
    refused(errno.EINVAL, model.begin, 0)
    with step:
        refused(errno.EBUSY, step.begin)
        refused(errno.EINVAL, model.begin, LAYERS)
        refused(errno.EINVAL, model.end, 0)
    assert step.info.gated == 0


def test_wrong_thread(loaded):
    """While two steps are open, a third thread can end neither of them; while one is, it can."""
    _, client, _ = loaded()
    opened, go_on = threading.Barrier(3, timeout=limit(60)), threading.Event()

    def hold():
        with mmd.Step(client):
            opened.wait()
            go_on.wait()

    holders = [threading.Thread(target=hold) for _ in range(2)]
    for holder in holders:
        holder.start()
    opened.wait()
    step = mmd.Step(client)
    sentence = refused(errno.EINVAL, step.end)
    go_on.set()
    for holder in holders:
        holder.join()
    assert "step" in sentence
    starter = threading.Thread(target=step.begin)
    starter.start()
    starter.join()
    step.end()


def test_sentences_are_per_thread(daemon, connect, root):
    """Two threads fail in turns, and each gets the sentence of its own call."""
    client = connect(daemon())
    wrong = []

    def fail(name):
        for _ in range(200):
            with pytest.raises(mmd.Error) as caught:
                client.load(root / name)
            if name not in caught.value.strerror:
                wrong.append(caught.value.strerror)

    threads = [threading.Thread(target=fail, args=(f"folder-{i}",)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_exception_in_a_step(loaded):
    """The step is abandoned while layers cycle, and the next ones are right."""
    d, client, model = loaded()
    want = [bytes(model.store(DOWN.format(layer))) for layer in range(LAYERS)]
    d.ctl("plan", "set", "engine", "--layers", 4)
    deadline = time.monotonic() + limit(60)
    broken = 0
    while broken < 10:
        assert time.monotonic() < deadline, "no layers cycle"
        with pytest.raises(ZeroDivisionError), mmd.Step(client):
            model.begin(0)
            raise ZeroDivisionError
        read, step = [], mmd.Step(client)
        step.run(lambda: (read.clear(), forward(model, read)))
        assert read == want
        broken += step.info.gated > 0


def test_void_step(loaded):
    """run() repeats a step that another thread's broken one made void; a block raises StepVoid."""
    d, client, model = loaded()
    want = [bytes(model.store(DOWN.format(layer))) for layer in range(LAYERS)]
    d.ctl("plan", "set", "engine", "--layers", 4)
    step, runs = mmd.Step(client), 0
    breaker = threading.Barrier(2, timeout=limit(60))

    def break_off():
        breaker.wait()
        with contextlib.suppress(ZeroDivisionError), mmd.Step(client):
            raise ZeroDivisionError

    def work():
        nonlocal runs
        runs += 1
        if runs == 1:
            thread.start()
            breaker.wait()
            thread.join()
        read = []
        forward(model, read)
        return read

    wait_until(lambda: client.info.layers_cycling > 0, 60, "layers to cycle")
    thread = threading.Thread(target=break_off)
    assert step.run(work) == want
    assert step.voids == 1 and runs == 2
    runs = 0
    thread = threading.Thread(target=break_off)
    with pytest.raises(mmd.StepVoid), step:
        work()


def test_read_only(daemon, script, model_dirs):
    """A stray write to a weight is a fault at once."""
    done = script(daemon(), """
        import ctypes, sys
        client = mmd.Client("writer")
        tensor = client.load(sys.argv[1]).tensor("model.norm.weight")
        assert ctypes.string_at(tensor.va, 128) != bytes(128)
        print("reads", flush=True)
        ctypes.memset(tensor.va, 0, 1)
        print("wrote")
    """, model_dirs[0])
    assert done.stdout == "reads\n" and done.returncode == -signal.SIGSEGV, done.stderr


def test_fork(daemon, script, model_dirs):
    """The child is refused, may drop its copies, and the parent goes on."""
    done = script(daemon(), """
        import errno, gc, os, sys
        client = mmd.Client("parent")
        model = client.load(sys.argv[1])
        arena = client.arena(16384, chunks=2)
        view = model.store("model.norm.weight")
        pid = os.fork()
        if not pid:
            for call in (client.next_event, mmd.Step(client).begin, arena.usable,
                         lambda: model.tensor("model.norm.weight"), lambda: arena.want(1)):
                try:
                    call()
                except mmd.Error as error:
                    assert error.errno == errno.ECHILD and error.strerror, error
                else:
                    os._exit(3)
            client.close()
            del view, client, model, arena
            gc.collect()
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        with mmd.Step(client):
            pass
        assert arena.want(1, timeout=60)
        del view
        client.close()
        print("fine")
    """, model_dirs[0])
    assert (done.returncode, done.stdout, done.stderr) == (0, "fine\n", "")


def test_exports_at_exit(daemon, script, model_dirs):
    """A tensor that outlives the interpreter does not take the process with it."""
    done = script(daemon(), """
        import ctypes, sys
        client = mmd.Client("leaver")
        capsule = client.load(sys.argv[1]).tensor("model.norm.weight").__dlpack__(
            max_version=(1, 0))
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(capsule))
        print("fine")
    """, model_dirs[0])
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr


def test_two_event_loops(daemon, connect):
    """The second one that waits is refused, and the first goes on."""
    client = connect(daemon())
    arena = client.arena(16384, chunks=8)
    waits, answers = threading.Event(), []

    async def wait():
        asyncio.get_running_loop().call_later(0.05, waits.set)
        async for event in mmd.aio.events(client):
            answers.append(event.kind)
            break

    thread = threading.Thread(target=lambda: asyncio.run(wait()))
    thread.start()
    waits.wait()
    wait_until(lambda: client._watcher, 60, "the first loop to wait")

    async def second():
        async for _ in mmd.aio.events(client):
            pass

    with pytest.raises(mmd.Error) as caught:
        asyncio.run(second())
    assert caught.value.errno == errno.EBUSY
    arena.want(1)
    thread.join()
    assert answers == [mmd.EventKind.KV_GRANTED]


def test_memory_of_the_third_kind(daemon, connect):
    with connect(daemon(), "mem") as client:
        page = client.info.page_bytes
        with client.alloc(page + 1) as memory:
            assert client.read(memory.va, 2 * page) == bytes(2 * page)
            client.write(memory.va + page, b"mine")
            assert client.read(memory.va + page, 4) == b"mine"
        with pytest.raises(mmd.Error) as caught:
            memory.free()
        assert caught.value.errno == errno.ENOENT
        with pytest.raises(mmd.Error) as caught:
            client.alloc(client.info.pool_pages * page + 1)
        assert caught.value.errno == errno.EDQUOT and "share of the pool" in str(caught.value)


def test_hold(daemon, connect, model_dirs):
    """Weights that are away come home, and can be read without a step, until they are let go."""
    d = daemon()
    client = connect(d)
    model = client.load(model_dirs[0])
    want = [bytes(model.store(DOWN.format(layer))) for layer in range(LAYERS)]
    d.ctl("plan", "set", "engine", "--layers", 3)
    wait_until(lambda: d.tenant("engine")["alpha"] == 3, 60, "the plan")
    for _ in range(3):
        with model.hold(timeout=limit(60)):
            assert d.tenant("engine")["alpha"] == 0 and d.tenant("engine")["model_held"]
            answer = d.ctl("plan", "set", "engine", "--layers", 2)
            assert answer["model_held"] and answer["alpha_by_hand"] == 2
            for layer in range(LAYERS):
                tensor = model.tensor(DOWN.format(layer))
                assert client.read(tensor.va, tensor.bytes) == want[layer]
            with pytest.raises(mmd.Error) as caught, model.hold():
                pass
            assert caught.value.errno == errno.EALREADY
            read = []
            with mmd.Step(client):
                forward(model, read)
            assert read == want
        wait_until(lambda: d.tenant("engine")["alpha"] == 2, 60, "the operator's plan")
        assert not d.tenant("engine")["model_held"]
    step = mmd.Step(client)
    with step:
        with pytest.raises(mmd.Error) as caught, model.hold():
            pass
        assert caught.value.errno == errno.EBUSY
        forward(model)


def plan_is_done(d, name, layers):
    """Whether the plan is in force and what it took is free, by one answer of mmd's."""
    status = d.status()
    tenant = next(t for t in status["tenants"] if t["name"] == name)
    moving = [state for state in ("dirty", "scrubbing", "revoking") if status["pages"][state]]
    return (tenant["alpha"], tenant["plan_phase"], moving) == (layers, "steady", [])


def test_hold_in_vain(daemon, connect, model_dirs):
    """No room, or no time: then the wish is withdrawn, and mmd does not fulfil it later."""
    d = daemon(pool="2M")
    client = connect(d)
    model = client.load(model_dirs[0])
    d.ctl("plan", "set", "engine", "--layers", 3)
    wait_until(lambda: plan_is_done(d, "engine", 3), 60, "the plan")
    other = connect(d, "other")
    arena = other.arena(other.info.page_bytes, chunks=128)
    assert arena.want(d.status()["pages"]["free"], timeout=limit(60))
    with pytest.raises(mmd.Error) as caught, model.hold(timeout=limit(60)):
        pass
    assert caught.value.errno == errno.EDQUOT and "no room" in str(caught.value)
    arena.release(arena.usable())
    wait_until(lambda: d.tenant("other")["kv_chunks"] == 0, 20, "the room")
    # Nobody copies the layers.
    os.kill(d.xfer_of(0), signal.SIGSTOP)
    try:
        with pytest.raises(mmd.Error) as caught, model.hold(timeout=0.2):
            pass
    finally:
        os.kill(d.xfer_of(0), signal.SIGCONT)
    assert caught.value.errno == errno.ETIMEDOUT and "home in time" in str(caught.value)
    wait_until(lambda: plan_is_done(d, "engine", 3), 20, "the plan of before")
    assert not d.tenant("engine")["model_held"]
    with model.hold(timeout=limit(60)):
        assert d.tenant("engine")["alpha"] == 0


def ranks_connect(d, connect, size=2):
    """Clients that are the ranks of a group, each with an arena; here on one device."""
    clients = [connect(d, f"rank{i}") for i in range(size)]
    threads = [threading.Thread(target=client.join_group, args=("tp", i, size, limit(60)))
               for i, client in enumerate(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return clients, [client.arena(client.info.page_bytes, chunks=16) for client in clients]


def test_group(daemon, connect):
    """Chunks, demands and steps of all ranks or none; then one of them leaves."""
    d = daemon()
    clients, arenas = ranks_connect(d, connect)
    refused(errno.EEXIST, clients[0].join_group, "tp", 1, 2, 0)
    clients[0].join_group("tp", 0, 2, 0)
    refused(errno.EBUSY, clients[0].turn_join)
    assert arenas[1].want(5, timeout=limit(60))
    wait_until(lambda: arenas[0].usable() == arenas[1].usable() != [], 20, "chunks of both")
    assert len(arenas[0].usable()) == 5
    assert [t["group"]["rank"] for t in sorted(d.tenants(), key=lambda t: t["name"])] == [0, 1]
    for arena in arenas:
        arena.release(arena.usable()[:2])
    wait_until(lambda: [t["kv_chunks"] for t in d.tenants()] == [3, 3], 20, "their release")

    # A rank waits for the other one at the step's end, and learns how that one's ended.
    steps = [mmd.Step(client) for client in clients]
    done = []

    def run(i, fails):
        try:
            with steps[i]:
                if fails:
                    raise KeyError
            done.append((i, "counts"))
        except mmd.StepVoid as void:
            done.append((i, void.strerror))
        except KeyError:
            done.append((i, "failed"))

    for fails in (False, True, False):
        threads = [threading.Thread(target=run, args=(i, fails and i == 1)) for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(limit(60))
    assert sorted(done[:2]) == sorted(done[4:]) == [(0, "counts"), (1, "counts")]
    assert dict(done[2:4]) == {0: "the step of rank 1 is void: repeat it", 1: "failed"}

    clients[1].close()
    wait_until(lambda: len(d.tenants()) == 1, 20, "its end")
    # This waits until the client knows it, too; mmd knows it earlier.
    refused(errno.EPIPE, arenas[0].want, 9, limit(60))
    with pytest.raises(mmd.Error, match="rank 1 has left the group") as caught:
        mmd.Step(clients[0]).begin()
    assert caught.value.errno == errno.EPIPE
    assert len(arenas[0].usable()) == 3


def test_group_that_nobody_else_joins(daemon, connect):
    d = daemon()
    client = connect(d, "rank0")
    for name, rank, size in (("", 0, 2), ("a b", 0, 2), ("x" * 25, 0, 2), ("tp", 2, 2),
                             ("tp", 0, 1), ("tp", 0, 17)):
        refused(errno.EINVAL, client.join_group, name, rank, size, 0)
    refused(errno.ETIMEDOUT, client.join_group, "tp", 0, 2, 0)
    refused(errno.ETIMEDOUT, client.join_group, "tp", 0, 2, 0.05)
    refused(errno.ENOTCONN, mmd.Step(client).begin)
    other = connect(d, "other")
    refused(errno.EINVAL, other.join_group, "tp", 1, 3, 0)
    refused(errno.EEXIST, other.join_group, "tp", 0, 2, 0)
    arena = client.arena(client.info.page_bytes, chunks=4)
    refused(errno.ETIMEDOUT, arena.want, 1, 0.05)
    other.join_group("tp", 1, 2, 0)
    other.arena(other.info.page_bytes, chunks=4)
    assert arena.want(1, timeout=limit(60))
    late = connect(d, "late")
    late.arena(late.info.page_bytes, chunks=4)
    refused(errno.EBUSY, late.join_group, "late", 0, 2, 0)


def test_steps_that_cannot_be_repeated(daemon, connect, model_dirs):
    """Layers cycle, xfer is killed in the middle of steps, a step breaks off: none is ever void."""
    d = daemon()
    client = connect(d, voids=False)
    model = client.load(model_dirs[0])
    want = [bytes(model.store(DOWN.format(layer))) for layer in range(LAYERS)]
    d.ctl("plan", "set", "engine", "--layers", 4)
    step, killed = mmd.Step(client), 0
    wait_until(lambda: d.tenant("engine")["alpha"] == 4, 60, "the plan")
    for n in range(12):
        read = []
        step.begin()
        for layer in range(LAYERS):
            with model.layer(layer):
                client.synchronize()
                tensor = model.tensor(DOWN.format(layer))
                read.append(model.client.read(tensor.va, tensor.bytes))
            if layer == n % LAYERS and n % 3 == 0:
                old = d.status()["xfer"]["pid"]
                os.kill(old, signal.SIGKILL)
                killed += 1
            if n % 4 == 3 and layer == 2:
                break
        if n % 4 == 3:
            step.abandon()
            assert read == want[:3]
        else:
            assert step.end().gated > 0
            assert read == want
        wait_until(lambda: d.status()["xfer"]["up"], 60, "xfer")
    assert killed == 3 and step.voids == 0


def test_steps_that_run_on(loaded):
    """Two at once while layers cycle and plans change: each layer has its bytes, each step ends."""
    d, client, model = loaded()
    stream = client.stream()
    want = [bytes(model.store(DOWN.format(layer))) for layer in range(LAYERS)]
    ffi = mmd._library.ffi
    copy = ffi.cast("int (*)(void *, unsigned long long, size_t, void *)",
                    client._gpu.cuMemcpyDtoHAsync)
    host = [[ffi.new("char[]", len(one)) for one in want] for _ in range(3)]
    step, running, gated = mmd.Step(client, stream), [], 0

    def submit(n):
        step.begin()
        for layer in range(LAYERS):
            model.begin(layer, stream)
            tensor = model.tensor(DOWN.format(layer))
            client._gpu.cuCtxPushCurrent(client._context)
            buffer = host[n % 3][layer]
            assert copy(buffer, tensor.va, tensor.bytes, ffi.cast("void *", stream)) == 0
            client._gpu.cuCtxPopCurrent(ffi.new("CUcontext *"))
            model.end(layer, stream)
        return n, step.end_async()

    async def take():
        n, one = running.pop(0)
        info = await mmd.aio.ended(one, limit(60))
        assert [bytes(ffi.buffer(one)) for one in host[n % 3]] == want
        return info.gated > 0

    for n in range(60):
        if n % 10 == 0:
            d.ctl("plan", "set", "engine", "--layers", n // 10 % 5)
        running.append(submit(n))
        if len(running) == 2:
            gated += asyncio.run(take())
    assert refused(errno.ENOENT, mmd.Running(step, running[0][1].number + 1).wait, 0)
    running.append(submit(60))
    refused(errno.EBUSY, step.begin)
    while running:
        gated += asyncio.run(take())
    assert gated > 0 and step.voids == 0
