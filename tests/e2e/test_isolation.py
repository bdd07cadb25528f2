# SPDX-License-Identifier: Apache-2.0
"""
Nobody ever finds bytes of another domain, or a page that was not cleared. Each tenant fills each page with a
pattern of its domain and looks at each page that it gets, after any history of grants, releases, deaths and
descriptors that are kept; and nothing that tenants share can be written by one of them.
"""

import ctypes
import fcntl
import json
import mmap
import os
import pathlib
import select
import signal
import struct
import time
import traceback

import pytest

import abi
import test_keys
import wire
from children import as_user, ended, joined
from kvclient import KvClient
from programs import SANITIZE, count, limit, wait_until
from tenant import make_requests, plain_tokens

PAGE = 16 << 10
TAG = b"MMCANARY"
DOMAINS = [(7001, "a"), (7001, "a"), (7002, "b"), (7003, "c")]  # users: two of one account
F_SEAL_FUTURE_WRITE = 0x10
MOST = 12  # chunks that one tenant holds at once

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="other users need root")
libc = ctypes.CDLL(None, use_errno=True)


def pattern(domain):
    """16 bytes, so that a page holds it a whole number of times."""
    return TAG + domain.encode() + struct.pack("<7x")


def foreign(data, domain):
    """The domain whose bytes these are, if it is another one."""
    at = data.find(TAG)
    while at >= 0:
        other = data[at + len(TAG):at + len(TAG) + 1].decode(errors="replace")
        if other != domain:
            return other
        at = data.find(TAG, at + len(pattern(domain)) * 64)
    return None


