# SPDX-License-Identifier: Apache-2.0
"""llama.cpp on weights that mmd lends, through libclient/ggml; needs a build with MM_LLAMA_CPP."""
import json
import os
import subprocess
import threading

import pytest

from programs import BUILD, limit, wait_until

TOKENS = BUILD / "tests/llama-tokens"
LAYERS = 12
STEPS = 160  # and a prompt of 39 tokens, in parts of 8


def tokens(*args, env=None):
    return subprocess.run([TOKENS, *map(str, args)], env=env, text=True, capture_output=True,
                          timeout=limit(300), check=False)


@pytest.fixture(scope="module")
def gguf(tmp_path_factory):
    """A file, and what llama.cpp generates from it by itself."""
    path = tmp_path_factory.mktemp("llama") / "model.gguf"
    done = tokens("make", path, LAYERS, 1)
    assert done.returncode == 0, done.stderr
    plain = tokens("plain", path, STEPS)
    assert plain.returncode == 0, plain.stderr
    lines = plain.stdout.splitlines()
    assert len(lines) == 3 and len(set(lines)) == 3
    assert all(len(set(line.split())) > STEPS // 8 for line in lines), "the model repeats itself"
    return path, lines


def environment(d):
    return dict(os.environ, **d.env, MMD_SOCKET=str(d.dir / "tenant.sock"))


class Plans:
    """Changes the tenant's plan for as long as it is open."""

    def __init__(self, d, *layers):
        self._d, self._layers, self._stop = d, layers, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        turn = 0
        while not self._stop.is_set():
            self._d.ctl("plan", "set", "llama", "--layers", self._layers[turn % len(self._layers)],
                        check=False)
            turn += 1

    def __enter__(self):
        self._thread.start()

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()


def run(d, path, *act):
    done = tokens("mmd", path, STEPS, *act, env=environment(d))
    assert done.returncode == 0, done.stderr
    *lines, counts = done.stdout.splitlines()
    return lines, json.loads(counts)


def test_q8_0_while_plans_change(daemon, gguf):
    """Token by token what llama.cpp generates by itself, whatever is away."""
    path, want = gguf
    d = daemon(pool="16M")
    with Plans(d, 4, 3, 7, 5, 2):
        lines, counts = run(d, path)
    assert lines == want
    assert counts["steps"] > STEPS, "a prompt in parts is several steps"
    assert counts["gated"] >= 90 and counts["plan_changes"] >= 4, counts
    print(f"llama: identical: True, {counts['steps']} steps, {counts['gated']} gated, "
          f"{counts['plan_changes']} plan changes")


def test_void_steps(daemon, gguf):
    """What is computed in a void step is taken out of llama.cpp's KV cache, and computed again."""
    path, want = gguf
    d = daemon(pool="16M")
    with Plans(d, 4, 3):
        lines, counts = run(d, path, "void")
    assert lines == want
    assert counts["voided"] > 0, counts


def test_no_plan(daemon, gguf):
    path, want = gguf
    lines, counts = run(daemon(pool="16M"), path)
    assert lines == want
    assert counts["gated"] == 0 and counts["voided"] == 0, counts
    assert counts["relearnt"] <= 2, counts


def test_second_tenant_shares_the_host_copy(daemon, gguf):
    path, want = gguf
    d = daemon(pool="16M")
    with_first = subprocess.Popen([TOKENS, "mmd", path, "100000"], env=environment(d),
                                  stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: d.tenants(), 60, "the first tenant")
        lines, _ = run(d, path)
    finally:
        with_first.kill()
        with_first.wait()
    assert lines == want


def test_other_file_is_refused(daemon, gguf, tmp_path):
    path, _ = gguf
    other, longer = tmp_path / "other.gguf", tmp_path / "longer.gguf"
    assert tokens("make", other, LAYERS, 2).returncode == 0
    assert tokens("make", longer, LAYERS + 1, 1).returncode == 0
    env = environment(daemon(pool="16M"))
    done = tokens("mmd", path, 1, f"other={other}", env=env)
    assert done.returncode == 1 and "other bytes than mmd was given" in done.stderr, done.stderr
    done = tokens("mmd", path, 1, f"other={longer}", env=env)
    assert done.returncode == 1 and "not a tensor of the file" in done.stderr, done.stderr


def test_model_on_a_disk_is_refused(daemon, gguf, tmp_path):
    """llama.cpp reads weights of layers that are away: there must be a host copy to read."""
    path, _ = gguf
    d = daemon(pool="16M", extra=["--chunk", "64K", "--stage", "1M", "--host-store-max", "1200K",
                                  "--store-dir", tmp_path])
    done = tokens("mmd", path, 1, env=environment(d))
    assert done.returncode == 1 and "keeps this model on a disk" in done.stderr, done.stderr


def test_bad_files(daemon, gguf, tmp_path):
    path, _ = gguf
    env = environment(daemon(pool="16M"))
    data = path.read_bytes()
    for name, content, say in (("missing", None, "No such file"), ("empty", b"", "not a GGUF file"),
                               ("text", b"not a model\n" * 100, "not a GGUF file"),
                               ("short", data[:-5000], "ends before it")):
        bad = tmp_path / name
        if content is not None:
            bad.write_bytes(content)
        done = tokens("mmd", bad, 1, env=env)
        assert done.returncode == 1 and say in done.stderr, (name, done.stderr)
    done = tokens("mmd", path, 1, env=dict(env, MMD_SOCKET=str(tmp_path / "none")))
    assert done.returncode == 3
