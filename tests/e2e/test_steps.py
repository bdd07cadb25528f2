# SPDX-License-Identifier: Apache-2.0
"""`mmbench steps`: every plan that is possible comes into force, is measured, and nothing is left."""

import json
import os
import pathlib
import signal
import subprocess

import pytest

from daemon import alive, children, role_of
from programs import BIN, limit, wait_until

LAYERS = 6
PROFILE = "gh200-96,memory_mib=4096"


@pytest.fixture
def model(root):
    path = root / "model"
    subprocess.run([str(BIN / "mkmodel"), "sparse", str(path), "--family", "opt", "--layers",
                    str(LAYERS), "--hidden", "64", "--heads", "4"], check=True,
                   stdout=subprocess.DEVNULL, timeout=limit(60))
    return path


def steps(*args):
    done = subprocess.run([str(BIN / "mmbench"), "steps", *map(str, args)], capture_output=True,
                          timeout=limit(600), check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def devices():
    return set(pathlib.Path("/dev/shm").glob("mmbench.*"))


def served(device):
    """Whether an mmd runs that has its folder there."""
    for process in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if bytes(device) + b"/" in process.read_bytes():
                return True
        except OSError:
            pass
    return False


@pytest.fixture(autouse=True)
def nothing_is_left():
    """Devices lie in /dev/shm. Others may measure meanwhile; what ours leave behind is nobody's."""
    before = devices()
    yield
    wait_until(lambda: not any(map(alive, children(os.getpid()))), 20, "all processes to end")
    new = devices() - before
    wait_until(lambda: not [x for x in new & devices() if not served(x)], 20, f"devices to be removed: {new}")


def test_all_plans(model):
    code, text, errors = steps("--profile", PROFILE, "--model", model, "--page", "2M", "--batch", 3,
                               "--context", 40, "--steps", 4, "--warmup", 2, "--json")
    assert code == 0, errors
    result = json.loads(text)
    assert result["schema"] == 1 and result["layers"] == LAYERS
    # Two slots have two layers each at least; nothing away is one plan.
    plans = [(plan["alpha"], plan["slots"]) for plan in result["plans"]]
    assert plans == [(0, 0), (1, 1), (2, 1), (2, 2), (3, 1), (3, 2), (4, 1), (4, 2), (5, 1)]
    for plan in result["plans"]:
        cycling = plan["alpha"] + plan["slots"]
        assert plan["cycling"] == cycling and len(plan["layers"]) == cycling
        assert plan["layers"] == sorted(set(plan["layers"])) and max([0] + plan["layers"]) < LAYERS
        # However slow the host is, the device is never faster than its profile.
        assert plan["most_ns"] >= plan["median_ns"] >= plan["least_ns"] > 0
        assert plan["expected_ns"] >= result["layers"] * result["t_c_ns"]
    assert result["plans"][0]["least_ns"] >= 0.99 * result["plans"][0]["expected_ns"]


def test_chosen_plans(model):
    code, text, errors = steps("--profile", PROFILE, "--model", model, "--page", "2M", "--alpha",
                               "2,4", "--slots", 2, "--steps", 2, "--warmup", 1)
    assert code == 0, errors
    rows = [line.split() for line in text.splitlines() if line.startswith("     ")]
    assert [row[:4] for row in rows[-2:]] == [["2", "2", "4", "0"], ["4", "2", "6", "0"]]


def test_cold(model):
    """Cold blocks are streamed under each plan, more in the same window, and take the link's time at least."""
    code, text, errors = steps("--profile", PROFILE, "--model", model, "--page", "2M", "--alpha", "0,2", "--slots", 2,
                               "--cold", "3,50,2000", "--steps", 4, "--warmup", 4, "--json")
    assert code == 0, errors
    plans = json.loads(text)["plans"]
    assert [(plan["alpha"], plan["cold"], plan["cycling"]) for plan in plans] == [
        (0, 3, 0), (0, 50, 0), (0, 2000, 0), (2, 3, 4), (2, 50, 4), (2, 2000, 4)]
    unit = 2 * 16 * 64 * 2
    for plan in plans:
        assert plan["least_ns"] >= 0.99 * plan["cold"] * LAYERS * unit / 419, plan


def mmd_of(bench):
    """The daemon that it has started, once that is up; the stderr of its role log is the log."""
    for pid in children(bench.pid):
        for log in (child for child in children(pid) if role_of(child) == "log"):
            if b"event=xfer.up" in pathlib.Path(f"/proc/{log}/fd/2").read_bytes():
                return pid
    return None


def test_mmd_dies(model):
    """Whatever fails first: that mmd was killed is what is said, and what it logged last."""
    with subprocess.Popen([str(BIN / "mmbench"), "steps", "--profile", PROFILE, "--dilation", "100",
                           "--model", str(model), "--page", "2M", "--steps", "1000"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as bench:
        os.kill(wait_until(lambda: mmd_of(bench), 60, "mmd to be up"), signal.SIGKILL)
        text, errors = bench.communicate(timeout=limit(120))
    assert bench.returncode == 1 and not text
    said = errors.decode().partition("mmbench: mmd ended (killed by signal 9): ")
    assert not said[0] and said[2].strip(), errors


@pytest.mark.parametrize("args, code, said", [
    (["--model", "/tmp"], 2, "--profile"),
    (["--profile", "gh200-96"], 2, "--shape or --model"),
    (["--profile", "gh200-96", "--shape", "OPT-1"], 2, "OPT-1"),
    (["--profile", "gh200-96", "--model", "/tmp", "--shape", "OPT-13B"], 2, "--shape or --model"),
    (["--profile", "gh200-96", "--shape", "OPT-13B", "--alpha", "2,1"], 2, "--alpha: '1': the list must ascend"),
    (["--profile", "gh200-96", "--shape", "OPT-13B", "--slots", "3"], 2, "--slots: '3' is not within 1 to 2"),
    (["--profile", "gh200-96", "--shape", "OPT-13B", "--dilation", "nan"], 2, "--dilation"),
    (["--profile", "gh200-96", "--shape", "OPT-13B", "--steps", "1"], 2, "--steps: '1' is not within 2 to 1000"),
    (["--profile", "b300", "--shape", "OPT-13B"], 1, "'b300'"),
    (["--profile", "gh200-96,h2d=5", "--shape", "OPT-13B"], 1, "'h2d'"),
    (["--profile", PROFILE, "--model", "/nowhere"], 1, "/nowhere"),
    (["--profile", PROFILE, "--shape", "OPT-13B"], 1, "OPT-13B"),
], ids=str)
def test_refused(args, code, said):
    got, text, errors = steps(*args)
    assert got == code and not text, errors
    assert said in errors or (said == "OPT-13B" and "model" in errors), errors
    assert errors.startswith("mmbench: ")
