# SPDX-License-Identifier: Apache-2.0
"""A tenant that lies, floods or falls silent hurts itself at most."""

import contextlib
import errno
import mmap
import os
import random
import signal
import socket
import time

import pytest

import abi
import wire
from daemon import RpcError
from isolated import alone, isolated
from kvclient import KvClient
from programs import count, wait_until
from wire import Raw, Refused, hello

pytestmark = pytest.mark.usefixtures("good_tenant")


@pytest.fixture
def d(start):
    return start(policy="remap", pool="8M", page="16K")


@isolated()
def test_unload_without_a_model(d):
    """It is refused, and ends the connection if it names anything."""
    with Raw(d) as client:
        client.greet()
        for number in range(1, 20):
            client.push(abi.MM_OP_UNLOAD, user_data=number)
            reply = client.pop()
            assert reply["opcode"] == abi.MM_EV_REPLY and reply["user_data"] == number
            assert reply["result"] == -errno.ENOENT
        client.push(abi.MM_OP_UNLOAD, (7,))
        assert client.ended()


@isolated()
def test_junk_hello(d, rng):
    right = abi.mm_hello.size
    for size in [0, 1, right // 2, right - 1, right + 1, 4000] + [right] * count(50, 10):
        with Raw(d) as client:
            try:
                client.greet(rng.randbytes(size))
            except (Refused, ConnectionResetError, OSError):
                continue
            raise AssertionError("junk was welcomed")


@isolated()
def test_silence(d):
    """Connections that never say hello, and tenants that never say anything more."""
    quiet = [Raw(d) for _ in range(60)]
    welcomed = [Raw(d).greet() for _ in range(5)]
    time.sleep(0.5)
    d.check_accounts()
    for client in quiet + welcomed:
        client.close()


CURSORS = [0x80000000, abi.MM_CQ_SLOTS + 1, 1 << 20]


@pytest.mark.parametrize("value", [0xFFFFFFFF, abi.MM_SQ_SLOTS + 1, *CURSORS])
@isolated()
def test_request_cursor(d, value):
    with Raw(d).greet() as client:
        client.put_u32(wire.SQ_TAIL, value)
        client.bell()
        assert client.ended()


@pytest.mark.parametrize("value", CURSORS)
@isolated()
def test_event_cursor(d, value):
    """A head that claims to have read what was never written."""
    with Raw(d).greet() as client:
        client.put_u32(wire.CQ_HEAD, value)
        client.push(abi.MM_OP_KV_DECLARE, (1 << 14, 1, 4, 0))
        assert client.ended()


BAD_REQUESTS = {
    "unknown opcode": {"opcode": 99},
    "highest opcode": {"opcode": 0xFFFF},
    "unknown flag": {"opcode": abi.MM_OP_KV_WANT, "flags": 1},
    "reserved": {"opcode": abi.MM_OP_KV_WANT, "reserved": 1},
    "stray argument": {"opcode": abi.MM_OP_BYE, "arg": (0, 0, 0, 1)},
    "want before declare": {"opcode": abi.MM_OP_KV_WANT, "arg": (1,)},
    "release of nothing": {"opcode": abi.MM_OP_KV_RELEASE, "arg": (0,)},
    "ack of nothing": {"opcode": abi.MM_OP_FDS_ACK, "arg": (77,)},
    "ack of the batch to come": {"opcode": abi.MM_OP_FDS_ACK, "arg": (1,)},
    "ack of batch 0": {"opcode": abi.MM_OP_FDS_ACK},
    "parked unasked": {"opcode": abi.MM_OP_PARKED, "epoch": 5},
    "committed unasked": {"opcode": abi.MM_OP_COMMITTED, "epoch": 5},
    "no pages in a chunk": {"opcode": abi.MM_OP_KV_DECLARE, "arg": (0, 1, 1, 0)},
    "chunk not of whole pages": {"opcode": abi.MM_OP_KV_DECLARE, "arg": (1000, 1, 1, 0)},
    "chunk that wraps": {"opcode": abi.MM_OP_KV_DECLARE, "arg": ((1 << 64) - (1 << 14), 4, 4, 0)},
    "more chunks than entries": {"opcode": abi.MM_OP_KV_DECLARE, "arg": (1 << 14, 1, 1 << 30, 0)},
    "share above max": {"opcode": abi.MM_OP_KV_DECLARE, "arg": (1 << 14, 1, 2, 3)},
}


@pytest.mark.parametrize("name", BAD_REQUESTS)
@isolated()
def test_bad_request(d, name):
    """Either the connection ends or the request is refused; it is never carried out."""
    with Raw(d).greet() as client:
        client.push(user_data=42, **BAD_REQUESTS[name])
        event = client.pop()
        if event is not None and event["opcode"] == abi.MM_EV_REPLY:
            assert event["user_data"] == 42 and event["result"] < 0, event
        held = [t for t in d.tenants() if t["name"] == "raw"]
        assert all(t.get("pages", 0) == 0 for t in held), held


def push_anything(d, seed):
    rng = random.Random(seed)
    client = Raw(d).greet()
    for _ in range(rng.randrange(1, 40)):
        if rng.random() < 0.5:
            client.push(rng.randrange(abi.MM_OP_COUNT), [rng.choice([0, 1, 2, 1 << 14, 1 << 40, (1 << 64) - 1])
                                            for _ in range(rng.randrange(5))],
                        epoch=rng.randrange(3), user_data=rng.getrandbits(64))
        else:
            client.push(rng.randrange(1 << 16), [rng.getrandbits(64) for _ in range(4)],
                        flags=rng.getrandbits(16), reserved=rng.getrandbits(64))
    client.drain()
    return client


@isolated()
def test_random_requests(d, rng):
    """Whatever bytes are in the ring, mmd runs on."""
    for _ in range(count(100, 20)):
        alone(push_anything, d, rng.random())
        d.check_accounts()


def scribble(d, seed):
    rng = random.Random(seed)
    client = Raw(d).greet()
    client.push(abi.MM_OP_KV_DECLARE, (1 << 14, 2, 16, 0))
    client.push(abi.MM_OP_KV_WANT, (4,))
    for _ in range(20):
        client.tenant[:] = rng.randbytes(len(client.tenant))
        client.gates[:] = rng.randbytes(len(client.gates))
        client.bell()
    return client


@isolated()
def test_scribbling(d, rng):
    """All that a tenant may write, overwritten while mmd reads it."""
    for _ in range(count(20, 5)):
        alone(scribble, d, rng.random())
        d.check_accounts()


@isolated()
def test_mmd_region_is_read_only(d):
    with Raw(d).greet() as client:
        with pytest.raises((PermissionError, OSError)):
            mmap.mmap(client.fds[1], abi.mm_mmd_region.size)
        for fd in client.fds:
            with pytest.raises(OSError):
                os.ftruncate(fd, 0)


def scribble_over_mmds(d, seed):
    """A process of mmd's own user opens mmd's region again, and it lies to itself alone."""
    rng = random.Random(seed)
    client = Raw(d).greet()
    fd = os.open(f"/proc/self/fd/{client.fds[1]}", os.O_RDWR)
    with mmap.mmap(fd, abi.mm_mmd_region.size) as region:
        for _ in range(100):
            at = rng.randrange(len(region) - 64)
            region[at:at + 64] = rng.randbytes(64)
            client.push(abi.MM_OP_NOP)
        for name in ("sq_head", "cq_tail", "state"):
            at = abi.mm_mmd_region.offset[name]
            region[at:at + 16] = b"\xff" * 16
        client.push(abi.MM_OP_TURN_JOIN, (abi.MM_TURN_QUANTUM, 0, 0))
    os.close(fd)
    return client


@isolated()
def test_mmd_region_is_believed_by_nobody(d, rng):
    for _ in range(count(10, 3)):
        alone(scribble_over_mmds, d, rng.random())
        d.check_accounts()


@isolated()
def test_acknowledgements_again(d):
    """Those of batches that were answered have no effect; one of a batch to come ends the connection."""
    with KvClient(d, 1 << 14) as client:
        client.want(3)
        wait_until(lambda: client.look() and len(client.chunks) == 3, 30, "three chunks")
        for _ in range(100):
            client.push(abi.MM_OP_FDS_ACK, (1,))
        client.push(abi.MM_OP_FDS_ACK, (1,), result=-errno.EMFILE)
        client.want(4)
        wait_until(lambda: client.look() and len(client.chunks) == 4, 30, "a fourth chunk")
        client.push(abi.MM_OP_FDS_ACK, (1000,))
        assert client.ended()


@isolated()
def test_fds_are_not_taken(d):
    """Passed fds end with the message or with the connection; mmd holds none of them."""
    read_end, write_end = os.pipe()
    clients = []
    for _ in range(20):
        client = Raw(d).greet()
        for _ in range(5):
            try:
                socket.send_fds(client.socket, [b"!"], [write_end] * 50)
            except OSError:
                break
        clients.append(client)
    os.close(write_end)
    for client in clients:
        client.close()
    os.set_blocking(read_end, False)

    def all_gone():
        try:
            return os.read(read_end, 1) == b""
        except BlockingIOError:
            return False

    wait_until(all_gone, 10, "the last copy of a passed fd to be closed")
    os.close(read_end)


@isolated()
def test_doorbell_flood(d):
    with Raw(d).greet() as client:
        deadline = time.monotonic() + 1
        while time.monotonic() < deadline:
            client.bell()
        d.check_accounts()


@isolated()
def test_long_messages(d):
    with Raw(d).greet() as client:
        for size in (2, 64, 4096, 60000):
            try:
                client.socket.send(bytes(size), socket.MSG_DONTWAIT)
            except OSError:
                break
        d.check_accounts()


@isolated()
def test_want_everything(d):
    """KV of the whole pool and more: granted what there is, and given back when it goes."""
    client = Raw(d).greet()
    client.push(abi.MM_OP_KV_DECLARE, (1 << 14, 1, 4096, 0))
    client.push(abi.MM_OP_KV_WANT, (4096,))
    time.sleep(0.3)
    d.check_accounts()


@isolated()
def test_unread_fds(d):
    """A tenant that never reads its socket: one batch lies there, nobody else waits."""
    clients = []
    for _ in range(8):
        client = Raw(d).greet()
        client.push(abi.MM_OP_KV_DECLARE, (1 << 14, 1, 64, 0))
        client.push(abi.MM_OP_KV_WANT, (16,))
        clients.append(client)
    time.sleep(0.3)
    d.check_accounts()


@isolated()
def test_connection_flood(d):
    """More connections than there are tenants: the surplus is refused, then all is as before."""
    clients = []
    for _ in range(200):
        try:
            clients.append(Raw(d).greet())
        except (Refused, OSError):
            pass
    assert clients
    d.check_accounts()
    for client in clients:
        client.close()


@isolated()
def test_connections_are_paced(d):
    """256 at once, then 2,000 a second and no more; whoever connects behind them is served."""
    begun = time.monotonic()
    clients = [Raw(d) for _ in range(700)]
    for client in clients:
        with client, contextlib.suppress(OSError):
            client.socket.send(b"not a hello")
            client.socket.recv(4096)
    assert time.monotonic() - begun >= (700 - 256) / 2000
    Raw(d).greet().close()


@isolated()
def test_refusals_do_not_fill_the_log(d):
    """An account has so many lines and no more; what is left out is counted and said."""
    begun = time.monotonic()
    for _ in range(600):
        with Raw(d) as client:
            with pytest.raises((Refused, ConnectionResetError)):
                client.greet(b"not a hello")
    lines = d.log.read_text().count("event=tenant.refused")
    assert lines <= 100 + 5 * (time.monotonic() - begun) + 1
    wait_until(lambda: "event=log.suppressed uid=" in d.log.read_text(), 30, "the rest to be counted")


def flood_connects(d, until):
    while time.monotonic() < until:
        sockets = []
        for _ in range(100):
            s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
            sockets.append(s)
            try:
                s.connect(str(d.dir / "tenant.sock"))
            except OSError:
                break
        for s in sockets:
            s.close()


def end_loads(d, until):
    while time.monotonic() < until:
        try:
            with Raw(d).greet() as client:
                client.push(abi.MM_OP_MODEL_OPEN)
                client.load_channel().socket.close()
        except (Refused, OSError, AssertionError):
            pass


@isolated()
def test_connects_while_loads_end(d):
    """Keeper tells core of each load's end while it waits for room to hand over connections: it accepts again."""
    until = time.monotonic() + count(8, 4)
    works = [flood_connects] * 2 + [end_loads] * 3
    pids = []
    for work in works:
        pids.append(os.fork())
        if pids[-1] == 0:
            work(d, until)
            os._exit(0)
    for pid in pids:
        os.waitpid(pid, 0)
    wait_until(lambda: answers(d), 60, "mmd to answer again")


def test_admin_flood(d):
    """Silent and chattering admin connections do not stop a tenant, nor each other for good."""
    sockets = []
    for i in range(64):
        s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        s.settimeout(1)
        try:
            s.connect(str(d.dir / "admin.sock"))
            if i % 2:
                s.sendall(b'{"jsonrpc":"2.0","id":1,"method":"status"}\n' * 50)
        except OSError:
            pass
        sockets.append(s)
    for s in sockets:
        s.close()
    wait_until(lambda: answers(d), 10, "mmd to answer again")


def answers(d):
    try:
        return bool(d.status())
    except (OSError, ValueError, RpcError):
        return False


@isolated()
def test_leaving_without_pages(d):
    """Who goes without a word but held nothing is not killed for it."""
    Raw(d).greet().close()
    wait_until(lambda: d.tenant("raw") is None, 10, "the tenant to be forgotten")
    time.sleep(4)
    assert d.status()["kills"] == 0


@isolated()
def test_keeping_pages(d):
    """Who keeps pages without a connection is killed; the memory comes back."""
    if os.fork() == 0:
        client = Raw(d).greet()
        client.push(abi.MM_OP_KV_DECLARE, (1 << 14, 1, 64, 0))
        client.push(abi.MM_OP_KV_WANT, (16,))
        wait_until(lambda: client.drain() and len(client.fds) > 3, 10, "pages")
        client.socket.close()
        time.sleep(600)
    status = os.waitstatus_to_exitcode(os.wait()[1])
    assert status == -signal.SIGKILL
    wait_until(lambda: d.status()["kills"] == 1, 10, "the kill to be counted")


@isolated()
def test_hello_then_death(d, rng):
    for _ in range(count(50, 10)):
        client = Raw(d)
        if rng.random() < 0.5:
            client.socket.send(hello())
        client.close()
