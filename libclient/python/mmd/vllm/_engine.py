# SPDX-License-Identifier: Apache-2.0
"""What a process of vLLM has from mmd: one client, its model, its arena."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final, cast

from mmd._client import Client
from mmd._plugin import tenant

if TYPE_CHECKING:
    from mmd.vllm._blocks import Blocks


@dataclasses.dataclass
class Stats(tenant.Stats):
    """How an engine lived with mmd until now."""

    preempted: int = 0
    """Requests that were preempted for chunks that mmd reclaimed."""


class Engine(tenant.Tenant):
    """The client of a process, and all that vLLM's worker and scheduler take from it."""

    plugin = "mmd.vllm"
    stats: Stats
    Stats = Stats

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.blocks_per_chunk = 0
        self.blocks_count = 0
        self.pool: Blocks | None = None


process: Final = tenant.Process(Engine)
current: Final = process.current
required: Final = process.required


def stats() -> Stats:
    """How this process's engine lives with mmd, such as by LLM.collective_rpc(). Any thread."""
    return cast(Stats, process.stats())
