#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The include rule: which room may use which, and that neither files nor rooms lie in a circle.

usage: rooms.py [--list] [--build DIR] [SOURCE_DIR]

A room is a folder with sources; ROOMS says what each may include. Tests may include everything, so they are not
looked at. With --build DIR calls are checked as well, by the symbols of the objects there: a function that is
declared by hand, or called through a macro, is an edge like any other. Within mmd/core no files call each other
in a circle, either. --list prints the edges that there are.

exit status: 0 all is as ROOMS says; 1 it is not, with a line for each edge that is wrong; 2 usage
"""
import argparse
import collections
import os
import pathlib
import re
import subprocess
import sys

# Headers that are rooms of their own: what is installed, and the front door of mmd/core with the types of its
# events and actions, which its rooms and its callers share.
API = {
    "include/mm/types.h": "types.h",
    "include/mm/abi.h": "abi.h",
    "include/mm/client.h": "client.h",
    "include/mm/client_cold.h": "client.h",
    "include/mm/client_group.h": "client.h",
    "include/mm/client_model.h": "client.h",
    "include/mm/gpu.h": "gpu.h",
    "include/mm/softgpu.h": "softgpu.h",
    "mmd/core/core.h": "core.h",
    "mmd/core/knobs.h": "knobs.h",
}

CORE = "core.h knobs.h abi.h protocol fields base"
LAB = ("abi.h client.h gpu.h softgpu.h core.h knobs.h base support ipc protocol model client common config fields journal core core/market "
       "core/plan core/book core/out explain args driver launch timing host blas sched engine tools/common")

# Room: its folder, and the rooms that it may use besides itself.
ROOMS = {
    "types.h": ("", ""),
    "abi.h": ("", "types.h"),
    "gpu.h": ("", ""),
    "softgpu.h": ("", ""),
    "client.h": ("", "types.h"),
    "core.h": ("", "abi.h base"),
    "knobs.h": ("", "core.h base"),
    "base": ("libclient/base", "types.h"),
    "support": ("libclient/support", "base"),
    "ipc": ("libclient/ipc", "abi.h support base"),
    "protocol": ("libclient/protocol", "abi.h base"),
    "model": ("libclient/model", "abi.h ipc support base"),
    "client": ("libclient/client", "abi.h client.h gpu.h model protocol ipc support base driver"),
    # The adapters for engines see what is installed.
    "ggml": ("libclient/ggml", "client.h gpu.h"),
    "python": ("libclient/python/mmd", "client.h"),
    # Structs by the names of their fields, for images that another build reads.
    "fields": ("mmd/fields", "base"),
    "core/out": ("mmd/core/out", CORE),
    "core/book": ("mmd/core/book", CORE + " core/out"),
    "core/plan": ("mmd/core/plan", CORE + " core/book core/out"),
    "core/market": ("mmd/core/market", CORE + " core/plan core/book core/out"),
    "core": ("mmd/core", CORE + " core/market core/plan core/book core/out"),
    "common": ("mmd/common", "abi.h protocol ipc support base"),
    # config sees core for its limits and knobs.
    "config": ("mmd/config", "abi.h core.h knobs.h core common support base"),
    # Events of a core, written down: pure, over memory of the caller.
    "journal": ("mmd/journal", "core.h core base"),
    # What the core decided, in words: for shell and the simulator.
    "explain": ("mmd/explain", "core.h core support base"),
    "shell": ("mmd/shell", "abi.h core.h knobs.h core journal fields config explain common protocol model ipc support base driver"),
    "keeper": ("mmd/keeper", "fields config common ipc support base"),
    "xfer": ("mmd/xfer", "abi.h gpu.h softgpu.h common protocol ipc support base driver"),
    "load": ("mmd/load", "abi.h common model ipc support base"),
    "spool": ("mmd/spool", "abi.h config common ipc support base"),
    "main": ("mmd", "config common keeper shell xfer load spool support base"),
    "args": ("kernels/args", "abi.h base"),
    "driver": ("kernels/driver", "gpu.h support base"),
    "timing": ("kernels/timing", "support base"),
    "host": ("kernels/host", "args timing support base"),
    "launch": ("kernels/launch", "args host base"),
    "blas": ("kernels/blas", "gpu.h args launch driver support base"),
    "softgpu": ("kernels/softgpu", "gpu.h softgpu.h host timing driver support base"),
    "softblas": ("kernels/softblas", "abi.h gpu.h blas host base"),
    "emulate": ("kernels/emulate", "abi.h host support base"),
    # cuda/device.h stands for the toolkit's headers by the emulation's where kernels are compiled for the host.
    "cuda": ("kernels/cuda", "args launch host emulate"),
    # What mmctl and the laboratory share: speaking to a running mmd.
    "tools/common": ("tools/common", "ipc support base"),
    # mmctl asks NVML for MIG instances. "plan estimate" predicts by the controller's own arithmetic (plan.h, value.h) what
    # the model of a device's time says of a step, and reads a model's sizes as the engine does: no second copy of either.
    "mmctl": ("tools/mmctl", "abi.h core.h core/market core/plan tools/common lab/stepcost timing engine model ipc support base driver"),
    "sched": ("tools/mmserve/sched", "gpu.h args support base"),
    # An engine like anybody's: of the client it sees what is installed, and nothing else.
    "engine": ("tools/mmserve/engine", "client.h gpu.h abi.h sched model support base args driver launch host blas"),
    # Tokenizers know no engine; the server knows its inbox.
    "text": ("tools/mmserve/text", "support base"),
    "http": ("tools/mmserve/http", "engine text support base"),
    "mmserve": ("tools/mmserve", "gpu.h http text engine sched model support base"),
    "lab/stepcost": ("tools/lab/stepcost", "model timing base"),
    "lab/workload": ("tools/lab/workload", LAB + " lab/stepcost"),
    "lab/mkmodel": ("tools/lab/mkmodel", LAB),
    "lab/common": ("tools/lab/common", LAB + " lab/workload lab/stepcost"),
    # It is no client of ours: it sees the bytes of the ABI, and how to send them.
    "lab/hostile": ("tools/lab/hostile", "abi.h ipc support base"),
    "lab/gpubench": ("tools/lab/gpubench", LAB + " lab/common lab/workload lab/stepcost"),
    "lab/mmbench": ("tools/lab/mmbench", LAB + " lab/common lab/workload lab/stepcost lab/hostile"),
    "lab/mmsim": ("tools/lab/mmsim", LAB + " lab/workload lab/stepcost"),
}

# What is pure sees neither files nor processes nor JSON, by whatever header.
PURE = {"base", "protocol", "fields", "journal", "core.h", "knobs.h", "core", "core/market", "core/plan", "core/book", "core/out"}
IMPURE = {"stdio.h", "unistd.h", "jansson.h"}
PRINTS = {"libclient/base/panic.c"}  # the last sentence of a process

FOLDERS = {folder: room for room, (folder, _) in ROOMS.items() if folder}
SOURCES = (".c", ".h", ".cu")


def room_of(path):
    """The room of a source, or None: tests, examples, files that a build makes."""
    return API.get(path) or FOLDERS.get(os.path.dirname(path))


def sources(top):
    for base in ("include", "libclient", "mmd", "kernels", "tools"):
        for folder, _, names in sorted(os.walk(top / base)):
            for name in sorted(names):
                if name.endswith(SOURCES):
                    yield (pathlib.Path(folder) / name).relative_to(top).as_posix()


def includes(top, files):
    """Yields (source, the tree's header that it includes or None, as it is spelled, the quotation mark)."""
    for path in files:
        text = (top / path).read_text(encoding="utf-8")
        for quote, name in re.findall(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', text, re.MULTILINE):
            beside = os.path.normpath(os.path.join(os.path.dirname(path), name))
            found = next((at for at in (name, "include/" + name, beside) if at in files), None)
            yield path, found, name, quote


def circles(edges):
    """The sets of more than one node of which each reaches each other (Tarjan)."""
    to, index, low, stack, found = collections.defaultdict(list), {}, {}, [], []
    for here, there in sorted(edges):
        if here != there:
            to[here].append(there)

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in to[node]:
            if other not in index:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == index[node]:
            at = stack.index(node)
            found.append(stack[at:])
            del stack[at:]

    for node in sorted(to):
        if node not in index:
            visit(node)
    return [sorted(circle) for circle in found if len(circle) > 1]


def may(here, there):
    return here == there or there in ROOMS[here][1].split()


def impure(files, pairs):
    """Yields (source, system header, the header by which it comes) for each pure source that sees one."""
    to, system = collections.defaultdict(set), collections.defaultdict(set)
    for path, header, name, _ in pairs:
        if header:
            to[path].add(header)
        elif name in IMPURE:
            system[path].add(name)
    for path in files:
        if room_of(path) not in PURE or path in PRINTS:
            continue
        seen, todo = {path}, [path]
        while todo:
            at = todo.pop()
            for name in sorted(system[at]):
                yield path, name, at
            todo += to[at] - seen
            seen |= to[at]


def objects(build, files):
    """Yields (source, object) of a CMake build: DIR/CMakeFiles/TARGET.dir/SOURCE.o."""
    for path in sorted(build.rglob("*.o")):
        match = re.fullmatch(r"(?:(.*)/)?CMakeFiles/[^/]+\.dir/(.+)\.o", path.relative_to(build).as_posix())
        if match:
            source = os.path.normpath(os.path.join(match[1] or "", match[2]))
            if source in files:
                yield source, path


def symbols(build, files):
    """The sources that define each global symbol, and the symbols that each source lacks."""
    defined, lacks = collections.defaultdict(set), collections.defaultdict(set)
    found = list(objects(build, files))
    of = {str(path): source for source, path in found}
    names = sorted(of)
    for first in range(0, len(names), 200):
        part = names[first:first + 200]
        lines = subprocess.run(["nm", "-g", "-A", *part], check=True, capture_output=True, text=True).stdout.splitlines()
        for line in lines:
            path, _, rest = line.partition(":")
            kind, symbol = rest.split()[-2:]
            if kind == "U":
                lacks[of[path]].add(symbol)
            else:
                defined[symbol].add(of[path])
    return defined, lacks


def declared(top):
    """{symbol: header} of what the headers of API declare: whoever may include one may call it."""
    found = {}
    for header in API:
        if (top / header).exists():
            text = re.sub(r"/\*.*?\*/", " ", (top / header).read_text(encoding="utf-8"), flags=re.DOTALL)
            found.update((name, header) for name in re.findall(r"\b(mm_\w+)\(", text))
    return found


def calls(defined, lacks, api):
    """{(caller, callee): symbols}. A symbol that several sources define is an edge to one that may be called."""
    edges = collections.defaultdict(set)
    for path, wanted in lacks.items():
        here = room_of(path)
        for symbol in wanted & defined.keys():
            places = sorted(defined[symbol], key=lambda place: (not may(here, room_of(place)), place))
            to = places[0]
            if symbol in api and room_of(to) != here and may(here, room_of(api[symbol])):
                to = api[symbol]
            edges[path, to].add(symbol)
    return edges


def main():
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("source", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--build", type=pathlib.Path)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--help", "-h", action="store_true")
    opts = parser.parse_args()
    if opts.help:
        print(__doc__.strip())
        return 0
    files = set(sources(opts.source))
    pairs = list(includes(opts.source, files))
    wrong, used = [], collections.defaultdict(set)

    for path in sorted(files):
        if not room_of(path):
            wrong.append(f"{path}: lies in no room")
    for room, (_, allowed) in ROOMS.items():
        wrong += [f"ROOMS: {room} may use {other}, which is no room" for other in allowed.split() if other not in ROOMS]
    wrong += [f"ROOMS: circle: {' '.join(c)}" for c in
              circles({(room, other) for room, (_, allowed) in ROOMS.items() for other in allowed.split()})]

    for path, header, name, quote in pairs:
        if header is None:
            continue
        here, there = room_of(path), room_of(header)
        if not here or not there:
            continue
        used[here, there].add(f"{path} includes {header}")
        if quote == "<" or name not in (header, header.removeprefix("include/")):
            wrong.append(f"{path} includes {name}: by its whole path and in quotation marks, please")
        if not may(here, there):
            wrong.append(f"{path} ({here}) includes {header} ({there})")
    for circle in circles({(path, header) for path, header, _, _ in pairs if header}):
        wrong.append(f"circle of includes: {' '.join(circle)}")
    for path, name, at in sorted(set(impure(files, pairs))):
        wrong.append(f"{path} sees <{name}>" + (f" by {at}" if at != path else ""))

    if opts.build:
        edges = calls(*symbols(opts.build, files), declared(opts.source))
        if not edges:
            wrong.append(f"{opts.build}: no objects of this tree")
        for (path, other), names in sorted(edges.items()):
            here, there = room_of(path), room_of(other)
            used[here, there].add(f"{path} calls {other}")
            if not may(here, there):
                wrong.append(f"{path} ({here}) calls {other} ({there}): {' '.join(sorted(names))}")
        core = {pair for pair in edges if all(path.startswith("mmd/core/") and path not in API for path in pair)}
        wrong += [f"circle of calls: {' '.join(circle)}" for circle in circles(core)]

    if opts.list:
        for (here, there), how in sorted(used.items()):
            if here != there:
                print(f"{here} -> {there}: {len(how)}")
    for line in sorted(set(wrong)):
        print(line)
    if wrong:
        print("ROOMS in tests/rooms.py is the rule; CONTRIBUTING.md says how to live with it")
    else:
        edges = sum(1 for here, there in used if here != there)
        print(f"{len(files)} files in {len(ROOMS)} rooms, {edges} edges between rooms, all allowed; no circle")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
