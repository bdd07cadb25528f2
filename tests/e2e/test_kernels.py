# SPDX-License-Identifier: Apache-2.0
"""Which kernels a device runs; the CUDA kernels themselves, compiled for the host, from end to end."""

import subprocess

import pytest

from models import random_model
from programs import BIN, SANITIZE, limit
from tenant import make_requests, plain_tokens, read_output

EMULATED = ["--kernels", "emulated"]


@pytest.fixture
def case(root):
    """Small: each thread of each block runs one after the other."""
    model = random_model(root / "model", seed=7, hidden=32, layers=4, heads=4, kv_heads=2, ffn=64)
    return model, make_requests(root / "requests.jsonl", 3, prompt=(4, 12), output=(5, 8))


def test_host_and_cuda_say_the_same(root, case):
    """Sums are taken in other orders; no two tokens are so near to each other that it shows."""
    model, requests = case
    assert plain_tokens(root, model, requests, extra=EMULATED) == plain_tokens(root, model, requests)


@pytest.mark.parametrize("graphs", ["on"] if SANITIZE else ["on", "off"])
def test_layers_cycle(root, start, serve, case, graphs):
    model, requests = case
    want = plain_tokens(root, model, requests, extra=[*EMULATED, "--max-batch", "1"])
    d = start(policy="remap", page="16K")
    tenant = serve("t", model, requests, d, extra=[*EMULATED, "--verify", "--graphs", graphs],
                   sync=True).ready()
    d.put_plan("t", 2, 1)
    tenant.go()
    summary = tenant.wait(120)
    assert read_output(tenant.output) == want
    assert summary["gated_steps"] == summary["steps"] > 0
    assert (summary["graph_launches"] > 0) == (graphs == "on")


@pytest.mark.skipif(bool(SANITIZE), reason="minutes of emulation, and nothing that is not run above")
def test_context_outgrows_its_graph(root):
    """A graph has blocks for two splits of a context, or four; with three, the first is of no use any more."""
    model = random_model(root / "model", seed=7, hidden=32, layers=2, heads=4, kv_heads=2, ffn=64,
                         max_position=1024)
    requests = make_requests(root / "long.jsonl", 1, prompt=(506, 506), output=(12, 12))
    want = plain_tokens(root, model, requests, extra=[*EMULATED, "--graphs", "off"])
    assert plain_tokens(root, model, requests, extra=[*EMULATED, "--graphs", "on"]) == want


@pytest.mark.parametrize("name, said", [
    ("cuda", "--kernels cuda: the software GPU runs host or emulated"),
    ("nowhere.so", "nowhere.so cannot be loaded by the driver (CUDA 13.0): CUDA_ERROR_FILE_NOT_FOUND (301): "
                   "is it there, and may we read it?"),
])
def test_refused(case, name, said):
    model, requests = case
    done = subprocess.run([str(BIN / "mmserve"), "--plain", "--model", str(model), "--requests",
                           str(requests), "--kernels", name], capture_output=True, text=True,
                          timeout=limit(60), check=False)
    assert done.returncode == 1 and not done.stdout
    assert done.stderr == f"mmserve: {said}\n"
