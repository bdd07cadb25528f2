# SPDX-License-Identifier: Apache-2.0
"""The releases of vLLM that the plugin knows, and what it touches in them."""

from __future__ import annotations

from typing import Final

from mmd._plugin import versions
from mmd._plugin.versions import Unsupported

__all__ = ["TOUCHED", "Unsupported", "check"]

# Where it is, and how it is called: parameters, and what their absence means.
TOUCHED: Final[dict[str, dict[str, str]]] = {
    "0.32.0": {
        "vllm.engine.arg_utils:EngineArgs.create_engine_config":
            "self, usage_context=None, headless=False",
        "vllm.model_executor.model_loader:register_model_loader": "load_format",
        "vllm.model_executor.model_loader.base_loader:BaseModelLoader.load_model":
            "self, vllm_config, model_config, prefix=''",
        "vllm.model_executor.model_loader.default_loader:DefaultModelLoader.__init__":
            "self, load_config",
        "vllm.model_executor.model_loader.base_loader:BaseModelLoader.create_model":
            "self, vllm_config, model_config, prefix=''",
        "vllm.model_executor.model_loader.utils:process_weights_after_loading":
            "model, model_config, target_device",
        "vllm.model_executor.utils:weights_already_processed": "",
        "vllm.utils.torch_utils:set_default_torch_dtype": "dtype",
        "vllm.model_executor.layers.utils:dispatch_cpu_unquantized_gemm": "layer, remove_weight",
        "vllm.v1.worker.utils:allocate_kv_cache":
            "kv_cache_config, device, layout, kernel_block_sizes=None",
        "vllm.v1.kv_cache_interface:create_kv_cache_views":
            "raw, spec, num_blocks, layout, kv_cache_tensor, kernel_block_size=None",
        "vllm.v1.core.block_pool:BlockPool._maybe_evict_cached_block": "self, block",
        "vllm.v1.core.block_pool:BlockPool._notify_reuse": "self, blocks",
        "vllm.v1.core.kv_cache_utils:FreeKVCacheBlockQueue.remove": "self, block",
        "vllm.v1.core.kv_cache_utils:FreeKVCacheBlockQueue.append_n": "self, blocks",
        "vllm.v1.core.kv_cache_manager:KVCacheManager.get_block_ids": "self, request_id",
        "vllm.v1.core.sched.scheduler:Scheduler.schedule": "self, throttle_prefills=False",
        "vllm.v1.core.sched.scheduler:Scheduler.update_from_output":
            "self, scheduler_output, model_runner_output",
        "vllm.v1.core.sched.scheduler:Scheduler.finish_requests":
            "self, request_ids, finished_status",
        "vllm.v1.core.sched.scheduler:Scheduler.reset_prefix_cache":
            "self, reset_running_requests=False, reset_connector=False",
        "vllm.v1.core.sched.scheduler:Scheduler._preempt_request":
            "self, request, timestamp, drop_stale_output=False",
        "vllm.v1.core.sched.scheduler:Scheduler.get_request_counts": "self",
        "vllm.device_allocator.sleep_mode_backend:SleepModeBackendFactory.register_backend":
            "cls, name, module_path, class_name",
        "vllm.device_allocator.sleep_mode_backend:SleepModeBackend.suspend": "self, level=1",
        "vllm.device_allocator.sleep_mode_backend:SleepModeBackend.resume": "self, tags=None",
    },
}


def check(version: str) -> None:
    """Raises Unsupported unless this release of vLLM is one that the plugin was written for."""
    versions.check("vLLM", "mmd.vllm", TOUCHED, version)
