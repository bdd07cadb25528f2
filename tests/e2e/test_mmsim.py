# SPDX-License-Identifier: Apache-2.0
"""mmsim as a program: the same line gives the same JSON; what is wrong is refused, and it says what."""

import csv
import json
import os
import pathlib
import subprocess

import pytest

from programs import BIN, limit

CASE = ["--profile", "gh200-96", "--shapes", "OPT-13B:32,Llama-2-13B:32,Llama-3-8B:20", "--pool",
        "88G", "--page", "64M", "--max-len", "1024", "--rate", "12", "--seconds", "4"]


def mmsim(*args, stdout=subprocess.PIPE):
    done = subprocess.run([str(BIN / "mmsim"), *map(str, args)], stdout=stdout,
                          stderr=subprocess.PIPE, timeout=limit(120), check=False)
    return done.returncode, done.stdout, done.stderr.decode()


def simulated(*args):
    code, text, errors = mmsim(*CASE, "--json", *args)
    assert code == 0, errors
    return json.loads(text)


def without_host_times(report):
    """All but what depends on the machine that it ran on."""
    if isinstance(report, dict):
        return {k: without_host_times(v) for k, v in report.items() if k not in ("speed", "wall_s", "cpu_s")}
    if isinstance(report, list):
        return [without_host_times(v) for v in report]
    return report


@pytest.mark.parametrize("sharing", ["temporal", "spatial", "mig"])
def test_same_line_same_json(sharing):
    args = ["--sharing", sharing, "--policy", "recompute,elastic,remap,swap,unlimited", "--windows", 2]
    first, second = simulated(*args), simulated(*args)
    assert first["mode"] == "simulated" and first["speed"] > 0 and first["simulated_s"] > 0
    assert without_host_times(first) == without_host_times(second)
    assert without_host_times(simulated(*args, "--seed", 2)) != without_host_times(first)


@pytest.mark.parametrize("sharing", ["temporal", "spatial", "mig"])
def test_bound(sharing):
    """No policy exceeds the bound, and --bound plays nothing."""
    args = ["--sharing", sharing, "--windows", 2]
    bound = simulated(*args, "--bound")
    assert bound["mode"] == "bound" and len(bound["windows"]) == 2 and "results" not in bound
    played = simulated(*args, "--policy", "recompute,remap")["results"]
    for policy in played.values():
        assert 0 < policy["throughput_tok_s"] <= bound["throughput_tok_s"]
        for window, most in zip(policy["windows"], bound["windows"]):
            assert window["throughput_tok_s"] <= most["throughput_tok_s"]
            assert window["seconds"] >= most["seconds"] >= most["busy_s"] > 0
    shares = sum(t["kv_share_bytes"] for t in simulated(*args, "--policy", "remap")["tenants"])
    assert bound["kv_fits_bytes"] > shares
    code, text, errors = mmsim(*CASE, *args, "--bound")
    assert code == 0 and not errors and len(text.decode().splitlines()) == 3
    assert f"{bound['throughput_tok_s']:.1f} tokens/s" in text.decode()


def test_details_and_time_line(root):
    path = root / "line.csv"
    report = simulated("--policy", "remap", "--sharing", "spatial", "--trace-out", path)
    run, = report["details"]["remap"]
    assert {t["name"] for t in run["tenants"]} == {"OPT-13B", "Llama-2-13B", "Llama-3-8B"}
    assert any(t["alpha_max"] for t in run["tenants"]), "nothing was remapped: the case shows nothing"
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows and {r["policy"] for r in rows} == {"remap"}
    assert all(int(r["free_pages"]) < run["devices"][0]["pages"] for r in rows)
    assert max(int(r["alpha"]) for r in rows) <= max(t["alpha_max"] for t in run["tenants"])
    assert sorted(float(r["time_s"]) for r in rows) == [float(r["time_s"]) for r in rows]


