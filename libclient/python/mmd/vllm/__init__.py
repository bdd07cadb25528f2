# SPDX-License-Identifier: Apache-2.0
"""vLLM on memory that mmd lends: `--load-format mmd`.

The package's entry point `vllm.general_plugins` = mmd calls register() in each process of vLLM.
Nothing is changed for engines with other load formats. With this one the weights that vLLM has
made of a checkpoint lie in mmd's memory, each layer behind its gates, and the KV cache in mmd's
arena: it grows as mmd grants, and gives chunks back when mmd reclaims them.
"""

from mmd.vllm._engine import Stats, stats
from mmd.vllm._register import register
from mmd.vllm._versions import Unsupported

__all__ = ["Stats", "Unsupported", "register", "stats"]
