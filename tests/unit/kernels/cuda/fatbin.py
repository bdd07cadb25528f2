#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""fatbin.py FATBIN LAUNCH_C: the image has machine code for each architecture, of each kernel, and PTX."""

import pathlib
import re
import struct
import sys
import unittest

FATBIN, LAUNCH_C = (pathlib.Path(p) for p in sys.argv[1:3])
MAGIC, PTX, ELF, EM_CUDA = 0xBA55ED50, 1, 2, 190


def images(data):
    """(kind, architecture, bytes) of each image behind the head of 16 bytes."""
    magic, _, head, size = struct.unpack_from("<IHHQ", data)
    assert magic == MAGIC, hex(magic)
    at = head
    while at < head + size:
        kind, _, begin, length = struct.unpack_from("<HHIQ", data, at)
        (arch,) = struct.unpack_from("<I", data, at + 28)
        yield kind, arch, data[at + begin:at + begin + length]
        at += begin + length


class Fatbin(unittest.TestCase):
    def test_architectures(self):
        found = [(kind, arch) for kind, arch, _ in images(FATBIN.read_bytes())]
        self.assertEqual(sorted(found), [(PTX, 90), (ELF, 80), (ELF, 90)])

    def test_kernels(self):
        names = re.findall(r'= "(mm_\w+)"', LAUNCH_C.read_text())
        self.assertGreater(len(names), 15)
        for kind, arch, image in images(FATBIN.read_bytes()):
            if kind != ELF:
                continue
            self.assertEqual(image[:4], b"\x7fELF")
            self.assertEqual(struct.unpack_from("<H", image, 18)[0], EM_CUDA)
            for name in names:
                self.assertIn(b".text." + name.encode() + b"\0", image, f"sm_{arch}")


unittest.main(argv=sys.argv[:1])
