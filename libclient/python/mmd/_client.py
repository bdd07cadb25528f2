# SPDX-License-Identifier: Apache-2.0
"""One connection to mmd, and what hangs on all of it: events, hints, turns."""

from __future__ import annotations

import dataclasses
import enum
import errno
import os
import pathlib
import threading
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from mmd import _cdef
from mmd._dlpack import drop_forgotten
from mmd._error import Error, error_of
from mmd._library import ffi, lib

if TYPE_CHECKING:
    from mmd._arena import Arena
    from mmd._cold import Swap
    from mmd._layout import Layout
    from mmd._layout import Layout
    from mmd._mem import Allocation
    from mmd._dlpack import Loaded
    from mmd._model import Model, Pack

ERROR_BYTES: Final = 512
SOFTWARE: Final = "software"
NON_BLOCKING: Final = 1  # CU_STREAM_NON_BLOCKING


def nanoseconds(seconds: float | None) -> int:
    """A time limit as the library takes it. None: no limit."""
    if seconds is None:
        return _cdef.MM_TIMEOUT_NEVER
    if not 0 <= seconds < 1e9:
        raise ValueError(f"a time limit is 0 to 1e9 seconds, or None, not {seconds}")
    return int(seconds * 1e9)


def sized(kind: str) -> Any:
    """A zeroed struct whose size is set."""
    made = ffi.new(f"struct {kind} *")
    made.size = ffi.sizeof(f"struct {kind}")
    return made


class EventKind(enum.IntEnum):
    """The kinds of events. More may come: an engine passes over numbers that are not here."""

    KV_GRANTED = 1
    KV_DENIED = 2
    KV_RECLAIM = 3
    PLAN_CHANGED = 4
    SWAPPED = 5
    TURN_BEGIN = 6
    TURN_END = 7
    DISCONNECTED = 8
    STEP_ENDED = 9
    LEAVE = 10
    COLD = 11


class TurnMode(enum.IntEnum):
    """How a tenant shares the device's time."""

    NONE = 0
    QUANTUM = 1
    DRAIN = 2


@dataclasses.dataclass(frozen=True)
class Event:
    """What mmd requests or reports."""

    kind: int
    """An EventKind, or a number that is not known yet."""
    count: int
    """Chunks, layers, lists or steps, by the kind."""
    error: int
    """A positive errno, or 0."""
    deadline_ns: int
    """CLOCK_MONOTONIC, as time.monotonic_ns() has it; 0: none."""


@dataclasses.dataclass(frozen=True)
class ClientInfo:
    """Properties of the tenant, and the plan in force; mm/client.h explains each."""

    tenant_id: int
    policy: str
    driver: str
    features: int
    page_bytes: int
    pool_pages: int
    device_uuid: bytes
    layers_remapped: int
    layers_cycling: int
    plan_epoch: int
    plan_changes: int
    plan_held_ns: int


