# SPDX-License-Identifier: Apache-2.0
"""What `mmctl footprint` says before anything runs is what is found when it does."""

import json
import os
import pathlib
import subprocess

import pytest

from programs import BIN, DATA, limit, wait_until
from tenant import make_requests

PAGE = 64 << 10
SHAPES = {"dtype_bytes": 2, "models": [
    {"name": "small", "family": "llama", "n_layers": 3,
     "layer_tensors": {"q.weight": [24, 100], "norm.weight": [50]},
     "other_tensors": {"embed.weight": [64, 100]}}]}


def footprint(*args):
    done = subprocess.run([str(BIN / "mmctl"), *map(str, args)], capture_output=True,
                          timeout=limit(20), check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def measured(*args):
    code, text, errors = footprint("--json", "footprint", *args)
    assert code == 0, errors
    result = json.loads(text)
    assert result["schema"] == 1
    return result["models"]


def test_numbers(root):
    path = root / "shapes.json"
    path.write_text(json.dumps(SHAPES))
    model, = measured("--models", path, "--page", "4K,64K", "--kv", "1M")
    assert model["tensor_bytes"] == 3 * (24 * 100 + 50) * 2 + 64 * 100 * 2
    assert model["layers"] == 3 and model["layer_bytes"] == 4800
    small, large = model["page_sizes"]
    # 12,800 B of embeddings, and three norms of 100 B at multiples of 256; three layers of 4800 B.
    assert small["pages"] == 4 + 3 * 2 and small["device_bytes"] == 10 * 4096
    assert small["waste_bytes"] == small["device_bytes"] - model["tensor_bytes"]
    assert small["kv_pages"] == 256 and not small["warnings"]
    assert large["pages"] == 4 and large["kv_pages"] == 16
    code, text, _ = footprint("footprint", "--models", path, "--page", "4K", "--kv", "1M")
    assert code == 0 and "small" in text and "warning" not in text


@pytest.mark.parametrize("flags", [[], ["--json"]], ids=str)
def test_full_disk(root, flags):
    """What could not be printed is not done."""
    path = root / "shapes.json"
    path.write_text(json.dumps(SHAPES))
    with open("/dev/full", "w") as full:
        done = subprocess.run([str(BIN / "mmctl"), *flags, "footprint", "--models", str(path)],
                              stdout=full, stderr=subprocess.PIPE, timeout=limit(20), check=False)
    assert done.returncode == 1 and b"standard output" in done.stderr, done


def test_folder_with_an_index(root):
    """The files that the index names are the model, as for load; what lies beside them is not."""
    path = root / "model"
    shape = ["--hidden", "64", "--layers", "4", "--heads", "4", "--ffn", "128"]
    for where, flags in ((path, ["--shards", "2"]), (root / "whole", [])):
        subprocess.run([str(BIN / "mkmodel"), "random", str(where), *shape, *flags], check=True,
                       timeout=limit(20))
    (root / "whole" / "model.safetensors").rename(path / "consolidated.safetensors")
    model, = measured(path)
    with open(path / "model.safetensors.index.json") as file:
        index = json.load(file)
    assert model["tensor_bytes"] == sum((path / name).stat().st_size - header_bytes(path / name)
                                        for name in set(index["weight_map"].values()))
    index["weight_map"]["another.weight"] = sorted(set(index["weight_map"].values()))[0]
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    code, _, errors = footprint("footprint", path)
    assert code == 1 and "another.weight" in errors, errors
    (path / "model.safetensors.index.json").write_text("{")
    code, _, errors = footprint("footprint", path)
    assert code == 1 and "not valid JSON" in errors, errors


def header_bytes(path):
    with open(path, "rb") as file:
        return 8 + int.from_bytes(file.read(8), "little")


def test_warnings(root):
    """More pages than the map table has entries, more mappings than a process may have."""
    shapes = json.loads(json.dumps(SHAPES))
    shapes["models"][0]["layer_tensors"]["q.weight"] = [1 << 13, 1 << 13]
    path = root / "shapes.json"
    path.write_text(json.dumps(shapes))
    fits, = measured("--models", path, "--page", "16K", "--kv", "64M")
    assert not fits["page_sizes"][0]["warnings"]
    model, = measured("--models", path, "--page", "8K", "--kv", "512M")
    said = " ".join(model["page_sizes"][0]["warnings"])
    assert "for the model: 491" in said and "for the KV arena: 65536" in said
    assert "mappings of the tenant" in said
    assert footprint("footprint", "--models", path, "--page", "8K")[1].count("warning: small") > 0


@pytest.mark.parametrize("args,code,word", [
    ([], 2, "needs --models"),
    (["--models"], 2, "needs a value"),
    (["--page", "5000", "."], 2, "5000"),
    (["--page", ",", "."], 2, "no size"),
    (["--kv", "much", "."], 2, "much"),
    (["--frobnicate", "."], 2, "frobnicate"),
    (["--models", "/nonexistent"], 1, "--models: /nonexistent: No such file"),
    (["/nonexistent"], 1, "/nonexistent"),
], ids=repr)
def test_bad_arguments(args, code, word):
    got, text, errors = footprint("footprint", *args)
    assert got == code and word in errors and not text
    assert len(errors.splitlines()) == 1


@pytest.mark.parametrize("change,word", [
    (lambda s: s.update(models=[]), "models"),
    (lambda s: s.update(dtype_bytes=3), "dtype_bytes"),
    (lambda s: s["models"][0].pop("name"), "name"),
    (lambda s: s["models"][0].update(n_layers=0), "n_layers"),
    (lambda s: s["models"][0]["layer_tensors"].update(x=[1, -1]), "dimension"),
], ids=["no models", "dtype", "no name", "no layers", "negative"])
def test_bad_shapes(root, change, word):
    shapes = json.loads(json.dumps(SHAPES))
    change(shapes)
    path = root / "shapes.json"
    path.write_text(json.dumps(shapes))
    code, text, errors = footprint("footprint", "--models", path)
    assert code == 1 and word in errors and not text


def page_mappings(pid):
    lines = pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines()
    return sum(1 for line in lines if "/gpu/pages/" in line)


def page_fds(pid):
    found = 0
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            found += "/gpu/pages/" in os.readlink(f"/proc/{pid}/fd/{fd}")
        except OSError:
            pass
    return found


def test_against_a_daemon(root, start, serve, model_dirs):
    """The software GPU's page files show in /proc: fds and mappings can be counted."""
    d = start(pool="8M", page="64K")
    want, = measured(model_dirs[0], "--page", "64K")
    size, = want["page_sizes"]
    tenant = serve("one", model_dirs[0], make_requests(root / "r.jsonl", 2), d, sync=True).ready()
    status = d.tenant("one")
    assert status["weights_tensor_bytes"] == want["tensor_bytes"]
    assert status["weights_device_bytes"] == size["device_bytes"] == size["pages"] * PAGE
    assert status["weights_waste_bytes"] == size["waste_bytes"]
    store, = d.status()["stores"]
    assert store["bytes"] == want["host_store_bytes"]
    assert store["tensor_bytes"] == want["tensor_bytes"]
    core, = d.pids("core")
    wait_until(lambda: page_fds(core) == d.pool_pages(), 10, "core to hold an fd a page")
    assert status["pages_param"] == size["page_fds_passed"]
    # One a page, and a few for what the engine allocates itself.
    assert size["pages"] <= page_mappings(tenant.process.pid) < 2 * size["pages"]
    summary = tenant.go().wait()
    assert summary["weights_waste_bytes"] == size["waste_bytes"]


@pytest.mark.skipif(not DATA, reason="MM_TEST_DATA is not set")
def test_known_models():
    models = measured("--models", pathlib.Path(DATA) / "models.json")
    assert len(models) >= 7
    for model in models:
        two, sixteen, sixty_four = model["page_sizes"]
        assert two["waste_bytes"] <= sixteen["waste_bytes"] <= sixty_four["waste_bytes"]
        assert two["pages"] > sixteen["pages"] > sixty_four["pages"]
