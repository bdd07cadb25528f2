#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Keeps the code in tutorial.md and client.md the code of the example programs.

usage: weave.py [--check]

In a document, a line `<!-- FILE.c: PART -->` stands before each block of code. In FILE.c a part begins
with a line that is only `/* [PART] */` and ends at the next such line. Without --check the blocks are
written anew; with it, the exit status is 1 if one of them differs.
"""

import pathlib
import re
import sys
import textwrap

HERE = pathlib.Path(__file__).resolve().parent
DOCUMENTS = [HERE.parent / "tutorial.md", HERE.parent / "client.md"]
MARK = re.compile(r"^\s*/\* \[(\w+)\] \*/\n", re.M)
BLOCK = re.compile(r"(<!-- (\w+\.c): (\w+) -->\n```c\n)(.*?)(```\n)", re.S)


def parts(name):
    """{part: its text} of an example program."""
    pieces = MARK.split((HERE / name).read_text())
    return {part: textwrap.dedent(text.expandtabs(8)).strip("\n") + "\n"
            for part, text in zip(pieces[1::2], pieces[2::2]) if part != "end"}


def main(args):
    if args not in ([], ["--check"]):
        print(__doc__.split("\n\n")[1], file=sys.stderr)
        return 2
    wrong = 0
    for document in DOCUMENTS:
        old = document.read_text()
        new = BLOCK.sub(lambda m: m[1] + parts(m[2])[m[3]] + m[5], old)
        if not args:
            document.write_text(new)
        elif new != old:
            print(f"{document.name}: its code is not that of the examples; run {pathlib.Path(__file__).name}",
                  file=sys.stderr)
            wrong = 1
    return wrong


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
