# SPDX-License-Identifier: Apache-2.0
"""SGLang's scheduler with slots that breathe: each pass asks mmd first. All of it in its thread."""

from __future__ import annotations

import dataclasses
import errno
import math
import time
from collections.abc import Callable
from typing import Any, Final

from sglang.srt.managers.schedule_policy import CLIP_MAX_NEW_TOKENS
from sglang.srt.mem_cache.base_prefix_cache import EvictParams

from mmd._error import Error
from mmd._plugin.tenant import RETRY_S
from mmd.sglang._engine import Engine, current, stats
from mmd.sglang._slots import PADDING_CHUNK

COUNT_S: Final = 0.1
KV: Final = "kv_cache"


class Pool:
    """Keeps SGLang's allocator of slots and the client's arena the same."""

    def __init__(self, engine: Engine, scheduler: Any) -> None:
        assert engine.arena is not None
        self._engine, self._arena = engine, engine.arena
        self._scheduler = scheduler
        self._slots = scheduler.token_to_kv_pool_allocator
        self._tree = scheduler.tree_cache
        self._wanted = 0
        self._retry = 0.0
        self._used_count, self._count_again = 0, 0.0
        self.asleep = False
        engine.note_chunks(len(self._slots.chunks))

    # ---- chunks in and out

    def grow(self) -> None:
        """Takes the slots of chunks that mmd has granted."""
        if self._arena.usable_count == len(self._slots.chunks):
            return
        self._slots.take(chunk for chunk in self._arena.usable()
                         if chunk not in self._slots.chunks)
        self._engine.note_chunks(len(self._slots.chunks))

    def _give(self, chunks: list[int]) -> None:
        """Gives chunks back, none of whose slots is in use."""
        if not chunks:
            return
        self._slots.drop(chunks)
        self._arena.release(chunks)
        self._wanted = min(self._wanted, len(self._slots.chunks))
        self._engine.note_chunks(len(self._slots.chunks))

    # ---- what mmd reclaims

    def serve(self, batch: Any) -> None:
        """Gives back what mmd reclaims: free chunks, then what is cached, then what is running."""
        while owed := min(self._arena.owed.chunks, len(self._slots.chunks) - 1):
            free = self._slots.free_chunks()[:owed]
            if not free and not self._evict() and not self._retract(batch):
                return
            self._give(free)
            self._engine.stats.returned += len(free)

    def _evict(self) -> bool:
        """Evicts a chunk's worth of what the prefix cache has used least; False: it has nothing."""
        done = self._tree.evict(EvictParams(num_tokens=self._slots.tokens_per_chunk))
        self._engine.stats.evicted += done.num_tokens_evicted
        return bool(done.num_tokens_evicted > 0)

    def _holders(self, batch: Any) -> dict[int, list[int]]:
        """The requests of the batch, by their places in it, that have slots in each chunk."""
        found: dict[int, list[int]] = {}
        table = self._scheduler.req_to_token_pool.req_to_token
        for place, request in enumerate(batch.reqs):
            slots = table[request.kv.req_pool_idx, :request.kv.kv_allocated_len]
            for chunk in (slots // self._slots.tokens_per_chunk).unique().tolist():
                found.setdefault(chunk, []).append(place)
        return found

    def _retract(self, batch: Any) -> bool:
        """Retracts the requests of the chunk that is cheapest to empty; False: there is none.

        The request that SGLang would retract last is retracted last. Of the others those go first
        that have the fewest tokens to compute again.
        """
        if batch is None or batch.is_empty():
            return False
        batch.filter_batch()  # without those that have ended, which hold nothing any more
        batch.batch_is_full = False
        if batch.is_empty() or any(request.beam_group is not None for request in batch.reqs):
            return False
        held = {chunk: places for chunk, places in self._holders(batch).items()
                if chunk in self._slots.chunks and chunk != PADDING_CHUNK}
        if not held:
            return False
        last = batch._get_decode_retraction_order(batch.reqs)[0]

        def cost(places: list[int]) -> tuple[bool, int]:
            return last in places, sum(batch.reqs[place].kv.kv_allocated_len for place in places)

        victims = min(held.values(), key=cost)
        requests = [batch.reqs[place] for place in victims]
        retract(batch, victims)
        for request in requests:
            self._scheduler._add_request_to_queue(request, is_retracted=True)
        self._engine.stats.retracted += len(requests)
        return True

    # ---- what the engine needs

    def demand(self, batch: Any, last: Any) -> tuple[int, int]:
        """Chunks for all that runs and waits, and those of it for what waits.

        A request is counted as SGLang counts it when it admits one: with all tokens that it may
        still make; those that run, with the part of them that SGLang expects. Requests that wait
        count as far as the batch has room for them.
        """
        scheduler, slots = self._scheduler, self._slots
        ratio = scheduler.new_token_ratio_tracker.current
        requests = _running(batch, last)
        used = slots.granted() - slots.available_size() - self._tree.evictable_size()
        coming = sum(_remaining(request) * (1 if request.sampling_params.ignore_eos else ratio) +
                     slots.page_size for request in requests)
        room = max(0, scheduler.max_running_requests - len(requests))
        waiting = sum(len(request.origin_input_ids) + len(request.output_ids) +
                      _remaining(request) + 2 * slots.page_size
                      for request in scheduler.waiting_queue[:room])
        # SGLang admits a request where more is free than it counts, and page 0 takes its place.
        whole = math.ceil((used + coming + waiting + 2 * slots.page_size) / slots.tokens_per_chunk)
        return min(whole, self._arena.chunks), math.ceil(waiting / slots.tokens_per_chunk)

    def want(self, batch: Any, last: Any) -> None:
        """Says what the engine needs; waits for a moment where it can run nothing without it."""
        needed, queued = self.demand(batch, last)
        running, waiting = len(_running(batch, last)), len(self._scheduler.waiting_queue)
        self._engine.client.hint(used=self._used(), running=running, waiting=waiting,
                                 queued=queued)
        needed = 1 if self.asleep else max(needed, 1)
        stuck = not running and waiting and needed > len(self._slots.chunks) and not self.asleep
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
        """Chunks with slots in use; not counted in each pass, since it looks at every free one."""
        now = time.monotonic()
        if now >= self._count_again:
            self._count_again = now + COUNT_S
            self._used_count = len(self._slots.chunks) - len(self._slots.free_chunks())
        return min(self._used_count, len(self._slots.chunks))

    # ---- when nothing runs

    def idle(self) -> None:
        """Says that nothing runs, and lowers the demand: mmd may take what it needs."""
        if self._wanted != 1:
            self._engine.client.hint()
            self._wanted = 1
            self._arena.want(1)

    def suspend(self) -> None:
        """Gives everything back that is not in use, and asks for nothing."""
        self.asleep = True
        self._give(self._slots.free_chunks())
        self._wanted = 0
        self.idle()

    # ---- each pass

    def breathe(self, batch: Any, last: Any) -> None:
        """What is done in front of each pass of the scheduler. batch: what it may retract of."""
        self._look()
        self.serve(batch)
        if _running(batch, last) or self._scheduler.waiting_queue:
            self.want(batch, last)
        else:
            self.idle()

    def rest(self, batch: Any, last: Any) -> None:
        """The same while the engine is paused: it retracts nothing and asks for nothing."""
        self._look()
        self.serve(None)
        if not _running(batch, last):
            self.idle()

    def _look(self) -> None:
        self._engine.drain()
        self._engine.check()
        self.grow()


def _running(batch: Any, last: Any) -> list[Any]:
    """The requests that hold slots: those that decode, and those of the last prefill."""
    batches = [one for one in (batch, last) if one is not None]
    return list({id(request): request for one in batches for request in one.reqs
                 if not request.finished() and request.kv.holds_kv}.values())


def _remaining(request: Any) -> int:
    """Tokens that a request may still make, as SGLang counts them when it admits one."""
    most = request.sampling_params.max_new_tokens - len(request.output_ids)
    return int(min(max(most, 0), CLIP_MAX_NEW_TOKENS))


def retract(batch: Any, places: list[int]) -> None:
    """Frees what these requests of a batch hold, and takes them out of it, as SGLang does it."""
    keep = [place for place in range(len(batch.reqs)) if place not in places]
    for done, place in enumerate(places, 1):
        batch.release_req(place, len(batch.reqs) - done)
    batch.filter_batch(keep_indices=keep)


def attached(engine: Engine, scheduler: Any) -> Pool:
    """The pool of this process's scheduler."""
    if engine.pool is None:
        engine.pool = Pool(engine, scheduler)
    return engine.pool


# ---- hooks


def before_pass(scheduler: Any, running_batch: Any, last_batch: Any) -> None:
    """Before Scheduler.get_next_batch_to_run()."""
    engine = current()
    if engine is not None:
        attached(engine, scheduler).breathe(running_batch, last_batch)


def before_pause(scheduler: Any) -> None:
    """Before each iteration of a paused scheduler, whose requests keep their slots or have none."""
    engine = current()
    if engine is not None:
        attached(engine, scheduler).rest(scheduler.running_batch, scheduler.last_batch)


def retract_decode(original: Callable[..., Any], batch: Any) -> Any:
    """Around ScheduleBatch.retract_decode(), for which a pool that is full is full for ever.

    It aborts the last request if that has no room either. Here it waits in the queue for memory,
    unless it would not fit into all that there may ever be.
    """
    engine = current()
    if engine is None or engine.pool is None or any(request.beam_group is not None
                                                    for request in batch.reqs):
        return original(batch)
    order = batch._get_decode_retraction_order(batch.reqs)
    if batch.reqs[order[0]].kv.kv_allocated_len + 2 * engine.kv.page_size > engine.kv.size:
        return original(batch)
    keep = list(order)
    while keep and (len(keep) == len(order) or not batch.check_decode_mem(selected_indices=keep)):
        place = keep.pop()
        batch.release_req(place, len(keep))
    requests = [batch.reqs[place] for place in order if place not in keep]
    batch.filter_batch(keep_indices=keep)
    engine.stats.waited += len(requests)
    return requests, _ratio(batch.reqs), []


def _ratio(requests: list[Any]) -> float:
    """What SGLang expects from now on of the tokens that requests may still make."""
    from sglang.srt.managers.scheduler_components.new_token_ratio_tracker import (
        NewTokenRatioTracker,
    )

    return float(NewTokenRatioTracker.estimate_new_token_ratio_after_retract(requests))


def after_release(result: Any, manager: Any, request: Any) -> None:
    """After release_memory_occupation(): a sleeping engine's memory is lent to others."""
    del result
    engine = current()
    if engine is not None and KV in (request.tags or [KV]):
        attached(engine, manager.scheduler).suspend()


def after_resume(result: Any, manager: Any, request: Any) -> None:
    """After resume_memory_occupation(): the slots grow again as requests need them."""
    del result
    engine = current()
    if engine is not None and KV in (request.tags or [KV]):
        attached(engine, manager.scheduler).asleep = False


def after_state(result: Any, scheduler: Any, request: Any) -> None:
    """After Scheduler.get_internal_state(): the statistics, for whoever asks a server for them."""
    del scheduler, request
    if current() is not None:
        result.internal_state["mmd"] = dataclasses.asdict(stats())
