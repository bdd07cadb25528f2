# SPDX-License-Identifier: Apache-2.0
"""`--sleep-mode-backend mmd`: a sleeping engine's memory is lent to others."""

from __future__ import annotations

from vllm.device_allocator.sleep_mode_backend import SleepModeBackend

from mmd.vllm._engine import required


class MmdSleepBackend(SleepModeBackend):  # type: ignore[misc, unused-ignore]
    """Sleep is giving the KV memory back and saying that the engine is idle; mmd does the rest.

    Weights stay mmd's, which lends the layers' memory, and brings them back when steps run again.
    """

    def suspend(self, level: int = 1) -> None:
        """Gives all chunks back but that of the null block."""
        if level != 1:
            raise ValueError(f"the sleep-mode backend mmd has level 1, not {level}: weights are "
                             f"mmd's, which has them in host memory at all times")
        pool = required().pool
        if pool is not None:
            pool.suspend()
        self._state = "SUSPENDED"

    def resume(self, tags: list[str] | None = None) -> None:
        """Lets the pool of blocks grow again as requests need it."""
        del tags  # weights need nothing: a step waits at their gates
        self._state = "RESUMING"
        pool = required().pool
        if pool is not None:
            pool.resume()
        self._state = "RUNNING"

    @classmethod
    def preserves_communicators(cls) -> bool:
        """Nothing but weights and KV is touched."""
        return True

    @classmethod
    def preserves_compiled_artifacts(cls) -> bool:
        """Nothing but weights and KV is touched."""
        return True
