# SPDX-License-Identifier: Apache-2.0
"""mmbench and mmsim on the same small case; mmevaluate with the real mmsim; what they refuse."""

import json
import os
import re
import signal
import subprocess

import pytest

from daemon import Daemon
from programs import BIN, limit, one_thread, some, wait_until

CASE = ["--shapes", "OPT-6.7B:45%,Llama-3-8B:45%", "--seconds", "1", "--rate", "8", "--seed", "3"]


def run(*words, timeout=600, cwd=None):
    return subprocess.run([str(w) for w in words], capture_output=True, text=True, check=False,
                          timeout=limit(timeout), cwd=cwd)


@pytest.fixture
def lengths(root):
    path = root / "lengths.csv"
    path.write_text("prompt_tokens,output_tokens\n20,4\n30,6\n5000,1\n")
    return path


@pytest.mark.parametrize("sharing", some(["temporal", "mig"], ["temporal"]))
def test_timed_as_simulated(lengths, sharing):
    """The real programs on a device that keeps time serve what the simulator serves."""
    case = CASE + ["--lengths", lengths, "--sharing", sharing, "--policy", "remap,unlimited", "--json"]
    timed = run(BIN / "mmbench", "serve", *case, "--dilation", "2")
    assert timed.returncode == 0, timed.stderr
    timed = json.loads(timed.stdout)
    simulated = json.loads(run(BIN / "mmsim", *case).stdout)
    assert timed["mode"] == "timed" and simulated["mode"] == "simulated"
    assert timed["dilation"] == 2 and timed["effects"] > 0
    assert timed["cases"] == simulated["cases"] and timed["pool_bytes"] == simulated["pool_bytes"]
    for policy in ("remap", "unlimited"):
        a, b = timed["results"][policy], simulated["results"][policy]
        assert a["requests"] == a["completed"] == b["completed"] == 8
        assert a["output_tokens"] == b["output_tokens"]
        assert a["preemptions"] == b["preemptions"] == 0
        # However slow the host: nobody is served before the device can have done it.
        assert a["ttft_p50_s"] > 0.003 and a["seconds"] > 0.5
        assert set(a) == set(b) and set(a["tenants"][0]) == set(b["tenants"][0])


