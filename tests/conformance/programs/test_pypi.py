# SPDX-License-Identifier: Apache-2.0
"""
Packages of PyPI that call the driver, with cuda-bindings of CUDA 12 and of 13. They are installed once, into the
build (MM_TEST_PYPI names another place), in the versions below, so that a new one breaks nobody's tests; without pip, or
the network, or a version for this Python, the tests are skipped. MM_TEST_NETWORK=0: nothing is fetched.
"""
import fcntl
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

PROGRAMS = pathlib.Path(__file__).parent
PLACE = pathlib.Path(os.environ.get("MM_TEST_PYPI", pathlib.Path(os.environ["MM_BUILD"]) / "tests" / "pypi"))
PIP = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--no-deps",
       "--only-binary", ":all:", "--no-compile", "--retries", "1", "--timeout", "15"]
LIMIT_S = 240

# What needs no CUDA is there once; the namespace package cuda must lie in one piece.
COMMON = ["numba==0.68.1", "llvmlite==0.50.0", "numpy==2.4.6", "nvidia-ml-py==13.615.71", "packaging==26.3"]
CUDA = ["cuda-core==1.2.2", "cuda-pathfinder==1.9.0", "numba-cuda==0.30.4"]
BINDINGS = {"12.8": ["cuda-bindings==12.8.0"], "12.9": ["cuda-bindings==12.9.10", *CUDA],
            "13": ["cuda-bindings==13.5.0", *CUDA]}


def install(name, packages):
    """The folder that they are in. Skips where they are not to be had."""
    path, done = PLACE / name, PLACE / f"{name}.installed"
    wanted = " ".join([sys.version, *packages])
    if done.exists() and done.read_text() == wanted:
        return path
    if os.environ.get("MM_TEST_NETWORK") == "0":
        pytest.skip("not installed, and MM_TEST_NETWORK=0")
    done.unlink(missing_ok=True)
    shutil.rmtree(path, ignore_errors=True)
    try:
        pip = subprocess.run([*PIP, "--target", str(path), *packages], stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        pytest.skip(f"pip: not done within {LIMIT_S} s")
    if pip.returncode:
        pytest.skip(f"pip: {(pip.stdout.strip().splitlines() or ['failed'])[-1]}")
    done.write_text(wanted)
    return path


@pytest.fixture(scope="module")
def installed():
    """installed(name, packages), by one test process at a time; what could not be had is not tried again."""
    skipped = {}
    PLACE.mkdir(parents=True, exist_ok=True)
    with open(PLACE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        def once(name, packages):
            if skipped:
                pytest.skip(next(iter(skipped.values())))
            try:
                return install(name, packages)
            except pytest.skip.Exception as why:
                skipped[name] = str(why)
                raise

        yield once


@pytest.fixture
def program(installed, run):
    """program(name, bindings, ...) -> what it wrote."""

    def program(name, bindings, redirect=False):
        paths = [installed(bindings, BINDINGS[bindings]), installed("common", COMMON)]
        return run([sys.executable, "-s", str(PROGRAMS / name)], PYTHONPATH=os.pathsep.join(map(str, paths)),
                   MM_TEST_SITE=str(paths[0]) if redirect else "")

    return program


@pytest.mark.parametrize("bindings", BINDINGS)
def test_cuda_bindings(program, bindings):
    assert "done" in program("bindings.py", bindings)


@pytest.mark.parametrize("bindings", ["12.9", "13"])
def test_cuda_core(program, bindings):
    assert "done" in program("core.py", bindings)


@pytest.mark.parametrize("bindings", ["12.9", "13"])
def test_numba_cuda(program, bindings):
    assert "numba_cuda done" in program("arrays.py", bindings, redirect=True)


def test_numba(program):
    """numba's own driver, which numba-cuda replaces."""
    assert "numba done" in program("arrays.py", "12.8")


def test_pynvml(program):
    assert "done" in program("management.py", "13")
