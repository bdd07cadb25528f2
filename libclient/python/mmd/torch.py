# SPDX-License-Identifier: Apache-2.0
"""PyTorch on memory that mmd lends: weights without a copy, and gates around layers.

The weights of a module are pointed at mmd's addresses by adopt(); gates() brackets its layers, so
that each may be away until it is needed; in_steps() makes each forward pass a step. Nothing of the
module's code changes.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import torch
import torch.utils.dlpack

from mmd import _cdef, _library
from mmd._client import Client
from mmd._dlpack import Memory
from mmd._layout import Layout
from mmd._model import Model, Tensor
from mmd._step import Step

__all__ = ["Adopted", "Gates", "adopt", "allocator", "gates", "in_steps", "memory", "put",
           "release", "stream", "tensor", "update"]

DTYPES: Final = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16",
                 torch.bfloat16: "BF16", torch.float8_e4m3fn: "F8_E4M3",
                 torch.float8_e5m2: "F8_E5M2", torch.int8: "I8", torch.uint8: "U8",
                 torch.int16: "I16", torch.int32: "I32", torch.int64: "I64", torch.bool: "BOOL",
                 torch.complex64: "C64"}
# DLPack 1.0 has no types for these.
OCTETS: Final = {name: kind for kind, name in DTYPES.items()
                 if kind in (torch.float8_e4m3fn, torch.float8_e5m2, torch.bool)}


def put(layout: Layout, name: str, value: Any) -> None:
    """Adds a torch tensor to a layout (Layout.put()); of a view what the view shows, contiguous."""
    if value.dtype not in DTYPES:
        raise ValueError(f"{name}: mmd has no type for {value.dtype}")
    host = value.detach().to("cpu").contiguous()
    layout.put(name, _octets(host), DTYPES[value.dtype], tuple(host.shape))


def _octets(host: Any) -> Any:
    """The bytes of a contiguous tensor in host memory, without a copy."""
    octets = (ctypes.c_uint8 * (host.numel() * host.element_size())).from_address(host.data_ptr())
    octets.owner = host  # it lives as long as who uses the bytes
    return octets


def tensor(memory: Memory) -> Any:
    """A torch tensor on mmd's memory, without a copy. Never blocks; in a step or not; any thread.

    Weights are read-only: what writes to them gets a fault. A layer's weights are read in a step
    only, between the layer's begin and end. The tensor and its views keep the client alive.
    """
    octets = OCTETS.get(memory.dtype)
    if octets is not None:
        memory_u8 = Memory(memory._client, memory.va, "U8", memory.shape, memory.writable,
                           memory._loaded)
        made = torch.utils.dlpack.from_dlpack(memory_u8).view(octets)
    else:
        made = torch.utils.dlpack.from_dlpack(memory)
    if isinstance(memory, Tensor) and memory.flags & _cdef.MM_TENSOR_TRANSPOSED:
        return made.t()
    return made


def stream(client: Client) -> int:
    """The stream on which torch computes in this thread; 0 on the software GPU. Never blocks."""
    if client.is_software:
        return 0
    return int(torch.cuda.current_stream(client.device).cuda_stream)


# ---- weights


class _Place(NamedTuple):
    """Where a module has a tensor."""

    owner: Any
    table: str
    key: str
    name: str
    value: Any


class Adopted(NamedTuple):
    """What adopt() did, by the names that the module has for its tensors."""

    adopted: list[str]
    left: list[str]
    """Buffers and attributes that the checkpoint does not have."""


def _places(module: Any) -> Iterator[_Place]:
    """Parameters, buffers and plain attributes that are tensors, under all of their names."""
    for prefix, owner in module.named_modules(remove_duplicate=False):
        for table in ("_parameters", "_buffers", "__dict__"):
            entries = owner.__dict__ if table == "__dict__" else getattr(owner, table)
            for key, value in list(entries.items()):
                if isinstance(value, torch.Tensor):
                    yield _Place(owner, table, key, f"{prefix}.{key}" if prefix else key, value)


def _named(places: list[_Place], model: Model,
           names: Callable[[str], str]) -> list[tuple[_Place, Tensor]]:
    """Those of the places whose names the checkpoint has."""
    found = []
    for place in places:
        try:
            found.append((place, model.tensor(names(place.name))))
        except KeyError:
            pass
    return found


def _made(place: _Place, weight: Tensor) -> Any:
    """The tensor that takes the place of an old one, which must be the same in kind."""
    new, old = tensor(weight), place.value
    if new.shape != old.shape or new.dtype != old.dtype:
        raise ValueError(f"{place.name}: the module has {old.dtype} {list(old.shape)}, and mmd "
                         f"{new.dtype} {list(new.shape)}: make the module with the checkpoint's "
                         f"configuration and dtype")
    return new


def _replacements(places: list[_Place], model: Model,
                  names: Callable[[str], str]) -> list[Any] | None:
    """What takes the places of tensors that share one storage; None: the checkpoint has none."""
    named = _named(places, model, names)
    if not named:
        return None
    made = {id(place.value): (place.value, _made(place, weight)) for place, weight in named}
    found = []
    for place in places:
        if id(place.value) in made:
            found.append(made[id(place.value)][1])
            continue
        view = _view(place.value, made.values())
        if view is None:
            raise ValueError(f"{place.name} shares memory with {named[0][0].name}, but is no part "
                             f"of it: adopt() cannot keep them together")
        found.append(view)
    return found


def _view(old: Any, made: Iterable[tuple[Any, Any]]) -> Any:
    """The same view of the new tensor that an old one was of the tensor before; or None."""
    for base, new in made:
        first = old.storage_offset() - base.storage_offset()
        last = first + sum((n - 1) * step for n, step in zip(old.shape, old.stride()))
        if (old.dtype == base.dtype and base.is_contiguous() and new.is_contiguous() and
                0 <= first and last < base.numel()):
            return new.as_strided(old.shape, old.stride(), first)
    return None


def adopt(module: Any, model: Model, names: Callable[[str], str] = str) -> Adopted:
    """Points the tensors of a module at the model's memory. Not in a step; any thread; no copies.

    Each parameter, buffer and tensor attribute whose name the checkpoint has is replaced, also
    where the old one was on the device "meta". names() turns the module's names into those of the
    checkpoint. Aliases stay aliases: tied parameters, and views of a replaced tensor's memory.
    Nothing is changed before everything fits. KeyError: a parameter that the checkpoint lacks.
    ValueError: another shape or dtype. The module is for inference then: no parameter has a
    gradient.
    """
    groups: dict[int, list[_Place]] = {}
    for place in _places(module):
        groups.setdefault(place.value.untyped_storage()._cdata, []).append(place)
    todo: list[tuple[_Place, Any]] = []
    left: list[str] = []
    for places in groups.values():
        news = _replacements(places, model, names)
        if news is not None:
            todo += zip(places, news)
            continue
        missing = [place.name for place in places if place.table == "_parameters"]
        if missing:
            raise KeyError(f"the checkpoint has no {' or '.join(missing)}")
        left += [place.name for place in places]
    parameters: dict[int, Any] = {}  # one for one, so that tied ones are one object as before
    for place, new in todo:
        if place.table == "_parameters":
            new = parameters.setdefault(id(place.value),
                                        torch.nn.Parameter(new, requires_grad=False))
        elif isinstance(place.value, torch.nn.Parameter):
            new = parameters.setdefault(id(place.value), new)
        entries = (place.owner.__dict__ if place.table == "__dict__" else
                   getattr(place.owner, place.table))
        entries[place.key] = new
    return Adopted([place.name for place, _ in todo], left)


def _meta(value: Any, storages: dict[int, Any]) -> Any:
    """A tensor without memory in place of another; views of one storage stay views of one."""
    storage = value.untyped_storage()
    if storage._cdata not in storages:
        storages[storage._cdata] = torch.empty(storage.nbytes(), dtype=torch.uint8,
                                               device="meta").untyped_storage()
    made = torch.empty(0, dtype=value.dtype, device="meta").set_(
        storages[storage._cdata], value.storage_offset(), value.shape, value.stride())
    if isinstance(value, torch.nn.Parameter):
        return torch.nn.Parameter(made, requires_grad=False)
    return made


def release(module: Any, model: Model) -> list[str]:
    """Takes the model's memory away from a module, whose tensors are on the device "meta" then.

    Returns the names of the tensors. Not in a step; any thread; no copies. Afterwards the model can
    be unloaded, unless other tensors of it live; adopt() gives the module weights again. Tied
    parameters stay one object, and views stay views.
    """
    addresses = {weight.va for weight in model.tensors()}
    storages: dict[int, Any] = {}
    made: dict[int, Any] = {}
    places = [place for place in _places(module)
              if place.value.untyped_storage().data_ptr() in addresses]
    for place in places:
        if id(place.value) not in made:
            made[id(place.value)] = _meta(place.value, storages)
        entries = (place.owner.__dict__ if place.table == "__dict__" else
                   getattr(place.owner, place.table))
        entries[place.key] = made[id(place.value)]
    return [place.name for place in places]


def update(module: Any, model: Model, changes: Mapping[str, Any],
           names: Callable[[str], str] = str) -> None:
    """Changes weights that a module has adopted: Model.update() with torch tensors.

    changes: tensors by their names in the checkpoint, of the same type and shape. Blocks; not in a
    step; while no other thread uses the module. Where the model stays as it was, because this is
    refused, the module keeps its weights. Where mmd finds no room for the new ones, the client has
    no model then, and the module is on the device "meta". Gates go on to work.
    """
    octets = {}
    for name, value in changes.items():
        old = model.tensor(name)
        if DTYPES.get(value.dtype) != old.dtype or tuple(value.shape) != old.shape:
            raise ValueError(f"{name}: the model has {old.dtype} {list(old.shape)}, and the change "
                             f"{value.dtype} {list(value.shape)}")
        octets[name] = _octets(value.detach().to("cpu").contiguous())
    release(module, model)
    try:
        model.update(octets)
    finally:
        if model.is_loaded:
            adopt(module, model, names)


# ---- gates


class Gates:
    """The gates of a module's layers, from gates(); remove() takes them off again."""

    def __init__(self, model: Model, layers: Sequence[Any], compiled: bool) -> None:
        if len(layers) != model.info.n_layers:
            raise ValueError(f"the model has {model.info.n_layers} layers, and {len(layers)} were "
                             f"given")
        self._model = model
        self._client = model.client
        self._synchronous = self._client.is_software
        self._hooks: list[Any] = []
        self._key = next(_keys)
        _all_gates[self._key] = self
        for layer, module in enumerate(layers):
            before, after = (_compiled_hooks if compiled else _eager_hooks)(self, layer)
            self._hooks += [module.register_forward_pre_hook(before, with_kwargs=True),
                            module.register_forward_hook(after, with_kwargs=True)]

    def begin(self, layer: int) -> None:
        """Waits for a layer on torch's stream. Never blocks but on the software GPU; in a step."""
        self._model.begin(layer, stream(self._client))
        if self._synchronous and not self._model.is_home(layer):
            # What computes there is this process itself, which no stream orders.
            self._client.synchronize()

    def end(self, layer: int) -> None:
        """Marks a layer as used on torch's stream. Never blocks; in a step."""
        self._model.end(layer, stream(self._client))

    def remove(self) -> None:
        """Takes the hooks off, and lets go of the model. Not in a step."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        _all_gates.pop(self._key, None)


_keys: Final = itertools.count()
_all_gates: Final[dict[int, Gates]] = {}
Hooks = tuple[Callable[..., None], Callable[..., None]]


def _eager_hooks(owner: Gates, layer: int) -> Hooks:
    def before(module: Any, args: Any, kwargs: Any) -> None:
        owner.begin(layer)

    def after(module: Any, args: Any, kwargs: Any, output: Any) -> None:
        owner.end(layer)

    return before, after


def _first_tensor(*values: Any) -> Any:
    for value in values:
        if isinstance(value, torch.Tensor):
            return value
    raise TypeError("a layer with compiled gates takes a tensor and returns one")


def _compiled_hooks(owner: Gates, layer: int) -> Hooks:
    key = owner._key

    def before(module: Any, args: Any, kwargs: Any) -> None:
        torch.ops.mmd.begin(_first_tensor(*args, *kwargs.values()), key, layer)

    def after(module: Any, args: Any, kwargs: Any, output: Any) -> None:
        outputs = output if isinstance(output, (tuple, list)) else (output,)
        torch.ops.mmd.end(_first_tensor(*outputs), key, layer)

    return before, after


# They say that they change the hidden state, though they do not: this keeps the compiler from
# moving what depends on it to the other side of a gate.
@torch.library.custom_op("mmd::begin", mutates_args=("hidden",))  # type: ignore[untyped-decorator]
def _begin(hidden: torch.Tensor, key: int, layer: int) -> None:
    _all_gates[key].begin(layer)


@torch.library.custom_op("mmd::end", mutates_args=("hidden",))  # type: ignore[untyped-decorator]
def _end(hidden: torch.Tensor, key: int, layer: int) -> None:
    _all_gates[key].end(layer)


def gates(model: Model, layers: Sequence[Any], compiled: bool = False) -> Gates:
    """Brackets modules, one for each layer in order, by Model.begin() and Model.end().

    Not in a step; any thread. From then on the modules run in steps only, each once in each, in
    ascending order. compiled: as custom ops mmd::begin and mmd::end, which torch.compile() keeps in
    its graphs; without it they are hooks that break graphs, and cost less.
    """
    return Gates(model, layers, compiled)


# ---- steps


def in_steps(module: Any, client: Client, before: Callable[..., None] | None = None) -> Step:
    """Makes each call of module.forward() a step, which is repeated while it is void.

    Not in a step; any thread. before(*args, **kwargs) is called in front of each try, outside of
    the step: it undoes what the last try has changed, such as the length of a cache. Returns the
    Step, whose info is that of the last call; it serves one thread at a time.
    """
    step = Step(client)
    forward = module.forward

    @functools.wraps(forward)
    def stepped(*args: Any, **kwargs: Any) -> Any:
        step.stream = stream(client)
        return step.run(lambda: forward(*args, **kwargs),
                        before=None if before is None else lambda: before(*args, **kwargs))

    module.forward = stepped
    return step


# ---- activations


def _torch_library() -> str:
    """libmm-torch.so beside the package, or beside the libmm-client that is named."""
    name = "libmm-torch.so"
    named = os.environ.get(_library.VARIABLE)
    places = [pathlib.Path(__file__).resolve().parent]
    if named:
        places.append(pathlib.Path(named).resolve().parent)
    for place in places:
        if (place / name).exists():
            return str(place / name)
    raise ImportError(f"mmd: {name} is neither beside the package nor beside the file that "
                      f"{_library.VARIABLE} names")


def allocator(client: Client) -> Any:
    """An allocator of PyTorch's whose memory is the client's (Client.alloc()). Never blocks.

    It is made without a GPU; a device has one client at a time. What PyTorch asks it for is out of
    memory where mmd refuses it. When the client closes it has no memory any more.
    """
    path = _torch_library()
    ffi, lib = _library.ffi, _library.lib
    handle = client._enter()
    client._leave()
    words = (ctypes.c_void_p * 4)(*(int(ffi.cast("uintptr_t", word)) for word in (
        handle, ffi.addressof(lib, "mm_mem_alloc"), ffi.addressof(lib, "mm_mem_free"),
        client._gpu.cuStreamSynchronize)))
    functions = ctypes.CDLL(path)
    if functions.mm_torch_set(client.device, words):
        raise ValueError(f"there is no device {client.device}")
    client._closers.append(lambda: functions.mm_torch_set(client.device, (ctypes.c_void_p * 4)()))
    return torch.cuda.memory.CUDAPluggableAllocator(path, "mm_torch_malloc", "mm_torch_free")


@contextlib.contextmanager
def memory(client: Client) -> Iterator[Any]:
    """What torch allocates on the GPU in the block is memory of mmd's, charged and never taken.

    The block gets the torch.cuda.MemPool, which must outlive the graphs that were captured in it.
    Needs a GPU; in a step or not.
    """
    pool = torch.cuda.MemPool(allocator(client).allocator())
    with torch.cuda.use_mem_pool(pool):
        yield pool
