# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

BUILD = pathlib.Path(os.environ["MM_BUILD"])
LIMIT_S = 300


@pytest.fixture(autouse=True, scope="session")
def software():
    if os.environ.get("MM_DRIVER", "software") != "software":
        pytest.skip("of the software GPU")


@pytest.fixture
def device():
    """A software GPU's directory of the test's own; no page is left in it."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="mm-programs-", dir="/dev/shm"))
    yield path
    left = list(path.glob("**/pages/*"))
    shutil.rmtree(path)
    assert not left


@pytest.fixture
def run(device):
    """run(command, **environment) -> what it wrote: on a device of 1 GiB, which it takes for CUDA's."""

    def run(command, **environment):
        env = dict(os.environ, LD_LIBRARY_PATH=str(BUILD / "lib" / "cuda"), MM_SOFTGPU_DIR=str(device),
                   MM_SOFTGPU_MEMORY="1G", **environment)
        for name in ("MM_SOFTGPU_FAIL", "CUDA_VISIBLE_DEVICES"):
            env.pop(name, None)
        ended = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               timeout=LIMIT_S, stdin=subprocess.DEVNULL)
        print(ended.stdout[-4000:])
        assert ended.returncode == 0, ended.stdout[-4000:]
        return ended.stdout

    return run
