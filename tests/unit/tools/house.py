#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""house.py SOURCE: tools/house counts small trees right, and each of its rules can be broken."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(sys.argv[1])
PATIENCE_S = 300
LICENCE = "/* SPDX-License-Identifier: Apache-2.0 */\n"
FUNCTION = """\
static int pool_add(int a, int b)
{
	if (a && b)
		return 1;
	return a ? 2 : 3;
}
"""
# One executable of a.c and of an archive with b.c, one of a.c alone, and a test of a.c and c.c.
NINJA = """\
build a.o: C_COMPILER__x_Release /TOP/mmd/a.c || order
build b.o: C_COMPILER__x_Release /TOP/mmd/b.c | needs || order
build c.o: C_COMPILER__x_Release /TOP/mmd/c.c

build libb.a: C_STATIC_LIBRARY_LINKER__b_Release b.o
  LINK_FLAGS = none

build bin/both: C_EXECUTABLE_LINKER__both_Release a.o | libb.a || libb.a
  LINK_LIBRARIES = -ldl  libb.a  -lm

build bin/alone: C_EXECUTABLE_LINKER__alone_Release a.o

build tests/three: C_EXECUTABLE_LINKER__three_Release a.o $
  c.o
  LINK_LIBRARIES = -lm
"""
DECLARED = """\
struct pool {
	int bytes;
};

static const struct option options[] = {
	{ "help", 0 },
};
static int (*grow)(void), count = 3;
static int pool_add(int a, int b);
extern int elsewhere;

"""

BEHIND_MACROS = """\
DEFINE(one, a >= b)
DEFINE(two, a)

__attribute__((format(printf, 1, 2)))
static int *pool_log(const char *format, ...)
{
}

MM_PRINTF(1, 2) void pool_print(int (*call)(int, int), int b)
{
}

#define BODY(x) \\
void unseen(void) \\
{ \\
}

KERNEL(fill)
{
}
"""


