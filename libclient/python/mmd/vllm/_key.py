# SPDX-License-Identifier: Apache-2.0
"""The key of the weights that vLLM makes: all that decides about their bytes."""

from __future__ import annotations

import hashlib
import json
import pathlib
import platform
from typing import Any, Final

import torch
import vllm

from mmd.vllm._versions import Unsupported

NAME_BYTES: Final = 64


def _stamps(folder: pathlib.Path) -> list[list[Any]]:
    """Of each file of a checkpoint what changes when it is written to, or when another is there."""
    found = []
    for path in sorted(folder.iterdir()):
        if path.is_file():
            stat = path.stat()
            found.append([path.name, stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns,
                          stat.st_ctime_ns])
    return found


def key_of(vllm_config: Any, model_config: Any, load_config: Any, device: torch.device) -> str:
    """By which engines of the same configuration find the weights of the first one.

    What it says is more than decides: engines that could share and do not only lose time. Raises
    Unsupported for weights of which it cannot say what decides.
    """
    folder = pathlib.Path(model_config.model)
    if not folder.is_dir():
        raise Unsupported(f"mmd.vllm: share_weights needs a model in a local folder, not "
                          f"{model_config.model!r}: its files show whether it has changed")
    if model_config.quantization is not None:
        raise Unsupported(f"mmd.vllm: share_weights does not share quantised weights "
                          f"({model_config.quantization}) yet: vLLM repacks them as it starts")
    if model_config.is_moe:
        raise Unsupported("mmd.vllm: share_weights does not share the weights of experts yet: vLLM "
                          "packs them for the kernels that it chooses as it starts")
    facts = {
        "kernels": vllm_config.kernel_config.compute_hash(),
        "model": model_config.compute_hash(),
        "environment": vllm.envs.compile_factors(),
        "files": _stamps(folder.resolve()),
        "config": model_config.hf_config.to_dict(),
        "dtype": str(model_config.dtype),
        "revision": model_config.revision,
        "load": [str(load_config.load_format), load_config.model_loader_extra_config],
        "device": [device.type, torch.cuda.get_device_name(device) if device.type == "cuda" else
                   [platform.machine(), torch.backends.cpu.get_cpu_capability()]],
        "versions": [vllm.__version__, torch.__version__],
    }
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()
    name = folder.name.encode()[:NAME_BYTES].decode(errors="ignore")
    return f"vllm {vllm.__version__} {name} {model_config.dtype} tp0/1 {digest}"
