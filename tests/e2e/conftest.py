# SPDX-License-Identifier: Apache-2.0
import ctypes
import os
import pathlib
import random
import shutil
import sys
import tempfile
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent / "lib"))

import below as below_module  # noqa: E402
import daemon as daemon_module  # noqa: E402
import faults  # noqa: E402
import models  # noqa: E402
import tenant as tenant_module  # noqa: E402
from programs import wait_until  # noqa: E402

PR_SET_CHILD_SUBREAPER = 36
MEMORY, MEMORY_MIN = "/dev/shm", 4 << 30


def pytest_configure():
    # Roles of a killed keeper become our children: none can hide.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


@pytest.fixture
def seed():
    value = int(os.environ.get("MM_TEST_SEED", time.time_ns() % 1_000_000_007))
    print(f"MM_TEST_SEED={value}")
    return value


@pytest.fixture
def rng(seed):
    return random.Random(seed)


@pytest.fixture(scope="session")
def memory():
    """Where software GPUs belong, a tmpfs; None where it is too small, as in some containers."""
    try:
        return MEMORY if shutil.disk_usage(MEMORY).free >= MEMORY_MIN else None
    except OSError:
        return None


@pytest.fixture
def root(memory):
    """A short path: sockets live in it. Its gpu is the software GPU's directory, elsewhere if it can."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="mm-e2e.", dir="/tmp"))
    if memory:
        place = pathlib.Path(tempfile.mkdtemp(prefix="mm-e2e.", dir=memory))
        (place / "gpu").mkdir()
        (path / "gpu").symlink_to(place / "gpu")
    yield path
    shutil.rmtree(path)
    if memory:
        shutil.rmtree(place)


@pytest.fixture(scope="session")
def model_dirs():
    """Three random models of one shape."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="mm-e2e-models."))
    yield [models.random_model(path / str(i), seed=100 + i) for i in range(3)]
    shutil.rmtree(path)


def strays():
    return [pid for pid in daemon_module.children(os.getpid()) if daemon_module.alive(pid)]


@pytest.fixture
def start(root):
    """start(policy=..., pool=..., ...) -> Daemon; judged and ended when the test is over."""
    daemons = []

    def starter(kind=daemon_module.Daemon, **options):
        daemons.append(kind(root, **options).start())
        return daemons[-1]

    try:
        yield starter
        for d in daemons:
            if d.process is not None:
                d.check_idle()
                d.stop()
    finally:
        for d in daemons:
            d.kill()
            # Shown by pytest when the test has failed.
            print(f"{d.log}:\n" + "".join(d.log.read_text(errors="replace").splitlines(True)[-60:]))
    wait_until(lambda: not strays(), 3, "all processes to end")


@pytest.fixture
def serve(root, start):
    """serve(name, model, requests, daemon, ...) -> Tenant; killed before daemons are judged."""
    del start  # only for the order of the ends
    tenants = []

    def starter(*args, **options):
        tenants.append(tenant_module.Tenant(root, *args, **options))
        return tenants[-1]

    yield starter
    for t in tenants:
        t.kill()


@pytest.fixture
def good_tenant(request, root, serve, model_dirs):
    """An honest tenant works before, during and after a test, with the mmd that the module calls d."""
    d = request.getfixturevalue("d")
    requests = tenant_module.make_requests(root / "good.requests", 8)
    want = tenant_module.plain_tokens(root, model_dirs[0], requests)
    # Its connection stands before a test floods mmd with others.
    during = serve("during", model_dirs[0], requests, d, sync=True).ready().go()
    yield
    assert during.tokens() == want
    # Who has gone is forgotten a moment later: until then there may be no room for one more.
    wait_until(lambda: not d.tenants(), 60, "mmd to forget the others")
    assert serve("after", model_dirs[0], requests, d).tokens() == want


@pytest.fixture
def below():
    """Orders to the library that is preloaded into the roles of a place's mmd."""
    orders = below_module.Below()
    yield orders
    orders.close()


@pytest.fixture
def place(root):
    """place(below, policy=..., ...) -> Place: an mmd that may end of a fault, and then is started anew."""
    places = []

    def maker(below=None, **options):
        places.append(faults.Place(root, below, **options))
        return places[-1]

    yield maker
    for each in places:
        each.kill()
    log = root / "mmd.log"
    print("".join(log.read_text(errors="replace").splitlines(True)[-40:]) if log.exists() else "")
