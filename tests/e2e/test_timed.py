# SPDX-License-Identifier: Apache-2.0
"""Device time: large models without weights on a modelled device, and steps that take what they must."""

import json
import statistics
import subprocess
import time

import pytest

from daemon import memory_of
from programs import BIN, SANITIZE, limit, read_until
from tenant import KV_TIMEOUT_MS

GIB = 1 << 30
PROFILE = "gh200-96"
RATE = 419e9  # of its link to the device


def sparse(path, *options):
    subprocess.run([str(BIN / "mkmodel"), "sparse", str(path), *options], check=True,
                   capture_output=True, timeout=limit(20))
    return path


@pytest.fixture
def timed(monkeypatch):
    def use(dilation):
        monkeypatch.setenv("MM_SOFTGPU_PROFILE", PROFILE)
        monkeypatch.setenv("MM_SOFTGPU_DILATION", str(dilation))
    return use


def serve_trace(root, name, model, d, lines):
    trace = root / f"{name}.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n" + "".join(lines))
    with open(root / f"{name}.err", "wb") as err:
        return subprocess.Popen(
            [str(BIN / "mmserve"), "--model", str(model), "--socket", str(d.dir / "tenant.sock"),
             "--driver", "software", "--name", name, "--trace", str(trace), "--kv-dtype", "f16",
             "--max-batched-tokens", "2048", "--kv-timeout", KV_TIMEOUT_MS, "--device-times", "--time-scale", "4", "--sync",
             "--output", str(root / f"{name}.out")],
            env=d.env, stderr=err, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def hear(tenant, word):
    """Of --sync."""
    read_until(tenant, word + "\n", 300)


def go(tenant):
    tenant.stdin.write(f"start {time.monotonic_ns()}\n")
    tenant.stdin.flush()


def summary(root, name):
    return json.loads((root / f"{name}.out").read_text().splitlines()[-1])["summary"]


def test_large_models(root, start, timed):
    """OPT-30B and OPT-6.7B on a GH200 of 96 GiB: loaded at once, served, in little memory."""
    timed(4)
    d = start(pool="86G", page="64M", gpu_memory=96 * GIB)
    models = {name: sparse(root / name, "--shape", name) for name in ("OPT-30B", "OPT-6.7B")}
    lines = [f"{i * 0.05:.2f},{100 + 40 * i},12\n" for i in range(8)]
    tenants = [serve_trace(root, name, path, d, lines) for name, path in models.items()]
    try:
        for tenant in tenants:
            hear(tenant, "ready")
        for tenant in tenants:
            go(tenant)
        for tenant in tenants:
            hear(tenant, "done")
        if not SANITIZE:
            assert sum(memory_of(pid, "Pss") for pid in d.pids() + [t.pid for t in tenants]) < 2 * GIB
        assert d.status()["pages"]["param"] >= (60 + 13) * GIB // (64 << 20) * 9 // 10
        for tenant in tenants:
            tenant.stdin.close()
            assert tenant.wait(limit(120)) == 0
    finally:
        for tenant in tenants:
            tenant.kill()
            tenant.wait()
    for name in models:
        assert summary(root, name)["tokens"] == 8 * 12
        assert summary(root, name)["checksum_failures"] == 0


def test_streaming(root, start, timed):
    """Layers that are away come over the link no faster than it is, and are waited for."""
    timed(4)
    d = start(pool="8G", page="16M", gpu_memory=96 * GIB)
    model = sparse(root / "m", "--shape", "OPT-6.7B", "--layers", "8")
    tenant = serve_trace(root, "m", model, d, ["0,50,60\n"])
    try:
        hear(tenant, "ready")
        d.put_plan("m", 6, 1)
        go(tenant)
        hear(tenant, "done")
        tenant.stdin.close()
        assert tenant.wait(limit(120)) == 0
    finally:
        tenant.kill()
        tenant.wait()
    got = summary(root, "m")
    times = json.loads((root / "m.out").read_text().splitlines()[0])["times"]
    steps = [b - a for a, b in zip(times, times[1:])]
    assert got["gated_steps"] >= 60 and got["layers_remapped_max"] == 6
    # Seven layers of 400 MB through the link, in each step, by the device's clock.
    layer = 2 * (4 * 4096 * 4096 + 2 * 4096 * 16384)
    assert statistics.median(steps) >= 7 * layer / RATE
