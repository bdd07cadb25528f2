# SPDX-License-Identifier: Apache-2.0
"""Temporal sharing: tenants compute in turn, die in their turn, stop in their turn; tokens stay."""

import json
import signal
import subprocess

import pytest

import abi
from isolated import isolated
from kvclient import KvClient
from programs import BIN, limit, some, wait_until
from tenant import make_requests, plain_tokens


# Bounds the KV that a tenant has when it is stopped, however late that is: it gives none, and another model must fit.
FEW = ["--max-batch", "2"]


def turns_of(d):
    return {t["name"]: t["turns"] for t in d.tenants()}


@pytest.mark.parametrize("mode, policy", some(
    [("quantum", "recompute"), ("quantum", "remap"), ("drain", "recompute"), ("drain", "remap")],
    [("quantum", "remap"), ("drain", "recompute")]))
def test_tokens(root, start, serve, model_dirs, mode, policy):
    """Two in turns and one that is not, in short memory."""
    d = start(policy=policy, pool="3200K", page="16K", extra=["--controller", "mode=turns"])
    tenants, want = [], []
    for i, model in enumerate(model_dirs):
        path = make_requests(root / f"{i}.jsonl", 8, prompt=(16, 48), output=(40, 80), seed=i)
        want.append(plain_tokens(root, model, path))
        extra = ["--verify", "--kv-share", "256K"]
        if i < 2:
            extra += ["--turns", mode, "--quantum", "20"]
        tenants.append(serve(f"t{i}", model, path, d, extra=extra, sync=True))
    for t in tenants:
        t.ready()
    for t in tenants:
        t.go()
    for t in tenants:
        t.hear("done", 120)
    assert d.status()["turns"] >= 2
    per = turns_of(d)
    assert per["t0"]["mode"] == per["t1"]["mode"] == mode and per["t2"]["mode"] == "none"
    assert per["t0"]["begun"] >= 1 and per["t1"]["begun"] >= 1 and per["t2"]["begun"] == 0
    for t, tokens in zip(tenants, want):
        t.process.stdin.close()
        assert t.tokens() == tokens


def test_dies_or_stops_in_its_turn(root, start, serve, model_dirs):
    """Who holds the turn is killed, then one is stopped: the others go on."""
    d = start(policy="remap", pool="8M", page="16K", extra=["--controller", "mode=turns"])
    endless = make_requests(root / "long.jsonl", 400, output=(200, 400))
    short = make_requests(root / "short.jsonl", 3)
    want = plain_tokens(root, model_dirs[2], short)
    extra = ["--turns", "drain", *FEW]
    holder = serve("holder", model_dirs[0], endless, d, extra=extra)
    wait_until(lambda: d.status()["turn_holder"] == "holder", 60, "the first turn")
    assert d.status()["turn_mode"] == "turns"
    second = serve("second", model_dirs[1], endless, d, extra=extra)
    wait_until(lambda: turns_of(d).get("second", {}).get("waits"), 60, "the second to wait")
    holder.kill()
    wait_until(lambda: d.status()["turn_holder"] == "second", 60, "the turn to go on")
    second.process.send_signal(signal.SIGSTOP)
    third = serve("third", model_dirs[2], short, d, extra=extra)
    assert third.tokens(120) == want
    assert turns_of(d)["second"]["overdue"] >= 1
    second.process.send_signal(signal.SIGCONT)
    wait_until(lambda: d.status()["turn_holder"] == "second", 60, "it to come back")


def test_beside(root, start, serve, model_dirs):
    """With the knob, those in turns compute side by side: one that stops keeps nobody waiting."""
    d = start(policy="remap", pool="8M", page="16K", extra=["--controller", "mode=beside"])
    endless = make_requests(root / "long.jsonl", 400, output=(200, 400))
    short = make_requests(root / "short.jsonl", 3)
    want = plain_tokens(root, model_dirs[2], short)
    extra = ["--turns", "drain", *FEW]
    first = serve("first", model_dirs[0], endless, d, extra=extra)
    serve("second", model_dirs[1], endless, d, extra=extra)
    wait_until(lambda: [t["turns"]["begun"] for t in d.tenants()] == [1, 1], 60, "two turns at once")
    status = d.status()
    assert status["turn_mode"] == "beside" and status["turn_holder"] is None
    assert not any(t["turns"]["waits"] for t in status["tenants"])
    first.process.send_signal(signal.SIGSTOP)
    third = serve("third", model_dirs[2], short, d, extra=extra)
    assert third.tokens(120) == want
    per = turns_of(d)
    assert per["first"]["overdue"] == 0 and per["first"]["begun"] == per["second"]["begun"] == 1
    first.process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("swap", some(["auto", "200K", "0"], ["200K", "0"]))
def test_suspended(root, start, serve, model_dirs, swap):
    """Two in short turns want more KV than there is: it waits on the host, or is computed again."""
    d = start(policy="remap", pool="2200K", page="16K",
              extra=["--swap-max", "64M", "--controller", "mode=turns"])
    extra = ["--verify", "--turns", "quantum", "--quantum", "10", "--kv-share", "256K",
             "--block-tokens", "8", "--swap-tokens", "4"]
    extra += [] if swap == "auto" else ["--swap", swap]
    tenants, want = [], []
    for i, model in enumerate(model_dirs[:2]):
        path = make_requests(root / f"{i}.jsonl", 16, prompt=(32, 64), output=(80, 120), seed=i)
        want.append(plain_tokens(root, model, path))
        tenants.append(serve(f"t{i}", model, path, d, extra=extra, sync=True))
    for t in tenants:
        t.ready()
    for t in tenants:
        t.go()
    summaries = [t.wait(120) for t in tenants]
    for t, tokens in zip(tenants, want):
        assert t.tokens() == tokens
    assert sum(s["preemptions"] for s in summaries) > 0
    out = sum(s["swapped_out_bytes"] for s in summaries)
    assert out == sum(s["swapped_in_bytes"] for s in summaries)
    assert (out > 0) == (swap != "0"), summaries


