# SPDX-License-Identifier: Apache-2.0
"""Public load generators, as they are, against mmserve --listen on memory that mmd lends."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "tests/e2e/lib")]

from programs import BUILD, limit  # noqa: E402
from server import Server  # noqa: E402

PROMPTS, INPUT, OUTPUT = 200, 32, 16
OFFLINE = {"HF_HUB_OFFLINE": "1", "VLLM_TARGET_DEVICE": "cpu"}


def find(variable, folder, name):
    """A program: of the environment that the variable names, of tools/engines-venv, or in PATH."""
    for place in (os.environ.get(variable, ""), BUILD / folder):
        if place and os.access(pathlib.Path(place) / "bin" / name, os.X_OK):
            return str(pathlib.Path(place) / "bin" / name)
    found = shutil.which(name)
    if not found:
        pytest.skip(f"no {name}: neither {variable} nor PATH has one")
    return found


def run(root, *args):
    done = subprocess.run([*map(str, args)], capture_output=True, text=True, timeout=limit(600), check=False, cwd=root,
                          env={**os.environ, **OFFLINE})
    assert done.returncode == 0, done.stderr[-3000:]
    print(done.stdout)
    return done.stdout


@pytest.fixture
def server(root, start, model_dirs):
    d = start(pool="16M", page="64K")
    made = Server(root, "m", model_dirs[0], daemon=d, extra=["--kv-share", "4M"])
    yield made
    made.kill()


def test_vllm_bench_serve(root, server, model_dirs):
    vllm = find("MM_ENGINES_VENV_VLLM", "engines-venv-vllm", "vllm")
    said = run(root, vllm, "bench", "serve", "--backend", "openai", "--base-url", f"http://127.0.0.1:{server.port}",
               "--endpoint", "/v1/completions", "--model", "m", "--tokenizer", model_dirs[0], "--dataset-name", "random",
               "--random-input-len", INPUT, "--random-output-len", OUTPUT, "--num-prompts", PROMPTS, "--ignore-eos",
               "--disable-tqdm")
    numbers = {name: int(n) for name, n in re.findall(r"^([A-Z][\w ]+): +(\d+)\s*$", said, re.M)}
    assert numbers["Successful requests"] == PROMPTS and numbers["Failed requests"] == 0
    assert numbers["Total input tokens"] == PROMPTS * INPUT
    assert numbers["Total generated tokens"] == PROMPTS * OUTPUT
    server.stop()


def test_guidellm(root, server, model_dirs):
    guidellm = find("MM_GUIDELLM_VENV", "guidellm-venv", "guidellm")
    said = run(root, guidellm, "run", "--backend", f"kind=openai_http,target=http://127.0.0.1:{server.port},model=m",
               "--profile", "kind=synchronous", "--constraint", f"kind=max_requests,count={PROMPTS}", "--data",
               f"kind=synthetic_text,prompt_tokens={INPUT},output_tokens={OUTPUT}", "--tokenizer",
               f"kind=hf_auto,model={model_dirs[0]}", "--disable-console-interactive")
    assert "generated 1 benchmark(s)" in said
    m = server.metrics()
    assert m['mmserve_requests_total{end="length"}'] == PROMPTS
    assert m["mmserve_output_tokens_total"] == PROMPTS * OUTPUT
    server.stop()
