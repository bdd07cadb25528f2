# SPDX-License-Identifier: Apache-2.0
"""Where weights lie on the host: the node asked for, explicit huge pages."""

import os
import pathlib
import re
import subprocess

import pytest

from programs import BIN, limit
from tenant import make_requests, plain_tokens

NODES = pathlib.Path("/sys/devices/system/node")
HUGE_FREE = pathlib.Path("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")


def nodes():
    return sorted(int(p.name[4:]) for p in NODES.glob("node[0-9]*")) if NODES.exists() else []


def store_lines(pid):
    """Of /proc/PID/numa_maps: the mappings of stores."""
    lines = pathlib.Path(f"/proc/{pid}/numa_maps").read_text().splitlines()
    return [line for line in lines if "mm-store" in line]


def run(root, start, serve, model, **options):
    """One tenant whose tokens are right; what status said of its store, and where its pages lay."""
    d = start(pool="16M", page="64K", **options)
    requests = make_requests(root / "requests.jsonl", 4)
    want = plain_tokens(root, model, requests)
    tenant = serve("t", model, requests, d, extra=["--verify"], sync=True).ready()
    store, pool = d.status()["stores"][0], d.ctl("pool", "show")
    lines = [line for pid in d.pids("xfer") for line in store_lines(pid)] if nodes() else []
    assert tenant.go().tokens() == want
    return store, pool, lines


@pytest.mark.skipif(not nodes(), reason="this kernel has no NUMA")
@pytest.mark.parametrize("node", nodes())
def test_node(root, start, serve, model_dirs, node):
    store, pool, lines = run(root, start, serve, model_dirs[0],
                             extra=["--numa-node", str(node)])
    assert store["numa_node"] == node and pool["numa_node"] == node
    assert lines, "xfer maps no store"
    for line in lines:
        found = set(map(int, re.findall(r" N(\d+)=", line)))
        assert found <= {node}, line
    if len(nodes()) < 2:
        pytest.skip("one NUMA node here: that the asked one of several is taken is not shown")


def test_node_that_is_not_there(root):
    done = subprocess.run([str(BIN / "mmd"), "--dir", str(root / "d"), "--numa-node", "1023"],
                          capture_output=True, timeout=limit(60), check=False, env=dict(os.environ))
    assert done.returncode == 2
    assert b"--numa-node" in done.stderr and b"1023" in done.stderr


def test_huge_pages(root, start, serve, model_dirs):
    """Where there are any; else usual ones, and status says so."""
    there = int(HUGE_FREE.read_text()) if HUGE_FREE.exists() else 0
    store, pool, _ = run(root, start, serve, model_dirs[0], extra=["--hugepages", "2M"])
    assert pool["hugepages"] == "2M"
    if there < 2:
        assert store["hugepage_bytes"] == 0 and store["host_bytes"] == store["bytes"]
        assert pool["hugepages_bytes"] == 0
        pytest.skip(f"{there} free huge pages of 2 MiB: that a store lies in them is not shown")
    assert store["hugepage_bytes"] == 2 << 20
    assert store["host_bytes"] % (2 << 20) == 0 and store["host_bytes"] >= store["bytes"]
    assert pool["hugepages_bytes"] == store["host_bytes"]
