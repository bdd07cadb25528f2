# SPDX-License-Identifier: Apache-2.0
"""Every family of models, in each dtype, fused and sharded: the same ids while its layers cycle."""

import json
import subprocess

import pytest

import models
from daemon import RpcError
from programs import BIN, limit, some, wait_until
from tenant import make_requests, plain_tokens, read_output

INDEX = "model.safetensors.index.json"
LLAMA3 = "llama3:8,1,4,128"

# What mkmodel is told, and how mmserve is started.
FAMILIES = {
    "opt-f32": (["--family", "opt", "--kv-heads", 4, "--dtype", "f32"], []),
    "opt-f16": (["--family", "opt", "--kv-heads", 4, "--dtype", "f16", "--shards", 3], ["--fused"]),
    "opt-post-norm": (["--family", "opt", "--kv-heads", 4, "--dtype", "bf16", "--post-norm",
                       "--embed-dim", 32], []),
    "qwen2-bf16": (["--family", "qwen2", "--dtype", "bf16", "--tied"], ["--fused"]),
    "qwen2-f32": (["--family", "qwen2", "--dtype", "f32", "--shards", 2], []),
    "qwen2-f16": (["--family", "qwen2", "--dtype", "f16"], ["--fused"]),
    "llama3-f32": (["--dtype", "f32", "--tied", "--rope-theta", 5e5, "--rope-scaling", LLAMA3], []),
    "llama3-bf16": (["--dtype", "bf16", "--vector-dtype", "f32", "--rope-theta", 5e5,
                     "--rope-scaling", LLAMA3], ["--fused"]),
    "llama3-f16": (["--dtype", "f16", "--rope-theta", 5e5, "--rope-scaling", LLAMA3], []),
}


def make(root, name, seed=5):
    return models.model(root / name, seed, *FAMILIES[name][0])


@pytest.mark.parametrize("name", some(FAMILIES, ["opt-f16", "qwen2-bf16", "llama3-f16"]))
def test_cycling(start, serve, root, name):
    """As plain, while three layers cycle; every layer's bytes are checked inside its gate."""
    model = make(root, name)
    requests = make_requests(root / "requests.jsonl", 6, output=(16, 32))
    want = plain_tokens(root, model, requests)
    assert len(set(sum(want.values(), []))) > 20, "this model repeats itself: it shows nothing"
    d = start(policy="remap", page="16K")
    tenant = serve("t", model, requests, d, extra=["--verify", *FAMILIES[name][1]], sync=True).ready()
    d.ctl("plan", "set", "t", "--layers", 3)
    wait_until(lambda: d.status()["alpha_sum"] == 3, 10, "the plan to be in force")
    tenant.go()
    summary = tenant.wait()
    assert read_output(tenant.output) == want
    assert summary["gated_steps"] == summary["steps"] > 0
    assert d.status()["bytes_streamed"] > 0


def test_mixed_tenants(start, serve, root):
    """One of each family at once, while the plan of each changes."""
    names = ["opt-f16", "qwen2-bf16", "llama3-bf16"]
    requests = make_requests(root / "requests.jsonl", 6, output=(16, 32))
    made = {name: make(root, name) for name in names}
    want = {name: plain_tokens(root, made[name], requests) for name in names}
    d = start(policy="remap", page="16K")
    tenants = [serve(name, made[name], requests, d, extra=["--verify", *FAMILIES[name][1]],
                     sync=True).ready() for name in names]
    for tenant in tenants:
        d.ctl("plan", "set", tenant.name, "--layers", 2)
    wait_until(lambda: d.status()["alpha_sum"] == 6, 10, "the plans to be in force")
    for tenant in tenants:
        tenant.go()
    for alpha, tenant in zip((4, 0, 1), tenants):
        try:
            d.rpc("plan.set", {"name": tenant.name, "layers": alpha})
        except RpcError:
            pass  # it may have ended by now
    for tenant in tenants:
        tenant.wait()
        assert read_output(tenant.output) == want[tenant.name]


def swap(folder):
    shards = sorted(folder.glob("*.safetensors"))
    shards[0].write_bytes(shards[1].read_bytes())


def drop_bias(folder):
    """A tensor that the engine needs has another name in file and index, which agree."""
    index = json.loads((folder / INDEX).read_text())
    name = "model.layers.3.self_attn.k_proj.bias"
    other = name.replace("k_proj", "x_proj")
    shard = folder / index["weight_map"][name]
    index["weight_map"][other] = index["weight_map"].pop(name)
    (folder / INDEX).write_text(json.dumps(index))
    shard.write_bytes(shard.read_bytes().replace(name.encode(), other.encode()))


def config(**keys):
    def spoil(folder):
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | keys))
    return spoil


# What is done to the folder, and what is said about it.
BROKEN = {
    "a shard is missing": (lambda m: min(m.glob("*.safetensors")).unlink(), "model-00001-of-00002"),
    "two shards are the same": (swap, "model-00001-of-00002"),
    "the index is no JSON": (lambda m: (m / INDEX).write_text("{"), INDEX),
    "the index names a path": (lambda m: (m / INDEX).write_text(
        json.dumps({"weight_map": {"x": "../x.safetensors"}})), INDEX),
    "a bias is missing": (drop_bias, "model.layers.3.self_attn.k_proj.bias"),
    "another RoPE": (lambda m: (m / "config.json").write_text((m / "config.json").read_text().replace(
        '"rope_scaling": null', '"rope_scaling": {"type": "yarn", "factor": 4}')), "yarn"),
    "quantized": (config(quantization_config={"bits": 4}), "quantization_config"),
    "tied beside a head": (config(tie_word_embeddings=True),
                           "lm_head.weight in model-00002-of-00002.safetensors"),
    "another family": (config(architectures=["LlamaForCausalLM"], model_type="llama"),
                       "proj.bias: LlamaForCausalLM as config.json describes it has no use for it"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_same_refusals(start, root, what):
    """A folder that is refused with mmd is refused without, each time with what is wrong."""
    spoil, word = BROKEN[what]
    model = make(root, "qwen2-f32")
    requests = make_requests(root / "requests.jsonl", 1)
    spoil(model)
    d = start(policy="remap", page="16K")
    for where in (["--plain"], ["--socket", d.dir / "tenant.sock"]):
        done = subprocess.run([str(BIN / "mmserve"), "--model", str(model), "--requests", str(requests),
                               *map(str, where)], capture_output=True, timeout=limit(60), check=False,
                              env=d.env)
        assert done.returncode == 1 and word in done.stderr.decode(), (where, done.stderr)
    wait_until(lambda: not d.tenants(), 20, "mmd to forget who was refused")


def test_one_store_per_packing(start, serve, root):
    """The same files fused and not: two stores; started twice in the same way: one."""
    model = make(root, "qwen2-bf16")
    requests = make_requests(root / "requests.jsonl", 2)
    want = plain_tokens(root, model, requests, extra=["--fused"])
    d = start(policy="remap", page="16K")
    tenants = [serve(f"t{i}", model, requests, d, extra=extra, sync=True).ready()
               for i, extra in enumerate(([], ["--fused"], ["--fused"]))]
    assert len(d.status()["stores"]) == 2
    for tenant in tenants:
        tenant.go()
    for tenant in tenants:
        tenant.wait()
        assert read_output(tenant.output) == want
