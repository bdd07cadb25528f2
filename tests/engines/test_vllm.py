# SPDX-License-Identifier: Apache-2.0
"""vLLM on memory that mmd lends, in processes of its own that know of it by the entry point only;
run by in_venv.py --vllm."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import pytest

import models
from programs import BUILD, limit, wait_until
from serving import Engine, greedy, install, refused, while_plans_change

ENGINE = pathlib.Path(__file__).with_name("vllm_engine.py")
REQUESTS, TOKENS = 8, 200
JOB = {"requests": REQUESTS, "tokens": TOKENS}


@pytest.fixture(scope="session")
def site():
    """The package as a user has it: installed, with its entry points."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="mm-engines-site."))
    yield install(path)
    shutil.rmtree(path)


@pytest.fixture(scope="session")
def model():
    """A random Llama whose heads have a size that vLLM's kernels for CPUs take."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="mm-engines-model."))
    yield models.random_model(path / "llama", seed=7, hidden=256, layers=12, heads=4, kv_heads=2,
                              ffn=768, dtype="f32")
    shutil.rmtree(path)


ENV = {"VLLM_TARGET_DEVICE": "cpu", "VLLM_LOGGING_LEVEL": "ERROR",
       "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_NO_USAGE_STATS": "1",
       "VLLM_ALLOW_INSECURE_SERIALIZATION": "1"}


@pytest.fixture
def engine(site, model, daemon):
    """engine(d, ...) -> Engine of --load-format mmd with that daemon; None: of plain vLLM."""
    del daemon  # only for the order of the ends
    made = []

    def starter(d, options=None, env=None, **job):
        job = JOB | {"model": str(model)} | job
        env = ENV | {"PYTHONPATH": str(site)} | (env or {})
        if d is not None:
            job["options"] = {"load_format": "mmd"} | (options or {})
            env = dict(d.env, MMD_SOCKET=str(d.dir / "tenant.sock")) | env
        made.append(Engine([ENGINE], job, env))
        return made[-1]

    yield starter
    for one in made:
        one.close()


@pytest.fixture(scope="session")
def plain(site, model):
    """The ids that plain vLLM generates, with the same product of matrices."""
    one = Engine([ENGINE], JOB | {"model": str(model), "torch_gemm": True},
                 ENV | {"PYTHONPATH": str(site), "VLLM_ENABLE_V1_MULTIPROCESSING": "0"})
    try:
        (ids,) = one.result()["ids"]
    finally:
        one.close()
    assert len(ids) == REQUESTS and all(len(row) == TOKENS for row in ids)
    assert min(len(set(row)) for row in ids) > 20, "a model that repeats itself proves nothing"
    return ids


def test_ids_while_plans_change(engine, daemon, plain):
    """Gated steps, one of them void, and an arena that grows with what runs: the same ids."""
    d = daemon(pool="96M", page="64K")
    one = engine(d, wait=True, rounds=20, break_steps=True,
                 until={"gated": 100, "plan_changes": 10, "voids": 1})
    one.until_ready()
    with while_plans_change(d, "llama"):
        one.go()
        done = one.result()
    stats = done["stats"]
    assert all(ids == plain for ids in done["ids"])
    assert stats["gated"] >= 100 and stats["plan_changes"] >= 10 and stats["voids"] >= 1, stats
    assert stats["chunks_least"] <= 4 and stats["chunks_most"] >= 20, stats
    print(f"vllm: identical: True, steps {stats['steps']} gated {stats['gated']}, "
          f"{stats['plan_changes']} plan changes, chunks {stats['chunks_least']} -> "
          f"{stats['chunks_most']}")


def test_greedy_tenant(engine, daemon, connect, plain):
    """Chunks go back in mid-run, requests are preempted for them, and the ids are the same."""
    d = daemon(pool="60M", page="64K")
    tenant = connect(d, "greedy")
    one = engine(d, wait=True, rounds=20, until={"preempted": 1, "returned": 1})
    one.until_ready()
    one.go()
    wait_until(lambda: d.tenant("llama")["kv_chunks"] >= 15, 120, "the engine to have chunks")
    with greedy(tenant):
        done = one.result()
    assert all(ids == plain for ids in done["ids"])
    stats = done["stats"]
    assert stats["preempted"] > 0 and stats["returned"] > 0, stats
    print(f"vllm: identical: True, preempted {stats['preempted']}, returned {stats['returned']} "
          f"chunks, {stats['gated']} of {stats['steps']} steps gated")


def test_second_engine_makes_nothing(engine, daemon, plain):
    """With share_weights it takes the first one's: no checkpoint read, no byte passed, same ids."""
    d = daemon(pool="256M", page="64K")

    def options(name, **more):
        return {"model_loader_extra_config": {"name": name, "share_weights": True}} | more

    first = engine(d, options("first"), wait=True)
    first.until_ready()
    second = engine(d, options("second"), wait=True)
    second.until_ready()
    facts = [d.tenant(name) for name in ("first", "second")]
    assert facts[0]["store"] == facts[1]["store"]
    assert facts[0]["load_filled_bytes"] > 0, "the first one has committed"
    assert (facts[1]["load_read_bytes"], facts[1]["load_filled_bytes"]) == (0, 0)
    other = engine(d, options("other", hf_overrides={"rms_norm_eps": 1e-3}), wait=True)
    other.until_ready()
    assert d.tenant("other")["load_read_bytes"] > 0, "another configuration is another key"
    for one in (other, first, second):
        one.go()
        ids = one.result()["ids"]
        assert (ids == [plain]) == (one is not other), "other norms, other tokens"
    print("vllm: the second engine's bytes read: 0, filled: 0, identical: True")


