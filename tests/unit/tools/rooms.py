# SPDX-License-Identifier: Apache-2.0
"""tests/rooms.py: what it allows, and each thing that it must refuse, in trees of a few files.

usage: rooms.py SOURCE_DIR C_COMPILER
"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

SOURCE, COMPILER = pathlib.Path(sys.argv[1]), sys.argv[2]

GOOD = {
    "include/mm/abi.h": "#include <stdint.h>\n",
    "libclient/base/base.h": "#include <stdint.h>\n",
    "libclient/ipc/ring.h": '#include "libclient/base/base.h"\n#include "mm/abi.h"\n',
    "mmd/core/core.h": '#include "mm/abi.h"\nint mm_core_next(void);\n',
    "mmd/core/core.c": '#include "mmd/core/core.h"\n#include "mmd/core/book/book.h"\n'
                       "int mm_core_next(void) { return mm_c_book(); }\n",
    "mmd/core/book/book.h": '#include "mmd/core/core.h"\nint mm_c_book(void);\n',
    "mmd/core/book/book.c": '#include "mmd/core/book/book.h"\nint mm_c_book(void) { return 1; }\n',
    "mmd/shell/shell.c": '#include <stdio.h>\n#include "mmd/core/core.h"\n#include "libclient/ipc/ring.h"\n'
                         "int mm_shell(void); int mm_shell(void) { return mm_core_next(); }\n",
}


class Rooms(unittest.TestCase):
    def check(self, changes, build=False):
        with tempfile.TemporaryDirectory() as name:
            top = pathlib.Path(name)
            for path, text in {**GOOD, **changes}.items():
                (top / path).parent.mkdir(parents=True, exist_ok=True)
                (top / path).write_text(text)
            argv = [sys.executable, SOURCE / "tests/rooms.py", top]
            if build:
                for path in top.rglob("*.c"):
                    at = top / "build" / path.relative_to(top).parent / "CMakeFiles/t.dir" / (path.name + ".o")
                    at.parent.mkdir(parents=True, exist_ok=True)
                    subprocess.run([COMPILER, "-I", top, "-I", top / "include", "-c", path, "-o", at], check=True)
                argv += ["--build", top / "build"]
            done = subprocess.run(argv, capture_output=True, text=True)
            return done.returncode, done.stdout + done.stderr

    def refused(self, changes, *words, build=False):
        code, text = self.check(changes, build)
        self.assertEqual(code, 1, text)
        for word in words:
            self.assertIn(word, text)

    def test_good(self):
        for build in (False, True):
            code, text = self.check({}, build)
            self.assertEqual(code, 0, text)
            self.assertIn("all allowed; no circle", text)

    def test_include_upwards(self):
        self.refused({"libclient/base/base.h": '#include "libclient/ipc/ring.h"\n'},
                     "libclient/base/base.h (base) includes libclient/ipc/ring.h (ipc)", "circle of includes")
        self.refused({"mmd/core/book/book.c": '#include "mmd/core/market/market.h"\n', "mmd/core/market/market.h": ""},
                     "mmd/core/book/book.c (core/book) includes mmd/core/market/market.h (core/market)")

    def test_engine_sees_the_installed_client_only(self):
        self.refused({"tools/mmserve/engine/engine.c": '#include "libclient/client/internal.h"\n',
                      "libclient/client/internal.h": ""},
                     "tools/mmserve/engine/engine.c (engine) includes libclient/client/internal.h (client)")

    def test_circle_of_includes(self):
        self.refused({"libclient/ipc/ring.h": '#include "libclient/ipc/sock.h"\n',
                      "libclient/ipc/sock.h": '#include "libclient/ipc/ring.h"\n'},
                     "circle of includes: libclient/ipc/ring.h libclient/ipc/sock.h")

    def test_what_is_pure_sees_no_files(self):
        self.refused({"mmd/core/core.c": "#include <stdio.h>\n"}, "mmd/core/core.c sees <stdio.h>")
        self.refused({"libclient/base/base.h": "#include <unistd.h>\n",
                      "mmd/core/out/queue.c": '#include "libclient/base/base.h"\n'},
                     "mmd/core/out/queue.c sees <unistd.h> by libclient/base/base.h",
                     "libclient/base/base.h sees <unistd.h>")

    def test_no_room(self):
        self.refused({"mmd/attic/old.c": ""}, "mmd/attic/old.c: lies in no room")

    def test_spelling(self):
        self.refused({"libclient/ipc/ring.c": '#include "ring.h"\n'}, "libclient/ipc/ring.c includes ring.h")

    def test_call_without_include(self):
        self.refused({"mmd/core/book/book.c": "int mm_c_lend(void); int mm_c_book(void);\n"
                                              "int mm_c_book(void) { return mm_c_lend(); }\n",
                      "mmd/core/market/lend.c": "int mm_c_lend(void); int mm_c_lend(void) { return 2; }\n"},
                     "mmd/core/book/book.c (core/book) calls mmd/core/market/lend.c (core/market): mm_c_lend", build=True)

    def test_circle_of_calls(self):
        self.refused({"mmd/core/book/a.c": "int mm_c_a(void); int mm_c_b(void); int mm_c_a(void) { return mm_c_b(); }\n",
                      "mmd/core/book/b.c": "int mm_c_a(void); int mm_c_b(void); int mm_c_b(void) { return mm_c_a(); }\n"},
                     "circle of calls: mmd/core/book/a.c mmd/core/book/b.c", build=True)


unittest.main(argv=sys.argv[:1])