class Greedy(KvClient):
    """Wants the turn for as long as can be said, and before all others; gives none back."""

    def __init__(self, d, chunks):
        self.turns = []
        super().__init__(d, 16384)
        self.hold(chunks)
        self.push(abi.MM_OP_TURN_JOIN, (abi.MM_TURN_QUANTUM, 60 * 10**9, abi.MM_TURN_PRIORITY_MAX))
        self.push(abi.MM_OP_TURN_WANT)

    def note(self, event):
        super().note(event)
        if event["opcode"] == abi.MM_EV_TURN_BEGIN:
            self.turns.append(event["arg"][1])
        elif event["opcode"] == abi.MM_EV_TURN_END and event["result"] < 0:
            self.push(abi.MM_OP_TURN_WANT)


@isolated(240)
def greedy_beside(d, victim, n, chunks):
    greedy = [Greedy(d, chunks) for _ in range(n)]
    if chunks:
        wait_until(lambda: all([g.look() for g in greedy]) and any(g.turns for g in greedy), 60,
                   "a greedy one's turn")
    victim.go()

    def ended():
        assert all([g.look() for g in greedy])
        return len(victim.output.read_bytes().splitlines()) >= 3
    wait_until(ended, 100, "requests beside greedy tenants")
    for g in greedy:
        assert all(quantum == 2 * 10**9 for quantum in g.turns) and (chunks or not g.turns), g.turns
        g.close()


@pytest.mark.parametrize("n,chunks", [(4, 0), (2, 1)])
def test_greedy(root, start, serve, model_dirs, n, chunks):
    """Some that never give a turn back, for a minute of their own word, with nothing to compute with or little."""
    d = start(policy="remap", pool="8M", page="16K", extra=["--controller", "mode=turns"])
    requests = make_requests(root / "short.jsonl", 3)
    want = plain_tokens(root, model_dirs[0], requests)
    victim = serve("victim", model_dirs[0], requests, d, extra=["--turns", "quantum"], sync=True)
    victim.ready()
    greedy_beside(d, victim, n, chunks)
    assert victim.tokens() == want
    stats = d.status()
    assert (stats["turns_overdue"] > 0) == (chunks > 0), stats


def test_bounds(root, start, serve, model_dirs):
    """What the operator says of an account's turns, in the configuration and later."""
    named = [{"name": "web", "uid": 99999, "turn_quantum_max_ms": 500, "turn_priority_max": 2},
             {"name": "rest", "uid": 99998}]
    d = start(extra=["--accounts", json.dumps(named), "--turn-quantum-max", "3000",
                     "--turn-priority-max", "1"])

    def bounds(a):
        return a["turn_quantum_max_ms"], a["turn_priority_max"]
    shown = {a["account"]: bounds(a) for a in d.ctl("quota", "show")["accounts"]}
    assert shown == {"web": (500, 2), "rest": (3000, 1)}
    assert bounds(d.ctl("quota", "set", "web", "--turn-quantum-max", "60000")) == (60000, 2)
    assert bounds(d.ctl("quota", "set", "uid:7", "--turn-priority-max", "7")) == (3000, 7)
    for flag, value in [("--turn-quantum-max", "0"), ("--turn-quantum-max", "60001"),
                        ("--turn-priority-max", "8")]:
        code, _, errors = d.ctl("quota", "set", "web", flag, value, check=False)
        assert code == 1 and flag.strip("-").replace("-", "_") in errors, errors
    assert {a["account"]: bounds(a) for a in d.ctl("quota", "show")["accounts"]} == {
        "web": (60000, 2), "rest": (3000, 1), "uid:7": (3000, 7)}


def test_goals(start):
    """What requests of an account are to reach, in the configuration and later."""
    named = [{"name": "web", "uid": 99999, "goal_ttft_ms": 1500, "goal_tpot_us": 40000},
             {"name": "rest", "uid": 99998}]
    d = start(extra=["--accounts", json.dumps(named)])

    def goals(a):
        return a["goal_ttft_ms"], a["goal_tpot_us"]

    def shown():
        return {a["account"]: goals(a) for a in d.ctl("quota", "show")["accounts"]}
    assert shown() == {"web": (1500, 40000), "rest": (0, 0)}
    assert goals(d.ctl("quota", "set", "rest", "--goal-ttft", "800")) == (800, 0)
    assert goals(d.ctl("quota", "set", "web", "--goal-tpot", "0")) == (1500, 0)
    for flag, value in [("--goal-ttft", "3600001"), ("--goal-tpot", "3600000001")]:
        code, _, errors = d.ctl("quota", "set", "web", flag, value, check=False)
        assert code == 1 and flag.strip("-").replace("-", "_") in errors, errors
    assert shown() == {"web": (1500, 0), "rest": (800, 0)}
    text = subprocess.run([BIN / "mmctl", "--dir", d.dir, "quota", "show"], capture_output=True, text=True, check=True,
                          timeout=limit(60)).stdout.splitlines()
    at = text[0].index("TTFT MS"), text[0].index("TPOT US")
    columns = {line.split()[0]: tuple(line[i:i + 7].strip() for i in at) for line in text[1:]}
    assert columns == {"web": ("1500", "0"), "rest": ("800", "0")}
