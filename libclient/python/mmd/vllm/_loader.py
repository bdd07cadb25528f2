# SPDX-License-Identifier: Apache-2.0
"""`--load-format mmd`: vLLM makes its weights as ever, then they are mmd's."""

from __future__ import annotations

import contextlib
import copy
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from vllm.model_executor.layers import utils as layer_utils
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader
from vllm.model_executor.model_loader.utils import process_weights_after_loading
from vllm.model_executor.utils import weights_already_processed
from vllm.utils.torch_utils import set_default_torch_dtype

import mmd.torch
from mmd._client import Client
from mmd._model import Model
from mmd._plugin.commit import adopt, attach
from mmd._plugin.tenant import Options, check_device
from mmd.vllm import _engine, _kv, _schedule
from mmd.vllm._config import refuse
from mmd.vllm._engine import Engine
from mmd.vllm._key import key_of
from mmd.vllm._versions import Unsupported


class _Options(Options):
    """The options of --model-loader-extra-config, with those that only vLLM's plugin has."""

    OURS = (*Options.OURS, "share_weights")

    def __init__(self, extra: Mapping[str, Any]) -> None:
        super().__init__("mmd.vllm", extra)
        self.share_weights = self._option("share_weights", bool, False)


@contextlib.contextmanager
def _plain_gemm(active: bool) -> Iterator[None]:
    """On CPUs vLLM has kernels keep packed copies of the weights, and drops the weights."""
    if not active:
        yield
        return
    original = layer_utils.dispatch_cpu_unquantized_gemm

    def dispatch(layer: Any, remove_weight: bool) -> None:
        del remove_weight
        layer.cpu_linear = torch.nn.functional.linear

    layer_utils.dispatch_cpu_unquantized_gemm = dispatch
    try:
        yield
    finally:
        layer_utils.dispatch_cpu_unquantized_gemm = original


class MmdModelLoader(DefaultModelLoader):  # type: ignore[misc, unused-ignore]
    """Loads and processes a checkpoint like the default loader, and gives the result to mmd.

    --model-loader-extra-config takes "name", by which mmctl shows the engine (the model's),
    "socket" (as mmd.Client does), "kv_share_bytes", the KV that the engine is entitled to while
    others want more (0), "share_weights", whether the engine takes the weights of another one of
    the same configuration, of this user (false), and "load_format", how the checkpoint itself is
    read (auto). The other options are those of the default loader.
    """

    def __init__(self, load_config: Any) -> None:
        self._options = _Options(dict(load_config.model_loader_extra_config or {}))
        inner = copy.copy(load_config)
        inner.load_format = self._options.load_format
        inner.model_loader_extra_config = self._options.others
        self._fills_buffers = False
        super().__init__(inner)

    def load_model(self, vllm_config: Any, model_config: Any, prefix: str = "") -> Any:
        """The module on mmd's memory, its forward() a step, its layers behind gates."""
        refuse(vllm_config)
        _schedule.refuse(vllm_config.scheduler_config)
        device = torch.device(vllm_config.device_config.device)
        key = self._key(vllm_config, model_config, device)
        layers = model_config.get_total_num_hidden_layers()
        name = self._options.name or pathlib.Path(str(model_config.model)).name
        engine = _engine.process.begin(name, self._options.socket)
        engine.kv_share_bytes = self._options.kv_share_bytes
        try:
            check_device(engine, "vLLM", device)
            with _plain_gemm(engine.client.is_software):
                found = key and self._attached(engine, key, vllm_config, model_config, prefix)
                if found:
                    module, model, modules = found
                else:
                    module = super().load_model(vllm_config, model_config, prefix)
                    # Another engine would take parameters alone, and of the files of before.
                    if self._fills_buffers or key != self._key(vllm_config, model_config, device):
                        key = None
                    model, modules = adopt(module, engine.client, layers, key)
            engine.model = model
        except BaseException:
            _engine.process.forget()
            raise
        mmd.torch.gates(model, modules)
        engine.in_steps(module)
        _size_cache(vllm_config.cache_config, engine.client)
        _kv.install()
        _schedule.install()
        return module

    def _key(self, vllm_config: Any, model_config: Any, device: torch.device) -> str | None:
        """By which others find the weights of the checkpoint as it is now; None: not to be shared."""
        if not self._options.share_weights:
            return None
        return key_of(vllm_config, model_config, self.load_config, device)

    def _attached(self, engine: Engine, key: str, vllm_config: Any, model_config: Any,
                  prefix: str) -> tuple[Any, Model, list[Any]] | None:
        """The module on the weights of another engine, and its layers; None: there are none.

        Reads no checkpoint. The module is made on the device, since what it computes as it is made,
        such as tables of positions, has to be there; its parameters are dropped unwritten.
        """
        try:
            model = engine.client.attach(key)
        except KeyError:
            return None
        device = torch.device(vllm_config.device_config.device)
        with set_default_torch_dtype(model_config.dtype):
            with device:
                module = self.create_model(vllm_config, model_config, prefix)
            try:
                layers = attach(module, model, model_config.get_total_num_hidden_layers())
            except (KeyError, ValueError) as error:
                raise Unsupported(f"mmd.vllm: the weights that another engine has committed are "
                                  f"not those of this module ({error}): start it without "
                                  f"share_weights") from None
            # What attention layers make of weights is made outside of steps.
            with model.hold(), weights_already_processed():
                process_weights_after_loading(module, model_config, device)
        return module.eval(), model, layers

    def load_weights(self, model: Any, model_config: Any) -> None:
        """Fills a module with weights before they are mmd's; afterwards they are read-only."""
        engine = _engine.current()
        if engine is not None and engine.model is not None:
            raise Unsupported("mmd.vllm: weights cannot be loaded again, mmd's are read-only: "
                              "start the engine again")
        before = {name: value.detach().clone() for name, value in model.named_buffers()}
        super().load_weights(model, model_config)
        self._fills_buffers = any(name not in before or not torch.equal(value, before[name])
                                  for name, value in model.named_buffers())


def _size_cache(cache: Any, client: Client) -> None:
    """The most KV that there may ever be: all of mmd's memory, unless the user has a limit.

    vLLM would take what it finds free on the device, which is what mmd has left.
    """
    if cache.kv_cache_memory_bytes is None:
        info = client.info
        cache.kv_cache_memory_bytes = info.pool_pages * info.page_bytes
