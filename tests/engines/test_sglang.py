# SPDX-License-Identifier: Apache-2.0
"""SGLang on memory that mmd lends: its engine, scheduler and prefix cache, without its packages for
CUDA; run by in_venv.py --sglang."""

import json
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

HERE = pathlib.Path(__file__).parent
REQUESTS, TOKENS = 8, 200
JOB = {"requests": REQUESTS, "tokens": TOKENS}
# SGLang itself looks after each pass whether a slot is lost, or is free and in use.
ENV = {"SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_BUSY": "1", "SGLANG_CHECK_KV_PAGE_INVARIANTS": "1"}


@pytest.fixture(scope="session")
def site():
    """The package as a user has it, and a platform that computes without the CUDA package."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="mm-engines-site."))
    made = install(path)
    shutil.copytree(HERE / "sglang_host", made, dirs_exist_ok=True)
    yield made
    shutil.rmtree(path)


@pytest.fixture(scope="session")
def model():
    path = pathlib.Path(tempfile.mkdtemp(prefix="mm-engines-model."))
    yield models.random_model(path / "llama", seed=7, hidden=256, layers=12, heads=4, kv_heads=2,
                              ffn=768, dtype="f32")
    shutil.rmtree(path)


@pytest.fixture
def engine(site, model, daemon):
    """engine(d, ...) -> Engine of --load-format mmd with that daemon; None: of plain SGLang."""
    del daemon  # only for the order of the ends
    made = []

    def starter(d, options=None, env=None, **job):
        job = JOB | {"model": str(model)} | job
        env = ENV | {"PYTHONPATH": str(site)} | (env or {})
        if d is not None:
            job["options"] = {"load_format": "mmd"} | (options or {})
            env = dict(d.env, MMD_SOCKET=str(d.dir / "tenant.sock")) | env
        made.append(Engine([HERE / "sglang_engine.py"], job, env))
        return made[-1]

    yield starter
    for one in made:
        one.close()


@pytest.fixture(scope="session")
def plain(site, model):
    """The ids that plain SGLang generates."""
    one = Engine([HERE / "sglang_engine.py"], JOB | {"model": str(model)},
                 {"PYTHONPATH": str(site)})
    try:
        done = one.result()
    finally:
        one.close()
    (ids,) = done["ids"]
    assert done["stats"] is None, "an engine with another load format is not touched"
    assert len(ids) == REQUESTS and all(len(row) == TOKENS for row in ids)
    assert min(len(set(row)) for row in ids) > 20, "a model that repeats itself proves nothing"
    return ids


def test_ids_while_plans_change(engine, daemon, plain):
    """Gated steps, one of them void, and slots that grow with what runs: the same ids."""
    d = daemon(pool="96M", page="64K")
    one = engine(d, env={"MM_TEST_BREAK_STEPS": "1"}, wait=True, rounds=20,
                 until={"gated": 100, "plan_changes": 10, "voids": 1})
    one.until_ready()
    with while_plans_change(d, "llama"):
        one.go()
        done = one.result()
    stats = done["stats"]
    assert all(ids == plain for ids in done["ids"])
    assert stats["gated"] >= 100 and stats["plan_changes"] >= 10 and stats["voids"] >= 1, stats
    assert stats["chunks_least"] == 1 and stats["chunks_most"] >= 12, stats
    print(f"sglang: identical: True, steps {stats['steps']} gated {stats['gated']}, "
          f"{stats['voids']} void, {stats['plan_changes']} plan changes, chunks "
          f"{stats['chunks_least']} -> {stats['chunks_most']}")


@pytest.mark.parametrize("page_size", [16, 1])
def test_greedy_tenant(engine, daemon, connect, plain, page_size):
    """Chunks go back in mid-run, requests are retracted for them, and the ids are the same."""
    d = daemon(pool="60M", page="64K")
    tenant = connect(d, "greedy")
    one = engine(d, wait=True, rounds=20, until={"retracted": 1, "returned": 1, "evicted": 1},
                 options={"page_size": page_size})
    one.until_ready()
    one.go()
    wait_until(lambda: d.tenant("llama")["kv_chunks"] >= 6, 120, "the engine to have chunks")
    with greedy(tenant):
        done = one.result()
    assert all(ids == plain for ids in done["ids"])
    stats = done["stats"]
    assert stats["retracted"] > 0 and stats["returned"] > 0 and stats["evicted"] > 0, stats
    print(f"sglang: identical: True, page size {page_size}, retracted {stats['retracted']}, "
          f"evicted {stats['evicted']} tokens, returned {stats['returned']} chunks, "
          f"{stats['gated']} of {stats['steps']} steps gated")


def test_last_request_waits(engine, daemon, connect, plain):
    """An engine's only request has no room for its next token: it waits until there is some."""
    d = daemon(policy="elastic", pool="60M", page="64K")
    one = engine(d, wait=True, requests=1, options={"log_level": "warning"},
                 env={"SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION": "8"})
    one.until_ready()
    tenant = connect(d, "full")
    most = tenant.info.pool_pages - d.tenant("llama")["pages"]
    arena = tenant.arena(tenant.info.page_bytes, 1, most, most)
    assert arena.want(most, timeout=limit(20))
    tenant.hint(used=most, running=1)
    one.go()
    wait_until(lambda: any("Retract requests" in line for line in list(one.errors)), 240,
               "the request to be retracted")
    tenant.hint()
    arena.release(arena.usable())
    done = one.result()
    assert done["ids"] == [plain[:1]] and done["stats"]["waited"] >= 1, done["stats"]


