# SPDX-License-Identifier: Apache-2.0
"""The socket of those who may look and change nothing."""

import contextlib
import json
import os
import re
import signal
import socket
import stat
import subprocess

import pytest

from daemon import Daemon
from programs import BIN, TOP, limit, wait_until

GROUP, OTHER, USER = 4242, 4343, 12345
DENIED, INVALID_REQUEST = -32001, -32600
TABLE = (TOP / "mmd/shell/methods.c").read_text()
CHANGES, VIEWS = (re.findall(r'\{ "([a-z.]+)", MM_RPC_' + kind, TABLE) for kind in ("CHANGES", "VIEWS"))
CLIENTS_OF_USER, CLIENTS = 8, 32

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def d(root, start):
    root.chmod(0o711)
    group = GROUP if os.geteuid() == 0 else os.getegid()
    return start(policy="remap", pool="8M", page="64K", extra=["--view-group", str(group)])


def connected(d, name="view.sock"):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    s.connect(str(d.dir / name))  # waits where too many wait already
    s.settimeout(limit(60))
    return s


def line(method, params=None, request_id=1):
    request = {"jsonrpc": "2.0", "id": request_id, "method": method}
    return json.dumps(request if params is None else dict(request, params=params)).encode() + b"\n"


def reply_of(stream):
    text = stream.readline()
    return json.loads(text) if text else None


def asked(d, data):
    with connected(d) as s, s.makefile("rb") as stream:
        with contextlib.suppress(BrokenPipeError):  # refused before it has asked
            s.sendall(data)
        return reply_of(stream)


def mmctl(d, *args, groups=(), user=USER):
    done = subprocess.run([BIN / "mmctl", "--dir", d.dir, *args], capture_output=True, timeout=limit(30),
                          user=user, group=user, extra_groups=list(groups), check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_rights(d):
    view, admin = (os.stat(d.dir / name) for name in ("view.sock", "admin.sock"))
    assert stat.S_IMODE(view.st_mode) == 0o660 and stat.S_IMODE(admin.st_mode) == 0o600
    assert view.st_gid == (GROUP if os.geteuid() == 0 else os.getegid())
    for method in VIEWS:
        assert "result" in asked(d, line(method)), method


def test_changes_nothing(d):
    """Each method that does not only look is refused, however it is asked for, and has no effect."""
    before = d.rpc("quota.show")
    for method in CHANGES:
        error = asked(d, line(method, {"name": "uid:7", "account": "uid:7", "max": 65536, "layers": 1}))["error"]
        assert error["code"] == DENIED and method in error["message"] and "admin.sock" in error["message"], error
    calls = [{"jsonrpc": "2.0", "id": i, "method": method} for i, method in enumerate(CHANGES[:4])]
    assert [r["error"]["code"] for r in asked(d, json.dumps(calls).encode() + b"\n")] == [DENIED] * 4
    # Notifications, which have no answer: the next request's answer comes first.
    silent = b"".join(json.dumps({"jsonrpc": "2.0", "method": m}).encode() + b"\n" for m in CHANGES)
    assert asked(d, silent + line("status", None, 9))["id"] == 9
    assert d.rpc("quota.show") == before
    assert d.process.poll() is None


def test_hostile_lines(d):
    many = [{"jsonrpc": "2.0", "id": 1, "method": "status"}] * 5
    assert asked(d, json.dumps(many).encode() + b"\n")["error"]["code"] == INVALID_REQUEST
    for data in (b"\xff\xfe\n", b"[" * 60000 + b"\n", b"\0" * 100 + b"\n", b'{"jsonrpc":"2.0","id":{},"method":1}\n'):
        assert asked(d, data)["error"]["code"] <= INVALID_REQUEST, data[:20]
    with connected(d) as s:  # a line that does not end
        with pytest.raises(OSError):
            s.sendall(b"x" * (8 << 20))
            s.sendall(b"x" * (8 << 20))
    for _ in range(50):  # in the middle of a line, and with an answer unread
        # Where those before have not been seen to end, there may be no place for one more.
        with connected(d) as s, contextlib.suppress(OSError):
            s.sendall(line("status") + b'{"jsonrpc"')
    assert d.status()


def test_places(d):
    """One user takes no place of others, and observers none of administrators."""
    held = [connected(d) for _ in range(CLIENTS_OF_USER)]
    for s in held:
        s.sendall(line("pool.show"))
        assert reply_of(s.makefile("rb"))["id"] == 1
    refusal = asked(d, b"")
    assert refusal["id"] is None and refusal["error"]["code"] == DENIED
    assert "this user has as many connections" in refusal["error"]["message"]
    code, _, errors = d.ctl("--socket", d.dir / "view.sock", "status", check=False)
    assert code == 1 and "this user has as many connections" in errors
    assert d.status() and d.ctl("status")
    held.pop().close()
    wait_until(lambda: "result" in (asked(d, line("status")) or {}), 20, "the place to be free")
    for s in held:
        s.close()


def test_backlog(d):
    """Many requests in one go: the administrator need not wait for their end, and none is lost."""
    n = 1000
    with connected(d) as s, s.makefile("rb") as stream:
        s.sendall(b"".join(line("upgrade.show", None, i) for i in range(n)))
        assert d.status()
        assert [reply_of(stream)["id"] for _ in range(n)] == list(range(n))


def test_unread_answers(d):
    """An observer that reads nothing is not read from, and nobody waits for it."""
    with connected(d) as s:
        s.settimeout(0.2)
        with pytest.raises(TimeoutError):
            while True:
                s.sendall(line("status") * 1000)
        assert d.status()
    assert asked(d, line("status"))["id"] == 1


def test_after_core(d):
    """The socket outlives core; a connection does not, as that of an administrator."""
    with connected(d) as s, s.makefile("rb") as stream:
        s.sendall(line("status"))
        assert reply_of(stream)["result"]["version"]
        os.kill(d.pids("core")[0], signal.SIGKILL)
        assert stream.readline() == b""
    assert asked(d, line("status"))["result"]["version"]
    inode = os.stat(d.dir / "view.sock").st_ino
    wait_until(d.answers, 20, "the next core")
    assert os.stat(d.dir / "view.sock").st_ino == inode


@as_root
def test_mmctl_chooses(d):
    """Who may administer is asked nothing; others look; and who may not is said what would help."""
    code, text, _ = mmctl(d, "status", groups=[GROUP])
    assert code == 0 and "pool:" in text
    code, text, errors = mmctl(d, "quota", "set", "uid:7", "--max", "1M", groups=[GROUP])
    assert (code, text) == (1, "") and "view.sock is for looking" in errors and "root" in errors
    code, _, errors = mmctl(d, "status", groups=[OTHER])
    assert code == 3 and "view.sock" in errors and f"group {GROUP}" in errors and "usermod" in errors
    assert mmctl(d, "wait", groups=[GROUP])[0] == 0
    assert mmctl(d, "doctor", groups=[GROUP])[0] == 0


@as_root
def test_core_without_rights(d):
    """What an observer is shown has no keys: those are secret even among tenants."""
    assert all(not store["keys"] for store in asked(d, line("status"))["result"]["stores"])


class UserDaemon(Daemon):
    """Started by an ordinary user, in one more group; it is root who asks it."""

    def start(self):
        self.dir.mkdir()
        for path in (self.dir, self.gpu_dir.resolve()):
            os.chown(path, USER, USER)
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.args(), env=self.env, stderr=log, stdout=log, user=USER, group=USER,
                                            extra_groups=[GROUP], stdin=subprocess.DEVNULL)
        wait_until(self.answers, 20, "mmd to start")
        wait_until(lambda: self.free_pages() == self.pool_pages(), 20, "the pool to stand")
        self.fds_at_start, self.first_xfer = self.settled_fds(), self.pids("xfer")
        return self


