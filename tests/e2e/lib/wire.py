# SPDX-License-Identifier: Apache-2.0
"""A client by hand, that may lie. What mmd's headers say comes from abi.py."""

import mmap
import os
import select
import socket
import struct
import time

import abi
from programs import limit

U32 = struct.Struct("<I")  # a cursor, an entry of the map
SQ_TAIL, CQ_HEAD = (abi.mm_tenant_region.offset[name] for name in ("sq_tail", "cq_head"))
CQ_TAIL, MAP = (abi.mm_mmd_region.offset[name] for name in ("cq_tail", "map"))
FEATURES = abi.MM_FEAT_REMAP | abi.MM_FEAT_RECLAIM


def hello(**values):
    """A right one but for @values, by the fields' names."""
    right = {"magic": abi.MM_ABI_MAGIC, "abi_major": abi.MM_ABI_MAJOR, "size_bytes": abi.mm_hello.size,
             "features": FEATURES, "name": b"raw"}
    return abi.mm_hello.pack(**right | values)


# ---- the channel to load

def load_file(kind, name):
    return abi.mm_load_file.pack(magic=abi.MM_ABI_MAGIC, kind=kind, name=name)


def pack(name, members, flags=0, n_members=None):
    """A rule of a packing list; it need not make sense."""
    n = len(members) if n_members is None else n_members
    slots = b"".join(m.encode().ljust(abi.MM_TENSOR_NAME_BYTES, b"\0") for m in members)
    return abi.mm_load_pack.pack(magic=abi.MM_ABI_MAGIC, kind=abi.MM_LOAD_PACK, flags=flags, n_members=n,
                                 name=name.encode(), member=slots)


def load_key(key, flags=0, **values):
    """The key of a model; it need not make sense."""
    right = {"magic": abi.MM_ABI_MAGIC, "kind": abi.MM_LOAD_KEY, "flags": flags, "key_bytes": len(key), "key": key}
    return abi.mm_load_key.pack(**right | values)


class LoadChannel:
    def __init__(self, fd):
        self.socket = socket.socket(fileno=fd)
        self.socket.settimeout(limit(30))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data, fds=()):
        """A load that has refused already may be gone: its last word is still to be read."""
        try:
            socket.send_fds(self.socket, [data], fds)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def send_file(self, kind, name, fd):
        self.send(load_file(kind, name.encode()), [fd])

    def last_status(self):
        while True:
            data = self.socket.recv(4096)
            assert len(data) == abi.mm_load_status.size, "load went without a last word"
            status = abi.mm_load_status.unpack(data)
            if status["done"]:
                return status["result"], status["text"].split(b"\0")[0].decode()


class Refused(Exception):
    def __init__(self, result, reason):
        super().__init__(reason)
        self.result, self.reason = result, reason


class Raw:
    """One connection. Nothing in here checks what it sends."""

    def __init__(self, daemon):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # One with a time limit of Python's would not wait while the queue of connections is full.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", limit(5), 0))
        self.socket.connect(str(daemon.dir / "tenant.sock"))
        self.socket.settimeout(limit(5))
        self.fds, self.maps, self.welcome = [], [], None

    def close(self):
        for m in self.maps:
            m.close()
        for fd in self.fds:
            os.close(fd)
        self.maps, self.fds = [], []
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def greet(self, data=None):
        """Sends a hello; raises Refused, or maps the regions."""
        self.socket.send(hello() if data is None else data)
        reply, self.fds, _, _ = socket.recv_fds(self.socket, 4096, 8)
        if not reply:
            raise ConnectionResetError("closed without a welcome")
        self.welcome = abi.mm_welcome.unpack(reply[:abi.mm_welcome.size])
        assert self.welcome["size_bytes"] == len(reply)
        if self.welcome["result"]:
            raise Refused(self.welcome["result"], self.welcome["reason"].split(b"\0")[0].decode())
        assert len(self.fds) == 3
        self.tenant = mmap.mmap(self.fds[0], abi.mm_tenant_region.size)
        self.mmd = mmap.mmap(self.fds[1], abi.mm_mmd_region.size, prot=mmap.PROT_READ)
        self.gates = mmap.mmap(self.fds[2], abi.mm_gate_region.size)
        self.maps = [self.tenant, self.mmd, self.gates]
        return self

    @property
    def tenant_id(self):
        return self.welcome["tenant_id"]

    def put_u32(self, offset, value):
        """In one piece: the other side reads it at any time, and pack_into() goes byte by byte."""
        self.tenant[offset:offset + U32.size] = U32.pack(value & 0xFFFFFFFF)

    def get_u32(self, region, offset):
        return U32.unpack(region[offset:offset + U32.size])[0]

    def is_ready(self, events):
        """Now. A socket with a time limit of Python's waits that long even where a call says MSG_DONTWAIT."""
        poller = select.poll()
        poller.register(self.socket, events)
        return bool(poller.poll(0))

    def bell(self):
        try:
            if self.is_ready(select.POLLOUT):
                self.socket.send(b"!")
        except (BlockingIOError, BrokenPipeError, ConnectionResetError):
            pass

    def push(self, opcode, arg=(), **values):
        """The other values by the names of struct mm_msg's fields."""
        tail = self.get_u32(self.tenant, SQ_TAIL)
        at = abi.mm_tenant_region.offset["sq"] + tail % abi.MM_SQ_SLOTS * abi.mm_msg.size
        self.tenant[at:at + abi.mm_msg.size] = abi.mm_msg.pack(opcode=opcode, arg=arg, **values)
        self.put_u32(SQ_TAIL, tail + 1)
        self.bell()

    def pop(self):
        """The next event, or None when the connection has ended."""
        head = self.get_u32(self.tenant, CQ_HEAD)
        poller = select.poll()
        poller.register(self.socket, select.POLLIN)
        deadline = time.monotonic() + limit(5)
        while self.get_u32(self.mmd, CQ_TAIL) == head:
            assert time.monotonic() < deadline, "neither an event nor the end of the connection"
            if poller.poll(50) and not self.drain():
                if self.get_u32(self.mmd, CQ_TAIL) == head:  # its last word came before
                    return None
        at = abi.mm_mmd_region.offset["cq"] + head % abi.MM_CQ_SLOTS * abi.mm_msg.size
        message = abi.mm_msg.unpack(self.mmd[at:at + abi.mm_msg.size])
        self.put_u32(CQ_HEAD, head + 1)
        return message

    def drain(self):
        """Doorbells and fds off the socket. False: the connection has ended."""
        try:
            if not self.is_ready(select.POLLIN):
                return True
            data, fds, _, _ = socket.recv_fds(self.socket, 4096, 253)
        except ConnectionResetError:
            return False
        self.fds += fds
        return bool(data)

    def load_channel(self):
        """Waits for the fd that comes after the three regions: the channel to load."""
        poller = select.poll()
        poller.register(self.socket, select.POLLIN)
        deadline = time.monotonic() + limit(5)
        while len(self.fds) < 4:
            assert time.monotonic() < deadline, "no channel to load comes"
            assert not poller.poll(50) or self.drain(), "the connection ends"
        return LoadChannel(self.fds.pop(3))

    def ended(self):
        """Whether mmd ends the connection."""
        poller = select.poll()
        poller.register(self.socket, select.POLLIN)
        deadline = time.monotonic() + limit(5)
        while time.monotonic() < deadline:
            if poller.poll(50) and not self.drain():
                return True
        return False
