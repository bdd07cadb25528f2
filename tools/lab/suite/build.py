# SPDX-License-Identifier: Apache-2.0
"""The part build: installs packages if --deps asks for it, builds with CMake, reports the result."""

import os
import shutil
import subprocess
import sys

from suite import deps
from suite.work import TOP, Failure

SYSTEM_PYTHON = "/usr/bin/python3"
NVCC_PLACES = ("/usr/local/cuda/bin",)
FATBINS = ("lib/mm-kernels-cuda.fatbin", "tests/mm-conformance-kernels.fatbin")


def tool(suite, name, places=()):
    return shutil.which(name, path=os.pathsep.join([suite.env.get("PATH", ""), *places]))


def install(suite):
    script = "source tools/lib.sh; install_packages build tests"
    done = suite.run("install", ["bash", "-c", script])
    if done.code:
        raise Failure(f"packages: {done.last_words()}; --no-install leaves them alone")


def python_of_tests():
    """The system's Python, as CMake takes it by itself, or the suite's own where that one has no pytest."""
    for python in (SYSTEM_PYTHON, sys.executable):
        if os.path.exists(python) and not subprocess.run([python, "-c", "import pytest"], stderr=subprocess.DEVNULL,
                                                         check=False).returncode:
            return python
    return SYSTEM_PYTHON if os.path.exists(SYSTEM_PYTHON) else sys.executable


def configure(suite):
    argv = ["cmake", "-S", TOP, "-B", suite.build, "-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DMM_TESTS=ON"]
    # Set only if CMake cannot find it out, because the value stays in its cache.
    if not tool(suite, "git") or not (TOP / ".git").exists():
        argv.append(f"-DMM_COMMIT={suite.state['commit']}")
    python = python_of_tests()
    if python != SYSTEM_PYTHON:
        argv.append(f"-DMM_PYTHON={python}")
    if not (suite.build / "CMakeCache.txt").exists():
        argv += ["-G", "Ninja" if tool(suite, "ninja") else "Unix Makefiles"]
    if suite.args.deps:
        argv += deps.cmake(suite.args.deps)
    done = suite.run("configure", argv)
    if done.code:
        raise Failure(f"cmake: {done.last_words()}; logs/configure.log")


def version_of(suite, name, places=()):
    path = tool(suite, name, places)
    if not path:
        return None
    done = suite.run(f"version-{name}", [path, "--version"], limit=60)
    lines = [line.strip() for line in done.text().splitlines() if line.strip()]
    if name == "nvcc":
        return next((line for line in lines if "release" in line), None)
    return lines[0] if lines and not done.code else None


def machine_code(suite):
    """Architectures in the fat binaries, by cuobjdump: "sm_80", "sm_90", …; None without it."""
    path = tool(suite, "cuobjdump", NVCC_PLACES)
    found = {}
    for name in FATBINS:
        file = suite.build / name
        if not file.exists():
            found[name] = None
            continue
        found[name] = {"bytes": file.stat().st_size}
        if path:
            done = suite.run("cuobjdump", [path, "--list-elf", "--list-ptx", file], limit=60)
            found[name]["code"] = sorted({line.split()[-1] for line in done.text().splitlines() if line.strip()})
    return found


def run(suite, record):
    if not tool(suite, "nvcc", NVCC_PLACES) and not suite.software:
        record["note"] = "no nvcc: there are no CUDA kernels, what needs them is skipped"
    if not suite.args.no_install and not suite.args.deps:
        install(suite)
    configure(suite)
    done = suite.run("build", ["cmake", "--build", suite.build, f"-j{len(os.sched_getaffinity(0))}"])
    record["build_s"] = round(done.seconds, 1)
    if done.code or not done.ended:
        raise Failure(f"build: {done.last_words() if done.ended else 'no time left'}; logs/build.log")
    record["tools"] = {name: version_of(suite, name, NVCC_PLACES) for name in ("cmake", "gcc", "nvcc", "ninja")}
    record["fatbins"] = machine_code(suite)
