#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""check.py [--renew] LIBRARY INCLUDE: compares the public ABI with the one that is committed beside this file.

  libmm-client.abi  what abidw of libabigail reads from LIBRARY: functions with their symbol versions, and all types
                    that they mention, the driver's table among them; compared by abidiff
  headers.txt       structs with the place of each member, enumerators and constants of the headers that programs
                    share: the wire's structs and the values that no function mentions; compared as text

--renew writes both. Exit status: 0 the same, or renewed; 1 a difference, which is printed; 2 usage; 77 it cannot be
told, for the reason printed: abigail-tools is not there, or LIBRARY has no debug information.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).resolve().parent
HEADERS = ("types.h", "client.h", "client_group.h", "client_model.h", "client_cold.h", "abi.h", "softgpu.h")
NO_VALUE = {"MM_API"}
# No place or name of this machine, and ids that stay as they are when something else changes.
STABLE = ["--no-show-locs", "--no-corpus-path", "--no-comp-dir-path", "--no-elf-needed", "--type-id-style", "hash"]
RENEW = "tests/abi/check.py --renew build/lib/libmm-client.so include"


def run(*words, good=(0,), **options):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, **options)
    if done.returncode not in good:
        raise RuntimeError(f"{' '.join(map(str, words))}: {done.stdout}{done.stderr}")
    return done


def compiler():
    return os.environ.get("CC", "cc").split()


# ---- the library ----

def library_dump(library, include, path):
    run("abidw", "--headers-dir", include / "mm", "--drop-private-types", "--exported-interfaces-only", *STABLE,
        "--out-file", path, library)


def library_difference(golden, library, include):
    """What abidiff says of two dumps. With the library itself it would pass over all types, whatever their header."""
    with tempfile.TemporaryDirectory(prefix="mm-abi-") as place:
        now = pathlib.Path(place, "now.abi")
        library_dump(library, include, now)
        done = subprocess.run(["abidiff", str(golden), str(now)], capture_output=True, text=True, check=False)
    if done.returncode & 3:  # the tool failed, or its usage is another
        raise RuntimeError(f"abidiff: {done.stdout}{done.stderr}")
    return done.stdout if done.returncode else ""


# ---- the headers ----

class Types:
    """Structs and enums of an object with debug information, as abidw reads them."""

    def __init__(self, dump):
        self.types, self.names = {}, {}
        for node in xml.etree.ElementTree.parse(dump).iter():
            if "id" in node.attrib and node.tag.endswith(("-decl", "-def")):
                self.types.setdefault(node.get("id"), node)
                if node.tag in ("class-decl", "enum-decl") and node.get("is-declaration-only") != "yes":
                    self.names[node.get("name")] = node

    def base(self, type_id):
        """A type less typedefs, qualifiers and arrays: compilers differ in how they keep these."""
        node = self.types[type_id]
        if node.tag in ("typedef-decl", "qualified-type-def", "array-type-def"):
            return self.base(node.get("type-id"))
        return node

    def bits(self, type_id):
        node = self.types[type_id]
        if node.tag in ("typedef-decl", "qualified-type-def"):
            return self.bits(node.get("type-id"))
        if node.tag == "enum-decl":
            return self.bits(node.find("underlying-type").get("type-id"))
        return int(node.get("size-in-bits", 0))

    def spell(self, type_id):
        node = self.base(type_id)
        kind = {"pointer-type-def": "pointer", "enum-decl": "enum", "class-decl": "struct"}.get(node.tag, "")
        return " ".join(filter(None, (kind, node.get("name", ""))))

    def members(self, node, at=0):
        for member in node.iter("data-member"):
            offset = at + int(member.get("layout-offset-in-bits", 0))
            variable = member.find("var-decl")
            inner = self.base(variable.get("type-id"))
            if inner.get("is-anonymous") == "yes" and inner.tag in ("class-decl", "union-decl"):
                yield from self.members(inner, offset)
            else:
                yield (f"\t{offset // 8}\t{self.bits(variable.get('type-id')) // 8}\t{variable.get('name')}"
                       f"\t{self.spell(variable.get('type-id'))}")

    def text(self, kind, name):
        node = self.names[name]
        if kind == "enum":
            return [f"enum {name}", *(f"\t{e.get('value')}\t{e.get('name')}" for e in node.iter("enumerator"))]
        return [f"struct {name} {int(node.get('size-in-bits')) // 8}", *self.members(node)]


