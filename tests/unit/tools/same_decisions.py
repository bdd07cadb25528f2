#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""same_decisions.py CORE_SIM SOURCE: tools/same-decisions knows every kind of histories that core-sim has, however its
version prints them."""

import importlib.machinery
import importlib.util
import pathlib
import sys
import tempfile
import unittest

CORE_SIM, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2])
KINDS = ["ordinary", "plans", "acts", "late", "modes", "still", "mem", "unload", "steer", "cool"]


def load_tool():
    loader = importlib.machinery.SourceFileLoader("same_decisions_tool", str(SOURCE / "tools" / "same-decisions"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module


class Kinds(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.TemporaryDirectory(prefix="mm-same-")
        self.addCleanup(self.place.cleanup)
        self.side = load_tool().Side("A", None, pathlib.Path(self.place.name))

    def older(self, help_text):
        program = pathlib.Path(self.place.name, "core-sim")
        program.write_text(f"#!/bin/sh\n[ \"$1\" = --help ] && echo '{help_text}' || {{ echo usage >&2; exit 2; }}\n")
        program.chmod(0o755)
        return program

    def test_of_this_version(self):
        self.side.core_sim = CORE_SIM
        self.assertEqual(self.side.kinds(), KINDS)

    def test_of_older_ones(self):
        self.side.core_sim = self.older("usage: core-sim [--kind ordinary|plans|acts|late|modes|still] [--hashes FILE]")
        self.assertEqual(self.side.kinds(), KINDS[:6])
        self.side.core_sim = self.older("usage: core-sim [--hashes FILE]")
        self.assertEqual(self.side.kinds(), ["ordinary"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
