# SPDX-License-Identifier: Apache-2.0
"""transformers on memory that mmd lends: load() gives a model whose generate() works as ever.

Its weights are mmd's, and its layers may be away until they are needed. ArenaCache has its keys and
values in the client's arena, in blocks that mmd may take back between steps.
"""

from mmd.hf._cache import ArenaCache, Blocks
from mmd.hf._load import load, sleep, step_of, unload, wake

__all__ = ["ArenaCache", "Blocks", "load", "sleep", "step_of", "unload", "wake"]
