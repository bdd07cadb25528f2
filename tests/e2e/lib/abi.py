# SPDX-License-Identifier: Apache-2.0
"""
The numbers of mmd's headers, under the names that they have in C: abi.MM_OP_BYE is a constant, abi.mm_hello a
Layout. They come from a program that is compiled from these headers (tests/e2e/abi.c); what it does not print is
an AttributeError here.
"""

import functools
import json
import os
import pathlib
import struct
import subprocess

from programs import BUILD, limit


class Layout:
    """A struct of C: its bytes from values by field, and values from its bytes. Fields in the header's order."""

    def __init__(self, size, fields):
        self.size = size
        self.offset = {name: offset for name, offset, _, _ in fields}
        self._format = {}
        for name, _, length, code in fields:
            count = length // struct.calcsize("<" + code)
            self._format[name] = struct.Struct(f"<{count}{code}"), count, code

    def pack(self, *values, **named):
        """What is not given is 0; an array may be given by its first elements."""
        data = bytearray(self.size)
        for name, value in [*zip(self.offset, values), *named.items()]:
            layout, count, code = self._format[name]
            if code != "s" and count > 1:
                value = [*value, *[0] * count][:count]
            layout.pack_into(data, self.offset[name], *(value if isinstance(value, list) else [value]))
        return bytes(data)

    def unpack(self, data):
        """A dict; an array of numbers is a tuple, one of characters bytes."""
        assert len(data) == self.size, (len(data), self.size)
        values = {}
        for name, (layout, count, code) in self._format.items():
            found = layout.unpack_from(data, self.offset[name])
            values[name] = found if code != "s" and count > 1 else found[0]
        return values


@functools.cache
def _names():
    if "MM_ABI_JSON" in os.environ:  # what another version of it has printed
        text = pathlib.Path(os.environ["MM_ABI_JSON"]).read_text(encoding="utf-8")
    else:
        text = subprocess.run([str(BUILD / "tests" / "e2e-abi")], check=True, capture_output=True, timeout=limit(60)).stdout
    headers = json.loads(text)
    return headers["constants"] | {name: Layout(**layout) for name, layout in headers["structs"].items()}


def __getattr__(name):
    if not name.startswith(("MM_", "mm_")) or name not in _names():
        raise AttributeError(f"tests/e2e/abi.c prints no {name}")
    return _names()[name]
