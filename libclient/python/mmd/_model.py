# SPDX-License-Identifier: Apache-2.0
"""A model on mmd's pages: its tensors, and the gates of its layers."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import errno
import os
import pathlib
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from mmd import _cdef
from mmd._client import nanoseconds, sized
from mmd._dlpack import Loaded, Memory, drop_forgotten
from mmd._error import Error
from mmd._library import ffi, lib

if TYPE_CHECKING:
    from mmd._client import Client
    from mmd._cold import Cold

Buffer = Any  # what memoryview() takes
DTYPES: Final = {number: name.removeprefix("MM_DTYPE_")
                 for number, name in ffi.typeof("enum mm_dtype").elements.items()}


@dataclasses.dataclass(frozen=True)
class ModelInfo:
    """Sizes of a model, in bytes; mm/client.h explains each."""

    n_layers: int
    n_tensors: int
    resident_bytes: int
    layer_bytes: int
    device_bytes: int
    tensor_bytes: int
    waste_bytes: int
    store_bytes: int
    load_flags: int
    digest: bytes


@dataclasses.dataclass(frozen=True)
class Pack:
    """Tensors that lie one after the other, so that a kernel takes them as one matrix.

    A '*' in the names stands for the number of a layer. name: of the whole pack; None: it has none.
    """

    members: Sequence[str]
    name: str | None = None
    transpose: bool = False
    optional: bool = False


class Tensor(Memory):
    """A weight at an address that never changes. Read-only: what writes to it gets a fault.

    A layer's bytes are there in a step, between Model.begin() and Model.end() of that layer. At
    other times mmd may have taken them, and reading is a fault. torch.from_dlpack() takes it.
    """

    def __init__(self, client: Client, loaded: Loaded, name: str, record: Any) -> None:
        super().__init__(client, record.va, DTYPES.get(record.dtype, f"dtype {record.dtype}"),
                         tuple(record.shape[0:record.rank]), False, loaded)
        self.name = name
        self.bytes = int(record.bytes)
        self.layer: int | None = None if record.layer < 0 else int(record.layer)
        """None: the tensor is resident, and never taken."""
        self.flags = int(record.flags)
        """MM_TENSOR_* of mm/types.h."""

    def __repr__(self) -> str:
        return f"<mmd.Tensor {self.name} {self.dtype}{list(self.shape)} layer {self.layer}>"


def _rules(packs: Sequence[Pack]) -> tuple[Any, list[Any]]:
    """The packing list as the library takes it, and what must live as long."""
    rules, alive = ffi.new("struct mm_pack[]", max(len(packs), 1)), []
    for rule, pack in zip(rules, packs):
        names = [ffi.new("char[]", name.encode()) for name in pack.members]
        members = ffi.new("char *[]", names)
        name = ffi.NULL if pack.name is None else ffi.new("char[]", pack.name.encode())
        alive += [*names, members, name]
        rule.name, rule.members, rule.n_members = name, members, len(names)
        rule.flags = ((_cdef.MM_PACK_TRANSPOSE if pack.transpose else 0) |
                      (_cdef.MM_PACK_OPTIONAL if pack.optional else 0))
    return rules, alive


def _octets(key: bytes | str) -> bytes:
    return key.encode() if isinstance(key, str) else key


class Model:
    """A client's model, from Client.load(): until unload(), or the client's end.

    After reload() and update() it is the same object, with other weights: gates go on to work, and
    tensors are to be looked up again.
    """

    path: pathlib.Path | None
    """None: it was loaded from descriptors, or found by its key."""

    def __init__(self, client: Client, path: pathlib.Path | None, packs: Sequence[Pack],
                 files: Sequence[int] = (), layers: int = 0,
                 key: bytes | str | None = None) -> None:
        self._client = client
        self.path = path
        self._packs = packs
        self._loaded: Loaded | None = None
        self._load(files, layers, key)

    def _load(self, files: Sequence[int] = (), layers: int = 0,
              key: bytes | str | None = None) -> None:
        """Loads from files, or from the path if there are none."""
        rules, alive = _rules(self._packs)
        opts = sized("mm_model_opts")
        opts.packs, opts.n_packs = rules, len(self._packs)
        opts.pack_size = ffi.sizeof("struct mm_pack")
        opts.n_layers = layers
        if key is not None:
            octets = ffi.from_buffer(_octets(key))
            opts.key, opts.key_bytes = octets, len(octets)
            alive.append(octets)
        handle = ffi.new("struct mm_model **")
        if files:
            self._client._call(lib.mm_model_load_files, None, ffi.new("int[]", list(files)),
                               len(files), opts, handle)
        else:
            assert self.path is not None
            self._client._call(lib.mm_model_load, None, os.fsencode(self.path), opts, handle)
        del alive
        self._loaded = Loaded(handle[0])
        self._client._model = self

    def _begin(self) -> Loaded:
        """Begins a call, during which the model is not unloaded."""
        self._client._check_process()
        with self._client._lock:
            loaded = self._loaded
            if loaded is None or loaded.gone:
                raise Error(errno.EBADF, "the model is unloaded")
            loaded.calls += 1
            return loaded

    def _end(self, loaded: Loaded) -> None:
        with self._client._lock:
            loaded.calls -= 1

    def _call(self, function: Any, *args: Any, fine: Sequence[int] = ()) -> int:
        """Client._call() on the model."""
        loaded = self._begin()
        try:
            return self._client._call(function, loaded.handle, *args, fine=fine)
        finally:
            self._end(loaded)

    @classmethod
    def attached(cls, client: Client, key: bytes | str, digest: bytes | None) -> Model:
        """What Client.attach() does."""
        octets = _octets(key)
        if digest is not None and len(digest) != _cdef.MM_MODEL_DIGEST_BYTES:
            raise ValueError(f"a digest has {_cdef.MM_MODEL_DIGEST_BYTES} bytes, not {len(digest)}")
        handle = ffi.new("struct mm_model **")
        if client._call(lib.mm_model_load_key, None, ffi.from_buffer(octets), len(octets),
                        ffi.NULL if digest is None else ffi.from_buffer(digest), handle,
                        fine=(errno.ENOENT,)):
            raise KeyError(key)
        model = cls.__new__(cls)
        model._client, model.path, model._packs = client, None, ()
        model._loaded = Loaded(handle[0])
        client._model = model
        return model

    @property
    def client(self) -> Client:
        """The client that it was loaded by."""
        return self._client

    @property
    def is_loaded(self) -> bool:
        """Whether it has weights: it is not unloaded. Never blocks."""
        loaded = self._loaded
        return loaded is not None and not loaded.gone

    @property
    def info(self) -> ModelInfo:
        """Sizes. Never blocks; in a step or not."""
        info = sized("mm_model_info")
        self._call(lib.mm_model_info, info)
        return ModelInfo(info.n_layers, info.n_tensors, info.resident_bytes, info.layer_bytes,
                         info.device_bytes, info.tensor_bytes, info.waste_bytes, info.store_bytes,
                         info.load_flags, bytes(info.digest))

    def tensor(self, name: str) -> Tensor:
        """Looks a tensor up by its name in the checkpoint, or a pack by its own.

        Never blocks; in a step or not. KeyError: there is none.
        """
        record = sized("mm_tensor")
        loaded = self._begin()
        try:
            if self._client._call(lib.mm_model_tensor, loaded.handle, name.encode(), record,
                                  fine=(errno.ENOENT,)):
                raise KeyError(name)
            return Tensor(self._client, loaded, name, record)
        finally:
            self._end(loaded)

    def tensors(self) -> Iterator[Tensor]:
        """All tensors in the order of their names, packs with a name among them.

        Never blocks; in a step or not.
        """
        name = ffi.new("char[]", _cdef.MM_TENSOR_NAME_BYTES)
        for index in range(self.info.n_tensors):
            record = sized("mm_tensor")
            loaded = self._begin()
            try:
                self._client._call(lib.mm_model_tensor_at, loaded.handle, index, name, len(name),
                                   record)
            finally:
                self._end(loaded)
            yield Tensor(self._client, loaded, ffi.string(name).decode(), record)

    @contextlib.contextmanager
    def hold(self, timeout: float | None = None) -> Iterator[None]:
        """Has all layers at home for a with-block, so that tensors can be read outside of steps.

        Blocks until mmd has brought them home, or raises Error with ETIMEDOUT, or EDQUOT if the
        account has no room for them; not in a step. Others get nothing of this model meanwhile.
        """
        loaded = self._begin()  # to the block's end: it is not unloaded before its release
        try:
            self._client._call(lib.mm_model_hold, loaded.handle, nanoseconds(timeout))
            loaded.held = True
            try:
                yield
            finally:
                loaded.held = False
                with contextlib.suppress(Error):  # the client may be closed, its connection over
                    self._client._call(lib.mm_model_release, loaded.handle)
        finally:
            self._end(loaded)

    def store(self, name: str) -> memoryview | None:
        """The host's bytes of a tensor, read-only, to check device bytes against.

        Never blocks; in a step or not. None: there is no such tensor, or mmd keeps this model on a
        disk. The view counts as an exported tensor.
        """
        length = ffi.new("uint64_t *")
        loaded = self._begin()
        self._client._enter()
        try:
            address = lib.mm_model_store(loaded.handle, name.encode(), length)
        finally:
            self._client._leave()
            self._end(loaded)
        if address == ffi.NULL:
            return None
        kind: Any = type("Bytes", (ctypes.c_char * int(length[0]),), {})
        whole = kind.from_address(int(ffi.cast("uintptr_t", address)))
        self._client._export(id(whole), loaded)
        weakref.finalize(whole, _store_done, self._client, id(whole)).atexit = False
        return memoryview(whole).cast("B").toreadonly()

    def compute(self, weights: Sequence[int]) -> None:
        """Sets how long the layers compute, in relation to each other: one number > 0 for each.

        Never blocks; in a step or not.
        """
        self._call(lib.mm_model_compute, ffi.new("uint16_t[]", list(weights)), len(weights))

    def cold(self, unit_bytes: int, entries: int, floor: int = 0) -> Cold:
        """Declares cold blocks: full KV blocks in the swap space, streamed to the steps that read.

        Blocks until mmd answers; not in a step. The client has a swap space with room for all
        entries, and an arena of one range, in which a block has unit_bytes of each layer side by
        side. floor: entries that may be live in any case. EOPNOTSUPP: this mmd, device or model has
        none. It ends with the model's unload.
        """
        from mmd._cold import Cold  # pylint: disable=import-outside-toplevel

        return Cold(self, unit_bytes, self.info.n_layers, entries, floor)

    # ---- its end, and other weights

    def unload(self) -> None:
        """Gives the weights back to mmd; the arena and all else of the client stay.

        Blocks until their pages are mmd's; not in a step, not while it is held. Then the client may
        load another model. EBUSY: exported tensors of the model live, also in modules that adopted
        it (mmd.torch.release()), a step is open, or another thread is in a call of the model.
        ETIMEDOUT: call again. Unloading twice does nothing.
        """
        loaded = self._let_go()
        if loaded is None:
            return
        try:
            self._client._call(lib.mm_model_unload, loaded.handle)
        except Error:
            loaded.gone = False
            raise
        with self._client._lock:
            self._loaded = None
            if self._client._model is self:
                self._client._model = None

    def _let_go(self) -> Loaded | None:
        """From here on no call and no tensor of the model begins; None: it is unloaded."""
        drop_forgotten()
        self._client._check_process()
        with self._client._lock:
            loaded = self._loaded
            if loaded is None:
                return None
            if loaded.gone:
                raise Error(errno.EALREADY, "another thread unloads the model")
            alive = sum(of is loaded for of in list(self._client._exports.values()))
            if alive:
                raise Error(errno.EBUSY, f"{alive} exported tensors of this model are in use: drop "
                            f"them before it is unloaded")
            if loaded.held:
                raise Error(errno.EBUSY, "the model is held: let go of it first")
            if loaded.calls:
                raise Error(errno.EBUSY, f"{loaded.calls} calls of this model are in progress")
            loaded.gone = True
            return loaded

    def reload(self) -> None:
        """Loads an unloaded model again, from the folder as it is now. Blocks; not in a step."""
        if self.path is None:
            raise ValueError("this model was not loaded from a folder")
        if self._loaded is not None:
            raise Error(errno.EEXIST, "the model is loaded")
        self._load()

    def update(self, changes: Mapping[str, Buffer]) -> None:
        """Takes other bytes for some of the tensors, as of a merge or a training step.

        changes: by name, contiguous, of the type and shape that the tensor has. Blocks; not in a
        step. The new weights are written to a sealed memfd first, then the model is unloaded, with
        what that refuses, and the new ones are loaded: for that time host memory has them once
        more. Others who share the old host copy keep it. If mmd has no room for the new weights,
        because others got the pages meanwhile, this raises, and the client has no model. ETIMEDOUT:
        unload() until it returns, then load.
        """
        layers = self.info.n_layers
        fd = self._write(changes, layers)
        try:
            self.unload()
            self._load([fd], layers)
            self.path = None
        finally:
            os.close(fd)

    def _write(self, changes: Mapping[str, Buffer], layers: int) -> int:
        """A sealed memfd with all tensors, changed ones among them."""
        from mmd._layout import Layout  # pylint: disable=import-outside-toplevel

        found = {tensor.name: tensor for tensor in self.tensors()}
        for name in changes:
            if name not in found:
                raise KeyError(f"the model has no {name}")
        if any(tensor.flags for tensor in found.values()):
            raise ValueError("a model with a packing list cannot be updated: unload and load it")
        layout = Layout(self._client, layers)
        for name, tensor in found.items():
            data = changes[name] if name in changes else self.store(name)
            if data is None:  # on a disk: the device has the bytes, too
                with self.hold():
                    data = self._client.read(tensor.va, tensor.bytes)
            layout.put(name, data, tensor.dtype, tensor.shape)
        return layout.seal()

    # ---- gates

    def begin(self, layer: int, stream: int = 0) -> None:
        """Enqueues the wait for a layer's bytes. Never blocks; in a step, by its thread.

        Each layer once per step, ascending. Work that is enqueued after it may read the layer;
        what computes without the driver's streams calls Client.synchronize() first, unless the
        layer is_home().
        """
        self._call(lib.mm_layer_begin, layer, ffi.cast("void *", stream))

    def is_home(self, layer: int) -> bool:
        """Whether a layer that was begun is at home: its bytes are there, and stay until its end.

        Then what computes without the driver's streams need not synchronize. Never blocks; in a
        step, by its thread, between the layer's begin and end.
        """
        return self._call(lib.mm_layer_home, layer) == 1

    def end(self, layer: int, stream: int = 0) -> None:
        """Enqueues the mark that a layer has been used, on the stream of its begin.

        Never blocks; in a step, by its thread. Work that is enqueued later must not read the layer.
        """
        self._call(lib.mm_layer_end, layer, ffi.cast("void *", stream))

    @contextlib.contextmanager
    def layer(self, layer: int, stream: int = 0) -> Iterator[None]:
        """begin() and end() as a with-block. An exception leaves the layer begun: abandon."""
        self.begin(layer, stream)
        yield
        self.end(layer, stream)


def _store_done(client: Client, key: int) -> None:
    client._exports.pop(key, None)
