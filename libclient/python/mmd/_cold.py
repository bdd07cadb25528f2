# SPDX-License-Identifier: Apache-2.0
"""KV in host memory: lists that are copied out and in, and cold blocks."""

from __future__ import annotations

import dataclasses
import errno
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from mmd._client import sized
from mmd._error import Error
from mmd._library import ffi, lib

if TYPE_CHECKING:
    from mmd._client import Client
    from mmd._model import Model


class Piece(NamedTuple):
    """A part of a range of the arena, and its place in the swap space."""

    arena_offset: int
    """From the begin of the range: chunk * chunk_bytes and more."""
    swap_offset: int
    length: int
    range: int = 0


class Swapped(NamedTuple):
    """The outcome of a list."""

    user_data: int
    error: int
    """A positive errno; 0: all of it was copied."""


class Swap:
    """The swap space of a client, from Client.swap(): host memory for KV. The client's, for life."""

    def __init__(self, client: Client, length: int) -> None:
        self._client = client
        self.length = length
        handle = ffi.new("struct mm_swap **")
        client._call(lib.mm_swap_open, None, length, handle)
        self._handle = handle[0]

    def _start(self, into: bool, pieces: Sequence[Piece], user_data: int) -> None:
        made = ffi.new("struct mm_swap_piece[]", len(pieces))
        for at, piece in zip(made, pieces):
            at.arena_offset, at.swap_offset = piece.arena_offset, piece.swap_offset
            at.bytes, at.range = piece.length, piece.range
        self._client._call(lib.mm_swap_in if into else lib.mm_swap_out, self._handle, made,
                           len(pieces), user_data)

    def out(self, pieces: Sequence[Piece], user_data: int = 0) -> None:
        """Begins to copy pieces of usable chunks to the host. Never blocks for long.

        In a step or not, but no step may touch either end until next() has the list's outcome.
        EAGAIN: too many lists are under way.
        """
        self._start(False, pieces, user_data)

    def back(self, pieces: Sequence[Piece], user_data: int = 0) -> None:
        """Begins to copy pieces from the host into usable chunks; all else as out()."""
        self._start(True, pieces, user_data)

    def next(self) -> Swapped | None:
        """Takes the outcome of the list that ended first; None: there is none. Never blocks."""
        done = sized("mm_swap_done")
        if self._client._call(lib.mm_swap_next, self._handle, done, fine=(errno.EAGAIN,)):
            return None
        return Swapped(done.user_data, -done.error)


@dataclasses.dataclass(frozen=True)
class ColdState:
    """How far mmd is with cold blocks; mm/client_cold.h explains each."""

    acked: int
    deadline_ns: int
    limit: int
    entries: int
    window_first: int
    window_chunks: int
    error: int
    """A positive errno: the last window was refused; 0: it was not."""
    pending: bool


class Cold:
    """Cold blocks, from Model.cold(): until the model is unloaded.

    Entry e is a full block whose bytes lie in the swap space from e * layers * unit_bytes on, and
    are read at the window's begin + classes * e * unit_bytes as those of any block. Only a sealed
    block becomes one: all of its tokens are computed, and no byte of it changes any more.
    """

    def __init__(self, model: Model, unit_bytes: int, layers: int, entries: int,
                 floor: int) -> None:
        self._model = model
        self.unit_bytes, self.layers, self.entries = unit_bytes, layers, entries
        opts = sized("mm_cold_opts")
        opts.unit_bytes, opts.layers = unit_bytes, layers
        opts.entries_max, opts.floor = entries, floor
        handle = ffi.new("struct mm_cold **")
        self._loaded = model._begin()
        try:
            model.client._call(lib.mm_cold_open, None, opts, handle)
            self._handle = handle[0]
            self.classes = model.client._call(lib.mm_cold_classes, self._handle)
        finally:
            model._end(self._loaded)

    def _call(self, function: object, *args: object) -> int:
        loaded = self._model._begin()
        try:
            if loaded is not self._loaded:
                raise Error(errno.EBADF, "the model of these cold blocks was unloaded")
            return self._model.client._call(function, self._handle, *args)
        finally:
            self._model._end(loaded)

    @property
    def state(self) -> ColdState:
        """Acknowledged version, limit and window. Never blocks; before each step."""
        state = sized("mm_cold_state")
        self._call(lib.mm_cold_state, state)
        return ColdState(state.acked, state.deadline_ns, state.limit, state.entries,
                         state.window_first, state.window_chunks, -state.error,
                         bool(state.pending))

    def window(self, first: int, chunks: int) -> None:
        """Requests these usable chunks as the window; 0 chunks: none. Never blocks for long.

        The event COLD comes when it is in force or was refused, and `state` says which. Until then
        and while it is the window, its chunks are neither released nor swapped.
        """
        self._call(lib.mm_cold_window, first, chunks)

    def set(self, entry: int, live: bool = True) -> None:
        """Makes an entry live, or no longer, with the next commit(). Never blocks."""
        self._call(lib.mm_cold_set, entry, live)

    def commit(self) -> int:
        """The version of the live entries of now. Never blocks.

        Steps that begin once state.acked has come to it may read them.
        """
        return self._call(lib.mm_cold_commit)
