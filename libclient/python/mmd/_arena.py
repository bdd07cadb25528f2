# SPDX-License-Identifier: Apache-2.0
"""KV memory that grows and shrinks by chunks."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from mmd import _cdef
from mmd._client import nanoseconds, sized
from mmd._dlpack import Memory
from mmd._library import ffi, lib

if TYPE_CHECKING:
    from mmd._client import Client

WORD_BITS = 64


class Owed(NamedTuple):
    """Chunks that mmd reclaims now."""

    chunks: int
    deadline_ns: int
    """CLOCK_MONOTONIC, as time.monotonic_ns() has it; 0: none are owed."""


class Arena:
    """The KV arena of a client, from Client.arena(). It lives as long as the client.

    It is `ranges` ranges of fixed addresses. Chunk c is c * chunk_bytes behind the begin of each
    range; it is usable, in all ranges at once, or not: touching it then is a fault, unless the
    arena is backed. What such addresses of a backed arena hold means nothing.
    """

    def __init__(self, client: Client, chunk_bytes: int, ranges: int, chunks: int,
                 share: int, backed: bool = False, contiguous: bool = False) -> None:
        self._client = client
        self.chunk_bytes, self.ranges, self.chunks = chunk_bytes, ranges, chunks
        self.backed, self.contiguous = backed, contiguous
        opts = sized("mm_kv_opts")
        opts.chunk_bytes, opts.ranges = chunk_bytes, ranges
        opts.chunks_max, opts.share_chunks = chunks, share
        opts.flags = (_cdef.MM_KV_BACKED if backed else 0) | (
            _cdef.MM_KV_CONTIGUOUS if contiguous else 0)
        handle = ffi.new("struct mm_kv **")
        client._call(lib.mm_kv_open, None, opts, handle)
        self._handle = handle[0]

    @property
    def client(self) -> Client:
        """The client that it belongs to."""
        return self._client

    def va(self, number: int = 0, chunk: int = 0) -> int:
        """The address of a chunk in a range. Never blocks; in a step or not."""
        self._client._enter()
        try:
            address = int(lib.mm_kv_range_va(self._handle, number))
        finally:
            self._client._leave()
        if not address or not 0 <= chunk < self.chunks:
            raise IndexError(f"the arena has {self.ranges} ranges of {self.chunks} chunks: "
                             f"there is no chunk {chunk} in range {number}")
        return address + chunk * self.chunk_bytes

    def memory(self, number: int, chunk: int, dtype: str, shape: tuple[int, ...],
               offset: int = 0) -> Memory:
        """A part of a chunk for torch.from_dlpack(), writable. Never blocks; in a step or not.

        Use it only while the chunk is usable: nothing keeps the chunk from being released.
        """
        memory = Memory(self._client, self.va(number, chunk) + offset, dtype, shape, True)
        if offset < 0 or memory.bytes_needed() > self.chunk_bytes - offset:
            raise ValueError(f"{dtype}{list(shape)} at {offset} does not fit in a chunk of "
                             f"{self.chunk_bytes} bytes")
        return memory

    def whole(self, number: int, dtype: str, shape: tuple[int, ...]) -> Memory:
        """All chunks of a range for torch.from_dlpack(), writable. Never blocks; in a step or not.

        In a contiguous arena it may go on into the ranges behind. Only for a backed arena: what is
        done with a whole tensor touches chunks that are not usable, too.
        """
        if not self.backed:
            raise ValueError("an arena without backed=True has holes that cannot be touched")
        memory = Memory(self._client, self.va(number), dtype, shape, True)
        room = self.chunks * self.chunk_bytes * (self.ranges - number if self.contiguous else 1)
        if memory.bytes_needed() > room:
            raise ValueError(f"{dtype}{list(shape)} does not fit in {room} bytes")
        return memory

    @property
    def generation(self) -> int:
        """Changes whenever the set of usable chunks does. Never blocks; in a step or not."""
        return int(self._client._call(lib.mm_kv_generation, self._handle))

    def want(self, chunks: int, timeout: float | None = 0, *, first: int = 0) -> bool:
        """Requests so many chunks in all; it replaces the last demand. Blocks up to timeout.

        Free chunks of number first and above are granted before the others.

        In an open step of any thread it never waits. True: so many are usable. False: requested,
        and an event answers. Error with ENOSPC or EDQUOT: denied for now; the demand stays.
        """
        return self._client._call(lib.mm_kv_want_from, self._handle, chunks, first,
                                  nanoseconds(timeout), fine=(errno.EAGAIN,)) == 0

    @property
    def usable_count(self) -> int:
        """How many chunks are usable. Never blocks; in a step or not."""
        return self._client._call(lib.mm_kv_usable, self._handle, ffi.NULL, 0)

    def usable(self) -> list[int]:
        """The chunks that are usable, ascending. Never blocks; in a step or not."""
        words = (self.chunks + WORD_BITS - 1) // WORD_BITS
        bitmap = ffi.new("uint64_t[]", words)
        self._client._call(lib.mm_kv_usable, self._handle, bitmap, words)
        return [chunk for chunk in range(self.chunks)
                if bitmap[chunk // WORD_BITS] >> chunk % WORD_BITS & 1]

    def release(self, chunks: int | Iterable[int]) -> None:
        """Gives chunks back, and lowers the demand. Never blocks for long; in a step or not.

        No work that touches them may be enqueued any more. If one of them cannot be given back as
        it is, none is.
        """
        many = [chunks] if isinstance(chunks, int) else list(chunks)
        self._client._call(lib.mm_kv_release_many, self._handle, ffi.new("uint32_t[]", many),
                           len(many))

    @property
    def owed(self) -> Owed:
        """How many chunks mmd reclaims now, and until when. Never blocks; in a step or not."""
        deadline = ffi.new("uint64_t *")
        count = self._client._call(lib.mm_kv_owed, self._handle, deadline)
        return Owed(count, deadline[0])
