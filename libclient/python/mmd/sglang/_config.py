# SPDX-License-Identifier: Apache-2.0
"""What of SGLang's arguments the plugin cannot do, refused by name before anything is loaded."""

from __future__ import annotations

from typing import Any, Final

from mmd._plugin.tenant import FORMAT, needs
from mmd._plugin.versions import Unsupported

# What the user is to do, the argument's name, and its only fine value.
_NEEDS: Final = (
    ("--tp-size 1", "tp_size", 1),
    ("--pp-size 1", "pp_size", 1),
    ("--dp-size 1", "dp_size", 1),
    ("--ep-size 1", "ep_size", 1),
    ("--dcp-size 1", "dcp_size", 1),
    ("--disable-overlap-schedule", "disable_overlap_schedule", True),
    ("--chunked-prefill-size -1", "chunked_prefill_size", -1),
    ("no --speculative-algorithm", "speculative_algorithm", None),
    ("no --lora-paths", "lora_paths", None),
    ("no --disaggregation-mode", "disaggregation_mode", "null"),
    ("no --dllm-algorithm", "dllm_algorithm", None),
    ("no --enable-hierarchical-cache", "enable_hierarchical_cache", False),
    ("no --enable-lmcache", "enable_lmcache", False),
    ("no --enable-flexkv", "enable_flexkv", False),
    ("no --enable-hisparse", "enable_hisparse", False),
    ("no --enable-unified-memory", "enable_unified_memory", False),
    ("no --enable-unified-cache-external-linker", "enable_unified_cache_external_linker", False),
    ("no --enable-streaming-session", "enable_streaming_session", False),
    ("no --enable-memory-saver", "enable_memory_saver", False),
    ("no --enable-torch-compile", "enable_torch_compile", False),
    ("no --cpu-offload-gb", "cpu_offload_gb", 0),
    ("no --weight-cache-mode", "weight_cache_mode", "off"),
)
_NO_LORA: Final = (None, False)
GRAPHS_OFF: Final = "disabled"


def is_ours(load_format: object) -> bool:
    """Whether a load format is that of the plugin."""
    return isinstance(load_format, str) and load_format.lower() == FORMAT


def refuse(view: Any) -> None:
    """Raises Unsupported for resolved arguments that the plugin cannot run."""
    needs("SGLang", _NEEDS, lambda name: getattr(view, name))
    if view.enable_lora not in _NO_LORA:
        raise Unsupported(f"--load-format {FORMAT} needs no --enable-lora: SGLang has enable_lora "
                          f"= {view.enable_lora!r}")
    for phase in ("decode", "prefill"):
        backend = getattr(view.cuda_graph_config, phase).backend
        if backend != GRAPHS_OFF:
            raise Unsupported(f"--load-format {FORMAT} needs --cuda-graph-backend-{phase} "
                              f"{GRAPHS_OFF}: SGLang has {backend!r}")
