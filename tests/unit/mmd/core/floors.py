# SPDX-License-Identifier: Apache-2.0
"""Floors of mmd/core: nothing calls or includes what is above it, and no files lie in a circle.

usage: floors.py NM ARCHIVE SOURCE_DIR

Calls are read from the symbols of the compiled objects, so a call through a macro counts too. What a floor keeps
of the core or of a tenant is declared in its own headers, so that who may not include those cannot look into it.
"""
import collections
import os
import re
import subprocess
import sys

# From the top. A file may use what is on its own floor or below; API headers are everybody's.
FLOORS = {
    "front": "core.c events.c reports.c operator.c requests.c requests.h life.c life.h settle.c settle.h ladder.c ladder.h "
             "check.c knobs.c",
    "market": "controller.c controller.h policy.c policy.h naive.c naive.h home.c home.h rotate.c rotate.h lend.c lend.h "
              "lends.h worth.c worth.h supply.c supply.h cost.c cost.h rank.c rank.h turn.c turn.h wish.c wish.h "
              "forecast.c forecast.h order.c order.h market.c market.h",
    "plan": "plan.c plan.h layers.c layers.h sets.c sets.h change.c change.h change_rows.c control.c control.h swap.c swap.h "
            "plans.c plans.h",
    "book": "book.h account.c account.h ledger.c ledger.h pages.c pages.h quota.c quota.h health.c health.h kv.c kv.h "
            "load.c load.h tell.c tell.h upkeep.c upkeep.h",
    "out": "queue.c queue.h jobs.c jobs.h",
}
API = {"core.h", "knobs.h"}
ROOMS = ("market", "plan", "book", "out")

HEIGHT = {}
for height, names in enumerate(reversed(FLOORS.values())):
    HEIGHT.update(dict.fromkeys(names.split(), height))


def symbols(nm, archive):
    """Returns the file that defines each global symbol, and the symbols that each file lacks."""
    defined, lacks, name = {}, collections.defaultdict(set), None
    for line in subprocess.run([nm, "-g", archive], check=True, capture_output=True, text=True).stdout.splitlines():
        if line.endswith(".o:"):
            name = line[:-3]
        elif line.strip():
            kind, symbol = line.split()[-2:]
            if kind == "U":
                lacks[name].add(symbol)
            else:
                defined[symbol] = name
    return defined, lacks


def calls(defined, lacks):
    """Returns which symbols each pair of files has in common: {(caller, callee): {symbol}}."""
    edges = collections.defaultdict(set)
    for name, wanted in lacks.items():
        for symbol in wanted & defined.keys():
            edges[name, defined[symbol]].add(symbol)
    return edges


def sources(source_dir):
    """Yields (folder, name) of each source of core, in its rooms too."""
    for folder in (source_dir, *(os.path.join(source_dir, room) for room in ROOMS)):
        for name in sorted(os.listdir(folder)):
            if name.endswith((".c", ".h")):
                yield folder, name


def includes(source_dir):
    """Yields which file includes which header of core."""
    for folder, name in sources(source_dir):
        with open(os.path.join(folder, name), encoding="utf-8") as source:
            for path in re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', source.read(), re.MULTILINE):
                header = os.path.basename(path)
                if path.startswith("mmd/core/") and header in HEIGHT.keys() | API:
                    yield name, header


def circles(edges):
    """Returns the sets of more than one file of which each reaches each other (Tarjan)."""
    to, index, low, stack, found = collections.defaultdict(list), {}, {}, [], []
    for caller, callee in sorted(edges):
        to[caller].append(callee)

    def visit(name):
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in to[name]:
            if other not in index:
                visit(other)
            if other in stack:
                low[name] = min(low[name], low[other])
        if low[name] == index[name]:
            at = stack.index(name)
            found.append(stack[at:])
            del stack[at:]

    for name in sorted(to):
        if name not in index:
            visit(name)
    return [sorted(circle) for circle in found if len(circle) > 1]


def offences(nm, archive, source_dir):
    defined, lacks = symbols(nm, archive)
    for name in sorted(HEIGHT):
        if name.endswith(".c") and name not in defined.values():
            yield f"{archive} has no symbol of {name}: what it calls is not seen"
    edges = calls(defined, lacks)
    for (caller, callee), names in sorted(edges.items()):
        if HEIGHT[callee] > HEIGHT[caller]:
            yield f"{caller} calls {callee}: {' '.join(sorted(names))}"
    for circle in circles(edges):
        yield f"circle: {' '.join(circle)}"
    pairs = list(includes(source_dir))
    for name, header in pairs:
        if header not in API and HEIGHT[header] > HEIGHT.get(name, -1):
            yield f"{name} includes {header}"
    for circle in circles([pair for pair in pairs if pair[0].endswith(".h")]):
        yield f"circle of includes: {' '.join(circle)}"


def main():
    nm, archive, source_dir = sys.argv[1:4]
    files = {name for _, name in sources(source_dir)} - API
    if files != HEIGHT.keys():
        sys.exit(f"no floor is known of, or no such file: {sorted(files ^ HEIGHT.keys())}")
    found = list(offences(nm, archive, source_dir))
    for line in found:
        print(line)
    sys.exit(len(found) > 0)


main()
