# SPDX-License-Identifier: Apache-2.0
"""What each role of a running mmd may still do, as root's and as an ordinary user's, and who can look into it."""

import ctypes
import errno
import os
import pathlib
import signal
import subprocess

import pytest

from children import as_user, ended
from daemon import XFER_UID, Daemon, role_of
from kvclient import KvClient
from programs import BIN, SANITIZE, wait_until
from tenant import make_requests, plain_tokens

UIDS = {"core": 65520, "xfer": XFER_UID, "spool": 65522, "log": 65523, "load": 65534}
USER = 12345
CAP_SETUID, CAP_KILL = 7, 5
KEEPER_CAPS = 1 << CAP_KILL | 1 << 6 | 1 << CAP_SETUID | 1 << 24  # SETGID, SYS_RESOURCE
PR_CAPBSET_DROP = 24
PTRACE_SEIZE = 0x4206
NR_PROCESS_VM_READV, NR_PIDFD_GETFD = 310, 438

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
libc = ctypes.CDLL(None, use_errno=True)


class UserDaemon(Daemon):
    """Started by an ordinary user; it is root who asks it."""

    def start(self):
        self.dir.mkdir()
        for path in (self.dir, self.gpu_dir.resolve()):
            os.chown(path, USER, USER)
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.args(), env=self.env, stderr=log, stdout=log,
                                            stdin=subprocess.DEVNULL, user=USER, group=USER, extra_groups=[])
        wait_until(self.answers, 20, "mmd to start")
        wait_until(lambda: self.free_pages() == self.pool_pages(), 20, "the pool to stand")
        self.fds_at_start, self.first_xfer = self.settled_fds(), self.pids("xfer")
        return self


class WeakDaemon(Daemon):
    """Root, but without the right to become another user: as in a container that was started so."""

    def start(self):
        os.chown(self.gpu_dir.resolve(), 0, 0)
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self.args(), env=self.env, stderr=log, stdout=log, stdin=subprocess.DEVNULL,
                preexec_fn=lambda: libc.prctl(PR_CAPBSET_DROP, CAP_SETUID, 0, 0, 0))
        wait_until(self.answers, 20, "mmd to start")
        wait_until(lambda: self.free_pages() == self.pool_pages(), 20, "the pool to stand")
        self.fds_at_start, self.first_xfer = self.settled_fds(), self.pids("xfer")
        return self


def lines_of(pid):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)


def check_role(pid, uid, sandbox="on"):
    is_now, role = lines_of(pid), role_of(pid)
    assert is_now["Uid"].split() == [str(uid)] * 4, (role, is_now["Uid"])
    assert int(is_now["CapPrm"], 16) == int(is_now["CapEff"], 16) == int(is_now["CapInh"], 16) == 0, role
    assert is_now["NoNewPrivs"] == "1", role
    if not SANITIZE:
        assert is_now["Seccomp"] == ("0" if sandbox == "off" else "2"), role
        # Files of a process that is not dumpable are root's.
        assert os.stat(f"/proc/{pid}/environ").st_uid == (uid if sandbox == "off" else 0), role
    return is_now


def serve_one(root, serve, model, d):
    requests = make_requests(root / "requests.jsonl", 4)
    want = plain_tokens(root, model, requests)
    assert serve("t", model, requests, d, extra=["--verify"]).tokens() == want


@as_root
def test_root(root, start, serve, model_dirs):
    """Each role is a user of its own, without capabilities; and all works."""
    d = start()
    for role in ("log", "core", "xfer"):
        pids = d.pids(role)
        assert len(pids) == 1, role
        assert int(check_role(pids[0], UIDS[role])["CapBnd"], 16) == 0
    assert not int(lines_of(d.process.pid)["CapPrm"], 16) & ~KEEPER_CAPS
    serve_one(root, serve, model_dirs[0], d)
    rights = d.status()["rights"]
    assert rights == {"sandbox": "on", "core_uid": UIDS["core"], "core_stays_root": False}
    # A later xfer, too.
    old = d.pids("xfer")[0]
    os.kill(old, signal.SIGKILL)
    wait_until(lambda: d.status()["xfer"]["up"] and d.status()["xfer"]["pid"] != old, 60, "another xfer")
    check_role(d.pids("xfer")[0], UIDS["xfer"])
    old = d.pids("core")[0]
    os.kill(old, signal.SIGKILL)
    wait_until(lambda: [pid for pid in d.pids("core") if pid != old] and d.answers(), 60, "another core")
    check_role(d.pids("core")[0], UIDS["core"])


