# SPDX-License-Identifier: Apache-2.0
"""What is shipped: the declarations follow the headers, the library fits, the wheel is whole."""

import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile

import pytest

pytest.importorskip("cffi", reason="python3-cffi is not installed")

from conftest import PACKAGE, TOP  # noqa: E402
from programs import BUILD, limit  # noqa: E402

CDEF = PACKAGE / "cdef"
STUB = """
#include <stdint.h>
uint32_t mm_client_abi(void) { return ABI; }
"""


def run(*words, **options):
    return subprocess.run([*map(str, words)], text=True, capture_output=True, timeout=limit(60),
                          check=False, **options)


def imported(library):
    """An import with another library: status, and the last line of its errors."""
    done = run(sys.executable, "-c", "import mmd; print(mmd.library_version())",
               env=dict(os.environ, MM_CLIENT_LIB=str(library), PYTHONPATH=str(PACKAGE)))
    return done.returncode, done.stdout, (done.stderr.splitlines() or [""])[-1]


def test_declarations_are_those_of_the_headers():
    done = run(CDEF, "--check")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("old, new", [
    ("uint32_t layers_cycling;", "uint64_t layers_cycling;"),
    ("#define MM_CLIENT_NO_REMAP 1u", "#define MM_CLIENT_NO_REMAP 2u"),
    ("MM_EVENT_SWAPPED,", "MM_EVENT_SWAPPED = 17,"),
    ("MM_API int mm_turn_yield(struct mm_client *client);", ""),
])
def test_drift_is_found(tmp_path, old, new):
    shutil.copytree(TOP / "include", tmp_path / "include")
    header = tmp_path / "include/mm/client.h"
    text = header.read_text()
    assert old in text
    header.write_text(text.replace(old, new))
    done = run(CDEF, "--check", "--top", tmp_path)
    assert done.returncode == 1 and "differs" in done.stderr and "+" in done.stdout, done.stderr
    written = tmp_path / "written.py"
    assert run(CDEF, "--top", tmp_path, "--output", written).returncode == 0
    assert run(CDEF, "--check", "--top", tmp_path, "--output", written).returncode == 0


def test_cdef_without_headers(tmp_path):
    assert run(CDEF, "--check", "--top", tmp_path).returncode == 2
    assert run(CDEF, "--nothing").returncode == 2
    assert run(CDEF, "--help").stdout.startswith("Writes")


def test_library_that_fits():
    status, out, errors = imported(BUILD / "lib/libmm-client.so.0")
    assert status == 0 and out.strip(), errors


def test_no_library(tmp_path):
    status, _, line = imported(tmp_path / "nothing.so")
    assert status == 1 and line.startswith("ImportError: mmd: ") and "MM_CLIENT_LIB" in line


@pytest.mark.parametrize("abi, words", [
    ("0x10000", "it has the interface 1.0"),
    ("0x0", "install a later release"),
    (None, "no mm_client_abi()"),
])
def test_library_of_another_version(tmp_path, abi, words):
    source = tmp_path / "stub.c"
    source.write_text(STUB.replace("ABI", abi) if abi else "int nothing;\n")
    library = tmp_path / "libmm-client.so.0"
    subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-o", library, source],
                   check=True)
    status, _, line = imported(library)
    assert status == 1 and line.startswith("ImportError: mmd: ") and words in line, line


def test_wheel(tmp_path):
    """Pure Python, made without a compiler, with all of the package in it; it can be imported."""
    missing = [name for name in ("pip", "setuptools", "wheel") if not importlib.util.find_spec(name)]
    if missing:
        pytest.skip(f"this Python has no {', '.join(missing)}")
    tree = tmp_path / "python"
    shutil.copytree(PACKAGE, tree, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg*"))
    done = run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation",
               "--no-index", "--disable-pip-version-check", "-w", tmp_path, tree,
               env=dict(os.environ, CC="/bin/false"))
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(tmp_path / "installed")
    have = {path.relative_to(PACKAGE).as_posix() for path in (PACKAGE / "mmd").rglob("*")
            if path.suffix == ".py" or path.name == "py.typed"}
    assert have <= names, have - names
    done = run(sys.executable, "-c", "import mmd; print(mmd.__file__)", cwd=tmp_path,
               env=dict(os.environ, PYTHONPATH=str(tmp_path / "installed")))
    assert done.stdout.startswith(str(tmp_path / "installed")), done.stderr
