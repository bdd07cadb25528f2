# SPDX-License-Identifier: Apache-2.0
"""Memory that is neither weights nor KV: clean, charged, bounded by the share, back at the tenant's death."""

import errno
import os
import signal

import pytest

import abi
from isolated import isolated
from kvclient import KvClient
from programs import wait_until

PAGE = 16384
POOL = 64  # pages
TOP = abi.MM_MAP_KV_BASE * 2  # the end of the map table


class MemClient(KvClient):
    """Has memory of the third kind at the end of the map table."""

    def __init__(self, daemon, name=b"mem"):
        self.replies, self.depth = [], 0
        super().__init__(daemon, PAGE, name=name)

    def note(self, event):
        if event["opcode"] == abi.MM_EV_REPLY and event["arg"][0] == abi.MM_OP_MEM_ALLOC:
            self.replies.append((event["result"], event["arg"][1]))
        super().note(event)

    def alloc(self, pages):
        """The result, and how many pages there were."""
        n = len(self.replies)
        self.push(abi.MM_OP_MEM_ALLOC, (TOP - self.depth - pages, pages))
        wait_until(lambda: not self.look() or len(self.replies) > n, 20, "the answer")
        assert len(self.replies) > n, "the connection has ended"
        if self.replies[-1][0] == 0:
            self.depth += pages
        return self.replies[-1]

    def ids(self):
        return [self.page_of(entry - abi.MM_MAP_KV_BASE) for entry in range(TOP - self.depth, TOP)]

    def free(self):
        """All of it."""
        for page_id in self.ids():
            os.close(self.pages.pop(page_id))
        self.push(abi.MM_OP_MEM_FREE, (TOP - self.depth, self.depth))
        self.depth = 0


@pytest.fixture
def d(start):
    return start(policy="elastic", pool=f"{POOL * PAGE}", page=f"{PAGE}")


def pages(d, state):
    return d.status()["pages"][state]


def test_clean_charged_and_given_back(d):
    dirty = KvClient(d, PAGE, name=b"dirty").hold(POOL)
    dirty.fill(b"secret--")
    dirty.close()
    with MemClient(d) as client:
        assert client.alloc(10) == (0, 10)
        assert len(set(client.ids())) == 10
        for page_id in client.ids():
            assert client.bytes_of(page_id) == bytes(PAGE)
        assert pages(d, "mem") == 10
        tenant, = [t for t in d.status()["tenants"] if t["name"] == "mem"]
        assert tenant["pages_mem"] == 10 and tenant["pages"] == 10
        client.fill(b"mine----")
        client.free()
        wait_until(lambda: pages(d, "free") == POOL, 20, "the pages to come back")
        assert client.alloc(POOL) == (0, POOL)
        for page_id in client.ids():
            assert client.bytes_of(page_id) == bytes(PAGE)
        client.free()


def test_nobody_gives_for_it_and_it_gives_to_nobody(d):
    with KvClient(d, PAGE, name=b"kv") as kv, MemClient(d) as client:
        kv.hold(60)
        assert client.alloc(5) == (-errno.ENOSPC, 4)
        assert client.alloc(33) == (-errno.EDQUOT, 4)  # half of the pool: they are two
        assert client.alloc(4) == (0, 4)
        kv.look()
        assert kv.asked == 0
        kv.release(10)
        assert client.alloc(10) == (0, 10)
        kv.want(60)
        wait_until(lambda: kv.look() and kv.denials, 20, "a denial")
        assert client.look() and client.asked == 0 and pages(d, "mem") == 14
        assert len(kv.chunks) == 50
        client.free()
        wait_until(lambda: kv.look() and len(kv.chunks) == 60, 20, "the rest of what was wanted")


def test_a_death_gives_it_back(d):
    pid = os.fork()
    if not pid:
        try:
            client = MemClient(d, name=b"doomed")
            client.alloc(20)
            signal.pause()
        finally:
            os._exit(1)
    wait_until(lambda: pages(d, "mem") == 20, 20, "the memory")
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    wait_until(lambda: pages(d, "free") == POOL, 20, "the pages to come back")


@isolated()
def test_a_lie_ends_the_connection(d):
    client = MemClient(d)
    assert client.alloc(2) == (0, 2)
    client.push(abi.MM_OP_MEM_FREE, (TOP - 3, 3))
    wait_until(lambda: not client.look(), 20, "the end")
    for fd in client.pages.values():
        os.close(fd)
    client.socket.close()
