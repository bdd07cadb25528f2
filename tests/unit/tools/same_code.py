#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""same_code.py CC SOURCE: what tools/same-code takes for the same code, on a program of two files."""

import importlib.machinery
import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import unittest

CC, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2])

FIRST = """
int first(int);
int second(int);
const char *text(void);
extern int puts(const char *);
static int counter;
__attribute__((noinline)) static int scaled(int x) { counter += x; return x * 37; }
int use(int x) { puts("a literal"); return first(scaled(x)) - second(scaled(x + 1)); }
int (*const table[])(int) = {first, second, scaled};
"""
SECOND = """
int first(int x);
int second(int x);
const char *text(void);
int limit = 5;
int first(int x) { return x + limit; }
int second(int x) { return x - limit; }
const char *text(void) { return "another literal"; }
"""


def load():
    sys.dont_write_bytecode = True
    loader = importlib.machinery.SourceFileLoader("same_code_tool", str(SOURCE / "tools/same-code"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


TOOL = load()


class SameCode(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory(prefix="mm-same-code-")
        self.addCleanup(place.cleanup)
        self.root = pathlib.Path(place.name)

    def entry(self, source, target, text):
        file = self.root / "file.c"
        file.write_text(text)
        subprocess.run([CC, "-O2", "-fPIC", "-g0", "-c", file, "-o", self.root / "file.o"], check=True)
        return TOOL.Entry(source, target, (self.root / "file.o").read_bytes())

    def program(self, *texts, sources=("one.c", "two.c")):
        return [self.entry(source, "program", text) for source, text in zip(sources, texts)]

    def differences(self, *texts, a=(FIRST, SECOND), renames=None, whole=True, **options):
        """Texts about what differs in the program of @texts, and what was renamed."""
        return TOOL.findings(self.program(*a), self.program(*texts, **options), renames or {}, whole)

    def assert_same(self, *texts, renamed=(), **options):
        found = self.differences(*texts, **options)
        self.assertEqual(found.texts, [])
        self.assertEqual(found.names.renamed(), list(renamed))

    def assert_differs(self, pattern, *texts, **options):
        self.assertRegex("\n".join(self.differences(*texts, **options).texts), pattern)

    def test_comments_and_lines(self):
        self.assert_same("/* A comment. */\n\n" + FIRST, SECOND)

    def test_static_renamed(self):
        self.assert_same(FIRST.replace("scaled", "multiplied").replace("counter", "sum"), SECOND)

    def test_global_renamed(self):
        texts = [text.replace("first", "zeroth").replace("limit", "bound") for text in (FIRST, SECOND)]
        self.assert_same(*texts, renamed=[("first", "zeroth"), ("limit", "bound")])

    def test_constant(self):
        self.assert_differs(r"one\.c .*\.text.*in scaled of A, multiplied of B",
                            FIRST.replace("37", "41").replace("scaled", "multiplied"), SECOND)
        self.assert_differs(r"two\.c .*\.data.*in limit of A", FIRST, SECOND.replace("limit = 5", "limit = 6"))

    def test_string_literal(self):
        self.assert_differs(r"one\.c .*\.rodata\.str", FIRST.replace("a literal", "A literal"), SECOND)

    def test_size_without_contents(self):
        array = "static char array[%d]; char *p(void) { return array; }"
        self.assert_differs(r"one\.c .*\.bss: size 0x40, in B 0x60", array % 96, a=(array % 64,))

    def test_global_renamed_in_one_file_only(self):
        self.assert_differs(r"global first of A", FIRST.replace("first", "zeroth"), SECOND)

    def test_targets_swapped(self):
        swapped = FIRST.replace("first(s", "OTHER(s").replace("second(s", "first(s").replace("OTHER(s", "second(s")
        self.assert_differs(r"global (first|second) of A", swapped, SECOND)
        self.assert_differs(r"global (first|second) of A", swapped.replace("{first, second", "{second, first"), SECOND)

    def test_function_of_a_library(self):
        self.assert_differs(r"puts of A is perror of B", FIRST.replace("puts", "perror"), SECOND)

    def test_targets_swapped_out_of_sight(self):
        """What is called is not compiled: a new name passes, one that both have does not."""
        swapped = FIRST.replace("first(s", "OTHER(s").replace("second(s", "first(s").replace("OTHER(s", "second(s")
        swapped = swapped.replace("{first, second", "{second, first")
        self.assert_differs(r"first of A is second of B", swapped, a=(FIRST,), whole=False)
        self.assert_same(FIRST.replace("first", "zeroth"), a=(FIRST,), whole=False, renamed=[("first", "zeroth")])
        self.assert_differs(r"first of A is zeroth of B", FIRST.replace("first", "zeroth"), a=(FIRST,))

    def test_local_targets(self):
        text = "static int one, two; int *f(void) { return &one; } int *const table[] = {&%s, &%s};"
        self.assert_differs(r"one\.c .*a relocation, in table of A", text % ("two", "one"), a=(text % ("one", "two"),))
        text = ('const char *f(void) { return "one"; } const char *g(void) { return "two"; }'
                'const char *h(int x) { return x ? "%s" : (const char *)0; }')
        self.assert_differs(r"one\.c .*\.text.*a relocation, in h of A", text % "two", a=(text % "one",))

    def test_visibility(self):
        hidden = '__attribute__((visibility("hidden"))) const char *text(void);'
        self.assert_differs(r"two\.c .*globals", FIRST, SECOND.replace("const char *text(void);", hidden))

    def test_moved(self):
        self.assert_same(FIRST, SECOND, sources=("one.c", "there/two.c"), renames={"two.c": "there/two.c"})
        self.assert_same(FIRST, SECOND, sources=("one.c", "there/two.c"))
        self.assert_same(FIRST, SECOND, sources=("two.c", "one.c"))

    def test_moved_and_changed(self):
        self.assert_differs(r"two\.c .* -> there/2\.c .*\.data.*in limit of A", FIRST, SECOND.replace("= 5", "= 6"),
                            sources=("one.c", "there/2.c"), renames={"two.c": "there/2.c"})

    def test_more_and_less(self):
        self.assert_differs(r"two\.c .*only in A", FIRST)
        self.assert_differs(r"one\.c .*only in B", FIRST, a=())

    def test_strings_of_tests(self):
        """In tests literals do not count; what is not one does."""
        sources = ("tests/one.c", "tests/two.c")
        a = self.program(FIRST, SECOND, sources=sources)
        longer = FIRST.replace("a literal", "a literal that is so much longer that it lies in another section")
        b = self.program(longer, SECOND, sources=sources)
        self.assertEqual(TOOL.findings(a, b, {}, True).texts, [])
        b = self.program(longer.replace("37", "41"), SECOND, sources=sources)
        self.assertRegex("\n".join(TOOL.findings(a, b, {}, True).texts), r"tests/one\.c .*\.text")

    def test_assertions(self):
        text = (b"#define mm_assert(e) ((e) ? (void)0 : mm_panic(#e, __FILE__, __LINE__))\nint x;\n"
                b"#\tdefine mm_assert(what) \\\n\tdo {} \\\n\twhile (0)\nint y;\n")
        bare = b"mm_assert(e) ((e) ? (void)0 : __builtin_trap())\n"
        self.assertEqual(TOOL.ASSERT.sub(TOOL.BARE_ASSERT, text),
                         b"#define " + bare + b"int x;\n#\tdefine " + bare + b"int y;\n")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
