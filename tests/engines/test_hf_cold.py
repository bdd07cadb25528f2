# SPDX-License-Identifier: Apache-2.0
"""transformers with cold blocks: most keys and values are in host memory; run by in_venv.py."""

import gc
import math

import torch
import transformers

import mmd
import mmd.hf
import mmd.torch
from mmd._dlpack import Memory
from mmd.hf._cache import DTYPES
from programs import wait_until

ENTRIES = 40
PROMPTS = torch.arange(1, 25).view(2, 12)
GREEDY = {"do_sample": False, "pad_token_id": 0, "eos_token_id": None}

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
torch.set_num_threads(1)


class CoolCache(mmd.hf.ArenaCache):
    """Full blocks are copied out between steps; their chunks are free once the entries are usable.

    The window is the end of the arena, which Blocks takes as chunks in use.
    """

    def __init__(self, module, entries):
        state = module._mmd
        blocks, self.client = state.blocks, state.client
        self.arena, self.place = blocks.arena, {}
        self.unit = math.prod(blocks.shape[1:]) * blocks.dtype.itemsize
        self.block_bytes = blocks.layers * self.unit
        self.swap = self.client.swap(entries * self.block_bytes)
        self.cold = state.model.cold(self.unit, entries, entries)
        window = math.ceil((self.cold.classes * (entries - 1) + blocks.layers) * self.unit /
                           self.arena.chunk_bytes)
        self.first = self.arena.chunks - window
        assert self.arena.want(window, timeout=60, first=self.first)
        blocks._used.update({self.first + i: None for i in range(window)})
        self.cold.window(self.first, window)
        wait_until(lambda: not self.cold.state.pending and self.cold.state.limit == entries, 60,
                   "the window is in force")
        assert self.cold.state.error == 0 and self.cold.state.entries == entries
        self.views, self.sent, self.landed, self.live = {}, {}, [], {}
        self.read = self.most = 0
        super().__init__(blocks)

    def blocks(self):
        """Those that are not cold: they are placed in chunks."""
        return [block for block in super().blocks() if block not in self.place]

    def cool(self):
        """Between steps: what has been copied is live, and what is usable has no chunk any more."""
        while done := self.swap.next():
            assert done.error == 0
            self.cold.set(done.user_data)
            self.landed.append(done.user_data)
        if self.landed:
            version = self.cold.commit()
            self.live.update({entry: version for entry in self.landed})
            self.landed.clear()
        acked = self.cold.state.acked
        for block, entry in self.sent.items():
            if block not in self.place and self.live.get(entry, math.inf) <= acked:
                self._blocks.drop([block])
                self.place[block] = entry
        for table in self._tables:
            for block in table[:self.get_seq_length() // self._blocks.tokens]:
                if block not in self.sent:
                    self.sent[block] = entry = len(self.sent)
                    self.swap.out([mmd.Piece(block.chunk * self.arena.chunk_bytes,
                                             entry * self.block_bytes, self.block_bytes)], entry)
                    return

    def reserve(self, rows, tokens):
        self.cool()
        super().reserve(rows, tokens)
        self.most = max(self.most, sum(block.chunk is not None for block in super().blocks()))

    def view(self, block, layer):
        if block not in self.place:
            return self._blocks.layer_view(block, layer)
        entry = self.place[block]
        self.read += 1
        if (entry, layer) not in self.views:
            va = self.arena.va(0, self.first) + (self.cold.classes * entry + layer) * self.unit
            self.views[entry, layer] = mmd.torch.tensor(
                Memory(self.client, va, DTYPES[self._blocks.dtype], self._blocks.shape[1:], True))
        return self.views[entry, layer]

    def row(self, row, layer, before, after, new):
        tokens, parts = self._blocks.tokens, []
        for at in range(math.ceil(after / tokens)):
            block, first = self._tables[row][at], at * tokens
            part = self.view(block, layer)
            begin, last = max(before, first), min(after, first + tokens)
            if begin < last:
                assert block not in self.place
                part[:, :, begin - first:last - first] = new[:, :, begin - before:last - before]
            parts.append(part[:, :, :last - first])
        return torch.cat(parts, dim=2)


def test_cold_cache(daemon, connect, model_dirs):
    """The tokens of plain transformers, while most keys and values come through the window."""
    d = daemon(page="16K", extra=["--swap-max", "8M"])
    client = connect(d)
    module = mmd.hf.load(model_dirs[0], client, max_tokens=1024)
    plain = transformers.AutoModelForCausalLM.from_pretrained(model_dirs[0], dtype="auto").eval()
    want = plain.generate(PROMPTS, max_new_tokens=220, **GREEDY)
    cache = CoolCache(module, ENTRIES)
    got = module.generate(PROMPTS, max_new_tokens=220, past_key_values=cache, **GREEDY)
    print(f"\nhf: {want.numel()} tokens, blocks: {len(cache.place)} cold, {len(cache.blocks())} hot, "
          f"{cache.most} hot at most; {d.status()['cold_bytes_streamed']} bytes streamed")
    assert torch.equal(got, want)
    assert len(cache.place) > len(cache.blocks()) and cache.read > 1000 and cache.most < 10
    assert d.status()["cold_bytes_streamed"] > 0
    cache.views.clear()
    del cache
    gc.collect()
    mmd.hf.unload(module)
