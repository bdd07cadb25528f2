# SPDX-License-Identifier: Apache-2.0
"""What core has left is damaged: a device whose image cannot be read begins anew, and mmd ends where nothing can."""

import os
import signal

import pytest

from daemon import role_of
from programs import wait_until
from tenant import make_requests, plain_tokens
from test_groups import ranks, ranks_of  # noqa: F401  pylint: disable=unused-import

IMAGE = b"mmrows01"
FIRST_POOL_END = 140 << 20  # the images of the first device lie before it in the book, all others behind it

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can open the book of a running mmd")


def core_of(d):
    return next((pid for pid in d.pids("core") if role_of(pid) == "core"), None)


def book_of(d):
    """The book, open for writing."""
    folder = f"/proc/{d.process.pid}/fd"
    for fd in os.listdir(folder):
        if os.readlink(f"{folder}/{fd}").startswith("/memfd:mm-book"):
            return os.open(f"{folder}/{fd}", os.O_RDWR)
    raise AssertionError("keeper has no book")


def images(book):
    """Where images begin, in the parts of the book that exist."""
    at, size, found = 0, os.fstat(book).st_size, []
    while at < size:
        try:
            at = os.lseek(book, at, os.SEEK_DATA)
        except OSError:  # no more
            break
        end = os.lseek(book, at, os.SEEK_HOLE)
        found += [page for page in range(at, end, 4096) if os.pread(book, 8, page) == IMAGE]
        at = end
    return found


def die_damaged(d, damage):
    """Stops core, damages the book, and kills core."""
    pid = core_of(d)
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: open(f"/proc/{pid}/stat", encoding="ascii").read().rsplit(")", 1)[1].split()[0] == "T", 10,
               "core to be stopped")
    book = book_of(d)
    damage(book)
    os.close(book)
    os.kill(pid, signal.SIGKILL)


def images_damage(book):
    found = [at for at in images(book) if at < FIRST_POOL_END]
    assert found
    for at in found:
        os.pwrite(book, b"\xff" * 64, at + 2048)


def test_a_device_begins_anew(root, start, serve, model_dirs):
    """Its tenants end; those of the other device, and the store of both, go on."""
    d = start(devices=2, pool="8M", page="16K")
    requests = make_requests(root / "requests", 60, prompt=(8, 24), output=(30, 60))
    want = plain_tokens(root, model_dirs[0], requests)
    tenants = [serve(f"t{i}", model_dirs[0], requests, d, extra=["--verify", "--device", str(i)]) for i in range(2)]
    wait_until(lambda: [t["model_ready"] for t in d.tenants()] == [True, True], 60, "both to have the model")
    assert [s["refs"] for s in d.status()["stores"]] == [2]
    die_damaged(d, images_damage)
    wait_until(d.answers, 30, "core to answer")
    assert tenants[0].process.wait(60) != 0
    assert tenants[1].tokens(120) == want
    text = d.log.read_text(errors="replace")
    assert text.count("event=pool.renewed device=0 ") == 1 and "forgotten=1" in text
    # The device serves again, from pages that were created anew.
    wait_until(lambda: d.device(0)["pages"].get("free") == 512, 60, "the pages of the device")
    again = serve("again", model_dirs[0], requests, d, extra=["--verify", "--device", "0"])
    assert again.tokens(120) == want
    d.fds_at_start, d.first_xfer = d.settled_fds(), d.pids("xfer")


def test_ranks_end_together(start, ranks):  # noqa: F811  pylint: disable=redefined-outer-name
    """One rank of a group is on the device: the other one ends with it, and both devices serve another group."""
    d = start(devices=2, pool="8M", page="16K")
    group = ranks(d).ready()
    die_damaged(d, images_damage)
    wait_until(d.answers, 30, "core to answer")
    for process in group.processes:
        assert process.wait(60) != 0
    wait_until(lambda: [d.device(i)["pages"].get("free") for i in range(2)] == [512, 512], 60, "the pages of both")
    another = ranks(d).ready()
    assert [t["group"]["rank"] for t in ranks_of(d)] == [0, 1]
    another.processes[0].stdin.close()
    another.processes[0].stdin = None
    for process in another.processes:
        assert process.wait(60) == 0
    d.fds_at_start, d.first_xfer = d.settled_fds(), d.pids("xfer")


def test_a_damaged_book_ends_mmd(start):
    """Nothing is guessed: mmd says that it cannot read what its core knew."""
    d = start(pool="4M", page="64K")
    die_damaged(d, lambda book: os.pwrite(book, b"\0\0\0\0", 0))
    wait_until(lambda: d.process.poll() is not None, 30, "mmd to end")
    assert d.process.returncode == 1
    assert "what it knew cannot be read" in d.log.read_text(errors="replace")
    d.process = None