def test_a_driver_by_its_path(root, model_dirs, monkeypatch):
    """Whatever is not called the software GPU is taken as it is: nothing is set up for it."""
    (root / "libcuda.so.1").symlink_to((BIN.parent / "lib" / "libmm-softgpu.so").resolve())
    (root / "device").mkdir()
    for name, value in (("DIR", root / "device"), ("MEMORY", "96M"), ("GRANULARITY", "64K")):
        monkeypatch.setenv(f"MM_SOFTGPU_{name}", str(value))
    done = run(BIN / "mmbench", "serve", "--models", model_dirs[0], "--driver",
               root / "libcuda.so.1", "--synthetic", "--duration", "1", "--page", "64K", "--pool",
               "64M", "--kv-share", "2M", "--policies", "recompute,remap", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["device"] == str(root / "libcuda.so.1") and result["token_mismatches"] == 0
    assert result["results"]["remap"]["requests"] > 0
    # The device of that environment was used, and no other.
    assert list((root / "device").iterdir())


def test_a_driver_that_is_not_there(model_dirs):
    done = run(BIN / "mmbench", "serve", "--models", model_dirs[0], "--driver",
               "/nowhere/libcuda.so.1", "--synthetic", "--duration", "1")
    assert done.returncode == 1 and "/nowhere/libcuda.so.1" in done.stderr


@one_thread
def test_evaluate(root):
    """Three cases through the simulator: a report, its numbers as JSON, plots, each run's JSON."""
    out = root / "evaluation"
    done = run(BIN / "mmevaluate", "--quick", "--only", "fig17", "--windows", "2", "--seconds", "1",
               "--out", out)
    assert done.returncode == 0, done.stderr
    text = (out / "evaluation.md").read_text()
    assert "## Figure 17" in text and "## Figure 8" not in text and "Failed" not in text
    assert "what must be reached" in text.lower()
    for path in re.findall(r"\((figures/[^)]*)\)", text):
        assert (out / path).stat().st_size > 1000
    assert "matplotlib" in done.stderr or list((out / "figures").glob("*.svg"))
    report = json.loads((out / "evaluation.json").read_text())
    assert report["settings"]["windows"] == 2 and len(report["points"]) == 6
    for point in report["points"]:
        line = run(BIN / "mmsim", "--json", *point["line"].split())
        played = json.loads(line.stdout)["results"]["remap"]
        found = point["results"]["remap"]
        assert found == {key: played[key] for key in found} and found["throughput_tok_s"] > 0
        assert f"| {found['throughput_tok_s']:.1f} |" in text
        assert 0 < point["of_bound"] <= 1


def test_evaluate_went_out():
    """What was a subcommand names the program that it is now."""
    done = run(BIN / "mmbench", "evaluate", "--quick")
    assert done.returncode == 2 and "mmevaluate" in done.stderr and not done.stdout
    assert len(done.stderr.splitlines()) == 1


@one_thread
@pytest.mark.parametrize("words, says", [
    (["serve", "--combo", "C3"], "--combo: 'C3' is none of: C1, C2"),
    (["serve", "--dilation", "0"], "--dilation: '0' is not within 1 to 1000"),
    (["serve", "--dilation", "1.5"], "--dilation: '1.5'"),
    (["serve", "--dur", "3", "--models", "x"], "--dur: unknown option; did you mean --duration?"),
    (["serve", "--modles", "x"], "did you mean --models?"),
    (["serve"], "give --models DIR,... or --profile NAME"),
    (["decid"], "did you mean decide?"),
    (["nothing"], "unknown command 'nothing'"),
])
def test_usage(words, says):
    done = run(BIN / "mmbench", *words)
    assert done.returncode == 2 and says in done.stderr
    assert len(done.stderr.splitlines()) == 1


@one_thread
@pytest.mark.parametrize("words, says", [
    (["--profile", "no-such-device"], "no-such-device"),
    (["--shapes", "OPT-30B:40%"], "give it a larger share"),
    (["--trace", "/nowhere/trace.csv"], "/nowhere/trace.csv: cannot open"),
    (["--lengths", "/nowhere/lengths.csv"], "/nowhere/lengths.csv: cannot open"),
])
def test_impossible(words, says):
    for program in ([BIN / "mmbench", "serve"], [BIN / "mmsim"]):
        done = run(*program, *words)
        assert done.returncode == 1 and says in done.stderr


@one_thread
def test_help():
    for words in (["--help"], ["serve", "--help"], ["serve", "--profile", "x", "--help"]):
        done = run(BIN / "mmbench", *words)
        assert done.returncode == 0 and "mmbench" in done.stdout and not done.stderr


def test_grant():
    """What is kept of a core and what is not, side by side: grants, and engines whose tokens are right."""
    done = run(BIN / "mmbench", "grant", "--rounds", "1", "--grants", "10", "--pages", "3", "--seconds", "0.5", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["grants"] == 10 and result["pages"] == 3 and result["grant_by_core"] > 0
    for name in ("grant", "grant_mean", "give_back", "core", "step", "step_mean"):
        figure = result["figures"][name]
        assert figure["unkept_ns"] > 0 and figure["ratio"] > 0 and figure["same_p10"] > 0


class Unkept(Daemon):
    def args(self):
        return [str(BIN / "mmd-unkept"), *super().args()[1:]]


def test_an_mmd_that_keeps_nothing(root):
    """What mmbench grant compares with differs from mmd in just that: there is nothing for a second core."""
    for kind, lives in ((Daemon, True), (Unkept, False)):
        d = kind(root, name=kind.__name__).start()
        try:
            core = d.pids("core")
            os.kill(core[0], signal.SIGKILL)
            if lives:
                wait_until(lambda: d.pids("core") not in ([], core) and d.answers(), 20, "another core")
            else:
                wait_until(lambda: "there is no image of its core" in d.log.read_text(), 60, "nothing to go on with")
        finally:
            d.kill()
