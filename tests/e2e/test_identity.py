# SPDX-License-Identifier: Apache-2.0
"""Every token is the same: without remapping, with layers cycling, and while plans change."""

import json
import pathlib
import time

import pytest

import models
from daemon import RpcError
from plans import run_while_plans_change
from programs import BIN, DATA, count, limit, some
from tenant import make_requests, plain_tokens, read_output

STORIES = 6
WITHOUT_DATA = "MM_TEST_DATA is not set: the trained model is not here"


@pytest.fixture(scope="module")
def stories(tmp_path_factory):
    """The trained model, and the ids that an independent implementation computed."""
    if not DATA:
        pytest.skip(WITHOUT_DATA)
    expected = json.loads((pathlib.Path(DATA) / "stories260K_expected.json").read_text())
    folder = tmp_path_factory.mktemp("stories")
    requests = folder / "requests.jsonl"
    # The same story several times, so that plans change while it is told.
    with open(requests, "w") as out:
        for i in range(STORIES):
            out.write(json.dumps({"id": str(i), "arrival_s": 0.3 * i,
                                  "prompt": expected["prompt_token_ids"],
                                  "max_tokens": expected["steps"]}) + "\n")
    model = models.stories_model(folder / "model", DATA)
    assert len(expected["greedy_token_ids"]) == 200
    return model, requests, {str(i): expected["greedy_token_ids"] for i in range(STORIES)}


@pytest.fixture
def random_case(root, model_dirs):
    requests = make_requests(root / "requests.jsonl", 12, output=(40, 80))
    return model_dirs[0], requests, plain_tokens(root, model_dirs[0], requests)


def check_without(start, serve, case):
    model, requests, want = case
    d = start(policy="elastic", page="16K")
    tenant = serve("t", model, requests, d, extra=["--verify"])
    assert tenant.tokens() == want
    assert d.status()["alpha_sum_max"] == 0


def check_cycling(start, serve, case, alpha, slots, extra=()):
    model, requests, want = case
    d = start(policy="remap", page="16K")
    tenant = serve("t", model, requests, d, extra=["--verify", *extra], sync=True).ready()
    d.put_plan("t", alpha, slots)
    tenant.go()
    summary = tenant.wait()
    assert read_output(tenant.output) == want
    assert summary["gated_steps"] == summary["steps"] > 0, "not every step had layers cycling"
    assert d.status()["bytes_streamed"] > 0
    return summary


def change_once(d, serve, case, plans):
    """One run while plans change as fast as mmctl and the tenant go: how often they did."""
    model, requests, want = case
    tenant = serve("t", model, requests, d, extra=["--verify"], sync=True).ready()
    summary, sets = run_while_plans_change(d, tenant, "t", plans)
    assert read_output(tenant.output) == want
    print(f"{summary['steps']} steps, {summary['plan_changes']} plan changes, {sets} set")
    return summary["plan_changes"]


def check_changing(start, serve, case, plans, changes):
    d = start(policy="remap", page="16K")
    deadline = time.monotonic() + limit(60)
    seen = 0
    while seen < changes:
        assert time.monotonic() < deadline, f"only {seen} plan changes"
        seen += change_once(d, serve, case, plans)


def test_stories_without_remapping(start, serve, stories):
    check_without(start, serve, stories)


@pytest.mark.parametrize("alpha, slots", some([(3, 1), (2, 2)], [(2, 2)]))
def test_stories_cycling(start, serve, stories, alpha, slots):
    check_cycling(start, serve, stories, alpha, slots)


def test_stories_while_plans_change(start, serve, stories):
    check_changing(start, serve, stories, [(3, 1), (0, 1), (2, 2), (2, 1), (3, "auto")], 20)


def test_random_without_remapping(start, serve, random_case):
    check_without(start, serve, random_case)


@pytest.mark.parametrize("alpha, slots", some([(1, 1), (7, 1), (3, 2), (6, 2)], [(7, 1), (6, 2)]))
def test_random_cycling(start, serve, random_case, alpha, slots):
    check_cycling(start, serve, random_case, alpha, slots)


