# SPDX-License-Identifier: Apache-2.0
"""The releases of vLLM that the plugin knows, and what it touches in them.

vLLM promises none of it from one release to the next, so the plugin compares the parameters of
each function with those that it was written for, and does nothing in a release where one differs.
The sources are read for that, not imported: register() runs in every process of vLLM, at its start.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import pathlib
from typing import Final


class Unsupported(RuntimeError):
    """A release of vLLM, or a way of running it, that the plugin refuses."""


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


def release(version: str) -> str:
    """A version without what its builder added to it, such as "+cpu"."""
    return version.split("+")[0]


@functools.cache
def _tree(module: str) -> ast.Module:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise Unsupported(f"it has no module {module}")
    return ast.parse(pathlib.Path(spec.origin).read_text(encoding="utf-8"))


def _definition(place: str) -> ast.FunctionDef:
    module, _, path = place.partition(":")
    scope: ast.Module | ast.ClassDef = _tree(module)
    *owners, name = path.split(".")
    for owner in owners:
        found = [node for node in scope.body if isinstance(node, ast.ClassDef) and
                 node.name == owner]
        if not found:
            raise Unsupported(f"it has no {path} in {module}")
        scope = found[-1]
    functions = [node for node in scope.body if isinstance(node, ast.FunctionDef) and
                 node.name == name]
    if not functions:
        raise Unsupported(f"it has no {path} in {module}")
    return functions[-1]


def parameters(place: str) -> str:
    """The parameters of a function of vLLM as its source has them, without their types."""
    arguments = _definition(place).args
    for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg,
                arguments.kwarg):
        if one is not None:
            one.annotation = None
    # Written as a lambda's, so that defaults have no spaces around them.
    return ast.unparse(arguments)


def check(version: str) -> None:
    """Raises Unsupported unless this release of vLLM is one that the plugin was written for."""
    known = TOUCHED.get(release(version))
    if known is None:
        raise Unsupported(f"vLLM {version} is not supported by mmd.vllm, which knows "
                          f"{', '.join(TOUCHED)}")
    for place, expected in known.items():
        try:
            found = parameters(place)
        except Unsupported as error:
            raise Unsupported(f"this vLLM {version} is not the one that mmd.vllm knows: "
                              f"{error}") from None
        if found != expected:
            raise Unsupported(f"this vLLM {version} is not the one that mmd.vllm knows: "
                              f"{place} takes ({found}), not ({expected})")
