# SPDX-License-Identifier: Apache-2.0
"""The entry point: what is done in each process of SGLang."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any, Final

from mmd._plugin.tenant import FORMAT
from mmd._plugin.versions import Unsupported
from mmd.sglang._config import is_ours, refuse
from mmd.sglang._versions import check

log: Final = logging.getLogger("sglang.mmd")

SERVER_ARGS: Final = "sglang.srt.server_args.ServerArgs.check_server_args"
LOAD_CONFIG: Final = "sglang.srt.configs.load_config.LoadConfig._verify_load_format"
MEMORY: Final = "sglang.srt.mem_cache"
SCHEDULER: Final = "sglang.srt.managers.scheduler.Scheduler"
PARTS: Final = "sglang.srt.managers.scheduler_components"
WEIGHTS: Final = f"{PARTS}.weight_updater.SchedulerWeightUpdaterManager"
# Ways to update weights, and the class of what each answers.
UPDATES: Final = {"update_weights_from_disk": "UpdateWeightFromDiskReqOutput",
                  "update_weights_from_ipc": "UpdateWeightsFromIPCReqOutput",
                  "begin_weight_update": "BeginWeightUpdateReqOutput"}


def register() -> None:
    """Registers the load format "mmd". Called by SGLang; again does nothing.

    In a release of SGLang that the plugin does not know, an engine of `--load-format mmd` is
    refused with a sentence that says why. All others run as ever: what the plugin changes for its
    own engines it changes when one of them begins to load.
    """
    import sglang
    from sglang.srt.arg_groups.choices import LOAD_FORMAT_CHOICES, add_load_format_choices
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    if FORMAT in LOAD_FORMAT_CHOICES:
        return
    add_load_format_choices([FORMAT])
    unsupported: Unsupported | None = None
    try:
        check(sglang.__version__)
    except Unsupported as error:
        log.debug("%s", error)
        unsupported = error
    HookRegistry.register(SERVER_ARGS, _arguments(unsupported), HookType.BEFORE)
    HookRegistry.register(LOAD_CONFIG, _load_format(unsupported), HookType.AROUND)


def _arguments(unsupported: Unsupported | None) -> Callable[[Any], None]:
    def before(arguments: Any) -> None:
        """Looks at an engine's arguments where they are complete: in the user's process."""
        if not is_ours(arguments.load_format):
            return
        if unsupported is not None:
            raise unsupported
        from sglang.srt.arg_groups.overrides import resolving_view

        refuse(resolving_view(arguments))

    return before


def _load_format(unsupported: Unsupported | None) -> Callable[..., None]:
    def around(original: Callable[[Any], None], config: Any) -> None:
        """Has SGLang take the plugin's loader: its load format may be a class."""
        if not is_ours(config.load_format):
            original(config)
            return
        if unsupported is not None:
            raise unsupported
        install()
        from mmd.sglang._loader import MmdModelLoader

        config.load_format = MmdModelLoader

    return around


def _hooks() -> dict[str, tuple[Callable[..., Any], Any]]:
    """What is hooked into a scheduler's process: by what, and how."""
    from sglang.srt.plugins.hook_registry import HookType

    from mmd.sglang import _kv, _loader, _schedule, _slots

    around, after, before = HookType.AROUND, HookType.AFTER, HookType.BEFORE
    made: dict[str, tuple[Callable[..., Any], Any]] = {
        f"{MEMORY}.memory_pool.MHATokenToKVPool._create_buffers_normal":
            (_kv.create_buffers, around),
        f"{MEMORY}.kv_cache_configurator.KVCacheConfigurator._profile_available_bytes":
            (_kv.available_bytes, around),
        f"{MEMORY}.kv_cache_configurator.KVCacheConfigurator._build_token_to_kv_pool_allocator":
            (_slots.replace, after),
        f"{PARTS}.invariant_checker.SchedulerInvariantChecker._check_full_pool":
            (_slots.check_full_pool, around),
        f"{PARTS}.pool_stats_observer.SchedulerPoolStatsObserver._get_token_info":
            (_slots.token_info, after),
        f"{SCHEDULER}.get_next_batch_to_run": (_schedule.before_pass, before),
        f"{SCHEDULER}._record_scheduler_state_for_paused_engine": (_schedule.before_pause, before),
        f"{SCHEDULER}.get_internal_state": (_schedule.after_state, after),
        "sglang.srt.managers.schedule_batch.ScheduleBatch.retract_decode":
            (_schedule.retract_decode, around),
        f"{WEIGHTS}.release_memory_occupation": (_schedule.after_release, after),
        f"{WEIGHTS}.resume_memory_occupation": (_schedule.after_resume, after),
    }
    for name, answer in UPDATES.items():
        made[f"{WEIGHTS}.{name}"] = (_loader.refuse_update(answer), around)
    return made


@functools.cache
def install() -> None:
    """Hooks into the process whose engine is the plugin's; again does nothing."""
    from sglang.srt.plugins.hook_registry import HookRegistry

    hooks = _hooks()
    for target, (hook, kind) in hooks.items():
        if target in HookRegistry._patched:
            raise Unsupported(f"mmd.sglang: another plugin of SGLang hooks {target}, too")
        HookRegistry.register(target, hook, kind)
    HookRegistry.apply_hooks()
    missing = [target for target in hooks if target not in HookRegistry._patched]
    if missing:
        raise Unsupported(f"mmd.sglang: SGLang could not hook {', '.join(missing)}")
