# SPDX-License-Identifier: Apache-2.0
"""The entry point: what is done in each process of vLLM."""

from __future__ import annotations

import functools
import logging
from typing import Any, Final

from mmd._plugin.tenant import FORMAT, MARK
from mmd.vllm._config import is_ours, refuse, refuse_arguments
from mmd.vllm._versions import Unsupported, check

log: Final = logging.getLogger("vllm.mmd")


def register() -> None:
    """Registers the load format and the sleep backend "mmd". Called by vLLM; again does nothing.

    In a release of vLLM that the plugin does not know only this is done: an engine of
    `--load-format mmd` is refused with a sentence that says why; all others run as ever.
    """
    import vllm
    from vllm.engine.arg_utils import EngineArgs

    try:
        check(vllm.__version__)
    except Unsupported as error:
        log.debug("%s", error)
        _wrap_arguments(EngineArgs, error)
        return
    from vllm.model_executor import model_loader

    # Idempotent without a warning of vLLM's about a format that is registered twice.
    if FORMAT not in model_loader._LOAD_FORMAT_TO_MODEL_LOADER:
        from mmd.vllm._loader import MmdModelLoader

        model_loader.register_model_loader(FORMAT)(MmdModelLoader)
    _register_sleep()
    _wrap_arguments(EngineArgs, None)


def _register_sleep() -> None:
    from vllm.device_allocator.sleep_mode_backend import SleepModeBackendFactory as factory

    if FORMAT not in factory._registry:
        factory.register_backend(FORMAT, "mmd.vllm._sleep", "MmdSleepBackend")


def _wrap_arguments(kind: Any, unsupported: Unsupported | None) -> None:
    """Looks at an engine's configuration where it is made: in the process that the user sees."""
    original = getattr(kind, "create_engine_config", None)
    if original is None or hasattr(original, MARK):
        return

    @functools.wraps(original)
    def create_engine_config(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_ours(self.load_format):
            return original(self, *args, **kwargs)
        if unsupported is not None:
            raise unsupported
        refuse_arguments(self)
        if self.async_scheduling is None:
            self.async_scheduling = False  # vLLM's own choice where nobody chose
        config = original(self, *args, **kwargs)
        parallel = config.parallel_config
        if (self.distributed_executor_backend is None and parallel.world_size == 1 and
                parallel.distributed_executor_backend == "mp"):
            # On CPUs vLLM has a process of its own for the only worker. The scheduler's blocks and
            # the worker's arena are one process's here.
            parallel.distributed_executor_backend = "uni"
        refuse(config)
        return config

    setattr(create_engine_config, MARK, True)
    kind.create_engine_config = create_engine_config
