# SPDX-License-Identifier: Apache-2.0
"""Keys and values in the arena: blocks of tokens, one chunk each, and a cache of transformers."""

from __future__ import annotations

import errno
import math
import time
import weakref
from typing import Any, Final

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

import mmd.torch
from mmd._arena import Arena
from mmd._client import Client
from mmd._error import Error

DTYPES: Final = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
BLOCK_TOKENS: Final = 16
RETRY_S: Final = 0.02
PATIENCE_S: Final = 120.0


class _Block:
    """The keys and values of some tokens of a sequence, in all layers: in a chunk, or outside."""

    def __init__(self) -> None:
        self.chunk: int | None = None
        self.saved: Any = None
        """Its bytes in host memory while it has no chunk; None: nothing was written."""


class Blocks:
    """A client's arena as blocks for the caches of one model. One thread at a time uses it.

    What mmd reclaims is given back before each step: first chunks that are free, then those of
    caches that do not run, whose bytes are kept in host memory until they run again.
    """

    def __init__(self, client: Client, config: Any, dtype: Any, max_tokens: int,
                 block_tokens: int = BLOCK_TOKENS, share_tokens: int = 0) -> None:
        """Opens the client's arena. Blocks until mmd answers; not in a step.

        max_tokens: of all sequences together. block_tokens: the fewest tokens of a chunk, which are
        more where the rounding to pages leaves room. share_tokens: what it is entitled to while
        others want more.
        """
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.layers = config.num_hidden_layers
        page = client.info.page_bytes
        token_bytes = self.layers * 2 * heads * size * dtype.itemsize
        chunk_bytes = math.ceil(block_tokens * token_bytes / page) * page
        self.tokens = chunk_bytes // token_bytes
        """Tokens of a block."""
        self.shape = (self.layers, 2, heads, self.tokens, size)
        self.dtype = dtype
        self._client = client
        chunks = max(1, math.ceil(max_tokens / self.tokens))
        self._arena = Arena(client, chunk_bytes, 1, chunks,
                            min(chunks, math.ceil(share_tokens / self.tokens)))
        self._views: dict[int, tuple[Any, tuple[Any, ...]]] = {}
        self._used: dict[int, _Block] = {}
        self._caches: weakref.WeakSet[ArenaCache] = weakref.WeakSet()
        self.spilled = 0
        """How often a block's bytes were moved to host memory."""

    @property
    def arena(self) -> Arena:
        """The client's arena."""
        return self._arena

    def view(self, block: _Block) -> Any:
        """A block's memory as a tensor: layers, keys and values, heads, tokens, size of a head."""
        return self._view(block)[0]

    def layer_view(self, block: _Block, layer: int) -> Any:
        """A layer's part of a block: keys and values, heads, tokens, size of a head."""
        return self._view(block)[1][layer]

    def _view(self, block: _Block) -> tuple[Any, tuple[Any, ...]]:
        chunk = block.chunk
        assert chunk is not None, "the block is not in the arena: reserve it before the step"
        if chunk not in self._views:
            memory = self._arena.memory(0, chunk, DTYPES[self.dtype], self.shape)
            whole = mmd.torch.tensor(memory)
            self._views[chunk] = (whole, whole.unbind(0))
        return self._views[chunk]

    # ---- chunks

    def _release(self, chunk: int) -> None:
        self._views.pop(chunk, None)
        self._arena.release(chunk)

    def _save(self, block: _Block) -> int:
        """Moves a block's bytes to host memory; its chunk, which is free then."""
        chunk = block.chunk
        assert chunk is not None
        block.saved = self.view(block).to("cpu", copy=True)
        block.chunk = None
        del self._used[chunk]
        self.spilled += 1
        return chunk

    def _free(self) -> list[int]:
        return [chunk for chunk in self._arena.usable() if chunk not in self._used]

    def serve(self, running: ArenaCache | None = None) -> None:
        """Gives back what mmd reclaims. Not in a step. The running cache's blocks go last."""
        for _ in self._client.events():
            pass  # how much is owed is asked for below; a reader of events of its own is not needed
        owed = self._arena.owed.chunks
        for chunk in self._free()[:owed]:
            self._release(chunk)
        for cache in sorted(self._caches, key=lambda one: one is running):
            for block in reversed(cache.blocks()):
                if not self._arena.owed.chunks:
                    return
                if block.chunk is not None:
                    self._release(self._save(block))

    def place(self, blocks: list[_Block], running: ArenaCache) -> None:
        """Sees to it that blocks are in the arena. Blocks while memory is short; not in a step.

        Error with ENOSPC: mmd had nothing for two minutes.
        """
        deadline = time.monotonic() + PATIENCE_S
        while True:
            self.serve(running)
            self._hint(running, sum(block.chunk is None for block in blocks))
            missing = [block for block in blocks if block.chunk is None]
            for block, chunk in zip(missing, self._free()):
                self._bring(block, chunk)
            lacks = sum(block.chunk is None for block in blocks)
            if not lacks:
                return
            self._want(lacks, running, deadline)

    def _hint(self, running: ArenaCache, lacks: int) -> None:
        """mmd weighs tenants by what they say: one that says nothing counts as idle."""
        self._client.hint(used=len(self._used), running=running.rows_count, queued=lacks,
                          waiting=1 if lacks else 0)

    def idle(self) -> None:
        """Says that nothing runs: mmd may lend all layers. Not in a step."""
        self._client.hint()

    def _bring(self, block: _Block, chunk: int) -> None:
        block.chunk = chunk
        self._used[chunk] = block
        if block.saved is not None:
            self.view(block).copy_(block.saved)
            block.saved = None

    def _want(self, more: int, running: ArenaCache, deadline: float) -> None:
        """Gets some chunks, from mmd or from caches that do not run; or waits for a moment."""
        have = self._arena.usable_count
        if have >= self._arena.chunks:
            if not self._make_room(running):
                raise Error(errno.ENOSPC, "the arena is full: load the model with more max_tokens")
            return
        try:
            self._arena.want(min(have + more, self._arena.chunks), timeout=1)
        except Error as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.ETIMEDOUT):
                raise
            if self._make_room(running):
                return
            if time.monotonic() > deadline:
                raise
            time.sleep(RETRY_S)

    def _make_room(self, running: ArenaCache | None) -> bool:
        """Moves a block of a cache that does not run to host memory; False: there is none."""
        for cache in self._caches:
            for block in reversed(cache.blocks() if cache is not running else []):
                if block.chunk is not None:
                    self._save(block)
                    return True
        return False

    def drop(self, blocks: list[_Block]) -> None:
        """Frees blocks whose content is not needed any more. In a step or not."""
        for block in blocks:
            if block.chunk is not None:
                self._used.pop(block.chunk, None)
            block.chunk = block.saved = None

    def give_back(self) -> None:
        """Gives all free chunks back to mmd. Not in a step."""
        for chunk in self._free():
            self._release(chunk)

    def sleep(self) -> None:
        """Gives all chunks back; caches keep their bytes in host memory. Not in a step."""
        while self._make_room(None):
            pass
        self.give_back()

    def close(self) -> None:
        """Lets go of the arena's memory, so that the client can be closed. Not in a step."""
        for cache in list(self._caches):
            cache.clear()
        self.give_back()
        self._views.clear()


