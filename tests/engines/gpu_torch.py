#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpu_torch.py: what of the package mmd needs PyTorch's CUDA allocator and graphs, so a GPU.

usage: MM_CLIENT_LIB=build/lib/libmm-client.so.0 PYTHONPATH=libclient/python
       python3 tests/engines/gpu_torch.py [--help]

On a daemon of its own on the first GPU: PyTorch's tensors in memory of mmd's (mmd.torch.memory()),
all of which comes back; and a graph that PyTorch captures in its default mode, GLOBAL, while mmd
maps and unmaps memory of the same process in another thread. Prints a line for each and a last line
of JSON.

Status: 0 all holds; 1 something does not; 2 usage; 77 there is no GPU.
"""

import argparse
import contextlib
import gc
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

import torch

import mmd
import mmd.torch
from mmd.hf import demo

POOL = 512 << 20
TENSOR = 24 << 20
WAIT_S = 30


class Check:
    """A daemon, a client, and what was found."""

    def __init__(self, place, client):
        self.place, self.client = place, client
        self.found = {}

    def status(self):
        done = subprocess.run([demo.program("mmctl"), "--dir", str(self.place), "--json", "status"],
                              check=True, capture_output=True, text=True)
        return json.loads(done.stdout)

    def mem_pages(self):
        return self.status()["pages"]["mem"]

    def note(self, name, holds, **details):
        self.found[name] = {"holds": bool(holds), **details}
        print(f"{name}: {'holds' if holds else 'DOES NOT HOLD'} {details}", flush=True)


def memory(check):
    """Tensors in mmd's memory: counted, usable, and given back."""
    before = check.mem_pages()
    with mmd.torch.memory(check.client) as pool:
        tensor = torch.arange(TENSOR // 4, dtype=torch.int32, device="cuda")
    used = check.mem_pages()
    right = int(tensor.to(torch.int64).sum()) == (TENSOR // 4) * (TENSOR // 4 - 1) // 2
    del tensor, pool
    gc.collect()
    torch.cuda.empty_cache()
    end = time.monotonic() + WAIT_S
    while check.mem_pages() != before and time.monotonic() < end:
        time.sleep(0.05)
    page = check.client.info.page_bytes
    check.note("memory", right and (used - before) * page >= TENSOR and check.mem_pages() == before,
               sum_is_right=right, pages_used=used - before, pages_left=check.mem_pages() - before)


def capture(check):
    """A capture in mode GLOBAL while chunks come and go, which maps and unmaps beside it."""
    arena = check.client.arena(check.client.info.page_bytes, chunks=64)
    halt, errors, rounds = threading.Event(), [], [0]

    def breathe():
        try:
            while not halt.is_set():
                arena.want(32, timeout=WAIT_S)
                arena.release(arena.usable())
                rounds[0] += 1
        except mmd.Error as error:
            errors.append(str(error))

    x = torch.randn(256, 256, device="cuda")
    y = (x @ x).relu()
    torch.cuda.synchronize()
    thread = threading.Thread(target=breathe)
    thread.start()
    captures = 0
    try:
        for _ in range(20):
            begun = rounds[0]
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):  # capture_error_mode is "global"
                out = (x @ x).relu()
                end = time.monotonic() + WAIT_S
                while rounds[0] < begun + 2 and time.monotonic() < end and not errors:
                    time.sleep(0.001)
            out.zero_()
            graph.replay()
            torch.cuda.synchronize()
            captures += bool(torch.equal(out, y))
    except RuntimeError as error:
        errors.append(str(error).splitlines()[0])
    finally:
        halt.set()
        thread.join()
        arena.release(arena.usable())
    check.note("capture", captures == 20 and not errors, captures=captures, rounds=rounds[0],
               errors=errors)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.parse_args()
    if not torch.cuda.is_available():
        print("gpu_torch: PyTorch finds no GPU", file=sys.stderr)
        return 77
    torch.cuda.init()
    with tempfile.TemporaryDirectory() as text, contextlib.ExitStack() as stack:
        socket = stack.enter_context(demo.daemon(pathlib.Path(text), POOL, "cuda"))
        client = stack.enter_context(mmd.Client("gpu", socket))
        check = Check(socket.parent, client)
        memory(check)
        capture(check)
    print(json.dumps(check.found))
    return 0 if all(one["holds"] for one in check.found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
