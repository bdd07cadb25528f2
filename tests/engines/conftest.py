# SPDX-License-Identifier: Apache-2.0
"""The fixtures of tests/e2e, and clients of the package mmd in this process or in others."""
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import textwrap

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = TOP / "libclient/python"
sys.path[:0] = [str(PACKAGE), str(TOP / "tests/e2e/lib")]

from programs import BUILD, limit  # noqa: E402

os.environ.setdefault("MM_CLIENT_LIB", str(BUILD / "lib/libmm-client.so.0"))

_spec = importlib.util.spec_from_file_location("e2e_conftest", TOP / "tests/e2e/conftest.py")
_e2e = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_e2e)
pytest_configure = _e2e.pytest_configure
memory, root, start, model_dirs, rng, seed = (_e2e.memory, _e2e.root, _e2e.start, _e2e.model_dirs,
                                              _e2e.rng, _e2e.seed)


@pytest.fixture(scope="session")
def gpu(memory):
    """
    The software GPU's folder. A process has one driver, which reads its settings once: all daemons
    that this process is a tenant of have the same device, one after the other.
    """
    path = pathlib.Path(tempfile.mkdtemp(prefix="mm-engines.", dir=memory))
    os.environ.update(MM_SOFTGPU_DIR=str(path), MM_SOFTGPU_GRANULARITY="4096",
                      MM_SOFTGPU_MEMORY=str(1 << 30))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def daemon(gpu, start):
    """daemon(pool=..., policy=..., ...) -> Daemon on the device of this process."""
    def starter(**options):
        return start(**{"pool": "8M", "page": "16K", "gpu_dir": gpu, **options})

    return starter


@pytest.fixture
def connect():
    """connect(daemon, ...) -> Client; closed before the daemon is judged, unless the test did."""
    import mmd

    clients = []

    def opener(d, name="engine", **options):
        clients.append(mmd.Client(name, d.dir / "tenant.sock", **options))
        return clients[-1]

    yield opener
    for client in clients:
        client.close()


@pytest.fixture
def script(daemon):
    """script(daemon, text, *args) -> CompletedProcess of a Python program with mmd imported."""
    del daemon

    def runner(d, text, *args):
        env = dict(d.env if d else os.environ, PYTHONPATH=str(PACKAGE))
        if d:
            env["MMD_SOCKET"] = str(d.dir / "tenant.sock")
        return subprocess.run([sys.executable, "-c", "import mmd\n" + textwrap.dedent(text),
                               *map(str, args)], env=env, text=True, capture_output=True,
                              timeout=limit(60), check=False)

    return runner
