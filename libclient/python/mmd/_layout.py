# SPDX-License-Identifier: Apache-2.0
"""Weights that an engine has made itself: fused, repacked, quantised."""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mmd._model import DTYPES, Buffer

if TYPE_CHECKING:
    from mmd._client import Client
    from mmd._model import Model

SEALS: Final = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
WRITE_BYTES: Final = 1 << 28
ALIGN: Final = 8
NAME: Final = re.compile(r"[\w./-]{1,119}", re.ASCII)


BITS: Final = {name: int((re.findall(r"\d+", name) or ["8"])[0]) for name in DTYPES.values()}


class _Entry(NamedTuple):
    dtype: str
    shape: tuple[int, ...]
    data: Any


def _write(fd: int, data: Buffer) -> None:
    with memoryview(data) as view, view.cast("B") as octets:
        for start in range(0, len(octets), WRITE_BYTES):
            part = octets[start:start + WRITE_BYTES]
            while part:
                part = part[os.write(fd, part):]


class Layout:
    """Tensors of an engine's own making, which commit() gives to mmd as the client's model.

    An engine makes its weights in its own memory, puts them here, commits, and computes on the
    model's tensors from then on: read-only, shared with every tenant that commits the same bytes
    under the same names, and reclaimable layer by layer. One thread at a time uses a layout.
    """

    def __init__(self, client: Client, layers: int) -> None:
        self._client, self._layers = client, layers
        self._entries: dict[str, _Entry] = {}

    def put(self, name: str, data: Buffer, dtype: str, shape: Sequence[int]) -> None:
        """Adds a tensor. Nothing is copied before commit(): data must not change. Never blocks.

        name: layers.N.* belongs to layer N, whose matrices may be away; all others stay. data:
        contiguous, as long as dtype (a name of safetensors, such as I8 or F8_E4M3) and shape say.
        """
        if dtype not in BITS:
            raise ValueError(f"{name}: there is no type {dtype}: {', '.join(BITS)}")
        if not NAME.fullmatch(name) or name in self._entries:
            raise ValueError(f"{name}: a name is up to 119 letters, digits, and . _ / -, once")
        count = 1
        for length in shape:
            count *= length
        with memoryview(data) as view:
            if not view.c_contiguous or view.nbytes * 8 != count * BITS[dtype]:
                raise ValueError(f"{name}: {view.nbytes} bytes are not {dtype}{list(shape)}")
        self._entries[name] = _Entry(dtype, tuple(shape), data)

    def commit(self, key: bytes | str | None = None) -> Model:
        """Gives the tensors to mmd: the client's model, one at a time. Blocks; not in a step.

        Host memory holds them once more until it returns. The layout is empty then. key: what the
        bytes were made of and by, in up to 256 bytes: Client.attach() of another client finds the
        model by it, and makes nothing. Error with EEXIST: other weights have the key.
        """
        fd = self.seal()
        try:
            return self._client.load(files=[fd], layers=self._layers, key=key)
        finally:
            os.close(fd)

    def seal(self) -> int:
        """Writes the tensors to a sealed memfd, which is the caller's to close. Blocks.

        It is what commit() loads. The layout is empty then.
        """
        fd = os.memfd_create("mmd-layout", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            self._fill(fd)
            self._entries.clear()
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _fill(self, fd: int) -> None:
        """Writes a safetensors file, in the order of names: the same tensors are the same bytes."""
        header: dict[str, Any] = {}
        at = 0
        for name, entry in sorted(self._entries.items()):
            with memoryview(entry.data) as view:
                end = at + view.nbytes
            header[name] = {"dtype": entry.dtype, "shape": entry.shape, "data_offsets": [at, end]}
            at = end
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % ALIGN)
        _write(fd, len(text).to_bytes(8, "little") + text)
        for _, entry in sorted(self._entries.items()):
            _write(fd, entry.data)
