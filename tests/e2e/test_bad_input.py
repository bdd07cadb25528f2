# SPDX-License-Identifier: Apache-2.0
"""What is wrong is refused with one clear sentence, and everything else runs on."""

import json
import os
import subprocess

import pytest

import hostile_files as hf
import models
import abi
import wire
from isolated import isolated
from programs import BIN, limit, wait_until
from tenant import make_requests, plain_tokens
from wire import Raw, Refused, hello

HUGE = (1 << 64) - 1


def run(*args, **options):
    done = subprocess.run([str(a) for a in args], capture_output=True, timeout=limit(30), **options)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def one_sentence(errors):
    lines = [line for line in errors.splitlines() if line.strip()]
    assert len(lines) == 1, f"want one line of error: {errors}"
    return lines[0]


# ---- models

MODELS = {
    "header truncated": (hf.raw(lambda data: data[:100]), "safetensors"),
    "empty file": (hf.raw(lambda data: b""), "safetensors"),
    "seven bytes": (hf.raw(lambda data: data[:7]), "safetensors"),
    "data truncated": (hf.raw(lambda data: data[:-1000]), "safetensors"),
    "data too long": (hf.raw(lambda data: data + bytes(100)), "safetensors"),
    "header length beyond file": (hf.raw(lambda data: b"\xff" * 8 + data[8:]), "safetensors"),
    "header length huge": (hf.raw(lambda data: (1 << 40).to_bytes(8, "little") + data[8:]),
                           "safetensors"),
    "header not JSON": (hf.raw(lambda data: data[:8] + b"x" + data[9:]), "safetensors"),
    "header a list": (hf.raw(lambda data: (2).to_bytes(8, "little") + b"[]"), "safetensors"),
    "tensors overlap": (hf.edit_tensor(hf.overlap), "overlap"),
    "tensor shifted": (hf.edit_tensor(hf.shift), ""),
    "offsets beyond file": (hf.set_offsets(0, 1 << 40), ""),
    "offsets backwards": (hf.set_offsets(4096, 0), ""),
    "offsets negative": (hf.set_offsets(-8, 0), ""),
    "offsets overflow": (hf.set_offsets(HUGE - 7, HUGE), ""),
    "offsets a word": (hf.set_offsets("a", "b"), ""),
    "shape lies": (hf.set_field("shape", [3, 5]), ""),
    "shape overflows": (hf.set_field("shape", [1 << 32, 1 << 32]), ""),
    "shape negative": (hf.set_field("shape", [-1, -64]), ""),
    "dtype unknown": (hf.set_field("dtype", "F8_E9M9"), "dtype"),
    "dtype without kernels": (hf.set_field("dtype", "I16"), "no kernels for its type"),
    "dtype lies": (hf.set_field("dtype", "F32"), ""),
    "name twice": (hf.raw(lambda data: twice(data)), ""),
    "no file": (lambda folder: os.unlink(folder / "model.safetensors"), ""),
    "a folder for a file": (lambda folder: (os.unlink(folder / "model.safetensors"),
                                            os.mkdir(folder / "model.safetensors")), ""),
    "a fifo for a file": (lambda folder: (os.unlink(folder / "model.safetensors"),
                                          os.mkfifo(folder / "model.safetensors")), ""),
    "a fifo for the config": (lambda folder: (os.unlink(folder / "config.json"),
                                              os.mkfifo(folder / "config.json")), "config.json"),
    "a fifo for the index": (lambda folder: os.mkfifo(folder / "model.safetensors.index.json"),
                             "index.json"),
    "no config": (lambda folder: os.unlink(folder / "config.json"), "config.json"),
    "config not JSON": (lambda folder: (folder / "config.json").write_text("{"), "config.json"),
    "more layers than weights": (hf.edit_config(lambda c: c.update(num_hidden_layers=9)), ""),
    "fewer layers than weights": (hf.edit_config(lambda c: c.update(num_hidden_layers=7)), ""),
    "hidden size lies": (hf.edit_config(lambda c: c.update(hidden_size=128)), ""),
    "heads do not divide": (hf.edit_config(lambda c: c.update(num_attention_heads=5)), ""),
    "another architecture": (hf.edit_config(lambda c: c.update(
        architectures=["GPT2LMHeadModel"], model_type="gpt2")), ""),
    "layers a word": (hf.edit_config(lambda c: c.update(num_hidden_layers="many")), ""),
    "index not JSON": (hf.index(text="{"), "index.json"),
    "index without a map": (hf.index(text='{"metadata": {}}'), "weight_map"),
    "index empty": (hf.index(lambda m: m.clear()), "index.json"),
    "shard missing": (hf.index(lambda m: m.update({next(iter(m)): "other.safetensors"})),
                      "other.safetensors"),
    "shard with a path": (hf.index(lambda m: m.update({next(iter(m)): "../model.safetensors"})),
                          "path"),
    "shard that is no weights": (hf.index(lambda m: m.update({next(iter(m)): "config.json"})),
                                 "index.json"),
    "shard a number": (hf.index(lambda m: m.update({next(iter(m)): 7})), "index.json"),
    "tensor only in the index": (hf.index(lambda m: m.update(ghost="model.safetensors")), "ghost"),
    "tensor not in the index": (hf.index(lambda m: m.pop("model.norm.weight")),
                                "model.norm.weight"),
    "quantized": (hf.edit_config(lambda c: c.update(quantization_config={"quant_method": "gptq"})),
                  "config.json: quantization_config {\"quant_method\":\"gptq\"} is not served"),
    "experts": (hf.edit_config(lambda c: c.update(num_local_experts=8)), "num_local_experts 8"),
    "a window": (hf.edit_config(lambda c: c.update(sliding_window=16)), "sliding_window 16"),
    "two types": (hf.edit_config(lambda c: c.update(model_type="gemma2")), "model_type"),
    "a head beside a tied one": (
        hf.copy_tensor("model.embed_tokens.weight", "lm_head.weight", flip=-1),
        "config.json: tie_word_embeddings makes model.embed_tokens.weight the head, but lm_head.weight in "
        "model.safetensors is another one"),
    "a head of another size": (hf.add_tensor("lm_head.weight", [8, 64]), "tie_word_embeddings"),
    "a bias that is not for it": (
        hf.add_tensor("model.layers.3.self_attn.q_proj.bias", [64]),
        "tensor model.layers.3.self_attn.q_proj.bias: LlamaForCausalLM as config.json describes it has no "
        "use for it"),
    "a norm that is not for it": (hf.add_tensor("model.layers.0.self_attn.q_norm.weight", [16]),
                                  "q_norm.weight"),
    "layers huge": (hf.edit_config(lambda c: c.update(num_hidden_layers=1 << 40)), ""),
}