@pytest.mark.parametrize("repeat", range(count(3, 1)))
def test_random_while_plans_change(start, serve, random_case, rng, repeat):
    del repeat
    plans = [rng.choice([(0, 1), (1, 1), (2, 2), (3, 2), (4, 1), (5, 2), (6, 2), (7, 1), (5, "auto")])
             for _ in range(16)]
    check_changing(start, serve, random_case, plans, 10)


@pytest.mark.parametrize("alpha, slots", some([(3, 1), (3, 2)], [(3, 1)]))
def test_steps_that_break_off(start, serve, random_case, alpha, slots):
    """One step in five is abandoned between two layers and repeated once the gates are in order."""
    model, requests, want = random_case
    d = start(policy="remap", page="16K")
    tenant = serve("t", model, requests, d, extra=["--verify", "--break-steps", "200"], sync=True).ready()
    d.put_plan("t", alpha, slots)
    summary = tenant.go().wait()
    assert read_output(tenant.output) == want
    assert summary["steps_broken"] > 0 and summary["steps_void"] >= summary["steps_broken"], summary
    # Each is answered by a null plan change, once layers cycle.
    assert d.status()["plan_changes"] > summary["steps_broken"] / 2


def test_plain_is_batch_invariant(root, model_dirs):
    """The reference itself: neighbours and chunking change no token."""
    requests = make_requests(root / "requests.jsonl", 10, prompt=(8, 64))
    want = plain_tokens(root, model_dirs[1], requests, extra=["--max-batch", "1"])
    for batch, tokens in ((4, 16), (8, 8), (10, 512)):
        assert plain_tokens(root, model_dirs[1], requests,
                            extra=["--max-batch", batch, "--max-batched-tokens", tokens]) == want


def cublas(monkeypatch, *more):
    """mmserve's options to multiply by the software GPU's cuBLAS."""
    monkeypatch.setenv("MM_CUBLAS_LIB", str(BIN.parent / "lib" / "libmm-softblas.so"))
    return ["--gemm", "cublas", *more]


def test_cublas_is_batch_invariant(root, model_dirs, monkeypatch):
    """Products of always as many rows; of the batch's own size, ids may differ but it must run."""
    requests = make_requests(root / "requests.jsonl", 6, prompt=(8, 24), output=(8, 16))
    want = plain_tokens(root, model_dirs[1], requests, extra=cublas(monkeypatch, "--max-batch", "1"))
    for batch, tokens in ((4, 16), (6, 256)):
        more = ["--max-batch", batch, "--max-batched-tokens", tokens]
        assert plain_tokens(root, model_dirs[1], requests, extra=cublas(monkeypatch, *more)) == want
    fast = plain_tokens(root, model_dirs[1], requests, extra=cublas(monkeypatch, "--fast"))
    assert {i: len(ids) for i, ids in fast.items()} == {i: len(ids) for i, ids in want.items()}


@pytest.mark.parametrize("alpha, slots, graphs", some(
    [(3, 1, "off"), (3, 1, "on"), (6, 2, "on")], [(6, 2, "on")]))
def test_cublas_cycling(start, serve, root, model_dirs, monkeypatch, alpha, slots, graphs):
    """Its tokens while layers cycle, captured or not, are its tokens without either."""
    extra = cublas(monkeypatch)
    requests = make_requests(root / "requests.jsonl", 6, output=(8, 16))
    want = plain_tokens(root, model_dirs[0], requests, extra=[*extra, "--graphs", "off"])
    summary = check_cycling(start, serve, (model_dirs[0], requests, want), alpha, slots,
                            [*extra, "--graphs", graphs])
    assert (summary["graph_launches"] > 0) == (graphs == "on"), summary


def test_plan_of_an_impossible_size(start, serve, random_case):
    model, requests, want = random_case
    d = start(policy="remap", page="16K")
    tenant = serve("t", model, requests, d, sync=True).ready()
    code, _, errors = d.ctl("plan", "set", "t", "--layers", 100, check=False)
    assert code == 1 and "100" in errors
    with pytest.raises(RpcError):
        d.rpc("plan.set", {"name": "t", "layers": 100})
    assert tenant.go().tokens() == want
