#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What programs share only grows: what the frozen headers say is found again, at its place, in those of today.

usage: wire.py [--self-test] FROZEN_INCLUDE INCLUDE [CC]

FROZEN_INCLUDE holds the headers as they were when they were frozen (tests/abi/frozen), INCLUDE those of today: the
wire (abi.h), what an engine calls (client.h), the driver's table (gpu.h), and what these include. Every constant,
every member of an enum, every field's place and length, and every struct's size is printed by a program that is
compiled against each of the two, and declares each function again as it was. All must be equal, with these
exceptions: counts and sets of all known bits may grow, the structs of GROWS and those whose size a caller says may
get longer, and what was reserved may become something else.

--self-test: spoils today's header in several ways and fails unless each of them is found.

exit status: 0 all is there; 1 something is not, with a line for each
"""
import functools
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HEADERS = ("abi.h", "client.h", "gpu.h")
# What may get longer at its end, beside what begins with its size. That of struct mm_pack is beside the list.
GROWS = {"mm_hello", "mm_welcome", "mm_tenant_region", "mm_mmd_region", "mm_gate_region", "mm_pack"}
# Numbers that count what there is, or hold all known bits or the minor version: never smaller.
COUNTS = re.compile(r"(_COUNT|_KNOWN|_MODES|_MINOR|^MM_CLIENT_ABI)$")


def without_comments(text):
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)


def constants(text):
    """Object-like macros that are numbers, and members of enums."""
    macros = re.findall(r"^#define[ \t]+(MM_\w+)[ \t]+(?!__attribute__|\")\S", text, re.MULTILINE)
    members = [name for body in re.findall(r"enum\s+\w+\s*\{(.*?)\}", text, re.DOTALL)
               for name in re.findall(r"\b(MM_\w+)\b\s*(?:=[^,]*)?(?:,|$)", body.strip())]
    return macros + members


def braces(text, start):
    """The end of the block that begins with the brace at @start."""
    depth = 0
    for at in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if not depth:
            return at
    raise ValueError("a brace is not closed")


def fields(body):
    """The names in a struct's body; those of its unnamed unions and structs are its own."""
    found, at = [], 0
    for inner in re.finditer(r"\b(?:union|struct)\s*\{", body):
        if inner.start() < at:
            continue
        end = braces(body, inner.end() - 1)
        found += fields(body[at:inner.start()]) + fields(body[inner.end():end])
        at = body.index(";", end) + 1
    for declaration in body[at:].split(";"):
        names = re.findall(r"(\w+)\s*(?:\[[^]]*\]\s*)*$", declaration.strip())
        found += names if len(declaration.split()) > 1 else []
    return found


def structs(text):
    found = {}
    for head in re.finditer(r"\bstruct\s+(mm_\w+)\s*\{", text):
        found[head[1]] = fields(text[head.end():braces(text, head.end() - 1)])
    entries = re.findall(r"\bX\((?:REQUIRED|OPTIONAL), (\w+),", text)
    assert entries, "the driver's table has no entries"
    found["mm_gpu_api"] = ["size", "library", *entries]
    return found


def functions(text):
    """Each once more, as it was: a compiler refuses one that has become another."""
    for function in re.findall(r"^MM_API\s+([^;]*);", text, re.MULTILINE):
        name = re.search(r"(mm_\w+)\(", function)[1]
        yield f'_Static_assert(sizeof(&{name}) > 0, "");\n{function};'


def program(text):
    lines = ['#include <stddef.h>', '#include <stdio.h>', *(f'#include "mm/{name}"' for name in HEADERS),
             *functions(text), "int main(void)", "{"]
    for name in constants(text):
        lines.append(f'#ifdef {name}\n#define HAS_{name} 1\n#endif')
        lines.append(f'\tprintf("constant {name} %lld\\n", (long long)({name}));')
    for name, members in structs(text).items():
        lines.append(f'\tprintf("struct {name} %zu\\n", sizeof(struct {name}));')
        for member in members:
            lines.append(f'\tprintf("field {name}.{member} %zu %zu\\n", offsetof(struct {name}, {member}), '
                         f'sizeof(((struct {name} *)0)->{member}));')
    return "\n".join([*lines, "\treturn 0;", "}", ""])


def headers(include):
    """The text of HEADERS and of those that they include."""
    top, text, names = pathlib.Path(include, "mm"), "", list(HEADERS)
    for name in names:
        more = (top / name).read_text(encoding="utf-8")
        names += [other for other in re.findall(r'#include "mm/(\w+\.h)"', more) if other not in names]
        text += more
    return without_comments(text)


@functools.cache
def printed(text, include, compiler):
    """What the program about the names in @text prints when compiled against @include; or why it is not compiled."""
    with tempfile.TemporaryDirectory(prefix="mm-wire-") as place:
        source, binary = pathlib.Path(place, "dump.c"), pathlib.Path(place, "dump")
        source.write_text(program(text), encoding="utf-8")
        built = subprocess.run([compiler, "-std=gnu17", "-w", "-I", str(include), "-o", str(binary), str(source)],
                               capture_output=True, text=True, check=False)
        if built.returncode:
            return None, re.findall(r"error: (.*)", built.stderr)
        out = subprocess.run([str(binary)], check=True, capture_output=True, text=True).stdout
    found = {}
    for line in out.splitlines():
        kind, name, *numbers = line.split()
        found[kind, name] = [int(n) for n in numbers]
    return found, []