def twice(data):
    """The first key of the header stands twice: JSON parsers differ about what that means."""
    length = int.from_bytes(data[:8], "little")
    text = data[8:8 + length]
    entry = text[1:text.index(b"}") + 1]
    text = b"{" + entry + b"," + text[1:]
    return len(text).to_bytes(8, "little") + text + data[8 + length:]


def test_models(root, start, serve, model_dirs):
    """
    One daemon for all cases: each is refused, without mmd too, and a good tenant works through all of them.
    """
    d = start(pool="16M", page="64K")
    requests = make_requests(root / "requests.jsonl", 2)
    want = plain_tokens(root, model_dirs[0], requests)
    wrong = []
    for name, (change, word) in MODELS.items():
        folder = hf.make_case(model_dirs[0], root / "case" / name.replace(" ", "-"), change)
        for where in (["--socket", d.dir / "tenant.sock"], ["--plain"]):
            code, _, errors = run(BIN / "mmserve", "--model", folder, *where, "--requests", requests,
                                  "--output", root / "none.jsonl", env=d.env)
            print(f"{name}: {where[0]}: {code}: {errors.strip()}")
            if code != 1 or len(errors.strip().splitlines()) != 1 or word not in errors:
                wrong.append(f"{name}: {where}: exit status {code}, want 1 and '{word}' in one line: {errors}")
    assert not wrong, "\n".join(wrong)
    assert serve("good", model_dirs[0], requests, d).tokens() == want


# What the files may hold besides: nothing that the computation would have to know.
MORE_TENSORS = {
    "the head once more": hf.copy_tensor("model.embed_tokens.weight", "lm_head.weight"),
    "a buffer of RoPE": hf.add_tensor("model.layers.0.self_attn.rotary_emb.inv_freq", [8], "F32"),
    "a head for another task": hf.add_tensor("v_head.summary.weight", [1, 64]),
}


