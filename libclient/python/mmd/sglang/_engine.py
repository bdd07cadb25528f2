# SPDX-License-Identifier: Apache-2.0
"""What a process of SGLang's scheduler has from mmd: one client, its model, its arena."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final, cast

from mmd._client import Client
from mmd._plugin import tenant

if TYPE_CHECKING:
    from mmd.sglang._schedule import Pool


@dataclasses.dataclass
class Stats(tenant.Stats):
    """How an engine lived with mmd until now."""

    evicted: int = 0
    """Tokens of the prefix cache that were evicted for chunks that mmd reclaimed."""
    retracted: int = 0
    """Requests that were retracted for chunks that mmd reclaimed."""
    waited: int = 0
    """Requests that were retracted because mmd had no memory for their next tokens."""


class Engine(tenant.Tenant):
    """The client of a process, and all that SGLang's worker and scheduler take from it."""

    plugin = "mmd.sglang"
    stats: Stats
    Stats = Stats

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.kv: Any = None
        """SGLang's pool whose buffers are the arena's."""
        self.pages_per_chunk = 0
        """How many of SGLang's pages of slots are in a chunk."""
        self.pool: Pool | None = None


process: Final = tenant.Process(Engine)
current: Final = process.current
required: Final = process.required


def stats() -> Stats:
    """How this process's engine lives with mmd: that of SGLang's scheduler. Any thread."""
    return cast(Stats, process.stats())