def changed(kind, name, old, new, grows):
    if kind == "constant" and COUNTS.search(name):
        return new[0] < old[0] or (name.endswith("_KNOWN") and old[0] & ~new[0])
    if kind == "struct" and name in grows:
        return new[0] < old[0]
    return old != new


def compare(frozen, include, compiler):
    """A line for each thing that is not as it was."""
    text = headers(frozen)
    # Reserved fields may be used up, and no others.
    text = re.sub(r"[^;{}]*\breserved\w*\s*(?:\[[^]]*\])?\s*;", "", text)
    old, wrong = printed(text, frozen, compiler)
    assert old, wrong
    assert len(old) > 400, f"only {len(old)} names were found in {frozen}"
    new, wrong = printed(text, include, compiler)
    if new is None:
        return [f"what was there is gone or another: {line}" for line in wrong]
    grows = GROWS | {name for name, members in structs(text).items() if members[:1] == ["size"]}
    return [f"{kind} {name}: {old[kind, name]} became {new[kind, name]}" for kind, name in old
            if changed(kind, name, old[kind, name], new[kind, name], grows)]


# Edits of today's header, and what must be said of them; None: nothing.
SPOILED = [
    ("\tuint64_t page_bytes;\n", "\tuint32_t moved;\n\tuint32_t more;\n\tuint64_t page_bytes;\n", "field mm_welcome."),
    ("\tMM_OP_KV_WANT,", "\tMM_OP_NOVEL,\n\tMM_OP_KV_WANT,", "constant MM_OP_KV_WANT"),
    ("\tMM_OP_COUNT\n", "\tMM_OP_NOVEL,\n\tMM_OP_COUNT\n", None),
    ("#define MM_FEAT_RECLAIM (UINT64_C(1) << 1)", "#define MM_FEAT_RECLAIM (UINT64_C(1) << 9)", "MM_FEAT_RECLAIM"),
    ("#define MM_MAP_KV_BASE 32768", "#define MM_MAP_KV_BASE 16384", "MM_MAP_KV_BASE"),
    ("\tuint32_t value; /* free-running", "\tuint32_t renamed; /* free-running", "gone"),
    ("\tuint64_t reserved[58];\n", "\tuint64_t novel[8];\n\tuint64_t reserved[82];\n", None),
    ("\tuint32_t map[MM_MAP_ENTRIES];", "\tuint64_t map[MM_MAP_ENTRIES];", "field mm_mmd_region.map"),
    ("\tuint64_t arena_offset;", "\tuint64_t flags;\n\tuint64_t arena_offset;", "mm_swap_piece"),
    ("\tuint64_t plan_changes;", "\tuint64_t novel;\n\tuint64_t plan_changes;", "field mm_client_info.plan_changes"),
    ("\tuint64_t quantum_ns; /*", "\tuint64_t quantum_ns, novel; /*", None),
    ("\tMM_EVENT_SWAPPED,", "\tMM_EVENT_NOVEL,\n\tMM_EVENT_SWAPPED,", "constant MM_EVENT_SWAPPED"),
    ("MM_API int mm_kv_release(struct mm_kv *kv, uint32_t chunk);",
     "MM_API int mm_kv_release(struct mm_kv *kv, uint64_t chunk);", "mm_kv_release"),
    ("MM_API uint32_t mm_client_abi(void);", "", "mm_client_abi"),
    ("\tX(REQUIRED, cuDeviceGet,", "\tX(OPTIONAL, cuNovel, 2000, (void))  \\\n\tX(REQUIRED, cuDeviceGet,",
     "field mm_gpu_api.cuDeviceGet:"),
]


def self_test(frozen, include, compiler):
    wrong = []
    for old, new, want in SPOILED:
        with tempfile.TemporaryDirectory(prefix="mm-wire-") as place:
            found = False
            for source in pathlib.Path(include, "mm").glob("*.h"):
                text = source.read_text(encoding="utf-8")
                found |= old in text
                # Its own assertions would speak first.
                text = re.sub(r"static_assert\(.*?\);", "", text.replace(old, new), flags=re.DOTALL)
                target = pathlib.Path(place, "mm", source.name)
                target.parent.mkdir(exist_ok=True)
                target.write_text(text, encoding="utf-8")
            if not found:
                wrong.append(f"the self-test knows a header that has {old!r}")
                continue
            lines = compare(frozen, place, compiler)
            if (not lines) if want else lines:
                wrong.append(f"{new!r}: {lines or 'not found'}")
            elif want and not any(want in line for line in lines):
                wrong.append(f"{new!r}: no line says {want!r}: {lines}")
    return wrong


def main():
    args = [a for a in sys.argv[1:] if a != "--self-test"]
    compiler = args[2] if len(args) > 2 else os.environ.get("CC", "cc")
    check = self_test if "--self-test" in sys.argv else compare
    lines = check(args[0], args[1], compiler)
    print("\n".join(lines))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