@pytest.mark.parametrize("name", MORE_TENSORS)
def test_more_tensors(root, start, serve, model_dirs, name):
    requests = make_requests(root / "requests.jsonl", 2)
    folder = hf.make_case(model_dirs[0], root / "more", MORE_TENSORS[name])
    d = start(pool="16M", page="64K")
    assert serve("more", folder, requests, d).tokens() == plain_tokens(root, model_dirs[0], requests)


# mmd's options, and what is said to a model of 8 layers of 86 KiB and 40 KiB of other tensors.
TOO_LARGE = {
    "pool": ({"pool": "512K"}, [],
             "model needs 1.1 MiB of device memory (17 pages), "
             "the pool has room for a model of 512.0 KiB (8 pages)"),
    "account": ({"pool": "16M"}, ["--account-max", "512K"],
                "model needs 1.1 MiB of device memory (17 pages), "
                f"account uid:{os.getuid()} may have 512.0 KiB (8 pages)"),
    "host": ({"pool": "16M"}, ["--host-store-max", "512K"],
             "model needs 792.0 KiB of host memory, 512.0 KiB of 512.0 KiB are left"),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_model_too_large(root, start, serve, model_dirs, name):
    """Refused with what it needs and what there is; a smaller one is served behind it."""
    options, extra, want = TOO_LARGE[name]
    d = start(page="64K", extra=extra, **options)
    requests = make_requests(root / "requests.jsonl", 1)
    code, _, errors = run(BIN / "mmserve", "--model", model_dirs[0], "--socket",
                          d.dir / "tenant.sock", "--requests", requests, "--output",
                          root / "none.jsonl", env=d.env)
    assert code == 1 and want in one_sentence(errors), errors
    wait_until(lambda: not d.tenants(), 20, "mmd to forget who was refused")
    tiny = models.random_model(root / "tiny", 1, layers=2, ffn=64)
    assert serve("tiny", tiny, requests, d).tokens() == plain_tokens(root, tiny, requests)


# ---- packing lists, by hand: the library does not send what it knows to be wrong

Q, K, V = (f"model.layers.*.self_attn.{x}_proj.weight" for x in "qkv")
MEMBERS = abi.MM_PACK_MEMBERS_MAX + 1

PACKS = {
    "no members": (wire.pack("x", []), "0 members"),
    "many members": (wire.pack("x", [Q], n_members=MEMBERS), f"{MEMBERS} members"),
    "more said than given": (wire.pack("x", [Q, K], n_members=3), "member 2"),
    "unknown flag": (wire.pack("x", [Q], flags=abi.MM_PACK_KNOWN + 1), "flags"),
    "name without an end": (wire.pack("x" * abi.MM_TENSOR_NAME_BYTES, [Q]), "name"),
    "control characters": (wire.pack("", ["\x1b[2J"]), "member 0"),
    "two wildcards": (wire.pack("", ["model.layers.*.*"]), "more than one"),
    "wildcard here and there": (wire.pack("x", [Q, K]), "for the layer"),
    "wildcard for no layer": (wire.pack("", ["model.*orm.weight"]), "no tensor"),
    "no such tensor": (wire.pack("", ["model.layers.*.nothing"]), "no tensor"),
    "a tensor twice": (wire.pack("model.layers.*.qq", [Q, Q]), "already"),
    "two layers": (wire.pack("", [Q.replace("*", "0"), Q.replace("*", "1")]), "another layer"),
    "inner dimensions": (wire.pack("", [Q, "model.layers.*.mlp.down_proj.weight"]), "inner"),
    "a vector transposed": (wire.pack("", ["model.norm.weight"], flags=abi.MM_PACK_TRANSPOSE), "rank 1"),
    "a name that is taken": (wire.pack(K, [Q]), "that name"),
    "half a message": (wire.pack("", [Q])[:1000], "does not know"),
}


def load_with(client, folder, rules):
    """Asks for a model, passes its files and @rules: load's last word."""
    client.push(abi.MM_OP_MODEL_OPEN, user_data=1)
    with client.load_channel() as channel:
        for kind, name in ((abi.MM_LOAD_CONFIG, "config.json"), (abi.MM_LOAD_SAFETENSORS, "model.safetensors")):
            fd = os.open(folder / name, os.O_RDONLY)
            channel.send_file(kind, name, fd)
            os.close(fd)
        for rule in rules:
            channel.send(rule)
        channel.send(wire.load_file(abi.MM_LOAD_END, b""))
        return channel.last_status()


@isolated(180)
def check_packs(d, folder):
    for name, (rule, word) in PACKS.items():
        with Raw(d) as client:
            client.greet()
            result, text = load_with(client, folder, [rule])
            assert result < 0 and word in text, f"{name}: {result} '{text}'"
    with Raw(d) as client:
        client.greet()
        result, text = load_with(client, folder, [wire.pack("", [Q])] * (abi.MM_LOAD_PACKS_MAX + 1))
        assert result < 0 and str(abi.MM_LOAD_PACKS_MAX) in text, text
    client = Raw(d).greet()  # it gets pages, so its connection ends with its process
    result, text = load_with(client, folder, [wire.pack("model.layers.*.qkv", [Q, K, V])])
    assert result == 0, text


def test_packing_lists(start, model_dirs):
    check_packs(start(pool="16M", page="64K"), model_dirs[0])


@isolated()
def check_refused_by_header(d, folder, word):
    with Raw(d) as client:
        client.greet()
        result, text = load_with(client, folder, [])
        assert result < 0 and word in text, f"{result} '{text}'"


def test_too_large_is_not_read(root, start):
    """
    A model of 2.9 GiB, and 1 MiB of host memory for all: it is refused for the device, which was looked at before
    any memory was asked for, and by load, which has read nothing but headers then.
    """
    model = root / "large"
    subprocess.run([str(BIN / "mkmodel"), "sparse", str(model), "--shape", "OPT-13B", "--layers", "4"],
                   check=True, capture_output=True, timeout=limit(60))
    d = start(pool="4M", page="64K", extra=["--host-store-max", "1M"])
    check_refused_by_header(d, model, "the pool has room for a model of 4.0 MiB (64 pages)")
    wait_until(lambda: not d.tenants(), 20, "mmd to forget who was refused")
    assert not d.status()["stores"]


# ---- request files and traces

TRACES = {
    "empty": ("", ":0:"),
    "no header": ("0,1,2\n", ":1:"),
    "fields missing": ("arrival_s,prompt_tokens,output_tokens\n0,1\n", ":2:"),
    "not a number": ("arrival_s,prompt_tokens,output_tokens\n0,1,2\nx,1,2\n", ":3:"),
    "zero tokens": ("arrival_s,prompt_tokens,output_tokens\n0,0,2\n", ":2:"),
    "negative": ("arrival_s,prompt_tokens,output_tokens\n0,1,-2\n", ":2:"),
    "huge": ("arrival_s,prompt_tokens,output_tokens\n0,1,99999999999999999999\n", ":2:"),
    "not sorted": ("arrival_s,prompt_tokens,output_tokens\n2,1,1\n1,1,1\n", ":3:"),
    "not a number that is one": ("arrival_s,prompt_tokens,output_tokens\nnan,1,1\n", ":2:"),
}


@pytest.mark.parametrize("name", TRACES)
def test_traces(root, model_dirs, name):
    text, word = TRACES[name]
    trace = root / "trace.csv"
    trace.write_text(text)
    code, _, errors = run(BIN / "mmserve", "--plain", "--model", model_dirs[0], "--trace", trace,
                          "--output", root / "none.jsonl")
    assert code == 1 and word in one_sentence(errors) and "trace.csv" in errors
    code, _, errors = run(BIN / "mmbench", "serve", "--models", model_dirs[0], "--trace", trace)
    assert code == 1 and "trace.csv" in one_sentence(errors)


REQUESTS = {
    "not JSON": "{\n",
    "a list": "[]\n",
    "no prompt": '{"id": "a", "max_tokens": 1}\n',
    "empty prompt": '{"id": "a", "prompt": [], "max_tokens": 1}\n',
    "id beyond vocabulary": '{"id": "a", "prompt": [256], "max_tokens": 1}\n',
    "no tokens wanted": '{"id": "a", "prompt": [1], "max_tokens": 0}\n',
    "unknown key": '{"id": "a", "prompt": [1], "max_tokens": 1, "temperature": 0.7}\n',
}


@pytest.mark.parametrize("name", REQUESTS)
def test_requests(root, model_dirs, name):
    path = root / "requests.jsonl"
    path.write_text(REQUESTS[name])
    code, _, errors = run(BIN / "mmserve", "--plain", "--model", model_dirs[0], "--requests", path,
                          "--output", root / "none.jsonl")
    assert code == 1 and "requests.jsonl:1:" in one_sentence(errors)


def test_request_ids(root, model_dirs):
    """A number comes back as a number, a string as a string, and rows of a trace by their numbers."""
    ids = [0, "0", -3, (1 << 53) + 1, "last"]
    requests, trace, output = root / "requests.jsonl", root / "trace.csv", root / "out.jsonl"
    requests.write_text("".join(json.dumps({"id": i, "prompt": [1], "max_tokens": 1}) + "\n" for i in ids))
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n" + "0,1,1\n" * 2)
    for where, want in ((["--requests", requests], ids), (["--trace", trace], [0, 1])):
        code, _, errors = run(BIN / "mmserve", "--plain", "--model", model_dirs[0], *where, "--output", output)
        assert code == 0, errors
        lines = [json.loads(line) for line in output.read_text().splitlines()]
        got = [line["id"] for line in lines if "id" in line]
        assert sorted(map(repr, got)) == sorted(map(repr, want)), got


# ---- flags and config

FLAGS = [
    ("mmd", ["--frobnicate"], "frobnicate"),
    ("mmd", ["--policy", "greedy"], "greedy"),
    ("mmd", ["--pool", "many"], "many"),
    ("mmd", ["--page", "3"], "page"),
    ("mmd", ["extra"], "extra"),
    ("mmctl", ["frobnicate"], "frobnicate"),
    ("mmctl", ["--frobnicate", "status"], "frobnicate"),
    ("mmctl", ["plan", "set", "x"], "layers"),
    ("mmctl", ["plan", "set", "x", "--layers", "some"], "some"),
    ("mmctl", [], ""),
    ("mmserve", ["--frobnicate"], "frobnicate"),
    ("mmserve", ["--plain"], "model"),
    ("mmserve", ["--model", "/m", "--requests", "-", "--sync"], "--sync"),
    ("mkmodel", ["frobnicate"], "frobnicate"),
    ("mkmodel", ["random"], ""),
    ("mkmodel", ["random", "/tmp/x", "--layers", "0"], "layers"),
    ("mmbench", ["frobnicate"], "frobnicate"),
    ("mmbench", ["serve"], "models"),
    ("mmbench", ["serve", "--frobnicate"], "frobnicate"),
    ("mmbench", ["serve", "--models", "/tmp/x", "--policies", "greedy"], "greedy"),
    ("mmbench", ["serve", "--models", "/tmp/x", "--pool", "many"], "many"),
    ("mmbench", ["serve", "--models", "/tmp/x", "--devices", "2"], "--devices"),
    ("mmbench", ["serve", "--models", "/tmp/x", "--devices", "9"], "--devices"),
    ("mmbench", ["serve", "--models", "/tmp/x", "--mmd", " ".join(["--x"] * 17)], "--mmd"),
]


@pytest.mark.parametrize("program,args,word", FLAGS)
def test_flags(root, program, args, word):
    place = ["--dir", str(root / "d")] if program == "mmd" else []
    code, out, errors = run(BIN / program, *place, *args)
    assert code == 2, errors
    assert word in one_sentence(errors) and not out


@pytest.mark.parametrize("program", ["mmd", "mmctl", "mmserve", "mkmodel", "mmbench"])
def test_help_and_version(program):
    code, out, errors = run(BIN / program, "--help")
    assert code == 0 and len(out.splitlines()) > 2 and not errors
    code, out, errors = run(BIN / program, "--version")
    assert code == 0 and out.startswith(program) and not errors


CONFIGS = {
    "unknown key": ('{"frobnicate": 1}', "frobnicate"),
    "not JSON": ("{", ""),
    "a list": ("[]", ""),
    "wrong type": ('{"policy": 7}', "policy"),
    "wrong value": ('{"policy": "greedy"}', "greedy"),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_config_file(root, name):
    text, word = CONFIGS[name]
    config = root / "mmd.json"
    config.write_text(text)
    for words in [], ["--check-config"]:
        code, _, errors = run(BIN / "mmd", "--dir", root / "d", "--config", config, *words)
        assert code == 2
        assert "mmd.json:" in one_sentence(errors) and word in errors


def test_config_folder(root):
    """--check-config names the files, or the line of a drop-in that is wrong; it starts nothing."""
    config = root / "mmd.conf"
    config.write_text("pool: 8M # all of it\n")
    (root / "mmd.conf.d").mkdir()
    (root / "mmd.conf.d" / "10.conf").write_text("page: 64K\n")
    words = [BIN / "mmd", "--dir", root / "d", "--config", config, "--check-config"]
    code, out, errors = run(*words)
    assert (code, errors) == (0, "") and out.splitlines() == [
        str(config), str(config) + ".d/10.conf", "The configuration is correct."]
    assert not (root / "d").exists()
    (root / "mmd.conf.d" / "20.conf").write_text("\npolcy: remap\n")
    code, out, errors = run(*words)
    assert code == 2 and not out
    assert "mmd.conf.d/20.conf:2: polcy: unknown key; did you mean policy?" in errors


# ---- peers and places

@isolated()
def check_hello(d, change, word):
    with Raw(d) as client, pytest.raises((Refused, ConnectionResetError)) as refused:
        client.greet(hello(**change))
    if isinstance(refused.value, Refused):
        assert refused.value.result < 0 and word.lower() in refused.value.reason.lower()
    else:
        assert not word, "closed without a reason"
    with Raw(d) as client:
        client.greet()


@pytest.mark.parametrize("change,word", [
    ({"magic": 0x12345678}, ""),
    ({"abi_major": abi.MM_ABI_MAJOR + 1}, "ABI"),
    ({"abi_major": 0}, "ABI"),
    ({"features_required": 1 << 40}, ""),
    ({"size_bytes": abi.mm_hello.size // 2}, ""),
    ({"reserved": [1]}, "reserved"),
    ({"name": b"\x1b[2J"}, "name"),
    ({"name": b"x" * abi.MM_NAME_BYTES}, "name"),
], ids=str)
def test_another_abi(start, change, word):
    check_hello(start(pool="4M"), change, word)


def test_second_mmd_in_the_same_directory(start):
    d = start(pool="4M")
    code, _, errors = run(*d.args(), env=d.env)
    assert code == 1 and str(d.dir) in one_sentence(errors)
    d.check_accounts()


def test_second_mmd_on_the_same_device(root, start):
    """The first has the memory: the second says so and goes; the first does not notice."""
    d = start(pool="24M", gpu_memory=32 << 20)
    args = [str(a) if a != str(d.dir) else str(root / "second") for a in d.args()]
    code, _, errors = run(*args, env=d.env)
    assert code == 1
    assert errors.strip()
    d.check_accounts()
    d.check_idle()


def test_no_daemon(root, model_dirs):
    requests = make_requests(root / "requests.jsonl", 1)
    code, _, errors = run(BIN / "mmserve", "--model", model_dirs[0], "--socket",
                          root / "none.sock", "--requests", requests, "--output", root / "o.jsonl")
    assert code == 3 and "none.sock" in one_sentence(errors)
    code, _, errors = run(BIN / "mmctl", "--dir", root, "status")
    assert code == 3 and str(root) in one_sentence(errors)


def test_refused_by_mmd(root, start, model_dirs):
    """An mmd that answers and refuses is reachable: its device is not the one that was asked for."""
    d = start()
    d.env["MM_SOFTGPU_DEVICES"] = "2"
    code, _, errors = run(BIN / "mmserve", "--model", model_dirs[0], "--socket", d.dir / "tenant.sock", "--requests",
                          make_requests(root / "requests.jsonl", 1), "--device", 1, env=d.env)
    assert code == 1 and "mmd refused" in one_sentence(errors), errors


def test_no_driver(root):
    code, _, errors = run(BIN / "mmd", "--dir", root / "d", "--driver", root / "libnone.so")
    assert code == 1 and "libnone.so" in errors
