# SPDX-License-Identifier: Apache-2.0
"""A pool of blocks that breathes: it has the blocks of those chunks that mmd has granted."""

from __future__ import annotations

import errno
import math
import time
from typing import Any, Final

from mmd._error import Error
from mmd._plugin.tenant import RETRY_S
from mmd.vllm._engine import Engine

COUNT_S: Final = 0.1
NULL_CHUNK: Final = 0


class Blocks:
    """Keeps vLLM's BlockPool and the client's arena the same. The engine's lock is held by callers.

    A block is in the pool if its chunk is usable. The others are in no list of vLLM's: they are
    not free, not in use, and not in the prefix cache.
    """

    def __init__(self, engine: Engine, scheduler: Any) -> None:
        """Takes over the pool of a scheduler that has not run yet."""
        assert engine.arena is not None
        self._engine, self._arena = engine, engine.arena
        self._scheduler = scheduler
        self._pool = scheduler.kv_cache_manager.block_pool
        self._size = engine.blocks_per_chunk
        self._chunks: set[int] = set()
        self._wanted = 0
        self._retry = 0.0
        self._used_count, self._count_again = 0, 0.0
        self.asleep = False
        for block in self._pool.blocks:
            if not block.is_null:
                self._pool.free_block_queue.remove(block)
        self._pool.num_gpu_blocks = 1
        self.grow()

    # ---- chunks in and out

    def _of(self, chunk: int) -> list[Any]:
        """The blocks of a chunk, but for the null block."""
        blocks = self._pool.blocks[chunk * self._size:(chunk + 1) * self._size]
        return [block for block in blocks if not block.is_null]

    def grow(self) -> None:
        """Takes the blocks of chunks that mmd has granted."""
        if self._arena.usable_count == len(self._chunks):
            return
        for chunk in self._arena.usable():
            if chunk not in self._chunks:
                blocks = self._of(chunk)
                self._chunks.add(chunk)
                self._pool.num_gpu_blocks += len(blocks)
                self._pool.free_block_queue.append_n(blocks)
        self._engine.note_chunks(len(self._chunks))

    def _is_free(self, chunk: int) -> bool:
        return chunk != NULL_CHUNK and all(block.ref_cnt == 0 for block in self._of(chunk))

    def _give(self, chunks: list[int]) -> None:
        """Gives chunks back whose blocks nobody uses; what was cached in them is forgotten."""
        if not chunks:
            return
        for chunk in chunks:
            blocks = self._of(chunk)
            for block in blocks:
                self._pool._maybe_evict_cached_block(block)
                self._pool.free_block_queue.remove(block)
            self._pool._notify_reuse(blocks)
            self._chunks.remove(chunk)
            self._pool.num_gpu_blocks -= len(blocks)
        self._arena.release(chunks)
        self._wanted = min(self._wanted, len(self._chunks))
        self._engine.note_chunks(len(self._chunks))

    def _free_chunks(self, most: int) -> list[int]:
        """Those that can go, the ones with the least in the prefix cache first."""
        free = [chunk for chunk in self._chunks if self._is_free(chunk)]
        return sorted(free, key=lambda chunk: (self._cached(chunk), -chunk))[:most]

    def _cached(self, chunk: int) -> int:
        return sum(block.block_hash is not None for block in self._of(chunk))

    # ---- what mmd reclaims

    def serve(self) -> None:
        """Gives back what mmd reclaims: free chunks, then those of requests that are preempted."""
        while owed := min(self._arena.owed.chunks, len(self._chunks) - 1):
            free = self._free_chunks(owed)
            if not free and not self._preempt():
                return
            self._give(free)
            self._engine.stats.returned += len(free)

    def _holders(self) -> dict[int, list[Any]]:
        """The running requests that have blocks in each chunk."""
        found: dict[int, list[Any]] = {}
        for request in self._scheduler.running:
            groups = self._scheduler.kv_cache_manager.get_block_ids(request.request_id)
            for chunk in {block // self._size for group in groups for block in group}:
                found.setdefault(chunk, []).append(request)
        return found

    def _preempt(self) -> bool:
        """Preempts the requests of the chunk that is cheapest to empty; False: there is none.

        The oldest request is preempted last, so that something ends. Of the others those go first
        that matter least, and have the fewest tokens to compute again.
        """
        running = self._scheduler.running
        if not running:
            return False
        held = {chunk: requests for chunk, requests in self._holders().items()
                if chunk in self._chunks and chunk != NULL_CHUNK}
        if not held:
            return False
        oldest = running[0]

        def cost(requests: list[Any]) -> tuple[bool, int, int]:
            return (oldest in requests, -min(request.priority for request in requests),
                    sum(request.num_computed_tokens for request in requests))

        victims = min(held.values(), key=cost)
        # In the order in which they run, the last first: the queue has them in that order then.
        for request in sorted(victims, key=running.index, reverse=True):
            running.remove(request)
            self._scheduler._preempt_request(request, time.monotonic())
            self._engine.stats.preempted += 1
        return True

    # ---- what the engine needs

    def _blocks_for(self, tokens: int) -> int:
        return sum(math.ceil(tokens / manager.block_size) for manager in
                   self._scheduler.kv_cache_manager.coordinator.single_type_managers)

    def demand(self) -> tuple[int, int]:
        """Chunks for all that runs and waits, and those of it for what waits.

        Requests that wait count as far as the batch has room for them, and all of them for what
        they have and one more token each.
        """
        scheduler = self._scheduler
        room = max(0, scheduler.max_num_running_reqs - len(scheduler.running))
        running = sum(self._blocks_for(request.num_tokens + 1) for request in scheduler.running)
        waiting = 0
        for queue in (scheduler.kv_holding_waiting, scheduler.waiting):
            for request in queue:
                if room == 0:
                    break
                room -= 1
                waiting += self._blocks_for(request.num_tokens + 1)
        whole = math.ceil((1 + running + waiting) / self._size)
        return min(whole, self._arena.chunks), math.ceil(waiting / self._size)

    def want(self) -> None:
        """Says what the engine needs; waits for a moment where it can run nothing without it."""
        needed, queued = self.demand()
        running, waiting = self._scheduler.get_request_counts()
        self._engine.client.hint(used=self._used(), running=running, waiting=waiting,
                                 queued=queued)
        needed = 1 if self.asleep else max(needed, 1)
        stuck = not running and waiting and needed > len(self._chunks) and not self.asleep
        if needed == self._wanted and not (stuck and time.monotonic() >= self._retry):
            return
        self._wanted = needed
        try:
            self._arena.want(needed, timeout=RETRY_S if stuck else 0)
        except Error as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.ETIMEDOUT):
                raise
            # Denied for now; the demand stands.
        self._retry = time.monotonic() + RETRY_S
        self.grow()

    def _used(self) -> int:
        """Chunks with live blocks; not counted in each step, since it looks at every block."""
        now = time.monotonic()
        if now >= self._count_again:
            self._count_again = now + COUNT_S
            self._used_count = sum(not self._is_free(chunk) for chunk in self._chunks)
        return min(self._used_count, len(self._chunks))

    # ---- when nothing runs

    def idle(self) -> None:
        """Says that nothing runs, and lowers the demand: mmd may take what it needs."""
        self._engine.client.hint()
        if self._wanted != 1:
            self._wanted = 1
            self._arena.want(1)

    def suspend(self) -> None:
        """Gives everything back that is not in use, and asks for nothing. Any thread."""
        with self._engine.lock:
            self.asleep = True
            self._give(self._free_chunks(len(self._chunks)))
            self.idle()

    def resume(self) -> None:
        """Lets the pool grow again. Any thread."""
        with self._engine.lock:
            self.asleep = False
