# SPDX-License-Identifier: Apache-2.0
"""SGLang's allocators of slots, which have those slots free whose chunk mmd has granted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import torch
from sglang.srt.mem_cache.allocator import PagedTokenToKVPoolAllocator, TokenToKVPoolAllocator

from mmd._plugin.versions import Unsupported
from mmd.sglang._engine import current, required

PADDING_CHUNK: Final = 0


class _Breathing:
    """What both kinds have in common. A page is `page_size` slots; page 0 is SGLang's padding.

    Pages of chunks that are not granted are not free, not in use, and not in the prefix cache.
    """

    size: int
    page_size: int
    device: Any
    free_pages: Any
    free_group: Any

    def clear(self) -> None:
        """All slots of granted chunks are free again; also SGLang's constructor calls it."""
        super().clear()  # type: ignore[misc]
        engine = required()
        assert engine.arena is not None
        self._per_chunk = engine.pages_per_chunk
        self._of_chunk = self._pages_of_chunks(engine.arena.chunks)
        self.chunks = set(engine.arena.usable())
        self.free_pages = self.free_pages[self._in(self.chunks)]

    def _pages_of_chunks(self, chunks: int) -> list[int]:
        """How many pages each chunk has that may be allocated."""
        last = self.size // self.page_size
        return [min((chunk + 1) * self._per_chunk, last + 1) - max(chunk * self._per_chunk, 1)
                for chunk in range(chunks)]

    def _in(self, chunks: Iterable[int]) -> Any:
        """Which of the free pages are in these chunks."""
        return torch.isin(self.free_pages // self._per_chunk,
                          torch.tensor(sorted(chunks), dtype=torch.int64, device=self.device))

    @property
    def tokens_per_chunk(self) -> int:
        """Slots in a chunk."""
        return self._per_chunk * self.page_size

    def granted(self) -> int:
        """Slots that SGLang has, free or not."""
        return sum(self._of_chunk[chunk] for chunk in self.chunks) * self.page_size

    def away(self) -> int:
        """Slots that SGLang does not have for now."""
        return self.size // self.page_size * self.page_size - self.granted()

    def free_chunks(self) -> list[int]:
        """Chunks none of whose slots is in use, but for that of the padding; the last ones first.

        The free pages are put in order for it, so that the first chunks are used before others.
        """
        assert self.free_group is None
        self.free_pages = torch.sort(self.free_pages)[0]
        free = torch.bincount(self.free_pages // self._per_chunk, minlength=len(self._of_chunk))
        return [chunk for chunk, count in reversed(list(enumerate(free.tolist())))
                if chunk in self.chunks and chunk != PADDING_CHUNK and
                count == self._of_chunk[chunk]]

    def take(self, chunks: Iterable[int]) -> None:
        """Has the slots of chunks that mmd has granted."""
        for chunk in chunks:
            self.chunks.add(chunk)
            end = max(chunk * self._per_chunk, 1) + self._of_chunk[chunk]
            pages = torch.arange(end - self._of_chunk[chunk], end, dtype=torch.int64,
                                 device=self.device)
            self.free_pages = torch.cat((self.free_pages, pages))

    def drop(self, chunks: Iterable[int]) -> None:
        """Has the slots of chunks no longer, none of which is in use."""
        gone = list(chunks)
        self.free_pages = self.free_pages[~self._in(gone)]
        self.chunks.difference_update(gone)


class TokenSlots(_Breathing, TokenToKVPoolAllocator):  # type: ignore[misc, unused-ignore]
    """With pages of one slot."""


class PagedSlots(_Breathing, PagedTokenToKVPoolAllocator):  # type: ignore[misc, unused-ignore]
    """With larger pages."""


def replace(made: Any, *args: Any, **kwargs: Any) -> Any:
    """After KVCacheConfigurator._build_token_to_kv_pool_allocator(): one that breathes."""
    del args, kwargs
    engine = current()
    if engine is None:
        return None
    pool = made.get_kvcache()
    if engine.kv is None or pool is not engine.kv or made.need_sort:
        raise Unsupported(f"mmd.sglang: a KV cache of the kind {type(pool).__name__} does not lie "
                          f"in mmd's memory")
    if type(made) is TokenToKVPoolAllocator:  # pylint: disable=unidiomatic-typecheck
        return TokenSlots(made.size, made.dtype, made.device, pool, made.need_sort)
    if type(made) is PagedTokenToKVPoolAllocator:  # pylint: disable=unidiomatic-typecheck
        return PagedSlots(made.size, made.page_size, made.dtype, made.device, pool, made.need_sort)
    raise Unsupported(f"mmd.sglang: slots of SGLang's {type(made).__name__} cannot be lent")


def check_full_pool(original: Any, checker: Any, stats: Any, uncached: int = 0) -> Any:
    """Around SGLang's own search for leaks, which counts all slots: some are not there."""
    slots = checker.token_to_kv_pool_allocator
    if isinstance(slots, _Breathing):
        uncached += slots.away()
    return original(checker, stats, uncached)


def token_info(info: Any, observer: Any) -> Any:
    """After SGLang's count of slots in use: those that are not there are not in use."""
    slots = observer.token_to_kv_pool_allocator
    if isinstance(slots, _Breathing):
        info.full_num_used -= slots.away()
        info.full_token_usage = info.full_num_used / max(slots.granted(), 1)
    return info
