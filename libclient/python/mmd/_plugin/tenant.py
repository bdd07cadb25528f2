# SPDX-License-Identifier: Apache-2.0
"""What a process of a serving engine has from mmd: one client, its model, its arena, its steps."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar

import torch

import mmd.torch
from mmd._client import Client, EventKind
from mmd._error import Error
from mmd._plugin.versions import Unsupported
from mmd._step import Step

if TYPE_CHECKING:
    from mmd._arena import Arena
    from mmd._model import Model

FORMAT: Final = "mmd"
"""The load format by which an engine's user has the plugin."""
MARK: Final = "_mmd_wrapped"
RETRY_S: Final = 0.02
PATIENCE_S: Final = 120.0


@dataclasses.dataclass
class Stats:
    """How an engine lived with mmd until now."""

    steps: int = 0
    """Forward passes."""
    gated: int = 0
    """Those in which layers cycled."""
    voids: int = 0
    """How often a forward pass was repeated because mmd had aborted its gates."""
    plan_changes: int = 0
    chunks: int = 0
    """Of the arena, usable now."""
    chunks_least: int = 0
    chunks_most: int = 0
    chunks_limit: int = 0
    """How many there may ever be."""
    returned: int = 0
    """Chunks that were given back because mmd reclaimed them."""