def test_ideal():
    """Who has its turn sees more memory than any policy can give it, but not more than there is."""
    args = ["--turns", "quantum", "--policy", "recompute,ideal,unlimited", "--rate", 30]
    report = simulated(*args)
    recompute, ideal, unlimited = (report["results"][p] for p in ("recompute", "ideal", "unlimited"))
    assert ideal["completed"] == ideal["requests"] == recompute["requests"]
    assert recompute["preemptions"] > ideal["preemptions"]
    assert recompute["throughput_tok_s"] < ideal["throughput_tok_s"] <= 1.01 * unlimited["throughput_tok_s"]
    pool = report["pool_bytes"]
    used, = report["details"]["ideal"]
    most = max(t["kv_bytes_mean"] for t in used["tenants"])
    assert max(t["kv_share_bytes"] for t in report["tenants"]) < most < pool


def test_elastic_that_swaps():
    args = ["--turns", "quantum", "--policy", "elastic,elastic-swap", "--rate", 30]
    results = simulated(*args)["results"]
    assert not results["elastic"]["swapped_bytes"] and results["elastic-swap"]["swapped_bytes"]
    assert results["elastic-swap"]["completed"] == results["elastic-swap"]["requests"]


def test_slices():
    """Requests that wait take the place of others, which go on later; nothing is lost."""
    args = ["--turns", "quantum", "--policy", "swap", "--swap", "64G", "--rate", 30]
    plain, report = (simulated(*args, *more) for more in ([], ["--slice-tokens", 16]))
    whole, sliced = (r["results"]["swap"] for r in (plain, report))
    assert sliced["preemptions"] > whole["preemptions"] and sliced["swapped_bytes"] > whole["swapped_bytes"]
    assert sliced["completed"] == whole["completed"] == whole["requests"]
    tenants = report["details"]["swap"][0]["tenants"]
    assert 0 < sum(t["slices"] for t in tenants) <= sum(t["preemptions"] for t in tenants)
    assert not any("slices" in t for t in plain["details"]["swap"][0]["tenants"])


def test_shares_of_the_whole():
    combos = {"C1": [0.33, 0.33, 0.32], "C2": [0.78, 0.2]}
    for combo, shares in combos.items():
        args = ["--combo", combo, "--shares", "whole", "--rate", 3, "--seconds", 1, "--policy", "recompute", "--json"]
        code, text, errors = mmsim(*args)
        assert code == 0, errors
        report = json.loads(text)
        assert report["shares"] == "whole" and [t["share"] for t in report["tenants"]] == shares
    whole = simulated("--shares", "whole", "--policy", "recompute")
    assert sum(t["share"] for t in whole["tenants"]) == pytest.approx(0.98, abs=0.003)


def test_goals():
    """A looser goal is attained by more requests, and changes nothing else; the mode changes no goal."""
    args = ["--policy", "recompute,remap", "--windows", 2, "--rate", 30]
    tight = simulated(*args, "--slo-ttft", 0, "--slo-factor", 1)
    usual, loose = simulated(*args), simulated(*args, "--slo-ttft", 3600000, "--slo-factor", 1000)
    for policy in "recompute", "remap":
        none, some, all_ = (r["results"][policy] for r in (tight, usual, loose))
        assert none["attainment"] == 0 and none["jain"] == 1 and all_["attainment"] == 1
        assert 0 < some["attainment"] < 1 and 0 < some["jain"] <= 1
        assert none["throughput_tok_s"] == some["throughput_tok_s"] == all_["attained_tok_s"]
        assert sum(t["attained_requests"] for t in some["tenants"]) == some["attained_requests"]
        for window in some["windows"]:
            assert len(window["tenants"]) == 3 and "own_tok_s" in window["tenants"][0]
    assert len(usual["paired"]["remap"]["tenants"]) == 3


def test_a_plan_by_hand():
    alone = ["--shapes", "OPT-6.7B:50", "--policy", "recompute", "--sharing", "spatial", "--rate", 2,
             "--seconds", 4, "--max-len", 256, "--json"]
    code, text, errors = mmsim(*alone, "--plan", "3:2")
    assert code == 0, errors
    tenant, = json.loads(text)["details"]["recompute"][0]["tenants"]
    assert tenant["alpha_max"] == 3 and tenant["alpha_mean"] == 3
    code, _, errors = mmsim(*alone, "--plan", 32)
    assert code == 1 and "at most 31" in errors


