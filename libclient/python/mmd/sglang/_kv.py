# SPDX-License-Identifier: Apache-2.0
"""SGLang's KV buffers in the arena: what its pool makes of torch.zeros() otherwise."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mmd.torch
from mmd._plugin.versions import Unsupported
from mmd.sglang._engine import Engine, current


def allocate(engine: Engine, pool: Any) -> None:
    """Opens the arena, and gets its first chunk, which has the padding slot. Blocks.

    Keys and values of each layer have a range. A slot has the same place in each of them, so that
    it is in one chunk with all that it keeps.
    """
    if engine.arena is not None:
        raise Unsupported("mmd.sglang: a second KV cache in one process is not supported, such as "
                          "that of a hybrid model")
    shape, values = pool._kv_buffer_shapes()
    if pool.kv_cache_layout != "nhd" or shape != values:
        raise Unsupported(f"mmd.sglang: a KV cache of the layout {pool.kv_cache_layout!r} with "
                          f"keys of {list(shape[1:])} and values of {list(values[1:])} does not "
                          f"lie in chunks")
    page_bytes = math.prod(shape[1:]) * pool.store_dtype.itemsize * pool.page_size
    chunk_bytes = math.lcm(page_bytes, engine.client.info.page_bytes)
    engine.pages_per_chunk = chunk_bytes // page_bytes
    pages = math.ceil(shape[0] / pool.page_size)
    arena = engine.open_arena(chunk_bytes, 2 * pool.layer_num,
                              math.ceil(pages / engine.pages_per_chunk), "the padding slot")
    kind = mmd.torch.DTYPES[pool.store_dtype]
    made = [mmd.torch.tensor(arena.whole(number, kind, tuple(shape)))
            for number in range(arena.ranges)]
    pool.k_buffer, pool.v_buffer = made[:pool.layer_num], made[pool.layer_num:]
    engine.kv = pool


def create_buffers(original: Callable[..., None], pool: Any) -> None:
    """Around MHATokenToKVPool._create_buffers_normal()."""
    engine = current()
    if engine is None:
        original(pool)
    else:
        allocate(engine, pool)


def available_bytes(original: Callable[..., int], configurator: Any, *args: Any,
                    **kwargs: Any) -> int:
    """Around KVCacheConfigurator._profile_available_bytes(): the most KV that there may ever be.

    It is all of mmd's memory, of which --max-total-tokens takes less. SGLang would take what it
    finds free on the device, which is what mmd has left.
    """
    engine = current()
    if engine is None:
        return original(configurator, *args, **kwargs)
    info = engine.client.info
    return info.pool_pages * info.page_bytes