class _Layer(CacheLayerMixin):  # type: ignore[misc, unused-ignore]
    """One layer's part of an ArenaCache, as transformers takes it."""

    is_sliding = False
    is_croppable = True

    def __init__(self, cache: ArenaCache, number: int) -> None:
        super().__init__()
        self._cache = weakref.ref(cache)
        self._number = number
        self.length = 0
        self.is_initialized = True

    def _owner(self) -> ArenaCache:
        cache = self._cache()
        assert cache is not None, "a layer is used after its cache"
        return cache

    def lazy_initialization(self, key_states: Any, value_states: Any) -> None:
        """Nothing: the blocks are there before the step."""

    def update(self, key_states: Any, value_states: Any, *args: Any,
               **kwargs: Any) -> tuple[Any, Any]:
        """Writes new keys and values behind the old ones, and returns all. In a step."""
        cache, before = self._owner(), self.length
        after = before + key_states.shape[-2]
        cache.require(key_states.shape[0], after)
        # In a small model the host's time for each operation counts, so there are few of them.
        new = torch.stack((key_states, value_states), dim=1)
        found = [cache.row(number, self._number, before, after, new[number])
                 for number in range(new.shape[0])]
        self.length = after
        if len(found) == 1:
            return found[0][:1], found[0][1:]
        return torch.stack([row[0] for row in found]), torch.stack([row[1] for row in found])

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """The length with the query, and where it begins."""
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        """How many tokens the layer has."""
        return self.length

    def get_max_length(self) -> int:
        """-1: as many as the arena takes."""
        return -1

    def crop(self, tokens_to_remove: int) -> None:
        """Removes the last tokens; the number is negative, as in transformers."""
        if tokens_to_remove > 0:
            raise ValueError("crop() takes the negative number of tokens to remove")
        self.length = max(0, self.length + tokens_to_remove)

    def reset(self) -> None:
        """Removes all tokens."""
        self.length = 0

    def reorder_cache(self, beam_idx: Any) -> None:
        """Reorders sequences for beam search: once for the cache, with its first layer."""
        if self._number == 0:
            self._owner().select(beam_idx.tolist())

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeats each sequence."""
        if self._number == 0:
            owner = self._owner()
            owner.select([row for row in range(owner.rows_count) for _ in range(repeats)])

    def batch_select_indices(self, indices: Any) -> None:
        """Keeps the sequences that are named."""
        if self._number == 0:
            self._owner().select(indices.tolist())


class ArenaCache(Cache):  # type: ignore[misc, unused-ignore]
    """Keys and values in a client's arena: past_key_values of one generate().

    Each sequence has a table of blocks. A model of mmd.hf.load() makes one for each generate() that
    is given none. One thread at a time uses it. It can be cropped, reordered and repeated like a
    DynamicCache. clear(), or its end, frees its blocks.
    """

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._tables: list[list[_Block]] = []
        super().__init__(layers=[_Layer(self, number) for number in range(blocks.layers)])
        blocks._caches.add(self)
        self._end = weakref.finalize(self, _end_of_cache, blocks, self._tables)

    @property
    def rows_count(self) -> int:
        """How many sequences it has."""
        return len(self._tables)

    def blocks(self) -> list[_Block]:
        """The blocks of all sequences."""
        return [block for table in self._tables for block in table]

    def reserve(self, rows: int, tokens: int) -> None:
        """Places the blocks for so many tokens of each sequence. Blocks; not in a step."""
        while len(self._tables) < rows:
            self._tables.append([])
        needed = math.ceil(tokens / self._blocks.tokens)
        for table in self._tables:
            table += [_Block() for _ in range(needed - len(table))]
        self._blocks.place(self.blocks(), self)

    def require(self, rows: int, tokens: int) -> None:
        """Raises unless the blocks for so many tokens are there. In a step."""
        if (rows != len(self._tables) or
                any(len(table) * self._blocks.tokens < tokens for table in self._tables)):
            raise RuntimeError(f"the cache has no blocks for {rows} sequences of {tokens} tokens: "
                               f"call ArenaCache.reserve() before the step, as load() does")

    def row(self, row: int, layer: int, before: int, after: int, new: Any) -> Any:
        """Writes a sequence's new keys and values, and returns all up to `after`, copied."""
        tokens, parts = self._blocks.tokens, []
        for at, block in enumerate(self._tables[row]):
            first = at * tokens
            if first >= after:
                break
            last = min(after, first + tokens)
            part = self._blocks.layer_view(block, layer)
            begin = max(before, first)
            if begin < last:
                part[:, :, begin - first:last - first] = new[:, :, begin - before:last - before]
            parts.append(part if last == first + tokens else part[:, :, :last - first])
        return torch.cat(parts, dim=2)

    def select(self, rows: list[int]) -> None:
        """Makes sequence i what sequence rows[i] was. Blocks; not in a step."""
        old = [[self._copy(block) for block in table] for table in self._tables]
        self._blocks.drop(self.blocks())
        self._tables[:] = []
        for row in rows:
            self._tables.append([])
            for saved in old[row]:
                block = _Block()
                block.saved = saved
                self._tables[-1].append(block)
        self._blocks.place(self.blocks(), self)

    def _copy(self, block: _Block) -> Any:
        return block.saved if block.chunk is None else self._blocks.view(block).to("cpu", copy=True)

    def clear(self) -> None:
        """Removes all sequences, and frees their blocks. Not in a step."""
        self._blocks.drop(self.blocks())
        self._tables.clear()
        for layer in self.layers:
            layer.length = 0


def _end_of_cache(blocks: Blocks, tables: list[list[_Block]]) -> None:
    blocks.drop([block for table in tables for block in table])
