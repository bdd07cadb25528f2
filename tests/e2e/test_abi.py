# SPDX-License-Identifier: Apache-2.0
"""Programs and libraries of different versions: tests/abi/tenant.c, compiled against the headers of the first release
and against those of a later one, with today's library and with that later one, as tenants of today's mmd."""

import re
import subprocess

import pytest

from models import random_model
from programs import BUILD, TOP, limit, read_until

LIBRARIES = {"today": BUILD / "lib", "future": BUILD / "lib" / "abi-future"}


def abi_of(library):
    """What mm_client_abi() is: a later version has counted its minor number up."""
    header = (TOP / "include" / "mm" / "client.h").read_text()
    major, minor = (int(re.search(rf"^#define MM_CLIENT_ABI_{part} (\d+)$", header, re.MULTILINE)[1])
                    for part in ("MAJOR", "MINOR"))
    return (major << 16) + minor + (library == "future")


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("header", ["frozen", "future"])
def test_versions(root, start, header, library):
    d = start(pool="8M", page="16K", extra=["--swap-max", "1M"])
    model = random_model(root / "model", seed=5)
    env = dict(d.env, MMD_SOCKET=str(d.dir / "tenant.sock"), LD_LIBRARY_PATH=str(LIBRARIES[library]))
    program = BUILD / "tests" / f"abi-tenant-{header}"
    loaded = subprocess.run(["ldd", program], env=env, check=True, capture_output=True, text=True).stdout
    assert f"{LIBRARIES[library]}/libmm-client.so.0 " in loaded, loaded
    tenant = subprocess.Popen([program, model], env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE)
    try:
        read_until(tenant, f"ready: ABI {abi_of(library):#x}, version ", 60)
        d.ctl("plan", "set", "abi", "--layers", 3)
        out, errors = tenant.communicate("go\n", timeout=limit(120))
        assert tenant.returncode == 0 and out == "ok\n", (out, errors)
    finally:
        tenant.kill()
        tenant.communicate()