def test_a_plan_of_each():
    args = ["--sharing", "spatial", "--policy", "elastic"]
    tenants = simulated(*args, "--plan", "0,7,3:1")["details"]["elastic"][0]["tenants"]
    assert [t["alpha_mean"] for t in tenants] == [0, 7, 3]
    tenants = simulated(*args, "--plan", "4")["details"]["elastic"][0]["tenants"]
    assert [t["alpha_mean"] for t in tenants] == [4, 4, 4]


def test_steps_that_break_off():
    """Where layers cycle, each of them costs a change in full; all is computed in the end."""
    args = ["--shapes", "OPT-13B:32", "--policy", "recompute", "--sharing", "temporal", "--turns", "quantum",
            "--check"]
    for plan, broken in ("0", 100), ("5:2", 0), ("5:2", 100):
        report = simulated(*args, "--plan", plan, "--broken-steps", broken)
        tenant, = report["details"]["recompute"][0]["tenants"]
        result = report["results"]["recompute"]
        assert result["completed"] == result["requests"] > 0
        assert ("steps_broken" in tenant) == (broken > 0)
        if not broken:
            quiet = tenant["plan_changes"]
            continue
        share = tenant["steps_broken"] / (tenant["steps"] + tenant["steps_broken"])
        assert 0.05 < share < 0.2
        if plan == "0":
            assert tenant["plan_changes"] <= 1
        else:
            assert tenant["plan_changes"] >= quiet + tenant["steps_broken"]


@pytest.mark.parametrize("args, word", [
    (["--broken-steps", "501"], "--broken-steps"),
    (["--broken-steps", "-1"], "--broken-steps"),
    (["--plan", "x"], "--plan"),
    (["--plan", "3:3"], "--plan"),
    (["--plan", "-1"], "--plan"),
    (["--plan", "1:"], "--plan"),
    (["--plan", "1,2"], "2 plans for 3 tenants"),
    (["--plan", "1,,2"], "--plan"),
    (["--plan", ",".join("1" * 17)], "--plan"),
    (["--admit", "all"], "--admit"),
    (["--step-us", "-1"], "--step-us"),
    (["--step-us", "1e3"], "--step-us"),
    (["--step-us", "99999999999999999999"], "--step-us"),
    (["--rate", "nan"], "--rate"),
    (["--slo-ttft", "-1"], "--slo-ttft"),
    (["--slo-factor", "0.5"], "--slo-factor"),
    (["--shares", "all"], "--shares"),
    (["--policy", "ideal", "--sharing", "spatial"], "ideal"),
    (["--windows", "0"], "--windows"),
    (["--pie-layers", "1"], "--pie-layers"),
    (["--pie-layers", "40"], "--pie-layers"),
    (["--policy", "best"], "best"),
    (["--sharing", "none"], "none"),
    (["--dilation", "2"], "dilation"),
    (["--controller", "no-such-knob=1"], "no-such-knob"),
], ids=str)
def test_usage(args, word):
    code, text, errors = mmsim(*CASE, *args)
    assert code == 2 and not text and word in errors, errors


def test_layers_given_to_pie():
    """As many layers of KV are away as the line says; with two of them nothing is streamed."""
    for layers in (2, 15):
        code, text, errors = mmsim(
            "--shapes", "OPT-13B:28.8", "--sharing", "spatial", "--rate", 3, "--seconds", 3, "--json",
            "--policy", "pie", "--pie-layers", layers)
        assert code == 0, errors
        tenant = json.loads(text)["details"]["pie"][0]["tenants"][0]
        assert tenant["pie_layers_max"] == layers
        assert (tenant["cold_bytes"] > 0) == (layers > 2)


@pytest.mark.parametrize("args, word", [
    (["--profile", "none"], "none"),
    (["--trace", "/nonexistent"], "/nonexistent"),
    (["--lengths", "/nonexistent"], "/nonexistent"),
    (["--trace-out", "/nonexistent/x"], "/nonexistent/x"),
    (["--pool", "40G"], "OPT-13B"),
], ids=str)
def test_refused(args, word):
    code, text, errors = mmsim(*CASE, *args)
    assert code == 1 and not text and word in errors, errors