class Client:
    """A connection to mmd on one device.

    The client owns its model and its arena: closing it ends them. Tensors that were exported
    (DLPack, Model.store()) keep the client alive, and it refuses to close while one of them lives.
    """

    def __init__(self, name: str | None = None, socket: str | os.PathLike[str] | None = None,
                 device: int = 0, *, timeout: float = 120, remap: bool = True,
                 voids: bool = True) -> None:
        """Connects. Blocks until mmd answers, within the time limit. Any thread.

        name is shown by mmctl; None: the program's. socket: None is $MMD_SOCKET, or where mmd of
        this user or of the machine listens. device is the ordinal in this process. timeout, in
        seconds, holds for each call that waits for mmd. remap=False: layers are not bracketed, and
        mmd must never take them. voids=False: no step is
        ever void, because it could not be repeated; where one would be, mmd waits or ends the
        connection.
        """
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._calls = 0
        self._handle: Any = None
        self._context: Any = None
        self._exports: dict[int, object] = {}  # of each exported tensor what it belongs to
        self._watcher: Callable[[], None] | None = None
        self._closers: list[Callable[[], None]] = []
        self._model: Model | None = None
        opts = sized("mm_client_opts")
        texts = [ffi.NULL if text is None else ffi.new("char[]", os.fsencode(text))
                 for text in (name, socket)]
        opts.name, opts.socket_path = texts
        opts.device = device
        opts.timeout_ns = nanoseconds(timeout)
        opts.flags = ((0 if remap else _cdef.MM_CLIENT_NO_REMAP) |
                      (0 if voids else _cdef.MM_CLIENT_NO_VOID))
        handle, why = ffi.new("struct mm_client **"), ffi.new("char[]", ERROR_BYTES)
        r = lib.mm_client_open(opts, handle, why, ERROR_BYTES)
        if r < 0:
            raise error_of(-r, ffi.string(why).decode(errors="replace"))
        self._handle = handle[0]
        self._device = device
        self._gpu = lib.mm_client_gpu(self._handle)
        self._context_open()

    # ---- life

    def _context_open(self) -> None:
        device, context = ffi.new("CUdevice *"), ffi.new("CUcontext *")
        for result in (self._gpu.cuDeviceGet(device, self._device),
                       self._gpu.cuDevicePrimaryCtxRetain(context, device[0])):
            if result:
                self.close()
                raise Error(errno.EIO, f"the driver gives no context: {self._result_name(result)}")
        self._cu_device, self._context = device[0], context[0]

    def close(self) -> None:
        """Gives everything back and ends the connection. Blocks until mmd answers.

        Not in a step: the streams must be idle. Refuses with EBUSY while exported tensors live, or
        while another thread is in a call of this client. Closing twice does nothing; in a child
        after fork() it only forgets the client.
        """
        if os.getpid() != self._pid:
            self._handle = None
            return
        if self._exports:
            drop_forgotten()
        with self._lock:
            if self._handle is None:
                return
            if self._exports:
                raise Error(errno.EBUSY, f"{len(self._exports)} exported tensors of this client "
                            f"are in use: drop them before it is closed")
            if self._calls:
                raise Error(errno.EBUSY, f"{self._calls} calls of this client are in progress")
            handle, self._handle = self._handle, None
            watcher = self._watcher
        if watcher is not None:
            watcher()
        for closer in self._closers:
            closer()
        if self._context is not None:
            self._gpu.cuDevicePrimaryCtxRelease(self._cu_device)
        lib.mm_client_close(handle)

    @property
    def closed(self) -> bool:
        """Whether the client is closed. Never blocks."""
        return self._handle is None

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: types.TracebackType | None) -> None:
        # An exception on its way keeps the frames alive whose tensors are still exported: the
        # client is closed when the last of them is gone, and the exception is not hidden.
        if error is None or not self._exports:
            self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is None or os.getpid() != self._pid:
            return
        warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self)
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._handle is None else f"device {self._device}"
        return f"<mmd.Client {state}>"

    # ---- calls

    def _check_process(self) -> None:
        """Refuses a child of fork(): the lock may be held by a thread that it does not have."""
        if os.getpid() != self._pid:
            raise Error(errno.ECHILD, "this client belongs to the parent process")

    def _enter(self) -> Any:
        """Begins a call, during which the client is not closed: the library's handle."""
        self._check_process()
        with self._lock:
            if self._handle is None:
                raise Error(errno.EBADF, "the client is closed")
            self._calls += 1
            return self._handle

    def _leave(self) -> None:
        with self._lock:
            self._calls -= 1

    def _sentence(self, handle: Any) -> str:
        return str(ffi.string(lib.mm_client_error(handle)).decode(errors="replace"))

    def _call(self, function: Any, subject: Any, *args: Any, fine: Sequence[int] = ()) -> int:
        """Calls the library on a handle, None for the client's own.

        Raises for a negative result, unless its errno is in `fine`. The sentence belongs to the
        thread of the call, so it is fetched here.
        """
        handle = self._enter()
        try:
            r = int(function(handle if subject is None else subject, *args))
            if r < 0 and -r not in fine:
                raise error_of(-r, self._sentence(handle) or os.strerror(-r))
            return r
        finally:
            self._leave()

    def _export(self, key: int, loaded: Loaded | None = None) -> None:
        """Notes an exported tensor, of a model or of none; undone by a pop().

        After it the client cannot be closed, nor that model unloaded.
        """
        with self._lock:
            if self._handle is None:
                raise Error(errno.EBADF, "the client is closed")
            if loaded is not None and loaded.gone:
                raise Error(errno.EBADF, "the model of this tensor is unloaded")
            self._exports[key] = loaded

    def _watch(self, closed: Callable[[], None]) -> bool:
        """Notes who waits for events, to be called when the client closes; False: another does."""
        with self._lock:
            if self._watcher is not None:
                return False
            self._watcher = closed
            return True

    def _unwatch(self) -> None:
        self._watcher = None

    def _result_name(self, result: int) -> str:
        name = ffi.new("const char **")
        if self._gpu.cuGetErrorName(result, name) or name[0] == ffi.NULL:
            return f"CUDA error {result}"
        return str(ffi.string(name[0]).decode())

    def _gpu_call(self, entry: str, *args: Any) -> None:
        """Calls the driver in the device's primary context, whatever context is current."""
        self._enter()
        try:
            self._gpu.cuCtxPushCurrent(self._context)
            result = getattr(self._gpu, entry)(*args)
            self._gpu.cuCtxPopCurrent(ffi.new("CUcontext *"))
        finally:
            self._leave()
        if result:
            raise Error(errno.EIO, f"{entry}: {self._result_name(result)}")

    # ---- what the client is

    @property
    def info(self) -> ClientInfo:
        """Properties of the tenant, and the plan in force. Never blocks; in a step or not."""
        info = sized("mm_client_info")
        self._call(lib.mm_client_info, None, info)
        return ClientInfo(
            info.tenant_id, ffi.string(info.policy).decode(), ffi.string(info.driver).decode(),
            info.features, info.page_bytes, info.pool_pages, bytes(info.device_uuid),
            info.layers_remapped, info.layers_cycling, info.plan_epoch, info.plan_changes,
            info.plan_held_ns)

    @property
    def device(self) -> int:
        """The ordinal that the client was opened with."""
        return self._device

    @property
    def is_software(self) -> bool:
        """Whether the device is the software GPU, whose addresses this process can read itself."""
        if not hasattr(self, "_software"):
            self._software = self.info.driver == SOFTWARE
        return self._software

    @property
    def model(self) -> Model | None:
        """The model that was loaded and not unloaded, or None."""
        return self._model

    # ---- events

    @property
    def fd(self) -> int:
        """The descriptor that is readable while an event is queued: poll it, do not read it."""
        return self._call(lib.mm_client_event_fd, None)

    def next_event(self) -> Event | None:
        """Takes the oldest event; None: there is none. Never blocks; in a step or not.

        After DISCONNECTED every address is void: close the client.
        """
        event = sized("mm_event")
        if self._call(lib.mm_client_next_event, None, event, fine=(errno.EAGAIN,)):
            return None
        known = event.kind in EventKind.__members__.values()
        return Event(EventKind(event.kind) if known else event.kind, event.count, -event.error,
                     event.deadline_ns)

    def events(self) -> Iterator[Event]:
        """Takes all events that are queued. Never blocks; in a step or not."""
        while (event := self.next_event()) is not None:
            yield event

    # ---- hints and turns

    def hint(self, *, used: int = 0, waiting: int = 0, running: int = 0, queued: int = 0,
             done: int = 0, late: int = 0) -> None:
        """Reports the engine's load; cheap enough for each step. Never blocks; in a step or not.

        used: chunks with live blocks. waiting, running: requests; both 0: the engine is idle.
        queued: chunks that the waiting ones would take. done, late: requests that ended, ever.
        """
        hint = sized("mm_load_hint")
        hint.kv_chunks_used, hint.waiting, hint.running = used, waiting, running
        hint.kv_chunks_queued, hint.requests_done, hint.requests_late = queued, done, late
        self._call(lib.mm_client_hint, None, hint)

    def join_group(self, name: str, rank: int, size: int, timeout: float | None = None) -> None:
        """Becomes a rank of a group: clients that compute one model together (mm/client_group.h).

        Before the arena and the first step. Blocks until all ranks have joined, or raises Error
        with ETIMEDOUT; the client is a rank then, and may call this again. From then on a chunk is
        usable on all ranks or none, and a step that is void on one is void on all.
        """
        self._call(lib.mm_group_join, None, os.fsencode(name), rank, size, nanoseconds(timeout))

    def turn_join(self, mode: TurnMode = TurnMode.QUANTUM, priority: int = 0,
                  quantum: float = 0) -> None:
        """Computes only during turns from now on. Blocks until mmd answers; not in a step."""
        opts = sized("mm_turn_opts")
        opts.mode, opts.priority, opts.quantum_ns = mode, priority, nanoseconds(quantum)
        self._call(lib.mm_turn_join, None, opts)

    def turn_want(self, timeout: float | None = 0) -> bool:
        """Requests the turn. Blocks up to timeout seconds; not in a step.

        Returns whether steps may run; if not, TURN_BEGIN follows.
        """
        return self._call(lib.mm_turn_want, None, nanoseconds(timeout), fine=(errno.EAGAIN,)) == 0

    def turn_yield(self) -> None:
        """Gives the turn back. Never blocks; not in a step."""
        self._call(lib.mm_turn_yield, None)

    # ---- streams, and memory seen from outside

    def stream(self) -> int:
        """Creates a stream of the driver, which lives as long as the client. In a step or not.

        Engines with streams of their own (PyTorch on CUDA) do not need it. 0, the default of all
        calls that take a stream, is the driver's default stream.
        """
        made = ffi.new("CUstream *")
        self._gpu_call("cuStreamCreate", made, NON_BLOCKING)
        stream = made[0]
        self._closers.append(lambda: self._gpu.cuStreamDestroy(stream))
        return int(ffi.cast("uintptr_t", stream))

    def synchronize(self, stream: int = 0) -> None:
        """Blocks until the stream's work is done. In a step or not.

        What computes on the software GPU's memory by itself, without kernels of the driver, calls
        it after Model.begin(): only then the layer's bytes are there.
        """
        self._gpu_call("cuStreamSynchronize", ffi.cast("CUstream", stream))

    def read(self, va: int, length: int) -> bytes:
        """Copies device memory to the host. Blocks. A layer that cycles: in a step, begun only."""
        out = ffi.new("char[]", max(length, 1))
        if length:
            self._gpu_call("cuMemcpyDtoH", out, va, length)
        return bytes(ffi.buffer(out, length))

    def write(self, va: int, data: bytes) -> None:
        """Copies to usable chunks of the arena. Blocks. Weights are read-only: EIO or worse.

        Whatever stream reads them afterwards, it finds the bytes.
        """
        if data:
            self._gpu_call("cuMemcpyHtoD", va, ffi.from_buffer(data), len(data))
            # The driver's call returns when it has read them, not when they are there.
            self._gpu_call("cuStreamSynchronize", ffi.NULL)

    # ---- what hangs on it

    def load(self, path: str | os.PathLike[str] | None = None, packs: Sequence[Pack] = (), *,
             files: Sequence[int] = (), layers: int = 0,
             key: bytes | str | None = None) -> Model:
        """Loads a folder in Hugging Face layout: the client's model, one at a time. Not in a step.

        Blocks until every byte is in device memory. packs lists what must lie adjacent.

        In place of a folder, files are descriptors of .safetensors files, or of memfds, that the
        engine made, in an order that is always the same; layers is how many layers their tensors
        have. Sealed memfds are known by their content, and shared with whoever passes the same. The
        caller may close all of them afterwards. key: by which attach() of another client finds them
        then, up to 256 bytes; only of sealed memfds. Error with EEXIST: other weights have it.
        """
        from mmd._model import Model  # pylint: disable=import-outside-toplevel

        if (path is None) != bool(files):
            raise ValueError("either a path or files, not both")
        return Model(self, None if path is None else pathlib.Path(path), packs, files, layers, key)

    def attach(self, key: bytes | str, digest: bytes | None = None) -> Model:
        """Loads what another client has committed under a key: the client's model, one at a time.

        Reads and passes nothing; blocks until every byte is in device memory, also while the host
        copy is still filled. Not in a step. Only clients of the same user in the same account find a
        key, and only while one of them uses the model. digest: ModelInfo.digest that it must have.
        KeyError: there is none, so make the weights and commit them under the key. Error with
        ESTALE: it has another digest.
        """
        from mmd._model import Model  # pylint: disable=import-outside-toplevel

        return Model.attached(self, key, digest)

    def layout(self, layers: int) -> Layout:
        """Weights that the engine makes itself: put them, then commit them as the client's model.

        layers: how many layers the tensors' names have. Never blocks; in a step or not.
        """
        from mmd._layout import Layout  # pylint: disable=import-outside-toplevel

        return Layout(self, layers)

    def arena(self, chunk_bytes: int, ranges: int = 1, chunks: int = 1,
              share: int = 0, *, backed: bool = False, contiguous: bool = False) -> Arena:
        """Reserves the addresses of the client's only KV arena. Blocks until mmd answers.

        chunk_bytes: of one chunk in one range, a multiple of info.page_bytes. chunks: the most that
        there will ever be. share: what a static split would give the engine. backed: addresses of
        chunks that are not usable can be touched, too; costs a page. contiguous: the ranges lie at
        one stride. Not in a step.
        """
        from mmd._arena import Arena  # pylint: disable=import-outside-toplevel

        return Arena(self, chunk_bytes, ranges, chunks, share, backed, contiguous)

    def swap(self, length: int) -> Swap:
        """Gets host memory for the arena's KV: the client's only swap space. Blocks until mmd answers.

        Error with EDQUOT: more than mmd, or the account, may have. Not in a step.
        """
        from mmd._cold import Swap  # pylint: disable=import-outside-toplevel

        return Swap(self, length)

    def alloc(self, length: int) -> Allocation:
        """Gets device memory for activations and workspaces, zeroed, in whole pages of the pool.

        mmd takes it from nobody and never takes it back: Error with EDQUOT if it is more than this
        tenant's share leaves, ENOSPC if it is more than is free. Waits up to two seconds for pages
        that are being cleaned. In a step or not; any thread.
        """
        from mmd._mem import Allocation  # pylint: disable=import-outside-toplevel

        return Allocation(self, length)
