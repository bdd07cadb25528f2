# SPDX-License-Identifier: Apache-2.0
"""Device memory as DLPack tensors, which keep the client alive and count as exported."""

from __future__ import annotations

import atexit
import ctypes
import math
import sys
from typing import TYPE_CHECKING, Any, Final

import cffi

if TYPE_CHECKING:
    from mmd._client import Client

ffi: Final[Any] = cffi.FFI()
ffi.cdef("""
struct dl_device { int32_t type, id; };
struct dl_type { uint8_t code, bits; uint16_t lanes; };
struct dl_tensor { void *data; struct dl_device device; int32_t ndim; struct dl_type dtype;
    int64_t *shape, *strides; uint64_t byte_offset; };
struct dl_managed { uint32_t major, minor; void *manager; void (*deleter)(struct dl_managed *);
    uint64_t flags; struct dl_tensor tensor; };
""")

VERSION: Final = (1, 0)
READ_ONLY: Final = 1
CPU: Final = 1
CUDA: Final = 2
INT: Final = 0
UINT: Final = 1
FLOAT: Final = 2
BFLOAT: Final = 4
# The names of safetensors.
TYPES: Final = {"F64": (FLOAT, 64), "F32": (FLOAT, 32), "F16": (FLOAT, 16), "BF16": (BFLOAT, 16),
                "I8": (INT, 8), "I16": (INT, 16), "I32": (INT, 32), "I64": (INT, 64),
                "U8": (UINT, 8), "U16": (UINT, 16), "U32": (UINT, 32), "U64": (UINT, 64)}


class Loaded:
    """A model as the library has it, from a load until it is unloaded."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        # Guarded by the client's lock.
        self.calls = 0
        self.held = False
        self.gone = False
        """It is unloaded, or is about to be."""


class _Export:
    """A tensor that was exported: what its consumer points to, and the client that outlives it."""

    def __init__(self, client: Client, managed: Any, shape: Any, strides: Any) -> None:
        self.client = client
        self.managed = managed
        self.lists = (shape, strides)
        self.capsule: object = None
        self.address = int(ffi.cast("uintptr_t", managed))

    def is_forgotten(self) -> bool:
        """Whether nobody took the capsule, and nobody can: only we refer to it any more."""
        return (self.capsule is not None and sys.getrefcount(self.capsule) <= 2 and
                _is_valid(self.capsule, _NAME) == 1)


_alive: dict[int, _Export] = {}


@ffi.callback("void(struct dl_managed *)")  # type: ignore[untyped-decorator, unused-ignore]
def _delete(managed: Any) -> None:
    """Called once by the consumer, in any thread, when its last view is gone."""
    _drop(int(ffi.cast("uintptr_t", managed)))


def _drop(address: int) -> None:
    export = _alive.pop(address, None)
    if export is not None:
        export.client._exports.pop(address, None)


def drop_forgotten() -> None:
    """Ends the exports whose capsules nobody took.

    Capsules have no destructor of ours: it would be called in the midst of others' exceptions.
    """
    for export in list(_alive.values()):
        if export.is_forgotten():
            _drop(export.address)


@atexit.register
def _leave_alive() -> None:
    """Consumers that outlive the interpreter must not call into it."""
    for export in _alive.values():
        export.managed.deleter = ffi.NULL


_NAME: Final = b"dltensor_versioned"
# Prototypes of our own: the same functions may have others elsewhere in the process.
_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi))
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi))


class Memory:
    """A range of device memory with a type and a shape, for torch.from_dlpack() and the like.

    What is made of it keeps the client alive, and counts as exported: the client refuses to close
    while it is in use.
    """

    def __init__(self, client: Client, va: int, dtype: str, shape: tuple[int, ...],
                 writable: bool, loaded: Loaded | None = None) -> None:
        self._client = client
        self._loaded = loaded
        self.va = va
        """The device address. Meaningless if there are no bytes."""
        self.dtype = dtype
        """As safetensors names it, such as "BF16"."""
        self.shape = shape
        self.writable = writable

    @property
    def count(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def bytes_needed(self) -> int:
        """The length of what DLPack exports."""
        if self.dtype not in TYPES:
            raise ValueError(f"there is no type {self.dtype}: {', '.join(TYPES)}")
        return self.count * TYPES[self.dtype][1] // 8

    def __dlpack_device__(self) -> tuple[int, int]:
        """The kind and number of the device. The software GPU is memory of this process."""
        return (CPU, 0) if self._client.is_software else (CUDA, self._client.device)

    def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> object:
        """A capsule with a tensor on this memory. Never blocks; in a step or not.

        Read in a layer that cycles only between its begin and end. BufferError: the consumer is
        older than DLPack 1.0, which cannot say that a tensor is read-only; or it wants a copy or
        another device.
        """
        del stream  # gates order the work, on whatever stream it is
        if max_version is None or max_version[0] < 1:
            raise BufferError("mmd's tensors need DLPack 1.0, which knows read-only ones")
        if copy or dl_device not in (None, self.__dlpack_device__()):
            raise BufferError("mmd's tensors are neither copied nor moved")
        if self.dtype not in TYPES:
            raise BufferError(f"DLPack has no type for {self.dtype}")
        export = self._exported()
        capsule: object = _new(export.address, _NAME, None)
        export.capsule = capsule
        return capsule

    def _exported(self) -> _Export:
        drop_forgotten()
        shape = ffi.new("int64_t[]", [*self.shape, 0])
        steps = [math.prod(self.shape[at + 1:]) for at in range(len(self.shape))]
        strides = ffi.new("int64_t[]", [*steps, 0])
        managed = ffi.new("struct dl_managed *")
        managed.major, managed.minor = VERSION
        managed.deleter = _delete
        managed.flags = 0 if self.writable else READ_ONLY
        tensor = managed.tensor
        tensor.data = ffi.cast("void *", self.va if self.count else 0)
        tensor.device.type, tensor.device.id = self.__dlpack_device__()
        tensor.ndim = len(self.shape)
        tensor.dtype.code, tensor.dtype.bits = TYPES[self.dtype]
        tensor.dtype.lanes = 1
        tensor.shape, tensor.strides = shape, strides
        export = _Export(self._client, managed, shape, strides)
        self._client._export(export.address, self._loaded)
        _alive[export.address] = export
        return export