@as_root
def test_ordinary_user(root, start):
    root.chmod(0o711)
    d = start(kind=UserDaemon, extra=["--view-group", str(GROUP)])
    assert os.stat(d.dir / "view.sock").st_gid == GROUP
    assert mmctl(d, "status", groups=[GROUP], user=USER + 1)[0] == 0
    assert mmctl(d, "shutdown", groups=[GROUP], user=USER + 1)[0] != 0
    assert mmctl(d, "status", user=USER + 1)[0] == 3


@as_root
@pytest.mark.parametrize("group,user,sentence", [
    ("no-such-group", 0, "there is no group 'no-such-group'"),
    ("99999999999", 0, "there is no group '99999999999'"),
    (str(OTHER), USER, "an ordinary user can do so only with groups that it is in"),
])
def test_group_that_cannot_be(root, group, user, sentence):
    (root / "mmd").mkdir()
    os.chown(root / "mmd", user, user)
    root.chmod(0o711)
    done = subprocess.run([BIN / "mmd", "--dir", root / "mmd", "--driver", "software", "--view-group", group],
                          capture_output=True, timeout=limit(30), user=user, group=user, extra_groups=[], check=False)
    assert done.returncode == 1 and sentence in done.stderr.decode(), done.stderr


def test_no_group(start):
    """Without the usual group the socket is the owner's; with `none` there is no such socket."""
    d = start(extra=["--view-group", "none"])
    assert not (d.dir / "view.sock").exists()
    d.stop()
    d = start(name="other")
    assert stat.S_IMODE(os.stat(d.dir / "view.sock").st_mode) in (0o600, 0o660)
    assert asked(d, line("status"))["id"] == 1