def header_types(include, place):
    """A variable of each struct and enum, in an object of its own: its debug information has them all."""
    found, source = [], []
    for header in HEADERS:
        source.append(f'#include "mm/{header}"')
        for kind, name in re.findall(r"^(struct|enum) (mm_\w+) \{", (include / "mm" / header).read_text(), re.MULTILINE):
            source.append(f"{kind} {name} use_{name};")
            found.append((kind, name))
    (place / "types.c").write_text("\n".join(source) + "\n")
    run(*compiler(), "-g", "-shared", "-fPIC", "-I", include, place / "types.c", "-o", place / "types.so")
    run("abidw", *STABLE, "--out-file", place / "types.abi", place / "types.so")
    types = Types(place / "types.abi")
    return [line for kind, name in found for line in types.text(kind, name)]


def header_constants(include, place):
    """Each MM_ macro without parameters, as a compiled program prints it."""
    names, source = [], ["#include <stdio.h>"]
    for header in HEADERS:
        source.append(f'#include "mm/{header}"')
        names += re.findall(r"^#define (MM_\w+)[ \t]", (include / "mm" / header).read_text(), re.MULTILINE)
    names = [name for name in dict.fromkeys(names) if name not in NO_VALUE]
    source += ["static void print_at(const char *name, const char *text, long long number)",
               "{ if (text) printf(\"%s\\t\\\"%s\\\"\\n\", name, text); else printf(\"%s\\t%lld\\n\", name, number); }",
               "int main(void) {"]
    for name in names:
        source.append(f'print_at("{name}", _Generic(({name}), char *: (const char *)(unsigned long)({name}), '
                      f'default: (const char *)0), (long long)_Generic(({name}), char *: 0, default: ({name})));')
    (place / "constants.c").write_text("\n".join([*source, "return 0; }"]) + "\n")
    run(*compiler(), "-w", "-I", include, place / "constants.c", "-o", place / "constants")
    return ["constants", *("\t" + line for line in run(place / "constants").stdout.splitlines())]


def headers_text(include):
    with tempfile.TemporaryDirectory(prefix="mm-abi-") as name:
        place = pathlib.Path(name)
        lines = header_types(include, place) + header_constants(include, place)
    return "\n".join(lines) + "\n"


def headers_difference(golden, include):
    with tempfile.NamedTemporaryFile("w", prefix="mm-abi-", suffix=".txt") as now:
        now.write(headers_text(include))
        now.flush()
        return run("diff", "-U", "0", "-F", "^[a-z]", "--label", "committed", "--label", "now", golden, now.name,
                   good=(0, 1)).stdout


# ---- both ----

def missing(library):
    for tool in ("abidw", "abidiff"):
        if not shutil.which(tool):
            return f"no {tool} here (package abigail-tools)"
    if ".debug_info" not in run("readelf", "-SW", library).stdout:
        return f"{library} has no debug information: build it as RelWithDebInfo or Debug"
    return None


def check(library, include, golden=HERE):
    """The differences; an empty text if there are none."""
    parts = [library_difference(golden / "libmm-client.abi", library, include),
             headers_difference(golden / "headers.txt", include)]
    return "\n".join(part for part in parts if part)


def main():
    words = [word for word in sys.argv[1:] if word != "--renew"]
    if len(words) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    library, include = map(pathlib.Path, words)
    reason = missing(library)
    if reason:
        print(f"skipped: {reason}")
        return 77
    if "--renew" in sys.argv:
        library_dump(library, include, HERE / "libmm-client.abi")
        (HERE / "headers.txt").write_text(headers_text(include))
        return 0
    difference = check(library, include)
    if difference:
        print(difference)
        print("The public ABI has changed. If it may (Documentation/abi.md, What may change), count "
              f"MM_CLIENT_ABI_MINOR up, write it into CHANGELOG.md, and renew what is committed:\n  {RENEW}")
    return 1 if difference else 0


if __name__ == "__main__":
    sys.exit(main())
