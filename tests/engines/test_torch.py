# SPDX-License-Identifier: Apache-2.0
"""PyTorch on memory that mmd lends; run by in_venv.py."""

import ctypes
import errno
import gc
import signal
import threading
import time

import pytest
import torch

import mmd
import mmd.torch
from programs import limit, wait_until

LAYERS = 8
HIDDEN, FFN = 64, 172


class Mlp(torch.nn.Module):
    """What mkmodel's models call an MLP, without its activation."""

    def __init__(self):
        super().__init__()
        self.up_proj = torch.nn.Linear(HIDDEN, FFN, bias=False, dtype=torch.float16)
        self.down_proj = torch.nn.Linear(FFN, HIDDEN, bias=False, dtype=torch.float16)

    def forward(self, x):
        return x + torch.nn.functional.linear(
            torch.nn.functional.linear(x, self.up_proj.weight), self.down_proj.weight)


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = Mlp()

    def forward(self, x):
        return self.mlp(x)


class Body(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = torch.nn.LayerNorm(HIDDEN, bias=False, dtype=torch.float16)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x) * 0.5
        return self.norm(x)


class Toy(torch.nn.Module):
    """Names as in a checkpoint; none of it attention."""

    def __init__(self):
        super().__init__()
        self.model = Body()

    def forward(self, x):
        return self.model(x)


@pytest.fixture
def loaded(daemon, connect, model_dirs):
    def loader(**options):
        d = daemon(**options)
        client = connect(d)
        return d, client, client.load(model_dirs[0])

    yield loader
    gc.collect()  # modules that a test has left


def plain(model):
    """The module with weights of its own, copied from the host's bytes."""
    module = Toy()
    for name, parameter in module.named_parameters():
        bytes_ = bytearray(model.store(name))
        parameter.data = torch.frombuffer(bytes_, dtype=torch.float16).view(parameter.shape)
    return module.requires_grad_(False)


def on_meta(make):
    with torch.device("meta"):
        return make()


def drop_parameters(module):
    """Lets go of mmd's memory, so that the client can be closed."""
    module.to_empty(device="meta")
    gc.collect()


def inputs(seed):
    return torch.randn(3, HIDDEN, generator=torch.Generator().manual_seed(seed)).half()


def test_tensor(loaded):
    _, client, model = loaded()
    source = model.tensor("model.norm.weight")
    made = mmd.torch.tensor(source)
    assert made.dtype == torch.float16 and list(made.shape) == [HIDDEN]
    assert made.data_ptr() == source.va, "it was copied"
    assert made.numpy().tobytes() == bytes(model.store("model.norm.weight"))
    part = made[:3]
    del made
    gc.collect()
    with pytest.raises(mmd.Error) as caught:
        client.close()
    assert caught.value.errno == errno.EBUSY
    del part
    gc.collect()
    client.close()


def test_writing_is_a_fault(daemon, script, model_dirs):
    done = script(daemon(), """
        import sys, mmd.torch
        client = mmd.Client("writer")
        weight = mmd.torch.tensor(client.load(sys.argv[1]).tensor("model.norm.weight"))
        print(float(weight.sum()) != 0, flush=True)
        weight.zero_()
        print("wrote")
    """, model_dirs[0])
    assert done.stdout == "True\n" and done.returncode == -signal.SIGSEGV, done.stderr


def test_transposed(daemon, connect, model_dirs):
    """What mmd has transposed has the checkpoint's shape again."""
    client = connect(daemon())
    name = "model.layers.*.mlp.down_proj.weight"
    model = client.load(model_dirs[0], [mmd.Pack([name], transpose=True)])
    source = model.tensor(name.replace("*", "2"))
    assert source.shape == (FFN, HIDDEN)
    with mmd.Step(client), model.layer(2):
        client.synchronize()
        made = mmd.torch.tensor(source)
        assert list(made.shape) == [HIDDEN, FFN] and made.t().is_contiguous()
        del made