def test_in_the_process_of_the_user(engine, daemon, plain):
    """By default vLLM's engine core is a process of its own, as in the other tests."""
    d = daemon(pool="96M", page="64K")
    own = engine(d, env={"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}, rounds=2, nap=True,
                 until={"steps": 2 * TOKENS - 1})
    done = own.result()
    assert done["ids"] == [plain, plain] and done["stats"]["chunks_most"] >= 20, done["stats"]
    # A nap after each round: its chunks but that of the null block go back, and come again.
    assert done["naps"] == [["SUSPENDED", 1, "RUNNING"]] * 2


@pytest.mark.parametrize("options, sentence", [
    ({"tensor_parallel_size": 2}, "--load-format mmd needs --tensor-parallel-size 1: vLLM has "
                                  "tensor_parallel_size = 2"),
    ({"enforce_eager": False}, "--load-format mmd needs --enforce-eager: vLLM has enforce_eager = "
                               "False"),
    ({"enable_lora": True}, "--load-format mmd needs no --enable-lora"),
    ({"async_scheduling": True}, "--load-format mmd needs --no-async-scheduling"),
    ({"model_loader_extra_config": {"socket": 3}}, "mmd.vllm: socket in "
     "--model-loader-extra-config is a str, not 3"),
    ({"model_loader_extra_config": {"share_weights": 1}}, "mmd.vllm: share_weights in "
     "--model-loader-extra-config is a bool, not 1"),
    ({"model_loader_extra_config": {"kv_share_bytes": "8G"}}, "mmd.vllm: kv_share_bytes in "
     "--model-loader-extra-config is a int, not '8G'"),
])
def test_what_is_refused(engine, daemon, options, sentence):
    errors = engine(daemon(), options=options).failure()
    refused(errors, sentence)


def test_no_daemon(engine, daemon):
    d = daemon()
    errors = engine(d, env={"MMD_SOCKET": str(d.dir / "nothing.sock")}).failure()
    assert "nothing.sock" in refused(errors, "RuntimeError: mmd.vllm: there is no mmd to connect "
                                             "to: ")


FAKE = """
import sys
import vllm
vllm.__version__ = sys.argv[1]
from vllm.engine.arg_utils import EngineArgs
arguments = EngineArgs(model="nothing", load_format="mmd")
try:
    arguments.create_engine_config()
except RuntimeError as error:
    print(type(error).__name__, error)
"""

CHANGED = """
import sys
import mmd.vllm._versions as versions
versions.TOUCHED["0.32.0"]["vllm.v1.worker.utils:allocate_kv_cache"] = "config"
""" + FAKE


@pytest.mark.parametrize("text, version, sentence", [
    (FAKE, "0.31.0", "Unsupported vLLM 0.31.0 is not supported by mmd.vllm, which knows 0.32.0"),
    (CHANGED, "0.32.0+cpu", "Unsupported this vLLM 0.32.0+cpu is not the one that mmd.vllm knows: "
     "vllm.v1.worker.utils:allocate_kv_cache takes (kv_cache_config, device, layout, "
     "kernel_block_sizes=None), not (config)"),
])
def test_other_versions(site, text, version, sentence):
    """Refused by name; engines with other load formats are not touched."""
    env = dict(os.environ, PYTHONPATH=str(site), MM_CLIENT_LIB=str(BUILD / "lib/libmm-client.so.0"),
               **ENV)
    done = subprocess.run([sys.executable, "-c", text, version], env=env, text=True,
                          capture_output=True, timeout=limit(60), check=False)
    assert done.stdout.splitlines()[-1:] == [sentence], done.stdout + done.stderr
