# SPDX-License-Identifier: Apache-2.0
"""A tenant that lies about its cold blocks hurts itself at most."""

import errno
import signal
import subprocess

import pytest

from programs import BUILD, limit

LIAR = BUILD / "tests" / "e2e-cold-liar"
STEPS = 40
TRANSFERS = 4 * 4 * 4096  # of one layer of each class, of all entries: bytes

pytestmark = pytest.mark.usefixtures("good_tenant")


@pytest.fixture
def d(start):
    return start(policy="remap", pool="8M", page="16K", extra=["--swap-max", "8M"])


def lie(d, model, act, status=0):
    """What came of each thing, by its name."""
    env = dict(d.env, MMD_SOCKET=str(d.dir / "tenant.sock"))
    done = subprocess.run([str(LIAR), str(model), act], env=env, capture_output=True, text=True,
                          timeout=limit(120), check=False)
    print(done.stdout, done.stderr)
    assert done.returncode == status, done.stderr
    d.check_accounts()
    return {name: int(number) for name, number in (line.split() for line in done.stdout.splitlines())}


def refused(*names, by):
    return dict.fromkeys(names, -by)


def test_numbers(d, model_dirs):
    """Each wrong number is refused by itself; what was right goes on."""
    assert lie(d, model_dirs[1], "numbers") == {
        **refused("window-first", by=errno.EPERM),
        **refused("no-swap", "unit-0", "unit-odd", "layers-0", "layers-more", "layers-huge", "entries-0",
                  "entries-max", "entries-wrap", "floor", "floor-wraps", by=errno.EINVAL),
        **refused("unit-wraps", "entries-space", "pages", by=errno.E2BIG),
        **refused("twice", by=errno.EEXIST),
        **refused("beyond", "beyond-far", "beyond-wraps", "small", by=errno.EINVAL),
        **refused("unheld", "unheld-part", by=errno.ENOENT),
        **refused("release", by=errno.EBUSY),
        "steps": STEPS}


def test_swaps(d, model_dirs):
    """A list that names a chunk of the window is answered; mmd does not end the connection."""
    assert lie(d, model_dirs[1], "swaps") == {"pushed": 0, "ended": -errno.EPROTO}
    assert 'event=tenant.closed tenant=1 name=liar reason="connection closed"' in d.log.read_text()


def test_bits(d, model_dirs):
    """All bits, also beyond the entries, and versions that go back: its own rows are wrong at most."""
    xfer = d.pids("xfer")
    assert lie(d, model_dirs[1], "bits") == {"all": STEPS, "changing": STEPS}
    assert d.status()["cold_bytes_streamed"] > TRANSFERS
    assert d.pids("xfer") == xfer


def test_silent(d, model_dirs):
    """Without steps no layer is streamed but the first of each class, whatever is live."""
    assert lie(d, model_dirs[1], "silent") == {"silent": 0}
    assert d.status()["cold_bytes_streamed"] <= TRANSFERS


def test_broken(d, model_dirs):
    xfer = d.pids("xfer")
    assert lie(d, model_dirs[1], "broken") == {"broken": 0}
    assert d.pids("xfer") == xfer


def test_cooling(d, model_dirs):
    xfer = d.pids("xfer")
    assert lie(d, model_dirs[1], "cooling", -signal.SIGKILL) == {"cooling": 0}
    assert d.pids("xfer") == xfer