def test_sleep_and_update(engine, daemon, plain, model):
    """A nap after each round: its chunks but the first go back. Weights cannot be loaded again."""
    d = daemon(pool="96M", page="64K")
    done = engine(d, rounds=2, nap=True, update=str(model)).result()
    assert done["ids"] == [plain, plain]
    assert all(before > 1 and asleep == 1 for before, asleep in done["naps"]), done["naps"]
    assert done["stats"]["chunks_most"] >= 12
    assert done["update"][0] is False and "mmd's are read-only" in done["update"][1]


def test_no_daemon(engine, daemon):
    d = daemon()
    errors = engine(d, env={"MMD_SOCKET": str(d.dir / "nothing.sock")}).failure()
    assert "nothing.sock" in refused(errors, "RuntimeError: mmd.sglang: there is no mmd to connect "
                                             "to: ")


ASK = """
import json
import sys
import sglang
import mmd.sglang._versions as versions
version, changed, cases = json.loads(sys.argv[1])
sglang.__version__ = version
versions.TOUCHED["0.5.23"].update(changed)
from sglang.srt.plugins import load_plugins
load_plugins()
from sglang.srt.configs.load_config import LoadConfig
from sglang.srt.server_args import ServerArgs
from sglang.srt.plugins.hook_registry import HookRegistry
from sglang.srt.arg_groups.overrides import resolving_view
from sglang.srt.model_executor.cuda_graph_config import with_phase
from mmd.sglang._config import refuse
class Replaced:
    def __init__(self, view, graphs):
        self._view, self.cuda_graph_config = view, graphs
    def __getattr__(self, name):
        return getattr(self._view, name)
fine = {"device": "cpu", "dtype": "float32", "attention_backend": "torch_native",
        "disable_overlap_schedule": True, "chunked_prefill_size": -1, "mem_fraction_static": 0.5,
        "skip_tokenizer_init": True}
for model, options in cases:
    graphs, hooked = options.pop("graphs", None), options.pop("hooked", None)
    if hooked:
        HookRegistry.register(hooked, lambda *_: None)
        HookRegistry.apply_hooks()
    try:
        arguments = ServerArgs(model_path=model, **{**fine, **options})
        arguments.resolve_once()
        arguments.check_server_args()
        if graphs:  # which SGLang turns off where the device has none
            view = resolving_view(arguments)
            refuse(Replaced(view, with_phase(view.cuda_graph_config, graphs, backend="full")))
        print("fine", LoadConfig(load_format=arguments.load_format).load_format)
    except Exception as error:
        print(type(error).__name__, error)
"""


@pytest.fixture
def ask(site, model):
    """ask(version, changed, options...) -> what SGLang says to each of them, in one process."""
    def asker(version, changed, *cases):
        job = [version, changed, [(str(model), case) for case in cases]]
        env = dict(os.environ, PYTHONPATH=str(site), HF_HUB_OFFLINE="1",
                   MM_CLIENT_LIB=str(BUILD / "lib/libmm-client.so.0"))
        done = subprocess.run([sys.executable, "-c", ASK, json.dumps(job)], env=env, text=True,
                              capture_output=True, timeout=limit(600), check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return [line for line in done.stdout.splitlines() if line]

    return asker


OURS = {"load_format": "mmd"}
REFUSED = [
    ({"disable_overlap_schedule": False}, "--load-format mmd needs --disable-overlap-schedule: "
                                          "SGLang has disable_overlap_schedule = False"),
    ({"chunked_prefill_size": 2048},
     "--load-format mmd needs --chunked-prefill-size -1: SGLang has chunked_prefill_size = 2048"),
    ({"tp_size": 2}, "--load-format mmd needs --tp-size 1: SGLang has tp_size = 2"),
    ({"pp_size": 2}, "--load-format mmd needs --pp-size 1: SGLang has pp_size = 2"),
    ({"enable_lora": True, "max_lora_rank": 8, "lora_target_modules": ["all"]},
     "--load-format mmd needs no --enable-lora"),
    ({"graphs": "decode"},
     "--load-format mmd needs --cuda-graph-backend-decode disabled: SGLang has 'full'"),
    ({"enable_hierarchical_cache": True}, "--load-format mmd needs no --enable-hierarchical-cache"),
]


def test_what_is_refused(ask):
    """By name, and nothing of engines with other load formats."""
    cases = [{**OURS, **options} for options, _ in REFUSED]
    *errors, other, ours = ask("0.5.23", {}, *cases, {"load_format": "auto"}, OURS)
    for (options, sentence), error in zip(REFUSED, errors):
        assert error.startswith("Unsupported " + sentence), (options, error)
    assert other == "fine LoadFormat.AUTO" and ours.endswith("MmdModelLoader'>"), (other, ours)


def test_another_plugin(ask):
    """SGLang's registry patches a function once: who comes later would be passed over."""
    hooked = "sglang.srt.managers.schedule_batch.ScheduleBatch.retract_decode"
    assert ask("0.5.23", {}, OURS | {"hooked": hooked}) == [
        f"Unsupported mmd.sglang: another plugin of SGLang hooks {hooked}, too"]


@pytest.mark.parametrize("version, changed, sentence", [
    ("0.5.22", {}, "SGLang 0.5.22 is not supported by mmd.sglang, which knows 0.5.23"),
    ("0.5.23", {"sglang.srt.model_loader.loader:get_model_loader": "config"},
     "this SGLang 0.5.23 is not the one that mmd.sglang knows: sglang.srt.model_loader.loader:"
     "get_model_loader takes (load_config, model_config=None), not (config)"),
])
def test_other_versions(ask, version, changed, sentence):
    """Refused by name; engines with other load formats are not touched."""
    ours, other = ask(version, changed, OURS, {"load_format": "auto"})
    assert ours == "Unsupported " + sentence and other == "fine LoadFormat.AUTO"
