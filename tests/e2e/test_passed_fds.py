# SPDX-License-Identifier: Apache-2.0
"""
Nobody blocks mmd with a file descriptor that it passes.

The last close of a TCP socket that lingers, with data that nobody takes, sleeps for as long as it may linger.
mmd must never be the one that closes it: the kernel refuses it, or a process that may be lost closes it.
"""

import contextlib
import os
import pathlib
import signal
import socket
import struct

import pytest

from daemon import alive, children
from programs import limit, wait_until
from wire import Raw, hello

LINGER_S = 30000  # longer than any test waits


@pytest.fixture(params=["refuse", "discard"])
def d(start, request):
    """By the kernel where it can; and as on a kernel that cannot."""
    return start(policy="remap", pool="8M", page="16K", extra=["--passed-fds", request.param])


@pytest.fixture
def passing():
    """passing(s, data): a lingering socket travels with it. True: the only copy lies in mmd's queue."""
    takers = []

    def passes(s, data=b"!"):
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            sender = socket.create_connection(listener.getsockname())
            takers.append(listener.accept()[0])
        sender.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                sender.send(bytes(1 << 16))
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, LINGER_S))
        try:
            socket.send_fds(s, [data], [sender.fileno()])
        except OSError:
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
            return False
        finally:
            sender.close()
        return True

    yield passes
    for taker in takers:
        taker.close()


@contextlib.contextmanager
def stopped(pid):
    """What is sent meanwhile finds mmd as if it were slow: the sender wins each race."""
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: state(pid) == "T", 10, "a process to be stopped")
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def state(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def connected(d):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.settimeout(limit(5))
    s.connect(str(d.dir / "tenant.sock"))
    return s


def core(d):
    return d.pids("core")[0]


def settled(d):
    """Whoever was handed what had to be closed is gone as well; what was passed did not keep it."""
    d.check_accounts()
    roles = ("core", "xfer", "log")
    wait_until(lambda: sorted(d.pids()) == sorted(pid for role in roles for pid in d.pids(role)), 20,
               "nobody but the usual roles to be left")
    with Raw(d).greet() as client:
        assert client.welcome


FIRST = {
    "alone": [(b"!", True)],
    "with a hello": [(hello(), True)],
    "behind junk": [(b"junk", False), (b"!", True)],
    "behind a hello": [(hello(), False), (b"!", True), (b"!", True)],
    "many": [(b"!", True)] * 8,
}


@pytest.mark.parametrize("how", FIRST)
def test_before_the_handshake(d, passing, how):
    """Sent right after connect(), before mmd has so much as looked at the connection."""
    for hangs_up in [True, False] * 8:
        with contextlib.ExitStack() as stack:
            with stopped(core(d)):
                s = stack.enter_context(connected(d))
                for data, passes in FIRST[how]:
                    if not passes:
                        s.send(data)
                    elif not passing(s, data):
                        assert "discard" not in d.extra
                if hangs_up:
                    s.close()
            d.check_accounts()
    settled(d)


@pytest.mark.parametrize("first", [None, b"!", bytes(100)], ids=["first", "bell", "bad-bell"])
def test_of_a_tenant(d, passing, first):
    with Raw(d).greet() as client:
        with stopped(core(d)):
            if first:
                client.socket.send(first)
            took = passing(client.socket)
            assert not (took and "refuse" in d.extra) or not kernel_refuses()
        d.check_accounts()
        if took:
            assert client.ended()
    settled(d)


def test_of_many_that_are_silent(d, passing):
    """Without a word of theirs, it is mmd that closes them: of one user only so many may be silent."""
    with contextlib.ExitStack() as stack:
        with stopped(core(d)):
            for _ in range(40):
                passing(stack.enter_context(connected(d)))
        d.check_accounts()
    settled(d)


@pytest.mark.parametrize("who", ["core", "keeper"])
def test_end(d, passing, who):
    """mmd is told to end while connections lie unaccepted, or unheard; the fixture sees that it does."""
    pid = core(d) if who == "core" else d.process.pid
    with contextlib.ExitStack() as stack:
        tenant = stack.enter_context(Raw(d).greet())
        with stopped(pid):
            passing(tenant.socket)
            for _ in range(20):  # more than are accepted before a signal is looked at
                passing(stack.enter_context(connected(d)))
            os.kill(d.process.pid, signal.SIGTERM)
        d.stop()


def test_last_words(d, passing):
    """What core says while it ends is more than keeper reads before it learns that core is gone."""
    with contextlib.ExitStack() as stack:
        tenants = [stack.enter_context(Raw(d).greet()) for _ in range(60)]
        pid = core(d)
        with stopped(pid):
            for tenant in tenants:
                passing(tenant.socket)
            os.kill(d.process.pid, signal.SIGTERM)
            wait_until(lambda: "event=mmd.stopping" in d.log.read_text(), 10, "keeper to tell core")
            os.kill(d.process.pid, signal.SIGSTOP)
            wait_until(lambda: state(d.process.pid) == "T", 10, "keeper to be stopped")
        wait_until(lambda: state(pid) == "Z", 10, "core to end")
        os.kill(d.process.pid, signal.SIGCONT)
        d.stop()


def kernel_refuses():
    """Linux 6.16 has it; what is inherited from the listener is what counts."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        try:
            s.setsockopt(socket.SOL_SOCKET, 83, 0)
        except OSError:
            return False
        return True


def test_observer(d, passing):
    """By the socket for those who only look; with a request, after one, and when core dies."""
    def connected_to_look():
        s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        s.settimeout(limit(20))
        s.connect(str(d.dir / "view.sock"))
        return s

    request = b'{"jsonrpc":"2.0","id":1,"method":"status"}\n'
    for before in (b"", request, b"{"):
        with connected_to_look() as s, stopped(d.pids("core")[0]):
            if before:
                s.sendall(before)
            passing(s, request)
        assert d.status()
    with connected_to_look() as s:
        core = d.pids("core")[0]
        os.kill(core, signal.SIGSTOP)
        wait_until(lambda: state(core) == "T", 10, "core to be stopped")
        passing(s, request)
        os.kill(core, signal.SIGKILL)
        wait_until(d.answers, 20, "the next core")
    assert d.status()
