# SPDX-License-Identifier: Apache-2.0
"""The ABI by hand (include/mm/abi.h): a client that may lie."""

import mmap
import os
import select
import socket
import struct
import time

from programs import limit

MAGIC = 0x314D4D4D
MAJOR = 1
FEATURES = 3  # REMAP | RECLAIM
PAGE = 4096
SQ_SLOTS, CQ_SLOTS = 256, 1024
MSG = struct.Struct("<HHiQQ4QQ")
HELLO = struct.Struct("<IHHQQ32s16s56s")
WELCOME = struct.Struct("<IHHiIQQQ16sII416sI28s")
assert (MSG.size, HELLO.size, WELCOME.size) == (64, 128, 512)

(OP_NOP, OP_MODEL_OPEN, OP_KV_DECLARE, OP_KV_WANT, OP_KV_RELEASE, OP_FDS_ACK, OP_PARKED,
 OP_COMMITTED, OP_RESYNC, OP_BYE, OP_SWAP_OPEN, OP_SWAP, OP_TURN_JOIN, OP_TURN_WANT) = range(14)
EV_REPLY, EV_SWAPPED, EV_TURN_BEGIN, EV_TURN_END = 1, 9, 10, 11

# mm_tenant_region: sq_tail, cq_head, stats, slots; mm_mmd_region: sq_head, cq_tail, slots, map
SQ_TAIL, CQ_HEAD, STATS, SQ = 0, PAGE, 2 * PAGE, 3 * PAGE
SWAP = SQ + SQ_SLOTS * 64
SWAP_LOTS, SWAP_PIECES = 8, 512
SWAP_PIECE = struct.Struct("<QQII")  # arena offset, swap offset, bytes, range
TENANT_BYTES = SWAP + SWAP_LOTS * SWAP_PIECES * SWAP_PIECE.size
SQ_HEAD, CQ_TAIL, CQ = 0, PAGE, 2 * PAGE
MAP_AT = CQ + CQ_SLOTS * 64
MAP_KV_BASE = 32768
MMD_BYTES = MAP_AT + 262144


def hello(magic=MAGIC, major=MAJOR, size=128, features=FEATURES, required=0, name=b"raw",
          device_uuid=bytes(16), reserved=bytes(56)):
    return HELLO.pack(magic, major, size, features, required, name, device_uuid, reserved)


# The channel to load: struct mm_load_file, mm_load_pack, mm_load_status.
LOAD_CONFIG, LOAD_SAFETENSORS, LOAD_INDEX, LOAD_PACK, LOAD_END = range(1, 6)
LOAD_FILE = struct.Struct("<II128s")
PACK_HEAD = struct.Struct("<IIII120s")
LOAD_STATUS = struct.Struct("<IiIIQQ224s")
assert (LOAD_FILE.size, PACK_HEAD.size + 16 * 120, LOAD_STATUS.size) == (136, 2056, 256)


def load_file(kind, name):
    return LOAD_FILE.pack(MAGIC, kind, name)


def pack(name, members, flags=0, n_members=None):
    """A rule of a packing list; it need not make sense."""
    n = len(members) if n_members is None else n_members
    slots = b"".join(m.encode().ljust(120, b"\0") for m in members).ljust(16 * 120, b"\0")
    return PACK_HEAD.pack(MAGIC, LOAD_PACK, flags, n, name.encode()) + slots


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
            assert len(data) == LOAD_STATUS.size, "load went without a last word"
            _, result, done, _, _, _, text = LOAD_STATUS.unpack(data)
            if done:
                return result, text.split(b"\0")[0].decode()


class Refused(Exception):
    def __init__(self, result, reason):
        super().__init__(reason)
        self.result, self.reason = result, reason


class Raw:
    """One connection. Nothing in here checks what it sends."""

    def __init__(self, daemon):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(limit(5))
        self.socket.connect(str(daemon.dir / "tenant.sock"))
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
        self.welcome = WELCOME.unpack(reply)
        result, reason = self.welcome[3], self.welcome[11].split(b"\0")[0].decode()
        if result:
            raise Refused(result, reason)
        assert len(self.fds) == 3
        self.tenant = mmap.mmap(self.fds[0], TENANT_BYTES)
        self.mmd = mmap.mmap(self.fds[1], MMD_BYTES, prot=mmap.PROT_READ)
        self.gates = mmap.mmap(self.fds[2], 65536)
        self.maps = [self.tenant, self.mmd, self.gates]
        return self

    @property
    def tenant_id(self):
        return self.welcome[4]

    def put_u32(self, offset, value):
        self.tenant[offset:offset + 4] = struct.pack("<I", value & 0xFFFFFFFF)

    def get_u32(self, region, offset):
        return struct.unpack("<I", region[offset:offset + 4])[0]

    def bell(self):
        try:
            self.socket.send(b"!", socket.MSG_DONTWAIT)
        except (BlockingIOError, BrokenPipeError, ConnectionResetError):
            pass

    def push(self, opcode, args=(), flags=0, result=0, user_data=0, epoch=0, reserved=0):
        tail = self.get_u32(self.tenant, SQ_TAIL)
        at = SQ + (tail % SQ_SLOTS) * 64
        args = [*args, 0, 0, 0, 0][:4]
        self.tenant[at:at + 64] = MSG.pack(opcode, flags, result, user_data, epoch, *args, reserved)
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
        at = CQ + (head % CQ_SLOTS) * 64
        message = MSG.unpack(self.mmd[at:at + 64])
        self.put_u32(CQ_HEAD, head + 1)
        return {"opcode": message[0], "result": message[2], "user_data": message[3],
                "epoch": message[4], "args": message[5:9]}

    def drain(self):
        """Doorbells and fds off the socket. False: the connection has ended."""
        try:
            data, fds, _, _ = socket.recv_fds(self.socket, 4096, 253, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
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