class Canary(KvClient):
    """Looks at each page before it uses it. Descriptors that it keeps after a release are aliases."""

    def __init__(self, daemon, domain):
        self.domain, self.aliases, self.faults, self.seen = domain, [], [], 0
        super().__init__(daemon, PAGE, chunks_max=MOST, name=domain.encode())

    def note(self, event):
        super().note(event)
        if event["opcode"] != abi.MM_EV_KV_GRANT:
            return
        page_id = self.page_of(event["arg"][0])
        data = self.bytes_of(page_id)
        self.seen += 1
        if data.count(0) != len(data):
            self.faults.append(f"{self.domain}: page {page_id} came with {data.strip(bytes(1))[:24]!r}")
        with mmap.mmap(self.pages[page_id], PAGE) as m:
            m[:] = pattern(self.domain) * (PAGE // len(pattern(self.domain)))

    def grow(self, n):
        """Up to n more; fewer where there are none, or it takes long."""
        goal = min(MOST, len(self.chunks) + n)
        self.want(goal)
        end, denied = time.monotonic() + 2, len(self.denials)
        while len(self.chunks) < goal and len(self.denials) == denied and time.monotonic() < end:
            select.select([self.socket], [], [], 0.01)
            if not self.look():
                return
        self.obey()

    def obey(self):
        self.look()
        if self.asked:
            self.shrink(min(self.asked, len(self.chunks)), True)
            self.asked = 0

    def shrink(self, n, closes):
        for _ in range(min(n, len(self.chunks))):
            if not closes:
                self.aliases.append(os.dup(self.pages[self.page_of(max(self.chunks))]))
            self.release()
        self.want(len(self.chunks))

    def check(self):
        """What it holds is as it left it; what it once held shows nobody else's bytes."""
        self.obey()
        for chunk in self.chunks:
            data = self.bytes_of(self.page_of(chunk))
            if data.count(pattern(self.domain)) * 16 != PAGE:
                self.faults.append(f"{self.domain}: chunk {chunk} was changed to {data[:24]!r}")
        for fd in self.aliases:
            with mmap.mmap(fd, PAGE) as m:
                other = foreign(m[:], self.domain)
            if other:
                self.faults.append(f"{self.domain}: an alias shows {other}'s bytes")
        for region in (self.tenant, self.mmd, self.gates):
            if TAG in region[:]:
                self.faults.append(f"{self.domain}: bytes of a page in a region")

    def forget(self):
        for fd in self.aliases:
            os.close(fd)
        self.aliases = []


class Worker:
    """A Canary in a process of its user."""
    ends = []  # of the pipes of all of them, on our side

    def __init__(self, daemon, uid, domain):
        self.uid, self.domain, self.granted = uid, domain, 0
        hear, self.out = os.pipe()
        self.back, say = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            for fd in [self.out, self.back, *Worker.ends]:  # else nobody's pipe would end with us
                os.close(fd)
            self.serve(daemon, hear, say)
        os.close(hear)
        os.close(say)
        Worker.ends += [self.out, self.back]

    def serve(self, daemon, hear, say):
        try:
            os.setgroups([])
            os.setgid(self.uid)
            os.setuid(self.uid)
            client, commands = Canary(daemon, self.domain), os.fdopen(hear)
            for line in commands:
                name, *args = json.loads(line)
                getattr(client, name)(*args)
                os.write(say, json.dumps([client.seen, client.faults]).encode() + b"\n")
            client.forget()
            client.close()
        except BaseException:
            os.write(say, json.dumps([0, [traceback.format_exc()[-3000:]]]).encode() + b"\n")
            os._exit(1)
        os._exit(0)

    def call(self, *command):
        os.write(self.out, json.dumps(command).encode() + b"\n")
        text = b""
        while not text.endswith(b"\n"):
            assert select.select([self.back], [], [], limit(60))[0], "a tenant hangs"
            part = os.read(self.back, 65536)
            assert part, f"a tenant of {self.domain} is gone"
            text += part
        self.granted, faults = json.loads(text)
        assert not faults, faults
        return self.granted

    def leave(self, how=None):
        """In order, or by a signal."""
        if how:
            os.kill(self.pid, how)
        self.release()
        assert joined(self.pid) == (-how if how else 0)

    def release(self):
        """It leaves in order when its pipe ends."""
        for fd in (self.out, self.back):
            Worker.ends.remove(fd)
            os.close(fd)


def kill_core(d):
    """Another one goes on from what it left, and has all that tenants hold."""
    old = d.pids("core")[0]
    os.kill(old, signal.SIGKILL)
    wait_until(lambda: [pid for pid in d.pids("core") if pid != old] and d.answers(), 60, "another core")


def step(rng, d, workers):
    """One thing that happens to one of them."""
    i = rng.randrange(len(workers))
    w, what = workers[i], rng.random()
    if what < 0.40:
        w.call("grow", rng.randint(1, MOST))
    elif what < 0.60:
        w.call("shrink", rng.randint(1, MOST), True)
    elif what < 0.75:
        w.call("shrink", rng.randint(1, 3), False)
    elif what < 0.80:
        w.call("forget")
    elif what < 0.90:
        w.call("check")
    elif what < 0.98:
        w.leave(rng.choice([None, signal.SIGKILL]))
        workers[i] = Worker(d, w.uid, w.domain)
    elif what < 0.99:
        old = wait_until(lambda: d.status()["xfer"]["up"] and d.status()["xfer"]["pid"], 60, "xfer")
        os.kill(old, signal.SIGKILL)
    else:
        kill_core(d)
    return w.granted


def private_bytes(pid):
    """All that a process has in private memory, and in files of memory that only it and its successors use."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as mem:
        for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
            where, access, _, _, inode, *name = line.split(maxsplit=5)
            if "w" not in access or (inode != "0" and "memfd" not in "".join(name)):
                continue
            begin, end = (int(n, 16) for n in where.split("-"))
            if inode == "0":
                mem.seek(begin)
                yield mem.read(end - begin)
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            if not os.readlink(fd).startswith("/memfd:") or "mm-store" in os.readlink(fd):
                continue
            with open(fd, "rb") as file:
                at = 0
                while True:
                    at = os.lseek(file.fileno(), at, os.SEEK_DATA)
                    end = os.lseek(file.fileno(), at, os.SEEK_HOLE)
                    yield os.pread(file.fileno(), end - at, at)
                    at = end
        except OSError:  # no more data, or the file is closed by now
            pass


@as_root
def test_pages(root, start, serve, model_dirs, rng):
    """Beside an engine whose weights and KV cache come and go in the same pool."""
    d = start(pool="1536K", page="16K", extra=["--swap-max", "4M"])
    root.chmod(0o711)
    path = make_requests(root / "r.jsonl", 6, prompt=(16, 48), output=(30, 60))
    want = plain_tokens(root, model_dirs[0], path)
    engine = serve("engine", model_dirs[0], path, d, extra=["--verify", "--kv-idle", "20"], sync=True).ready().go()
    workers = [Worker(d, uid, domain) for uid, domain in DOMAINS]
    granted = 0
    try:
        for _ in range(count(120, 30)):
            granted += step(rng, d, workers) > 0
        kill_core(d)
        for w in workers:
            w.call("check")
        assert granted, "nobody got a page"
        # The memory of a sanitizer is terabytes, and not there.
        for pid in [] if SANITIZE else [d.process.pid, *d.pids("core"), *d.pids("log")]:
            assert not any(TAG + domain.encode() in data for data in private_bytes(pid) for _, domain in DOMAINS)
    finally:
        for w in workers:
            w.release()
    for w in workers:
        assert joined(w.pid) == 0
    assert engine.tokens(120) == want


@as_root
def test_kept_without_a_connection(root, start):
    """What a process keeps after its end with mmd is nobody's before that process is dead."""
    d = start(pool="512K", page="16K")
    root.chmod(0o711)
    keeps, gets = Worker(d, 7001, "a"), Worker(d, 7002, "b")
    keeps.call("grow", MOST)
    os.kill(keeps.pid, signal.SIGSTOP)
    for _ in range(3):
        gets.call("grow", MOST)
        gets.call("shrink", MOST, True)
    os.kill(keeps.pid, signal.SIGCONT)
    keeps.call("check")
    keeps.leave(signal.SIGKILL)
    gets.call("grow", MOST)
    gets.call("check")
    gets.leave()


# ---- host copies

def stores_of(client):
    return [fd for fd in client.fds if "mm-store" in os.readlink(f"/proc/self/fd/{fd}")]


def writes(fd):
    """The ways in which this process could change the file; empty where it cannot."""
    def attempt(name, body):
        try:
            if body() not in (False, -1):
                found.append(name)
        except (OSError, ValueError, PermissionError):
            pass

    def mapped():
        with mmap.mmap(fd, PAGE, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE) as m:
            m[0] = 1

    def through_memory():
        """/proc/PID/mem writes where the mapping itself may not."""
        with open("/proc/self/mem", "r+b", buffering=0) as mem:
            mem.seek(address)
            return mem.write(b"!")

    def by_iovec():
        byte = ctypes.create_string_buffer(b"!")
        local = (ctypes.c_uint64 * 2)(ctypes.addressof(byte), 1)
        remote = (ctypes.c_uint64 * 2)(address, 1)
        return libc.syscall(311, os.getpid(), local, 1, remote, 1, 0)  # process_vm_writev

    def reopened():
        again = os.open(f"/proc/self/fd/{fd}", os.O_RDWR)
        try:
            return os.pwrite(again, b"!", 0)
        finally:
            os.close(again)

    found = []
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    address = libc.mmap(None, PAGE, 1, mmap.MAP_SHARED, fd, 0)
    assert address not in (None, ctypes.c_void_p(-1).value), "it cannot even be read"
    attempt("writable mapping", mapped)
    attempt("mprotect", lambda: libc.mprotect(address, PAGE, 3))
    attempt("pwrite", lambda: os.pwrite(fd, b"!", 0))
    attempt("ftruncate", lambda: os.ftruncate(fd, 0) is None)
    attempt("fallocate", lambda: libc.fallocate(fd, 3, ctypes.c_long(0), ctypes.c_long(PAGE)))
    attempt("/proc/self/mem", through_memory)
    attempt("process_vm_writev", by_iovec)
    attempt("opened again", reopened)
    attempt("fchmod", lambda: os.fchmod(fd, 0o777) is None)
    return found


def tries_to_write(d, octet):
    """A user's model is loaded, and its host copy is tried."""
    assert test_keys.commits(d, b"mine", octet)[0] == 0
    client = test_keys.KEPT[-1]
    wait_until(lambda: client.drain() and stores_of(client), 20, "the host copy")
    copies = stores_of(client)
    return [what for fd in copies for what in writes(fd)], [os.pread(fd, 1 << 20, 0).count(octet) for fd in copies]


@as_root
@pytest.mark.parametrize("pinned", ["read-only", "writable"])
def test_host_copies(root, start, monkeypatch, pinned):
    """However the driver pins them: sealed, or a file of which nobody has a writable descriptor."""
    if pinned == "writable":
        monkeypatch.setenv("MM_SOFTGPU_ATTRIBUTES", "113=0")  # READ_ONLY_HOST_REGISTER_SUPPORTED
    d = start(pool="16M", page="16K")
    assert d.status()["device"]["host_read_only"] == (pinned == "read-only")
    root.chmod(0o711)
    found, *child = as_user(test_keys.USER, tries_to_write, d, 0x5a)
    ended((found, *child))
    ways, weights = found
    assert ways == [], ways
    assert weights and all(n >= test_keys.LAYERS * 4096 for n in weights), weights


def tries_regions(d):
    """mmd's region cannot be written; the others, which the tenant writes, cannot be cut off or closed to others."""
    found = {}
    with KvClient(d, PAGE) as client:
        for name, fd in zip(("tenant", "mmd", "gates"), client.fds):
            ways = writes(fd)
            found[name] = ways if name == "mmd" else [way for way in ways if way in ("ftruncate", "fchmod")]
            for seal in (fcntl.F_SEAL_WRITE, F_SEAL_FUTURE_WRITE, fcntl.F_SEAL_GROW):
                try:
                    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seal)
                    found[name].append(f"seal {seal}")
                except OSError:
                    pass
    return found


@as_root
def test_regions(root, start):
    d = start(pool="512K", page="16K")
    root.chmod(0o711)
    found, *child = as_user(7001, tries_regions, d)
    ended((found, *child))
    assert not any(found.values()), found


# ---- what is left of a process

@as_root
@pytest.mark.skipif(bool(SANITIZE), reason="sanitizers need what is switched off")
def test_no_core_dumps(start):
    d = start()
    for pid in [d.process.pid, *d.pids()]:
        limits = pathlib.Path(f"/proc/{pid}/limits").read_text()
        assert "Max core file size        0 " in limits, limits
