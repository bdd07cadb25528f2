# SPDX-License-Identifier: Apache-2.0
"""`--load-format mmd`: SGLang makes its weights as ever, then they are mmd's."""

from __future__ import annotations

import copy
import pathlib
from collections.abc import Callable
from typing import Any, Final

from sglang.srt.configs.load_config import LoadFormat
from sglang.srt.managers import io_struct
from sglang.srt.model_loader.loader import DefaultModelLoader

import mmd.torch
from mmd._plugin.commit import adopt
from mmd._plugin.tenant import Options, check_device
from mmd._plugin.versions import Unsupported
from mmd.sglang import _engine


class MmdModelLoader(DefaultModelLoader):  # type: ignore[misc, unused-ignore]
    """Loads and processes a checkpoint like the default loader, and gives the result to mmd.

    --model-loader-extra-config takes "name", by which mmctl shows the engine (the model's),
    "socket" (as mmd.Client does), "kv_share_bytes", the KV that the engine is entitled to while
    others want more (0), and "load_format", how the checkpoint itself is read (auto). The other
    options are those of the default loader.
    """

    def __init__(self, load_config: Any) -> None:
        self._options = Options("mmd.sglang", dict(load_config.model_loader_extra_config or {}))
        inner = copy.copy(load_config)
        inner.load_format = LoadFormat(self._options.load_format)
        inner.model_loader_extra_config = self._options.others
        super().__init__(inner)

    def load_model(self, *, model_config: Any, device_config: Any) -> Any:
        """The module on mmd's memory, its forward() a step, its layers behind gates."""
        name = self._options.name or pathlib.Path(str(model_config.model_path)).name
        engine = _engine.process.begin(name, self._options.socket)
        engine.kv_share_bytes = self._options.kv_share_bytes
        try:
            check_device(engine, "SGLang", device_config.device)
            module = super().load_model(model_config=model_config, device_config=device_config)
            engine.model, modules = adopt(module, engine.client, model_config.num_hidden_layers)
        except BaseException:
            _engine.process.forget()
            raise
        mmd.torch.gates(engine.model, modules)
        engine.in_steps(module)
        module.load_weights = _refuse_weights
        return module


READ_ONLY: Final = ("mmd.sglang: weights cannot be loaded again, mmd's are read-only: start the "
                    "engine again")


def _refuse_weights(*args: Any, **kwargs: Any) -> None:
    """In place of the module's load_weights(), by which SGLang would write to its weights."""
    raise Unsupported(READ_ONLY)


def refuse_update(answer: str) -> Callable[..., Any]:
    """Around each way to update weights: refused in SGLang's own words, and the engine goes on."""
    def around(original: Callable[..., Any], manager: Any, request: Any) -> Any:
        if _engine.current() is None:
            return original(manager, request)
        return getattr(io_struct, answer)(success=False, message=READ_ONLY)

    return around
