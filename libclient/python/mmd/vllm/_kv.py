# SPDX-License-Identifier: Apache-2.0
"""vLLM's KV cache in the arena: a replacement of allocate_kv_cache()."""

from __future__ import annotations

import dataclasses
import math
import sys
from typing import Any, Final

import mmd.torch
from mmd._dlpack import Memory
from mmd._plugin.tenant import MARK
from mmd.vllm._engine import Engine, current
from mmd.vllm._versions import Unsupported

# Kinds whose slots a repeated step writes again with the same values.
REPEATABLE: Final = ("FullAttentionSpec", "MLAAttentionSpec", "SlidingWindowSpec",
                     "SlidingWindowMLASpec", "ChunkedLocalAttentionSpec")


@dataclasses.dataclass(frozen=True)
class Plan:
    """Where each layer's blocks are: a range of the arena, and an offset in it."""

    ranges: int
    chunk_bytes: int
    chunks: int
    blocks_per_chunk: int
    block_stride: int
    blocks: int
    places: dict[str, tuple[int, int]]


def _specs(config: Any) -> dict[str, Any]:
    """What each layer keeps."""
    found: dict[str, Any] = {}
    for group in config.kv_cache_groups:
        inner = getattr(group.kv_cache_spec, "kv_cache_specs", None)
        for name in group.layer_names:
            spec = inner[name] if inner is not None else group.kv_cache_spec
            if type(spec).__name__ not in REPEATABLE or not spec.has_layer_views:
                raise Unsupported(f"mmd.vllm: layer {name} keeps a {type(spec).__name__}, whose "
                                  f"steps cannot be repeated")
            found[name] = spec
    return found


def plan(config: Any, layout: Any, page_bytes: int) -> Plan:
    """How vLLM's blocks lie in chunks: the same block of all layers is in one chunk."""
    tensors = config.kv_cache_tensors
    strides = {tensor.block_stride for tensor in tensors}
    if len(strides) != 1 or not (layout.is_block_compact or layout.is_block_outermost):
        raise Unsupported(f"mmd.vllm: a KV cache of the layout {layout.name} with blocks of "
                          f"{', '.join(map(str, sorted(strides)))} bytes does not lie in chunks")
    if any(tensor.host_resident for tensor in tensors):
        raise Unsupported("mmd.vllm: a KV cache in host memory is not mmd's")
    (stride,) = strides
    starts = {name: tensor.offset + number * tensor.layer_stride
              for tensor in tensors for number, name in enumerate(tensor.layers)}
    # With blocks outermost all layers are inside one stride of one range. Otherwise each layer has
    # a range, which layers of other groups may share: a block belongs to one group at a time.
    inside = layout.is_block_outermost
    firsts = [0] if inside else sorted(set(starts.values()))
    if inside and max(starts.values()) >= stride:
        raise Unsupported(f"mmd.vllm: the KV cache's layers lie outside of its blocks of {stride} "
                          f"bytes")
    if not inside and any(after - before < stride * config.num_blocks
                          for before, after in zip(firsts, firsts[1:])):
        raise Unsupported("mmd.vllm: the KV cache's layers overlap each other in part")
    places = {name: (0, start) if inside else (firsts.index(start), 0)
              for name, start in starts.items()}
    chunk_bytes = math.lcm(stride, page_bytes)
    per_chunk = chunk_bytes // stride
    chunks = math.ceil(config.num_blocks / per_chunk)
    return Plan(len(firsts), chunk_bytes, chunks, per_chunk, stride, config.num_blocks, places)


def _views(engine: Engine, made: Plan, config: Any, layout: Any,
           kernel_sizes: list[int] | None) -> dict[str, Any]:
    """A view of each layer on its addresses, mapped or not."""
    from vllm.v1.kv_cache_interface import KVCacheTensor, create_kv_cache_views

    assert engine.arena is not None
    specs, size = _specs(config), made.chunks * made.chunk_bytes
    raws = [mmd.torch.tensor(Memory(engine.client, engine.arena.va(number), "I8", (size,), True))
            for number in range(made.ranges)]
    kernel = {name: kernel_sizes[number] if kernel_sizes and number < len(kernel_sizes) else None
              for number, group in enumerate(config.kv_cache_groups) for name in group.layer_names}
    views: dict[str, Any] = {}
    for name, (number, offset) in made.places.items():
        one = KVCacheTensor(size=size, layers=[name], layer_stride=size,
                            block_stride=made.block_stride, offset=offset)
        views[name] = create_kv_cache_views(raws[number], specs[name], made.blocks, layout, one,
                                            kernel_block_size=kernel[name])[0]
    return views


def allocate(engine: Engine, config: Any, layout: Any,
             kernel_sizes: list[int] | None) -> dict[str, Any]:
    """Opens the arena, and gets its first chunk, which has the null block. Blocks."""
    if engine.arena is not None:
        raise Unsupported("mmd.vllm: a second KV cache in one process is not supported")
    _specs(config)
    made = plan(config, layout, engine.client.info.page_bytes)
    engine.blocks_per_chunk, engine.blocks_count = made.blocks_per_chunk, made.blocks
    engine.open_arena(made.chunk_bytes, made.ranges, made.chunks, "the null block")
    return _views(engine, made, config, layout, kernel_sizes)


def install() -> None:
    """Replaces allocate_kv_cache() wherever it was imported to; again does nothing."""
    from vllm.v1.worker import utils

    original = utils.allocate_kv_cache
    if hasattr(original, MARK):
        return

    def allocate_kv_cache(kv_cache_config: Any, device: Any, layout: Any,
                          kernel_block_sizes: list[int] | None = None) -> dict[str, Any]:
        engine = current()
        if engine is None or not kv_cache_config.kv_cache_tensors:
            return original(kv_cache_config, device, layout,  # type: ignore[no-any-return]
                            kernel_block_sizes)
        return allocate(engine, kv_cache_config, layout, kernel_block_sizes)

    setattr(allocate_kv_cache, MARK, True)
    for name, module in list(sys.modules.items()):
        # Not by getattr(), at which other packages import what they have.
        if name.startswith("vllm.") and vars(module).get("allocate_kv_cache") is original:
            setattr(module, "allocate_kv_cache", allocate_kv_cache)
