# SPDX-License-Identifier: Apache-2.0
"""A tenant by hand that holds KV pages and can look into them: its pages are files of the software GPU."""

import mmap
import os
import select
import socket

import abi
import wire
from programs import wait_until


class KvClient(wire.Raw):
    def __init__(self, daemon, page, chunks_max=256, name=b"raw"):
        super().__init__(daemon)
        self.page, self.pages, self.chunks, self.asked = page, {}, set(), 0
        self.denials = []
        self.greet(wire.hello(name=name))
        self.push(abi.MM_OP_KV_DECLARE, (page, 1, chunks_max, 0))

    def drain(self):
        """As Raw's, but takes pages in and acknowledges them, and never waits."""
        try:
            if not self.is_ready(select.POLLIN):
                return True
            data, fds, _, _ = socket.recv_fds(self.socket, 4096, 253)
        except ConnectionResetError:
            return False
        if len(data) == abi.mm_fd_batch.size:
            batch = abi.mm_fd_batch.unpack(data)
            for page_id, fd in zip(batch["page_id"], fds):
                if page_id in self.pages:
                    os.close(self.pages[page_id])
                self.pages[page_id] = fd
            self.push(abi.MM_OP_FDS_ACK, (batch["seq"],))
        return bool(data)

    def look(self):
        """All that has arrived: grants, denials, reclaims. The ring's tail first, then the socket: fds come before."""
        while True:
            tail = self.get_u32(self.mmd, wire.CQ_TAIL)
            while select.select([self.socket], [], [], 0)[0]:
                if not self.drain():
                    return False
            if tail == self.get_u32(self.tenant, wire.CQ_HEAD):
                return True
            while tail != self.get_u32(self.tenant, wire.CQ_HEAD):
                self.note(self.pop())

    def note(self, event):
        if event["opcode"] == abi.MM_EV_KV_GRANT:
            self.chunks.add(event["arg"][0])
        elif event["opcode"] == abi.MM_EV_KV_DENIED:
            self.denials.append(event["result"])
        elif event["opcode"] == abi.MM_EV_KV_RECLAIM:
            self.asked = event["arg"][0]  # what is owed now

    def want(self, chunks):
        self.push(abi.MM_OP_KV_WANT, (chunks,))

    def hold(self, chunks):
        """Wants so many, and waits until it has them."""
        self.want(chunks)
        wait_until(lambda: self.look() and len(self.chunks) >= chunks, 20, f"{chunks} chunks")
        return self

    def release(self, n=1):
        """The highest ones; their fds are closed: nothing of ours holds them."""
        for _ in range(n):
            chunk = max(self.chunks)
            self.chunks.remove(chunk)
            page_id = self.page_of(chunk)
            os.close(self.pages.pop(page_id))
            self.push(abi.MM_OP_KV_RELEASE, (chunk,))

    def page_of(self, chunk):
        return self.get_u32(self.mmd, wire.MAP + wire.U32.size * (abi.MM_MAP_KV_BASE + chunk)) - 1

    def bytes_of(self, page_id):
        with mmap.mmap(self.pages[page_id], self.page) as m:
            return m[:]

    def fill(self, pattern):
        for fd in self.pages.values():
            with mmap.mmap(fd, self.page) as m:
                m[:] = pattern * (self.page // len(pattern))

    def close(self):
        """All pages are given back: that is said, or mmd would kill a process that lives on for two seconds."""
        for fd in self.pages.values():
            os.close(fd)
        self.pages = {}
        self.push(abi.MM_OP_BYE)
        super().close()
