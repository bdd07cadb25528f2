# SPDX-License-Identifier: Apache-2.0
"""Models of transformers whose weights are mmd's."""

from __future__ import annotations

import errno
import inspect
import os
from typing import Any, Final

import torch
import transformers

import mmd.torch
from mmd._client import Client
from mmd._step import Step
from mmd.hf._cache import DTYPES, ArenaCache, Blocks

MAX_TOKENS: Final = 4096
# What transformers calls the cache in forward() and generate(): the former since 5.24.
CACHE_NAMES: Final = ("cache", "past_key_values")


class _State:
    """What load() has put on a model."""

    def __init__(self, client: Client, model: mmd.Model, blocks: Blocks,
                 gates: mmd.torch.Gates) -> None:
        self.client, self.model, self.blocks, self.gates = client, model, blocks, gates
        self.step: Step | None = None
        # Of the forward that runs: its cache, and the cache's length before it; -1: not known yet.
        self.cache: Any = None
        self.length = -1

    def rewind(self) -> None:
        """Forgets what a try that was void, or that failed, has written to the cache."""
        for layer in self.cache.layers if self.cache is not None else []:
            layer.length = self.length


def _layers(module: Any, count: int) -> Any:
    """The list of the decoder's layers: the first ModuleList of that length."""
    found = [child for child in module.modules()
             if isinstance(child, torch.nn.ModuleList) and len(child) == count]
    if not found:
        raise ValueError(f"{type(module).__name__} has no list of {count} layers")
    return found[0]


def _without_weights(config: Any, dtype: Any) -> Any:
    """The module on the device "meta"."""
    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)


def _fill_buffers(module: Any, device: Any) -> None:
    """Computes the buffers that are in no checkpoint, such as the frequencies of positions."""
    for owner in module.modules():
        empty = [name for name, value in owner._buffers.items()
                 if value is not None and value.is_meta]
        if not empty:
            continue
        for name in empty:
            owner._buffers[name] = torch.empty_like(owner._buffers[name], device=device)
        module._init_weights(owner)


def _dtype_of(module: Any, model: mmd.Model) -> Any:
    """The type that the checkpoint's matrices have."""
    texts = {text: dtype for dtype, text in DTYPES.items()}
    for name, _ in module.named_parameters():
        try:
            return texts[model.tensor(name).dtype]
        except KeyError:
            pass
    raise ValueError("no tensor of the checkpoint has a name that the module has")


def load(path: str | os.PathLike[str], client: Client, *, max_tokens: int = MAX_TOKENS,
         share_tokens: int = 0, compiled: bool = False) -> Any:
    """Loads a causal model of transformers into mmd's memory. Blocks; not in a step.

    The module is made without weights, from config.json, and takes mmd's. Each forward is a step,
    repeated while void. generate() takes an ArenaCache of its own unless it is given another cache.
    max_tokens: the most that all its caches hold. share_tokens: those of it that the model is
    entitled to while others want more. compiled: gates that torch.compile() keeps. One thread at a
    time uses the module. unload() lets go of the client's memory again.
    """
    config = transformers.AutoConfig.from_pretrained(path)
    model = client.load(path)
    # Not by to(): buffers such as the frequencies of positions keep their own type.
    dtype = _dtype_of(_without_weights(config, torch.float32), model)
    module = _without_weights(config, dtype).eval()
    mmd.torch.adopt(module, model)
    device = "cpu" if client.is_software else f"cuda:{client.device}"
    _fill_buffers(module, device)
    blocks = Blocks(client, config, dtype, max_tokens, share_tokens=share_tokens)
    gates = mmd.torch.gates(model, _layers(module, model.info.n_layers), compiled)
    state = _State(client, model, blocks, gates)
    module._mmd = state
    _install(module, state)
    if not client.is_software:
        torch.cuda.synchronize(client.device)  # forward() may run in another stream
    return module


def _cache_in(given: dict[str, Any]) -> Any:
    """The cache among the arguments of a call; None: it has none."""
    return next((given[name] for name in CACHE_NAMES if given.get(name) is not None), None)


def _install(module: Any, state: _State) -> None:
    """Wraps forward() into steps, and has generate() use the arena."""
    signature = inspect.signature(module.forward)
    named = [name for name in CACHE_NAMES if name in signature.parameters]
    if not named:
        raise ValueError(f"{type(module).__name__}.forward() takes no {' or '.join(CACHE_NAMES)}")

    def before(*args: Any, **kwargs: Any) -> None:
        given = signature.bind(*args, **kwargs).arguments
        given.update(given.pop("kwargs", {}))
        tokens: Any = given.get("input_ids")
        if tokens is None:
            tokens = given["inputs_embeds"]
        cache = _cache_in(given)
        if not isinstance(cache, ArenaCache):
            state.blocks.serve()
            return
        if state.length < 0:
            state.cache, state.length = cache, cache.get_seq_length()
        state.rewind()
        cache.reserve(tokens.shape[0], state.length + tokens.shape[1])

    state.step = mmd.torch.in_steps(module, state.client, before)
    stepped = module.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        if not state.model.is_loaded:
            raise mmd.Error(errno.EBADF, "the module sleeps: mmd.hf.wake() it first")
        state.cache, state.length = None, -1
        try:
            return stepped(*args, **kwargs)
        except BaseException:
            state.rewind()
            raise
        finally:
            state.cache = None

    forward.__signature__ = signature  # type: ignore[attr-defined]
    module.forward = forward
    generate = module.generate

    def generate_in_arena(*args: Any, **kwargs: Any) -> Any:
        if _cache_in(kwargs) is None and kwargs.get("use_cache", True):
            kwargs[named[0]] = ArenaCache(state.blocks)
        try:
            return generate(*args, **kwargs)
        finally:
            state.blocks.idle()

    module.generate = generate_in_arena


def step_of(module: Any) -> Step:
    """The Step of a module's forwards: info of the last, and how many were void. Any thread."""
    step = module._mmd.step
    assert isinstance(step, Step)
    return step


def sleep(module: Any) -> None:
    """Gives a module's weights back to mmd, and the chunks of its caches. Blocks; not in a step.

    Caches that live keep their bytes in host memory. wake() loads the weights again; until then the
    module cannot run.
    """
    state = module._mmd
    if state.model.is_loaded:  # or else a sleep that failed half-way is called again
        mmd.torch.release(module, state.model)
        try:
            state.model.unload()
        except mmd.Error:
            mmd.torch.adopt(module, state.model)
            raise
    state.blocks.sleep()
    state.blocks.idle()


def wake(module: Any) -> None:
    """Loads the weights of a module that sleeps, from its folder. Blocks; not in a step.

    Raises Error with ENOSPC or EDQUOT where mmd has no room for them now: it sleeps on.
    """
    state = module._mmd
    if not state.model.is_loaded:
        state.model.reload()
    mmd.torch.adopt(module, state.model)


def unload(module: Any) -> None:
    """Takes the client's memory away from a module, which is of no use then. Not in a step.

    The client can be closed after it.
    """
    state = module._mmd
    state.gates.remove()
    state.blocks.close()
    module.to_empty(device="meta")
