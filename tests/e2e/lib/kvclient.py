# SPDX-License-Identifier: Apache-2.0
"""A tenant by hand that holds KV pages and can look into them: its pages are files of the software GPU."""

import mmap
import os
import select
import socket
import struct

import wire
from programs import wait_until

BATCH = struct.Struct("<IIQQII")
EV_GRANT, EV_DENIED, EV_RECLAIM = 6, 7, 8


class KvClient(wire.Raw):
    def __init__(self, daemon, page, chunks_max=256, name=b"raw"):
        super().__init__(daemon)
        self.page, self.pages, self.chunks, self.asked = page, {}, set(), 0
        self.denials = []
        self.greet(wire.hello(name=name))
        self.push(wire.OP_KV_DECLARE, (page, 1, chunks_max, 0))

    def drain(self):
        """As Raw's, but takes pages in and acknowledges them, and never waits."""
        try:
            data, fds, _, _ = socket.recv_fds(self.socket, 4096, 253, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except ConnectionResetError:
            return False
        if len(data) > BATCH.size:
            _, _, _, seq, count, _ = BATCH.unpack(data[:BATCH.size])
            ids = struct.unpack(f"<{count}I", data[BATCH.size:BATCH.size + 4 * count])
            for page_id, fd in zip(ids, fds):
                if page_id in self.pages:
                    os.close(self.pages[page_id])
                self.pages[page_id] = fd
            self.push(wire.OP_FDS_ACK, (seq,))
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
        if event["opcode"] == EV_GRANT:
            self.chunks.add(event["args"][0])
        elif event["opcode"] == EV_DENIED:
            self.denials.append(event["result"])
        elif event["opcode"] == EV_RECLAIM:
            self.asked = event["args"][0]  # what is owed now

    def want(self, chunks):
        self.push(wire.OP_KV_WANT, (chunks,))

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
            self.push(wire.OP_KV_RELEASE, (chunk,))

    def page_of(self, chunk):
        at = wire.MAP_AT + 4 * (wire.MAP_KV_BASE + chunk)
        return struct.unpack("<I", self.mmd[at:at + 4])[0] - 1

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
        self.push(wire.OP_BYE)
        super().close()
