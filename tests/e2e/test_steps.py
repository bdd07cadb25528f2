# SPDX-License-Identifier: Apache-2.0
"""`mmbench steps`: every plan that is possible comes into force, is measured, and nothing is left."""

import json
import pathlib
import subprocess

import pytest

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


@pytest.fixture(autouse=True)
def nothing_is_left():
    """Devices lie in /dev/shm; those of others, who may measure meanwhile, go away by themselves."""
    def devices():
        return set(pathlib.Path("/dev/shm").glob("mmbench.*"))

    before = devices()
    yield
    new = devices() - before
    wait_until(lambda: not new & devices(), 20, f"devices to be removed: {new}")


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
    assert [row[:3] for row in rows[-2:]] == [["2", "2", "4"], ["4", "2", "6"]]


@pytest.mark.parametrize("args, code, said", [
    (["--model", "/tmp"], 2, "--profile"),
    (["--profile", "gh200-96"], 2, "--shape or --model"),
    (["--profile", "gh200-96", "--shape", "OPT-1"], 2, "OPT-1"),
    (["--profile", "gh200-96", "--model", "/tmp", "--shape", "OPT-13B"], 2, "--shape or --model"),
    (["--profile", "gh200-96", "--shape", "OPT-13B", "--alpha", "2,1"], 2, "--alpha 1"),
    (["--profile", "gh200-96", "--shape", "OPT-13B", "--slots", "3"], 2, "--slots 3"),
    (["--profile", "gh200-96", "--shape", "OPT-13B", "--dilation", "nan"], 2, "--dilation"),
    (["--profile", "gh200-96", "--shape", "OPT-13B", "--steps", "1"], 2, "--steps 1"),
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