def test_hostile_trace(root):
    for name, text in {"empty": "", "head": "arrival_s,prompt_tokens,output_tokens\n", "binary": "\0\1\2",
                       "nan": "arrival_s,prompt_tokens,output_tokens\nnan,1,1\n"}.items():
        path = root / name
        path.write_text(text)
        code, _, errors = mmsim(*CASE, "--trace", path)
        assert code == 1 and str(path) in errors, (name, errors)


@pytest.mark.parametrize("flags", [[], ["--json"]], ids=str)
def test_full_disk(flags):
    """What could not be printed is not done."""
    with open("/dev/full", "w") as full:
        code, _, errors = mmsim(*CASE, "--policy", "recompute", *flags, stdout=full)
    assert code == 1 and "standard output" in errors, errors


def test_help_and_version():
    for word, expected in (("--help", "--trace-out"), ("--version", "mmsim")):
        code, text, _ = mmsim(word)
        assert code == 0 and expected in text.decode()


def test_explain():
    """The same run with and without; each moment says who computes, lends and lacks, and why."""
    args = ["--policy", "remap,elastic", "--sharing", "spatial"]
    plain, explained = simulated(*args), simulated(*args, "--explain", "0.5,3,4000")
    moments = explained.pop("explained")
    assert without_host_times(plain) == without_host_times(explained)
    assert [(m["policy"], m["window"], m["at_s"]) for m in moments] == [
        (policy, 0, at) for policy in ("remap", "elastic") for at in (0.5, 3)]
    for moment in moments:
        for tenant in moment["devices"][0]["tenants"]:
            assert tenant["target"]["why"] == "policy" or moment["policy"] == "remap"
            assert tenant["sentences"][0].startswith(tenant["name"])
    code, text, errors = mmsim(*CASE, *args, "--explain", "3,4000")
    assert code == 0, errors
    for line in ("remap, window 0, at 3.000 s:", "elastic, window 0, at 4000.000 s: it had ended.",
                 "No model takes turns, so all compute side by side."):
        assert line in text.decode()


@pytest.mark.parametrize("moments", ["", "x", "-1", "3,3", "5,2", "1,,x", "nan"])
def test_moments_that_are_none(moments):
    code, _, errors = mmsim(*CASE, f"--explain={moments}")
    assert code == 2 and "--explain" in errors


# Two models of which either fits only without the other: the loads on which windows once hung for ten minutes, with
# arrivals that are made up. Their causes: KV that a tenant was granted off its turn in the pages of its own layers was
# asked back for them, and granted again; memory that was on its way to one turn went to the next; layers waited for
# pages that came too slowly, were given up, and the pages were granted as KV again.
HUNG = {
    "off-turn": ["h200-pcie5", "--pool", "96G", "--turns", "drain", "--rate", "2.67", "--windows", 2],
    "to-and-fro": ["gh200-96", "--turns", "quantum", "--rate", "4.01", "--windows", 2],
    "drain": ["h200-pcie5", "--pool", "96G", "--turns", "drain", "--rate", "4.45", "--windows", 2],
    "space": ["h200-pcie5", "--pool", "96G", "--sharing", "spatial", "--rate", "4.45", "--windows", 4],
    "space-long": ["h200-pcie5", "--pool", "96G", "--sharing", "spatial", "--rate", "2.5", "--lengths", "long",
                   "--windows", 4],
}


@pytest.mark.parametrize("case", HUNG)
def test_no_window_hangs(case):
    """In virtual time: a window is three times as long as the least that its work can take, or twice as without
    remapping, at most."""
    args = ["--profile", *HUNG[case], "--combo", "C2", "--seconds", 60, "--seed", 5, "--arrivals", "gaps", "--json"]
    reports = [mmsim(*args, *more) for more in (["--policy", "elastic,remap"], ["--bound"])]
    assert all(code == 0 for code, _, _ in reports), reports
    (played, bound) = (json.loads(text) for _, text, _ in reports)
    longer = [(remap["seconds"], elastic["seconds"], least["seconds"]) for remap, elastic, least in
              zip(played["results"]["remap"]["windows"], played["results"]["elastic"]["windows"], bound["windows"])]
    for remap, elastic, least in longer:
        assert remap < max(3 * least, 2 * elastic if case.startswith("space") else 0), longer
