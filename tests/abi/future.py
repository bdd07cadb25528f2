#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""future.py CLIENT_H OUT: writes client.h as a later version may have it: each struct that has a size, and struct
mm_pack, whose size is beside the list, is longer by a member, and the minor version is counted up."""

import pathlib
import re
import sys

HEADER, OUT = map(pathlib.Path, sys.argv[1:3])


def main():
    text, n = re.subn(r"^(struct mm_\w+ \{\n\tsize_t size;.*?|struct mm_pack \{\n.*?)^\};",
                      r"\1\tuint64_t future[3];\n};", HEADER.read_text(), flags=re.MULTILINE | re.DOTALL)
    sizes = len(re.findall(r"^\tsize_t size;", text, re.MULTILINE))
    if n != sizes + 1:
        sys.exit(f"{HEADER}: {n} structs were made longer, {sizes} have a size")
    text, n = re.subn(r"^(#define MM_CLIENT_ABI_MINOR) (\d+)$", lambda m: f"{m[1]} {int(m[2]) + 1}", text,
                      flags=re.MULTILINE)
    if n != 1:
        sys.exit(f"{HEADER}: no MM_CLIENT_ABI_MINOR")
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(text)


if __name__ == "__main__":
    main()