@as_root
def test_spool(root, start, serve, model_dirs):
    """The process that holds a store on disk; the directory is root's."""
    store_dir = pathlib.Path("/var/tmp") / root.name
    store_dir.mkdir(mode=0o700)
    kind = subprocess.run(["stat", "-f", "-c", "%T", store_dir], capture_output=True, check=False).stdout.strip()
    if kind in (b"tmpfs", b"ramfs"):
        store_dir.rmdir()
        pytest.skip("/var/tmp is not on a disk")
    try:
        d = start(extra=["--host-store-max", "320K", "--stage", "256K", "--chunk", "64K",
                         "--store-dir", str(store_dir)])
        requests = make_requests(root / "requests.jsonl", 4)
        want = plain_tokens(root, model_dirs[0], requests)
        t = serve("t", model_dirs[0], requests, d, extra=["--verify"], sync=True).ready()
        assert d.status()["stores"][0]["tier"] == "disk"
        check_role(d.pids("spool")[0], UIDS["spool"])
        assert t.go().tokens() == want
        assert not list(store_dir.iterdir())
    finally:
        store_dir.rmdir()


@as_root
def test_ordinary_user(root, start, serve, model_dirs):
    """No role has more than that user has, and it is as closed."""
    root.chmod(0o711)
    d = start(kind=UserDaemon)
    for role in ("log", "core", "xfer"):
        check_role(d.pids(role)[0], USER)
    assert d.status()["rights"]["core_uid"] == USER
    serve_one(root, serve, model_dirs[0], d)


@as_root
def test_cannot_become_another_user(root, start, serve, model_dirs):
    d = start(kind=WeakDaemon)
    for role in ("log", "core", "xfer"):
        check_role(d.pids(role)[0], 0)
    assert d.status()["rights"]["core_stays_root"]
    d.says("event=rights.root")
    serve_one(root, serve, model_dirs[0], d)


@pytest.mark.parametrize("sandbox", ["log", "off"])
def test_debugging(root, start, serve, model_dirs, sandbox):
    d = start(extra=["--sandbox", sandbox])
    for role in ("core", "xfer"):
        check_role(d.pids(role)[0], UIDS[role] if os.geteuid() == 0 else os.geteuid(), sandbox)
    assert d.status()["rights"]["sandbox"] == sandbox
    shown = subprocess.run([BIN / "mmctl", "--dir", d.dir, "status"], capture_output=True, check=True).stdout.decode()
    assert f"sandbox: {sandbox}" in shown, shown
    serve_one(root, serve, model_dirs[0], d)


def attempts(pid, address):
    """What a process of the same user gets at another one's memory and files: errnos, 0 where it gets it."""
    def opened(name):
        try:
            os.close(os.open(f"/proc/{pid}/{name}", os.O_RDONLY))
        except OSError as e:
            return e.errno
        return 0

    def called(number, *args):
        args = [ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args]
        return 0 if libc.syscall(ctypes.c_long(number), *args) >= 0 else ctypes.get_errno()

    byte = ctypes.create_string_buffer(8)
    local = (ctypes.c_uint64 * 2)(ctypes.addressof(byte), 8)
    remote = (ctypes.c_uint64 * 2)(address, 8)
    libc.ptrace.argtypes = [ctypes.c_long] * 4
    pidfd = os.pidfd_open(pid)
    found = {name: opened(name) for name in ("mem", "fd/3", "environ", "maps", "map_files")}
    found["process_vm_readv"] = called(NR_PROCESS_VM_READV, pid, local, 1, remote, 1, 0)
    found["pidfd_getfd"] = called(NR_PIDFD_GETFD, pidfd, 3, 0)
    found["ptrace"] = 0 if libc.ptrace(PTRACE_SEIZE, pid, 0, 0) == 0 else ctypes.get_errno()
    os.close(pidfd)
    return found


def stack_of(pid):
    """An address that the process has mapped."""
    for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
        if line.endswith("[stack]"):
            return int(line.split("-")[1].split()[0], 16) - 64
    raise AssertionError("no stack")


@as_root
@pytest.mark.skipif(bool(SANITIZE), reason="debuggers may attach: the leak check is one")
@pytest.mark.parametrize("kind", [Daemon, UserDaemon])
def test_nobody_looks_in(root, start, kind):
    """A tenant that is the very user a role runs as, which no other user of the system should be, gets nothing."""
    root.chmod(0o711)
    d = start(kind=kind)
    for role in ("log", "core", "xfer"):
        pid = d.pids(role)[0]
        uid = int(lines_of(pid)["Uid"].split()[0])
        found, *child = as_user(uid, attempts, pid, stack_of(pid))
        ended((found, *child))
        for what, error in found.items():
            assert error in (errno.EPERM, errno.EACCES), (role, what, error)


@as_root
def test_keeper_kills(start):
    """core may not, and need not: a process of another user that keeps pages without a connection is killed."""
    d = start()

    def hold():
        client = KvClient(d, 65536).hold(4)
        client.socket.shutdown(2)
        return os.getpid()

    pid, child, let_go = as_user(0, hold)
    assert pid == child
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    os.close(let_go)
    d.says("event=tenant.killed")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sees their maps")
def test_no_writable_code(start):
    d = start()
    for pid in d.pids("core") + d.pids("log"):
        maps = pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines()
        assert not [line for line in maps if "wx" in line.split()[1]], role_of(pid)
