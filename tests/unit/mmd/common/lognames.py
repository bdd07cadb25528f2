# SPDX-License-Identifier: Apache-2.0
"""
Each event that mmd logs is in the table of mmd/common/lognames.c with its levels and keys, nothing else is in it, and
Documentation/events.md says the same. `lognames.py --write` writes that document's table.
"""

import collections
import pathlib
import re
import sys

TOP = pathlib.Path(__file__).resolve().parents[4]
TABLE, DOCUMENT = TOP / "mmd/common/lognames.c", TOP / "Documentation/events.md"
BEGIN, END = "<!-- table: begin -->\n", "<!-- table: end -->\n"
CALL = re.compile(r"\b(?:mm_log|mm_session_log)\(")
LOGGED_BY_ITSELF = ["mmd/common/log.c", "mmd/common/audit.c"]  # log.dropped, audit.dropped
LEVELS = {"MM_LOG_ERROR": "error", "MM_LOG_WARN": "warn", "MM_LOG_INFO": "info", "MM_LOG_DEBUG": "debug"}
# The level or the name comes from a parameter there: what the callers pass.
PASSED = {"tenant.refused": {"warn", "info"}, "device.health": {"warn", "error"}}


def call_text(source, at):
    """From the parenthesis at @at to its end."""
    depth, i, quoted = 0, at, False
    while True:
        c = source[i]
        if quoted:
            i += c == "\\"
            quoted = c != '"'
        elif c == '"':
            quoted = True
        else:
            depth += (c == "(") - (c == ")")
            if depth == 0:
                return source[at + 1:i]
        i += 1


def arguments(text):
    parts, depth, quoted, part, i = [], 0, False, "", 0
    while i < len(text):
        c = text[i]
        if quoted and c == "\\":
            part += text[i:i + 2]
            i += 2
            continue
        if c == '"':
            quoted = not quoted
        elif not quoted:
            depth += (c in "([{") - (c in ")]}")
            if c == "," and depth == 0:
                parts.append(part.strip())
                part, i = "", i + 1
                continue
        part += c
        i += 1
    return parts + [part.strip()]


def literal(text):
    """The strings of C that stand one behind the other, macros in between as %."""
    out = ""
    for piece in re.finditer(r'"((?:[^"\\]|\\.)*)"|(\w+)', text):
        out += piece.group(1).replace('\\"', '"') if piece.group(1) is not None else "%"
    return out


def keys_of(fmt):
    outside = re.sub(r'"[^"]*"', "S", fmt)
    return re.findall(r"(?:^| )(%s|[a-z][a-z0-9_]*)=", outside)


def logged():
    """name -> (levels, keys, where)"""
    found = collections.OrderedDict()
    for path in sorted(TOP.glob("mmd/**/*.c")):
        if str(path.relative_to(TOP)) in LOGGED_BY_ITSELF:
            continue
        source = re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group().count("\n"), path.read_text(), flags=re.S)
        for match in CALL.finditer(source):
            args = arguments(call_text(source, match.end() - 1))
            args = args[1:] if source[match.start():match.end()].startswith("mm_session") else args
            if args[0].startswith("enum mm_log_level"):
                continue
            where = f"{path.relative_to(TOP)}:{source[:match.start()].count(chr(10)) + 1}"
            name = literal(args[1])
            assert re.fullmatch(r"[a-z]+\.[a-z_]+", name), f"{where}: the name of an event is not in the code: {args[1]}"
            levels = {LEVELS[word] for word in re.findall(r"MM_LOG_\w+", args[0])} or PASSED[name]
            one = found.setdefault(name, (set(), [], []))
            one[0].update(levels)
            one[1].extend(key for key in keys_of(literal(args[2])) if key not in one[1])
            one[2].append(where)
    return found


def table():
    """name -> (levels, keys, meaning, audited)"""
    found = collections.OrderedDict()
    text = TABLE.read_text()
    rows = re.findall(r'\{ \.name = ((?:.|\n)*?) \},\n', text)
    for row in rows:
        if row == "NULL":
            continue
        field = {key: literal(value) for key, value in
                 re.findall(r'\.(name|levels|keys|meaning) = ((?:"(?:[^"\\]|\\.)*"\s*)+)', ".name = " + row)}
        assert field["name"] not in found, f"{field['name']} is there twice"
        found[field["name"]] = (field["levels"], field.get("keys", ""), field["meaning"], ".audited = true" in row)
    return found


def document(rows):
    lines = ["| event | level | keys | |\n", "|---|---|---|---|\n"]
    for name, (levels, keys, meaning, audited) in rows.items():
        mark = " **Audited.**" if audited else ""
        lines.append(f"| `{name}` | {levels} | {keys} | {meaning}.{mark} |\n")
    return "".join(lines)


def check():
    code, rows, wrong = logged(), table(), []
    for name, (levels, keys, where) in code.items():
        if name not in rows:
            wrong.append(f"{where[0]}: {name} is not in {TABLE.name}: levels {sorted(levels)} keys {' '.join(keys)}")
            continue
        if set(rows[name][0].split(", ")) != levels:
            wrong.append(f"{name}: the table has the levels {rows[name][0]}, the code {', '.join(sorted(levels))}")
        if sorted(rows[name][1].split()) != sorted(keys):
            wrong.append(f"{name}: the table has the keys {rows[name][1]}, the code {' '.join(keys)}")
    by_itself = "".join((TOP / path).read_text() for path in LOGGED_BY_ITSELF)
    for name in rows:
        if name not in code and f'"{name}"' not in by_itself:
            wrong.append(f"{name}: nobody logs it")
    if list(rows) != sorted(rows):
        wrong.append("the table is not sorted by name")
    if BEGIN + document(rows) + END not in DOCUMENT.read_text():
        wrong.append(f"{DOCUMENT.name} is not the table's: {pathlib.Path(__file__).name} --write makes it so")
    return wrong


def write():
    text = DOCUMENT.read_text()
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    DOCUMENT.write_text(text[:begin] + document(table()) + text[end:])


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        write()
    elif sys.argv[1:] == ["--list"]:
        for event, (its_levels, its_keys, places) in sorted(logged().items()):
            print(event, "|", ", ".join(sorted(its_levels)), "|", " ".join(its_keys), "|", places[0])
    faults = [] if sys.argv[1:] == ["--list"] else check()
    print("\n".join(faults), end="\n" if faults else "")
    sys.exit(bool(faults))
