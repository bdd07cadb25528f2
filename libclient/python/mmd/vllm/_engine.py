# SPDX-License-Identifier: Apache-2.0
"""What a process of vLLM has from mmd: one client, its model, its arena."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import threading
from typing import TYPE_CHECKING, Any, Final

from mmd._client import Client, EventKind
from mmd._error import Error
from mmd._step import Step
from mmd.vllm._versions import Unsupported

if TYPE_CHECKING:
    from mmd._arena import Arena
    from mmd._model import Model
    from mmd.vllm._blocks import Blocks


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
    preempted: int = 0
    """Requests that were preempted for that."""


class Engine:
    """The client of a process, and all that vLLM's worker and scheduler take from it."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.model: Model | None = None
        self.arena: Arena | None = None
        self.kv_share_bytes = 0
        self.blocks_per_chunk = 0
        self.blocks_count = 0
        self.step = Step(client)
        self.pool: Blocks | None = None
        self.stats = Stats()
        self.lock: Final = threading.RLock()
        """Held by whoever looks at the scheduler's requests or at its pool of blocks."""
        self.gone: str | None = None
        """Why mmd is not there any more."""

    def drain(self) -> None:
        """Takes the events. What they say is asked for where it is needed, but for the end."""
        for event in self.client.events():
            if event.kind == EventKind.DISCONNECTED:
                self.gone = "mmd.vllm: the connection to mmd has ended: start the engine again"

    def check(self) -> None:
        """Raises if mmd is gone: nothing that the engine has in its memory is valid then."""
        if self.gone is not None:
            raise RuntimeError(self.gone)

    def note_chunks(self, count: int) -> None:
        """Keeps the statistics of the arena."""
        now = self.stats
        now.chunks = count
        now.chunks_most = max(now.chunks_most, count)
        now.chunks_least = min(now.chunks_least or count, count)

    def forwarded(self) -> None:
        """Keeps the statistics of the steps, after one."""
        self.stats.steps += 1
        self.stats.gated += self.step.info is not None and self.step.info.gated > 0
        self.stats.voids = self.step.voids


_current: Engine | None = None


def current() -> Engine | None:
    """This process's engine, or None."""
    return _current


def required() -> Engine:
    """This process's engine."""
    if _current is None:
        raise Unsupported("mmd.vllm: this process has no model of --load-format mmd")
    return _current


def begin(name: str, socket: str | None, device: int) -> Engine:
    """Connects this process to mmd. Blocks until mmd answers."""
    global _current  # pylint: disable=global-statement
    if _current is not None:
        raise Unsupported("mmd.vllm: this process already has a model of --load-format mmd; one "
                          "process serves one")
    try:
        client = Client(name, socket, device)
    except Error as error:
        raise RuntimeError(f"mmd.vllm: there is no mmd to connect to: {error.strerror}") from None
    _current = Engine(client)
    return _current


def forget() -> None:
    """Takes back begin() for an engine that did not come up."""
    global _current  # pylint: disable=global-statement
    engine, _current = _current, None
    if engine is not None:
        with contextlib.suppress(Error):
            engine.client.close()


@atexit.register
def _leave() -> None:
    """The process ends with tensors in use everywhere: its connection ends with it."""
    if _current is not None:
        _current.client._handle = None


def stats() -> Stats:
    """How this process's engine lives with mmd, such as by LLM.collective_rpc(). Any thread."""
    engine = required()
    with engine.lock:
        engine.stats.plan_changes = engine.client.info.plan_changes
        return dataclasses.replace(engine.stats)


def option(extra: Any, name: str, kind: type, default: Any) -> Any:
    """An option of --model-loader-extra-config."""
    value = extra.get(name, default)
    if value is not default and not isinstance(value, kind):
        raise ValueError(f"mmd.vllm: {name} in --model-loader-extra-config is a {kind.__name__}, "
                         f"not {value!r}")
    return value