@pytest.mark.parametrize("make", [Toy, lambda: on_meta(Toy)], ids=["cpu", "meta"])
def test_adopt(loaded, make):
    """All names of a tensor change together: tied parameters, attributes, views, buffers."""
    _, client, model = loaded()
    module = make()
    body = module.model
    body.tied = body.layers[0].mlp.up_proj.weight
    body.layers[1].mlp.fast = body.layers[1].mlp.up_proj.weight.detach().t()
    body.layers[2].mlp.half = body.layers[2].mlp.down_proj.weight.detach()[HIDDEN // 2:]
    body.register_buffer("extra", torch.ones(3))
    result = mmd.torch.adopt(module, model)
    assert result.left == ["model.extra"] and "model.norm.weight" in result.adopted
    assert body.tied is body.layers[0].mlp.up_proj.weight and not body.tied.requires_grad
    for name, parameter in module.named_parameters():
        name = name.replace("model.tied", "model.layers.0.mlp.up_proj.weight")
        assert parameter.data_ptr() == model.tensor(name).va, name
    mlp = body.layers[1].mlp
    assert mlp.fast.data_ptr() == mlp.up_proj.weight.data_ptr() and mlp.fast.stride() == (1, HIDDEN)
    mlp = body.layers[2].mlp
    assert mlp.half.data_ptr() == mlp.down_proj.weight.data_ptr() + HIDDEN * FFN
    del mlp, body, module, parameter
    gc.collect()
    client.close()


@pytest.mark.parametrize("spoil, error", [
    (lambda body: body.register_parameter("other", torch.nn.Parameter(torch.ones(2))), KeyError),
    (lambda body: setattr(body, "norm", torch.nn.LayerNorm(HIDDEN, bias=False)), ValueError),
    (lambda body: setattr(body, "norm", torch.nn.LayerNorm(HIDDEN - 1, bias=False).half()),
     ValueError),
])
def test_adopt_refuses(loaded, spoil, error):
    """A module that does not fit is left as it was."""
    _, _, model = loaded()
    module = Toy()
    spoil(module.model)
    before = {name: parameter.data_ptr() for name, parameter in module.named_parameters()}
    with pytest.raises(error):
        mmd.torch.adopt(module, model)
    assert before == {name: parameter.data_ptr() for name, parameter in module.named_parameters()}


def test_gates_need_a_step(loaded):
    _, client, model = loaded()
    module = on_meta(Toy)
    mmd.torch.adopt(module, model)
    with pytest.raises(ValueError):
        mmd.torch.gates(model, module.model.layers[1:])
    gates = mmd.torch.gates(model, module.model.layers)
    with pytest.raises(mmd.Error) as caught:
        module(inputs(1))
    assert caught.value.errno == errno.EINVAL and "no step is open" in caught.value.strerror
    with mmd.Step(client):
        module(inputs(1))
    gates.remove()
    module(inputs(1))  # nothing has been taken
    drop_parameters(module)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_forward_while_plans_change(loaded, compiled):
    """The same bits as with weights of one's own, in steps in which layers are away."""
    d, client, model = loaded()
    reference, module = plain(model), on_meta(Toy)
    mmd.torch.adopt(module, model)
    gates = mmd.torch.gates(model, module.model.layers, compiled=compiled)
    forward = module
    if compiled:
        # Without graph breaks: the gates are operations in the graph.
        forward = torch.compile(module, backend="aot_eager", fullgraph=True)
    step, gated, plans = mmd.Step(client), 0, 0
    deadline = time.monotonic() + limit(120)
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
            x = inputs(gated)
            assert torch.equal(step.run(lambda: forward(x)), reference(x))
            gated += step.info.gated > 0
    finally:
        stop.set()
        changer.join()
        gates.remove()
        drop_parameters(module)
        torch._dynamo.reset()
        del forward
        gc.collect()
    print(f"torch: {gated} steps with layers away, {plans} plan changes")


def test_compiled_with_half_of_the_chunks(daemon, connect):
    """
    A compiled function writes rows of a tensor over the whole arena, of which half is not granted:
    functionalization copies the whole.
    """
    client = connect(daemon())
    page, rows = client.info.page_bytes, 8
    arena = client.arena(page, ranges=2, chunks=rows, backed=True, contiguous=True)
    assert arena.want(4, timeout=limit(60))
    usable, generation = arena.usable(), arena.generation
    kv = torch.from_dlpack(arena.whole(0, "F32", (2, rows, page // 4)))
    assert kv.data_ptr() == arena.va(0) and kv[1].data_ptr() == arena.va(1)
    kv.zero_()

    def write(tensor, where, what):
        view = tensor.view(-1, tensor.shape[-1])
        view[where] = what
        return view[where] * 2

    compiled = torch.compile(write, backend="aot_eager", fullgraph=True)
    for n in range(5):
        where = torch.tensor(usable) + rows * (n % 2)
        what = torch.randn(len(usable), page // 4)
        assert torch.equal(compiled(kv, where, what), what * 2)
        assert torch.equal(kv.view(-1, page // 4)[where], what)
    assert arena.generation == generation
    arena.release(usable[:2])
    assert arena.generation != generation
    assert not torch.equal(kv[1][usable[2]], torch.zeros(page // 4))
    kv.clone()
    with pytest.raises(ValueError):
        arena.whole(1, "F32", (2, rows, page // 4))
    torch._dynamo.reset()
    del kv, compiled
    gc.collect()


@pytest.mark.parametrize("kind", [torch.int8, torch.float8_e4m3fn], ids=["int8", "fp8"])
def test_layout_of_an_engine(daemon, connect, kind):
    """Fused matrices of eight bits and their scales: ids as with weights of one's own."""
    d = daemon()
    client, layers, width = connect(d), 8, 128
    torch.manual_seed(3)
    head, embed = torch.randn(64, width), torch.randn(64, width)
    fused = [(torch.randn(3 * width, width) * 30).to(kind) for _ in range(layers)]
    scale = [torch.rand(3 * width) / 300 for _ in range(layers)]
    layout = client.layout(layers)
    for name, value in (("head", head), ("embed", embed)):
        mmd.torch.put(layout, name, value)
    for n in range(layers):
        # A view with gaps: it is put as it looks.
        mmd.torch.put(layout, f"layers.{n}.qkv", fused[n].t().contiguous().t())
        mmd.torch.put(layout, f"layers.{n}.scale", scale[n])
    model = layout.commit()

    ours = {t.name: mmd.torch.tensor(t) for t in model.tensors()}

    own = {"head": head, "embed": embed}
    for n in range(layers):
        own |= {f"layers.{n}.qkv": fused[n], f"layers.{n}.scale": scale[n]}

    def next_id(weights, out, begin, end):
        x = sum(weights["embed"][n] for n in out[-8:])
        for n in range(layers):
            begin(n)
            weight = weights[f"layers.{n}.qkv"].float() * weights[f"layers.{n}.scale"][:, None]
            q, k, v = (weight @ x).chunk(3)
            x = x + torch.tanh(q * k) + torch.sigmoid(v)
            end(n)
        return int((weights["head"] @ x).argmax())

    want = [1]
    for _ in range(12):
        want.append(next_id(own, want, lambda n: None, lambda n: None))
    assert len(set(want)) > 4, "the ids say little"
    step, gated, deadline = mmd.Step(client), 0, time.monotonic() + limit(120)
    plans = 0

    def begin(n):
        model.begin(n)
        client.synchronize()

    while gated < 20:
        assert time.monotonic() < deadline, "no layers cycle"
        d.ctl("plan", "set", "engine", "--layers", 1 + plans % 5, check=False)
        plans += 1
        out = [1]
        while len(out) < len(want):
            out.append(step.run(lambda: next_id(ours, out, begin, model.end)))
            gated += step.info.gated > 0
        assert out == want
    print(f"torch: {kind}: {gated} steps with layers away, {plans} plans, ids identical")
    ours.clear()
    gc.collect()


def test_in_steps(loaded):
    """Each call is a step; an exception in a layer abandons it, and the next call is right."""
    d, client, model = loaded()
    reference, module = plain(model), on_meta(Toy)
    mmd.torch.adopt(module, model)
    mmd.torch.gates(model, module.model.layers)
    tries = []
    step = mmd.torch.in_steps(module, client, before=lambda x: tries.append(x))
    d.ctl("plan", "set", "engine", "--layers", 4)
    wait_until(lambda: client.info.layers_cycling > 0, 60, "layers to cycle")
    x = inputs(3)
    want = reference(x)
    assert torch.equal(module(x), want) and step.info.gated > 0
    bad = module.model.layers[4].register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        module(x)
    bad.remove()
    assert torch.equal(module(x), want) and len(tries) == 3
    drop_parameters(module)


def test_allocator(daemon, connect):
    """What PyTorch would call on a GPU: its own part of it does not run without one."""
    d = daemon()
    with connect(d, "pool") as client:
        page = client.info.page_bytes
        made = mmd.torch.allocator(client)
        assert isinstance(made, torch.cuda.memory.CUDAPluggableAllocator)
        library = ctypes.CDLL(mmd.torch._torch_library())
        library.mm_torch_malloc.restype = ctypes.c_void_p
        library.mm_torch_malloc.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
        library.mm_torch_free.argtypes = [ctypes.c_void_p, *library.mm_torch_malloc.argtypes]
        library.mm_torch_free.restype = None
        va = library.mm_torch_malloc(3 * page, 0, None)
        assert d.status()["pages"]["mem"] == 3 and client.read(va, page) == bytes(page)
        assert library.mm_torch_malloc(client.info.pool_pages * page + 1, 0, None) is None
        assert library.mm_torch_malloc(page, 1, None) is None
        assert library.mm_torch_malloc(0, 0, None) is None
        library.mm_torch_free(va, 3 * page, 0, None)
        wait_until(lambda: d.status()["pages"]["mem"] == 0, 20, "the memory to come back")
    assert library.mm_torch_malloc(page, 0, None) is None


class Tied(Toy):
    """A parameter that is in two places, and a view of one."""

    def __init__(self):
        super().__init__()
        self.again = self.model.norm.weight
        self.first = self.model.norm.weight[:8]


def test_release_and_adopt_again(loaded):
    """Nothing of the model is left in the module, and aliases stay aliases."""
    _, _, model = loaded()
    reference, module = plain(model), on_meta(Tied)
    names = {"again": "model.norm.weight"}
    mmd.torch.adopt(module, model, lambda name: names.get(name, name))
    for _ in range(3):
        released = mmd.torch.release(module, model)
        assert {"model.norm.weight", "again", "first"} <= set(released)
        assert module.again is module.model.norm.weight and module.again.is_meta
        assert module.first.untyped_storage()._cdata == module.again.untyped_storage()._cdata
        model.unload()
        model.reload()
        mmd.torch.adopt(module, model, lambda name: names.get(name, name))
        assert module.again is module.model.norm.weight
        assert module.first.data_ptr() == module.again.data_ptr()
        x = inputs(5)
        with model.hold(timeout=limit(60)):
            assert torch.equal(module(x), reference(x))
    assert mmd.torch.release(module, model)
    assert not mmd.torch.release(module, model)


def test_update(loaded):
    """A merge changes what the module computes as it changes plain torch, layers away or not."""
    d, client, model = loaded()
    reference, module = plain(model), on_meta(Toy)
    mmd.torch.adopt(module, model)
    mmd.torch.gates(model, module.model.layers)
    step = mmd.torch.in_steps(module, client)
    before, x = reference(inputs(1)), inputs(1)
    assert torch.equal(module(x), before)
    plans = 0
    for seed in range(3):
        changes = {}
        for layer in range(0, LAYERS, 3):
            name = f"model.layers.{layer}.mlp.down_proj.weight"
            # What an engine reads of the old weights it reads while it holds them.
            with model.hold(timeout=limit(60)):
                old = mmd.torch.tensor(model.tensor(name)).clone()
            generator = torch.Generator().manual_seed(seed)
            left, right = (torch.randn(shape, generator=generator).half() / 8
                           for shape in ((HIDDEN, 4), (4, FFN)))
            changes[name] = old + left @ right
            reference.get_parameter(name).copy_(changes[name])
        mmd.torch.update(module, model, changes)
        assert not torch.equal(reference(x), before), "the change says little"
        before, gated, deadline = reference(x), 0, time.monotonic() + limit(120)
        while gated < 10:
            assert time.monotonic() < deadline, "no layers cycle"
            d.ctl("plan", "set", "engine", "--layers", 1 + plans % 5, check=False)
            plans += 1
            y = inputs(plans)
            assert torch.equal(module(x), before) and torch.equal(module(y), reference(y))
            gated += step.info.gated > 0
    drop_parameters(module)


def test_update_refuses(loaded):
    """The module keeps its weights where nothing could be changed."""
    _, _, model = loaded()
    reference, module = plain(model), on_meta(Toy)
    mmd.torch.adopt(module, model)
    norm = "model.norm.weight"
    with pytest.raises(ValueError, match="float32"):
        mmd.torch.update(module, model, {norm: torch.zeros(HIDDEN)})
    with pytest.raises(ValueError, match="3"):
        mmd.torch.update(module, model, {norm: torch.zeros(3).half()})
    with pytest.raises(KeyError):
        mmd.torch.update(module, model, {"nothing": torch.zeros(3).half()})
    kept = mmd.torch.tensor(model.tensor(norm))
    with pytest.raises(mmd.Error) as caught:
        mmd.torch.update(module, model, {norm: torch.zeros(HIDDEN).half()})
    assert caught.value.errno == errno.EBUSY
    x = inputs(2)
    with model.hold(timeout=limit(60)):
        assert torch.equal(module(x), reference(x))
    del kept
    gc.collect()
    mmd.torch.update(module, model, {norm: torch.zeros(HIDDEN).half()})
    with model.hold(timeout=limit(60)):
        assert not module(x).any()
    drop_parameters(module)
