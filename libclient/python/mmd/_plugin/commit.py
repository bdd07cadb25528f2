# SPDX-License-Identifier: Apache-2.0
"""The weights that an engine has made of a checkpoint, given to mmd: fused, repacked, quantised."""

from __future__ import annotations

import contextlib
import gc
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

import mmd.torch
from mmd._client import Client
from mmd._model import Model
from mmd._plugin.versions import Unsupported


class Weights(NamedTuple):
    """The parameters of a module by the names that mmd knows them by."""

    tensors: dict[str, Any]
    names: dict[str, str]
    """The module's names -> mmd's."""
    layers: list[Any]


def stack(module: Any, layers: int) -> tuple[str, list[Any]]:
    """The list of a decoder's layers, and its name: the first ModuleList of that length."""
    for name, child in module.named_modules():
        if isinstance(child, torch.nn.ModuleList) and len(child) == layers:
            return name, list(child)
    raise Unsupported(f"mmd: {type(module).__name__} has no list of {layers} layers")


def collect(module: Any, layers: int) -> Weights:
    """Names the parameters: layers.N.* if they belong to a layer, else without dots.

    A model's own names may have other stacks in them, such as that of a tower for images, which
    mmd would take for layers of the decoder. Those are resident.
    """
    prefix, modules = stack(module, layers)
    pattern = re.compile(rf"{re.escape(prefix)}\.(\d+)\.(.+)")
    tensors: dict[str, Any] = {}
    names: dict[str, str] = {}
    seen: dict[int, str] = {}
    for name, value in module.named_parameters(remove_duplicate=False):
        at = pattern.fullmatch(name)
        ours = f"layers.{at[1]}.{at[2].replace('.', '/')}" if at else name.replace(".", "/")
        first = seen.setdefault(id(value), ours)
        if first == ours:
            tensors[ours] = value.detach()
        names[name] = first
    return Weights(tensors, names, modules)


class _Turned(NamedTuple):
    """A matrix that its module has transposed: no view of it begins at its address."""

    owner: Any
    key: str


@contextlib.contextmanager
def _upright(module: Any) -> Iterator[bool]:
    """Has transposed matrices lie as they are in memory, which is what mmd takes, for a while.

    Yields whether there are any.
    """
    turned: list[_Turned] = []
    done: dict[int, Any] = {}
    for owner in module.modules():
        for key, value in list(owner._parameters.items()):
            if value is None or value.ndim != 2 or value.is_contiguous():
                continue
            if not value.t().is_contiguous():
                raise Unsupported(f"mmd: parameter {key} of {type(owner).__name__} has gaps "
                                  f"in memory")
            made = done.setdefault(id(value), torch.nn.Parameter(value.detach().t(),
                                                                 requires_grad=False))
            owner._parameters[key] = made
            turned.append(_Turned(owner, key))
    yield bool(turned)
    back: dict[int, Any] = {}
    for owner, key in turned:
        value = owner._parameters[key]
        owner._parameters[key] = back.setdefault(
            id(value), torch.nn.Parameter(value.detach().t(), requires_grad=False))


def commit(module: Any, client: Client, layers: int, key: str | None) -> tuple[Model, Weights]:
    """Gives the parameters of a module to mmd, which has them as a model then. Blocks."""
    weights = collect(module, layers)
    layout = client.layout(layers)
    for name, value in weights.tensors.items():
        mmd.torch.put(layout, name, value)
    return layout.commit(key), weights


def adopt(module: Any, client: Client, layers: int,
          key: str | None = None) -> tuple[Model, list[Any]]:
    """Moves the parameters of a module into mmd's memory: the model, and the module's layers.

    key: by which attach() of another engine finds them. What vLLM has transposed has none: a module
    that it has not processed does not show that.
    """
    with _upright(module) as turned:
        model, weights = commit(module, client, layers, None if turned else key)
        mmd.torch.adopt(module, model, lambda name: weights.names.get(name, name))
        modules = weights.layers
        del weights
    gc.collect()
    return model, modules


def attach(module: Any, model: Model, layers: int) -> list[Any]:
    """Points the parameters of a module without weights at those of another engine: its layers.

    KeyError, ValueError: they are not of such a module; then it has not changed.
    """
    weights = collect(module, layers)
    theirs = {tensor.name for tensor in model.tensors()}
    if theirs != set(weights.tensors):
        raise KeyError(f"{len(theirs ^ set(weights.tensors))} parameters are in one of both only")
    mmd.torch.adopt(module, model, lambda name: weights.names.get(name, name))
    return weights.layers
