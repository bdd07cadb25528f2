# SPDX-License-Identifier: Apache-2.0
"""What of vLLM's configuration the plugin cannot do, refused by name before anything is loaded."""

from __future__ import annotations

from typing import Any, Final

from mmd._plugin.tenant import FORMAT, needs
from mmd.vllm._versions import Unsupported

# A description of each is its message: "--load-format mmd needs ...".
_NEEDS: Final = (
    ("--tensor-parallel-size 1", "parallel_config.tensor_parallel_size", 1),
    ("--pipeline-parallel-size 1", "parallel_config.pipeline_parallel_size", 1),
    ("--data-parallel-size 1", "parallel_config.data_parallel_size", 1),
    ("--decode-context-parallel-size 1", "parallel_config.decode_context_parallel_size", 1),
    ("--distributed-executor-backend uni", "parallel_config.distributed_executor_backend", "uni"),
    ("--no-async-scheduling", "scheduler_config.async_scheduling", False),
    ("--enforce-eager", "model_config.enforce_eager", True),
    ("no --speculative-config", "speculative_config", None),
    ("no --enable-lora", "lora_config", None),
    ("no --kv-transfer-config", "kv_transfer_config", None),
    ("no --ec-transfer-config", "ec_transfer_config", None),
    ("no --weight-transfer-config", "weight_transfer_config", None),
)


def _value(config: Any, path: str) -> Any:
    for name in path.split("."):
        config = getattr(config, name)
    return config


def refuse(config: Any) -> None:
    """Raises Unsupported for a configuration that the plugin cannot run."""
    needs("vLLM", _NEEDS, lambda path: _value(config, path))


def refuse_arguments(arguments: Any) -> None:
    """The same for what vLLM would refuse in other words, or pass over, before that."""
    for need, name, fine in (("--tensor-parallel-size 1", "tensor_parallel_size", (1,)),
                             ("--no-async-scheduling", "async_scheduling", (None, False))):
        value = getattr(arguments, name)
        if value not in fine:
            raise Unsupported(f"--load-format mmd needs {need}: vLLM has {name} = {value!r}")


def is_ours(load_format: object) -> bool:
    """Whether a load format is that of the plugin."""
    return isinstance(load_format, str) and load_format.lower() == FORMAT