class Tenant:
    """The client of a process, and all that an engine's worker and scheduler take from it."""

    plugin = ""
    """The plugin's name, with which its sentences begin."""
    Stats: type[Stats] = Stats

    def __init__(self, client: Client) -> None:
        self.client = client
        self.model: Model | None = None
        self.arena: Arena | None = None
        self.kv_share_bytes = 0
        self.step = Step(client)
        self.stats = self.Stats()
        self.lock: Final = threading.RLock()
        """Held by whoever looks at the scheduler's requests or at its pool."""
        self.gone: str | None = None
        """Why mmd is not there any more."""

    def drain(self) -> None:
        """Takes the events. What they say is asked for where it is needed, but for the end."""
        for event in self.client.events():
            if event.kind == EventKind.DISCONNECTED:
                self.gone = (f"{self.plugin}: the connection to mmd has ended: start the engine "
                             f"again")

    def check(self) -> None:
        """Raises if mmd is gone: nothing that the engine has in its memory is valid then."""
        if self.gone is not None:
            raise RuntimeError(self.gone)

    def open_arena(self, chunk_bytes: int, ranges: int, chunks: int, what: str) -> Arena:
        """Opens the arena, and gets its first chunk, whose use for the engine `what` says. Blocks.

        Backed: engines read and write slots that are in no list of their schedulers, as in padding.
        """
        share = min(self.kv_share_bytes // (chunk_bytes * ranges), chunks)
        self.arena = self.client.arena(chunk_bytes, ranges, chunks, share, backed=True)
        self.stats.chunks_limit = chunks
        try:
            granted = self.arena.want(1, timeout=PATIENCE_S)
        except Error as error:
            raise RuntimeError(f"{self.plugin}: mmd has no memory for a first chunk of KV, "
                               f"{ranges} x {chunk_bytes} bytes: {error.strerror}") from None
        if not granted or 0 not in self.arena.usable():
            raise RuntimeError(f"{self.plugin}: mmd did not grant the chunk of {what} in time")
        return self.arena

    def note_chunks(self, count: int) -> None:
        """Keeps the statistics of the arena."""
        now = self.stats
        now.chunks = count
        now.chunks_most = max(now.chunks_most, count)
        now.chunks_least = min(now.chunks_least or count, count)

    def in_steps(self, module: Any) -> None:
        """Each forward() is a step, again while it is void: keys and values have fixed places."""
        forward = module.forward

        @functools.wraps(forward)
        def stepped(*args: Any, **kwargs: Any) -> Any:
            self.step.stream = mmd.torch.stream(self.client)
            result = self.step.run(lambda: forward(*args, **kwargs))
            self.stats.steps += 1
            self.stats.gated += self.step.info is not None and self.step.info.gated > 0
            self.stats.voids = self.step.voids
            return result

        module.forward = stepped


TenantT = TypeVar("TenantT", bound=Tenant)


class Process(Generic[TenantT]):
    """The one tenant that this process is, or is not yet."""

    def __init__(self, kind: type[TenantT]) -> None:
        self._kind = kind
        self._current: TenantT | None = None
        atexit.register(self._leave)

    def current(self) -> TenantT | None:
        """This process's tenant, or None."""
        return self._current

    def required(self) -> TenantT:
        """This process's tenant."""
        if self._current is None:
            raise Unsupported(f"{self._kind.plugin}: this process has no model of --load-format "
                              f"{FORMAT}")
        return self._current

    def begin(self, name: str, socket: str | None) -> TenantT:
        """Connects this process to mmd. Blocks until mmd answers."""
        plugin = self._kind.plugin
        if self._current is not None:
            raise Unsupported(f"{plugin}: this process already has a model of --load-format "
                              f"{FORMAT}; one process serves one")
        device = int(torch.cuda.current_device()) if torch.cuda.is_available() else 0
        try:
            client = Client(name, socket, device)
        except Error as error:
            raise RuntimeError(f"{plugin}: there is no mmd to connect to: "
                               f"{error.strerror}") from None
        self._current = self._kind(client)
        return self._current

    def forget(self) -> None:
        """Takes back begin() for an engine that did not come up."""
        tenant, self._current = self._current, None
        if tenant is not None:
            with contextlib.suppress(Error):
                tenant.client.close()

    def stats(self) -> Stats:
        """A copy of the statistics. Any thread."""
        tenant = self.required()
        with tenant.lock:
            tenant.stats.plan_changes = tenant.client.info.plan_changes
            return dataclasses.replace(tenant.stats)

    def _leave(self) -> None:
        """The process ends with tensors in use everywhere: its connection ends with it."""
        if self._current is not None:
            self._current.client._handle = None


class Options:
    """The options of --model-loader-extra-config that are the plugin's, checked."""

    OURS: ClassVar[tuple[str, ...]] = ("name", "socket", "load_format", "kv_share_bytes")

    def __init__(self, plugin: str, extra: Mapping[str, Any]) -> None:
        self._plugin, self._extra = plugin, extra
        self.name = self._option("name", str, None)
        self.socket = self._option("socket", str, None)
        self.load_format = self._option("load_format", str, "auto")
        self.kv_share_bytes = self._option("kv_share_bytes", int, 0)
        if self.kv_share_bytes < 0:
            raise ValueError(f"{plugin}: kv_share_bytes in --model-loader-extra-config is negative")
        self.others = {key: value for key, value in extra.items() if key not in self.OURS}

    def _option(self, name: str, kind: type, default: Any) -> Any:
        value = self._extra.get(name, default)
        if value is not default and not isinstance(value, kind):
            raise ValueError(f"{self._plugin}: {name} in --model-loader-extra-config is a "
                             f"{kind.__name__}, not {value!r}")
        return value


def check_device(tenant: Tenant, engine: str, device: Any) -> None:
    """Raises Unsupported if an engine computes elsewhere than mmd's memory is."""
    if tenant.client.is_software != (torch.device(device).type == "cpu"):
        raise Unsupported(f"{tenant.plugin}: {engine} computes on {device}, and mmd's driver is "
                          f"{tenant.client.info.driver!r}")


def needs(engine: str, table: tuple[tuple[str, str, Any], ...],
          value: Callable[[str], Any]) -> None:
    """Raises Unsupported for the first setting of a table that is not as the plugin needs it.

    A row is what the user is to do, the setting's name, and its only fine value.
    """
    for need, name, expected in table:
        found = value(name)
        if found != expected:
            raise Unsupported(f"--load-format {FORMAT} needs {need}: {engine} has "
                              f"{name.split('.')[-1]} = {found!r}")
