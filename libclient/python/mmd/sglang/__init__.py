# SPDX-License-Identifier: Apache-2.0
"""SGLang on memory that mmd lends: `--load-format mmd`.

The package's entry point `sglang.srt.plugins` = mmd calls register() in each process of SGLang,
which hooks into it by SGLang's own HookRegistry. Engines with other load formats run as ever. With
this one the weights that SGLang has made of a checkpoint lie in mmd's memory, each layer behind its
gates, and the KV cache in mmd's arena: it grows as mmd grants, and gives chunks back when mmd
reclaims them.
"""

from mmd._plugin.versions import Unsupported
from mmd.sglang._engine import Stats, stats
from mmd.sglang._register import register

__all__ = ["Stats", "Unsupported", "register", "stats"]
