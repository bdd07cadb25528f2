# SPDX-License-Identifier: Apache-2.0
"""The releases of SGLang that the plugin knows, and what it touches in them."""

from __future__ import annotations

from typing import Final

from mmd._plugin import versions

# Where it is, and how it is called: parameters, and what their absence means.
TOUCHED: Final[dict[str, dict[str, str]]] = {
    "0.5.23": {
        "sglang.srt.plugins.hook_registry:HookRegistry.register":
            "cls, target, hook, hook_type=HookType.AFTER, *, source=None",
        "sglang.srt.plugins.hook_registry:HookRegistry.apply_hooks": "cls",
        "sglang.srt.server_args:ServerArgs.check_server_args": "self",
        "sglang.srt.configs.load_config:LoadConfig._verify_load_format": "self",
        "sglang.srt.model_loader.loader:get_model_loader": "load_config, model_config=None",
        "sglang.srt.model_loader.loader:DefaultModelLoader.__init__": "self, load_config",
        "sglang.srt.model_loader.loader:DefaultModelLoader.load_model":
            "self, *, model_config, device_config",
        "sglang.srt.mem_cache.memory_pool:MHATokenToKVPool._create_buffers_normal": "self",
        "sglang.srt.mem_cache.memory_pool:MHATokenToKVPool._kv_buffer_shapes": "self",
        "sglang.srt.mem_cache.kv_cache_configurator:KVCacheConfigurator._profile_available_bytes":
            "self, pre_model_load_memory",
        "sglang.srt.mem_cache.kv_cache_configurator:"
        "KVCacheConfigurator._build_token_to_kv_pool_allocator":
            "self, *, sizes, token_to_kv_pool, is_dsv4_model, req_to_token_pool, "
            "token_to_kv_pool_allocator",
        "sglang.srt.mem_cache.allocator.token:TokenToKVPoolAllocator.__init__":
            "self, size, dtype, device, kvcache, need_sort",
        "sglang.srt.mem_cache.allocator.token:TokenToKVPoolAllocator.clear": "self",
        "sglang.srt.mem_cache.allocator.paged:PagedTokenToKVPoolAllocator.__init__":
            "self, size, page_size, dtype, device, kvcache, need_sort",
        "sglang.srt.mem_cache.allocator.paged:PagedTokenToKVPoolAllocator.clear": "self",
        "sglang.srt.mem_cache.unified_radix_cache:UnifiedRadixCache.evict": "self, params",
        "sglang.srt.mem_cache.unified_radix_cache:UnifiedRadixCache.evictable_size": "self",
        "sglang.srt.managers.scheduler_components.invariant_checker:"
        "SchedulerInvariantChecker._check_full_pool": "self, ps, uncached=0",
        "sglang.srt.managers.scheduler_components.pool_stats_observer:"
        "SchedulerPoolStatsObserver._get_token_info": "self",
        "sglang.srt.managers.scheduler_components.new_token_ratio_tracker:"
        "NewTokenRatioTracker.estimate_new_token_ratio_after_retract": "reqs",
        "sglang.srt.managers.scheduler_components.weight_updater:"
        "SchedulerWeightUpdaterManager.update_weights_from_disk": "self, recv_req",
        "sglang.srt.managers.scheduler_components.weight_updater:"
        "SchedulerWeightUpdaterManager.update_weights_from_ipc": "self, recv_req",
        "sglang.srt.managers.scheduler_components.weight_updater:"
        "SchedulerWeightUpdaterManager.begin_weight_update": "self, recv_req",
        "sglang.srt.managers.scheduler_components.weight_updater:"
        "SchedulerWeightUpdaterManager.release_memory_occupation": "self, recv_req",
        "sglang.srt.managers.scheduler_components.weight_updater:"
        "SchedulerWeightUpdaterManager.resume_memory_occupation": "self, recv_req",
        "sglang.srt.managers.scheduler:Scheduler.get_next_batch_to_run":
            "self, running_batch, last_batch",
        "sglang.srt.managers.scheduler:Scheduler._record_scheduler_state_for_paused_engine": "self",
        "sglang.srt.managers.scheduler:Scheduler.get_internal_state": "self, recv_req",
        "sglang.srt.managers.scheduler:Scheduler._add_request_to_queue":
            "self, req, is_retracted=False",
        "sglang.srt.managers.schedule_batch:ScheduleBatch.retract_decode": "self",
        "sglang.srt.managers.schedule_batch:ScheduleBatch._get_decode_retraction_order": "reqs",
        "sglang.srt.managers.schedule_batch:ScheduleBatch.check_decode_mem":
            "self, selected_indices=None",
        "sglang.srt.managers.schedule_batch:ScheduleBatch.release_req":
            "self, idx, remaing_req_count, offload_kv=True",
        "sglang.srt.managers.schedule_batch:ScheduleBatch.filter_batch":
            "self, reqs_to_exclude=None, keep_indices=None",
    },
}


def check(version: str) -> None:
    """Raises Unsupported unless this release of SGLang is one that the plugin was written for."""
    versions.check("SGLang", "mmd.sglang", TOUCHED, version)
