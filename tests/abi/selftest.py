#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""selftest.py LIBRARY INCLUDE: check.py notices what would break programs, and what is merely new, and says which."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import check

LIBRARY, INCLUDE = map(pathlib.Path, sys.argv[1:3])


class Notices(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory(prefix="mm-abi-")
        self.addCleanup(place.cleanup)
        self.root = pathlib.Path(place.name)
        self.include = self.root / "include"
        shutil.copytree(INCLUDE, self.include)
        for name in ("libmm-client.abi", "headers.txt"):
            shutil.copy(check.HERE / name, self.root)

    def edit(self, path, old, new):
        """Once, in a copy."""
        text = path.read_text()
        self.assertEqual(text.count(old), 1, f"{path.name}: {old}")
        path.write_text(text.replace(old, new))

    def header_change(self, header, old, new):
        self.edit(self.include / "mm" / header, old, new)
        return check.headers_difference(self.root / "headers.txt", self.include)

    def test_nothing_has_changed(self):
        self.assertEqual(check.check(LIBRARY, INCLUDE, self.root), "")

    def test_a_field_is_inserted(self):
        said = self.header_change("client.h", "\tuint64_t plan_changes;", "\tuint64_t extra;\n\tuint64_t plan_changes;")
        self.assertRegex(said, r"-struct mm_client_info \d+\n")
        self.assertRegex(said, r"\+\t\d+\t8\textra\t")
        self.assertRegex(said, r"-\t\d+\t8\tplan_changes\t")

    def test_a_field_is_added_at_the_end(self):
        said = self.header_change("client.h", "\tuint64_t plan_held_ns;", "\tuint64_t plan_held_ns, extra;")
        self.assertRegex(said, r"\+\t\d+\t8\textra\t")

    def test_a_field_changes_its_type(self):
        said = self.header_change("client.h", "\tuint64_t timeout_ns; /* of", "\tint64_t timeout_ns; /* of")
        self.assertRegex(said, r"\+\t\d+\t8\ttimeout_ns\tlong int")

    def test_a_value_changes(self):
        said = self.header_change("types.h", "\tMM_TURN_NONE,", "\tMM_TURN_NONE = 1,")
        self.assertIn("+\t1\tMM_TURN_NONE", said)
        said = self.header_change("types.h", "#define MM_TURN_PRIORITY_MAX 7", "#define MM_TURN_PRIORITY_MAX 8")
        self.assertIn("+\tMM_TURN_PRIORITY_MAX\t8", said)

    def test_the_wire_changes(self):
        """No function mentions its structs."""
        said = self.header_change("abi.h", "\tuint32_t page_id[MM_FD_BATCH_MAX];\n};\n",
                                  "\tuint32_t page_ids[MM_FD_BATCH_MAX];\n};\n")
        self.assertRegex(said, r"\+\t\d+\t256\tpage_ids\t")

    def library_change(self, old, new):
        """As if the library had been different when the dump was made."""
        self.edit(self.root / "libmm-client.abi", old, new)
        return check.library_difference(self.root / "libmm-client.abi", LIBRARY, INCLUDE)

    def node(self, pattern):
        found = re.findall(pattern, (self.root / "libmm-client.abi").read_text(), re.DOTALL | re.MULTILINE)
        self.assertEqual(len(found), 1, pattern)
        return found[0]

    def test_a_function_is_removed(self):
        symbol = self.node(r"^    <elf-symbol name='mm_kv_owed'.*?/>\n")
        said = self.library_change(symbol, symbol + symbol.replace("mm_kv_owed", "mm_kv_gone"))
        self.assertIn("1 Removed", said)
        self.assertIn("mm_kv_gone", said)

    def test_a_function_is_added(self):
        symbol = self.node(r"^    <elf-symbol name='mm_kv_owed'.*?/>\n")
        said = self.library_change(symbol, "")
        self.assertIn("1 Added", said)
        self.assertIn("mm_kv_owed", said)

    def test_a_parameter_changes(self):
        function = self.node(r"^    <function-decl name='mm_kv_release'.*?</function-decl>\n")
        first = re.search(r"<parameter type-id='(\w+)' name='kv'/>", function)
        second = re.search(r"<parameter type-id='(\w+)' name='chunk'/>", function)
        self.assertTrue(first and second, function)
        said = self.library_change(function, function.replace(second.group(0), second.group(0).replace(
            second.group(1), first.group(1))))
        self.assertIn("mm_kv_release", said)

    def test_the_driver_table_changes(self):
        """An entry that is not at the end."""
        entry = self.node(r"^      <data-member access='public' layout-offset-in-bits='\d+'>\n"
                          r"        <var-decl name='cuMemMap'.*?</data-member>\n")
        self.assertIn("mm_gpu_api", self.library_change(entry, ""))

    def test_how_it_is_said(self):
        """The program itself: 1, the difference, and the command that renews."""
        self.edit(self.include / "mm" / "types.h", "#define MM_SWAP_LOTS   8", "#define MM_SWAP_LOTS   9")
        done = subprocess.run([check.HERE / "check.py", LIBRARY, self.include], capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("+\tMM_SWAP_LOTS\t9", done.stdout)
        self.assertIn("--renew", done.stdout)

    def test_it_is_skipped_aloud(self):
        """Without debug information, or without the tools."""
        bare = self.root / "bare.so"
        subprocess.run(["strip", "-g", "-o", bare, LIBRARY], check=True)
        for library, path in ((bare, os.environ["PATH"]), (LIBRARY, str(self.root))):
            done = subprocess.run([sys.executable, check.HERE / "check.py", library, INCLUDE], capture_output=True,
                                  text=True, check=False, env=dict(os.environ, PATH=path))
            self.assertEqual(done.returncode, 77, done.stdout + done.stderr)
            self.assertIn("skipped:", done.stdout)


if __name__ == "__main__":
    why = check.missing(LIBRARY)
    if why:
        print(f"skipped: {why}")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
