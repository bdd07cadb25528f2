# SPDX-License-Identifier: Apache-2.0
"""Memory that is neither weights nor KV."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mmd._library import ffi, lib

if TYPE_CHECKING:
    from mmd._client import Client


class Allocation:
    """Device memory from Client.alloc(), which mmd never takes back; a with-block frees it."""

    def __init__(self, client: Client, length: int) -> None:
        va = ffi.new("uint64_t *")
        client._call(lib.mm_mem_alloc, None, length, 0, va)
        self._client = client
        self.va = int(va[0])
        """Its address, fixed until free()."""
        self.length = length
        """Bytes, as they were requested."""

    def free(self) -> None:
        """Gives it back. No work that touches it may be enqueued. In a step or not; any thread."""
        self._client._call(lib.mm_mem_free, None, self.va)

    def __enter__(self) -> Allocation:
        return self

    def __exit__(self, *_: object) -> None:
        self.free()