class House(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory(prefix="mm-house-")
        self.addCleanup(place.cleanup)
        self.top = pathlib.Path(place.name).resolve()
        self.write("build/build.ninja", NINJA.replace("/TOP", str(self.top)))

    def write(self, path, text):
        place = self.top / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def house(self, *words, status=0):
        done = subprocess.run([SOURCE / "tools/house", *words, "--top", self.top,
                               "--build", self.top / "build"],
                              capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout

    def numbers(self, section, *words, status=0):
        return json.loads(self.house(section, "--json", *words, status=status))[section]

    def broken(self, section, *words):
        """What --check says; nothing where nothing is broken."""
        text = subprocess.run([SOURCE / "tools/house", section, "--check", "--json", "--top",
                               self.top, "--build", self.top / "build", *words],
                              capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        found = json.loads(text.stdout)["broken"]
        self.assertEqual(text.returncode, 1 if found else 0)
        return found


class Names(House):
    def repeated(self, *words):
        return self.numbers("names", *words)["static names in two or more files of one program"]

    def test_files_of_one_program_repeat_a_function(self):
        self.write("mmd/a.c", FUNCTION)
        self.write("mmd/b.c", FUNCTION)
        self.assertEqual(self.repeated(), 1)
        self.assertEqual(self.broken("names"), ["bin/both: static pool_add in mmd/a.c, mmd/b.c"])

    def test_variables_count(self):
        self.write("mmd/a.c", DECLARED)
        self.write("mmd/b.c", "static int options;\nstatic long unlike, count;\n")
        places = self.numbers("names", "--list")["repeated"]
        self.assertEqual([place.split(" (")[0] for place in places], [
            "mmd/a.c:5 options", "mmd/a.c:8 count", "mmd/b.c:1 options", "mmd/b.c:2 count"])

    def test_files_of_different_programs_may_repeat(self):
        self.write("mmd/b.c", FUNCTION)
        self.write("mmd/c.c", FUNCTION)
        self.assertEqual(self.broken("names", "--tests"), [])

    def test_programs_of_tests_count_when_asked(self):
        self.write("mmd/a.c", FUNCTION)
        self.write("mmd/c.c", FUNCTION)
        self.assertEqual(self.repeated(), 0)
        self.assertEqual(self.repeated("--tests"), 1)

    def test_names_in_comments_strings_and_prototypes_do_not_count(self):
        self.write("mmd/a.c", FUNCTION)
        self.write("mmd/b.c", '/*\n' + FUNCTION + '*/\nconst char *text = "static int pool_add;";\n'
                   "static int pool_add(int a, int b);\n")
        self.assertEqual(self.repeated(), 0)

    def test_external_functions_are_no_static_names(self):
        self.write("mmd/a.c", FUNCTION.replace("static ", ""))
        self.write("mmd/b.c", FUNCTION)
        self.assertEqual(self.repeated(), 0)
        self.assertEqual(self.numbers("names")["functions outside tests that share a name"], 2)

    def test_names_of_one_word(self):
        for many, broken in ((20, True), (21, False)):
            self.write("mmd/a.c", FUNCTION.replace("pool_add", "add") + "".join(
                "\n" + FUNCTION.replace("pool_add", f"pool_add_{i}") for i in range(many - 1)))
            rules = [f"{room}: 5.0 % of static functions have names of one word"
                     for room in ("all outside tests", "mmd")]
            self.assertEqual(self.broken("names"), rules if broken else [])
        self.assertEqual(self.numbers("names", "--list")["of one word"], ["mmd/a.c:1 add"])

    def test_tests_may_have_names_of_one_word(self):
        self.write("tests/a.c", FUNCTION.replace("pool_add", "add"))
        self.assertEqual(self.broken("names"), [])


class Parts(House):
    def test_lines_by_group(self):
        self.write("tools/lab/a.c", "int a;\nint b;\n")
        self.write("tools/a.c", "int a;\n/* A\n * comment. */\nint b; /* and one behind code */\n")
        self.write("tests/unit/a.c", "int a;\n")
        rows = {row["of"]: row for row in self.numbers("lines")["groups"]}
        self.assertEqual({group: row["lines"] for group, row in rows.items()},
                         {"laboratory": 2, "product": 4, "tests": 1})
        self.assertEqual(rows["product"]["comments %"], 50.0)

    def test_functions(self):
        self.write("mmd/a.c", DECLARED + FUNCTION)
        row = self.numbers("functions")["functions"][0]
        names = ("functions", "lines max", "CCN max", "parameters p99")
        self.assertEqual([row[name] for name in names], [1, 6, 4, 2])

    def test_function_of_many_lines(self):
        for inside, long in ((57, []), (58, ["mmd/a.c:1 pool_add: 61 lines"])):
            self.write("mmd/a.c", "void pool_add(void)\n{\n" + "\tpool();\n" * inside + "}\n")
            self.assertEqual(self.numbers("functions", "--list")["of more than 60 lines"], long)

    def test_functions_behind_attributes_and_macros(self):
        self.write("mmd/a.c", BEHIND_MACROS)
        self.assertEqual(self.numbers("names", "--list")["of one word"], [])
        self.assertEqual(self.numbers("functions")["functions"][0]["functions"], 3)

    def test_files_of_many_lines(self):
        self.write("mmd/a.c", "int a;\n" * 800)
        self.assertEqual(self.broken("files"), [])
        self.write("mmd/a.c", "int a;\n" * 801)
        self.assertEqual(self.broken("files"), ["mmd/a.c: 801 lines"])

    def test_duplicates(self):
        body = "".join(f"\tpool_add({'ab'[i % 2]}, {i % 3}, {'ab'[i % 2]} {'+-*/'[i % 4]} 1);\n"
                       for i in range(8))
        self.write("mmd/a.c", "void pool_a(void)\n{\n" + body + "}\n")
        self.write("mmd/b.c", "void pool_b(void)\n{\n\n" + body.replace("\t", "  ") + "}\n")
        renamed = body.replace("a,", "q,").replace("a ", "q ")
        self.write("mmd/c.c", "void pool_c(void)\n{\n" + renamed + "}\n")
        found = self.numbers("duplicates", "--list")
        self.assertEqual(found["pairs of runs of 8 or more lines equal"],
                         ["mmd/a.c:3-10 ~ mmd/b.c:4-11"])
        self.assertEqual(found["pairs of files with runs equal but for names and values"], 3)
        self.write("mmd/b.c", "void pool_b(void)\n{\n\tint other;\n}\n")
        self.assertEqual(self.numbers("duplicates")["pairs of runs of 8 or more lines equal"], 0)


class Words(House):
    def test_headers(self):
        self.write("mmd/pool.h", LICENCE + "int pool_add(int a, int b);\nint pool_take(void);\n")
        self.write("mmd/pool.c", "int pool_add(int a, int b)\n{\n}\n")
        self.write("mmd/take.c", LICENCE + "int pool_take(void)\n{\n}\n")
        self.write("mmd/main.c", LICENCE + "/* The program. */\n\nint main(void)\n{\n}\n")
        found = self.numbers("headers", "--list")
        self.assertEqual(found["prototypes whose definition is under another basename"],
                         ["mmd/pool.h:3 pool_take: mmd/take.c"])
        bare = found[".c files with neither a header of their own nor a comment at their head"]
        self.assertEqual(bare, ["mmd/take.c"])
        self.assertEqual(self.broken("headers"), ["mmd/pool.h: no `Concept:`"])
        self.write("mmd/pool.h", LICENCE + "/* Concept: pools. */\nint pool_add(int a, int b);\n")
        self.assertEqual(self.broken("headers"), [])

    def test_beginnings(self):
        for comment, many in (("/* Of all */", 1), ("/*\n * What is\n */", 1), ("// And so", 1),
                              ("/** Who\n */", 1), ("/* Whose. */", 1), ("/* Offers. And */", 0),
                              ("/*\n * One.\n * Of\n */", 0), ("/* of */", 0), ('"/* Of */"', 0)):
            self.write("mmd/a.c", f"int a;\n{comment}\nint b;\n")
            self.assertEqual(len(self.broken("comments")), many, comment)

    def test_wide_lines(self):
        for path, line, many in (("mmd/a.c", "\t" + "x" * 92, 0), ("mmd/a.c", "\t" + "x" * 93, 1),
                                 ("mmd/a.h", "/* " + "x " * 50 + "*/", 1), ("a.md", "x " * 51, 1),
                                 ("a.md", "| " + "x " * 51, 0),
                                 ("a.md", "```\n" + "x " * 51 + "\n```", 0),
                                 ("a.md", "x" * 101, 0)):
            self.write(path, line + "\n")
            self.assertEqual(len(self.broken("comments")), many, line)
            (self.top / path).unlink()

    def test_draw(self):
        self.write("mmd/a.c", LICENCE + "/* ---- heading ---- */\n" +
                   "".join(f"/* Comment {i}. */\nint a{i};\n" for i in range(9)))
        drawn = self.numbers("comments", "--draw", "4", "--seed", "7")
        self.assertEqual(drawn["drawn from"], 9)
        self.assertEqual(len(drawn["drawn with seed 7"]), 4)
        self.assertEqual(drawn, self.numbers("comments", "--draw", "4", "--seed", "7"))
        self.assertRegex(drawn["drawn with seed 7"][0],
                         r"\Ammd/a.c:\d+\n    /\* Comment (\d)\. \*/\n    > int a\1;\Z")
        self.house("comments", "--draw", "10", status=2)

    def test_usage(self):
        self.house("nothing", status=2)
        self.house("lines", "--draw", "3", status=2)
        self.house("lines", "--rev", "HEAD", status=2)
        (self.top / "build/build.ninja").unlink()
        self.house("names", status=2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
