# SPDX-License-Identifier: Apache-2.0
"""The audit log: who changed what, what tenants got, also where core dies, the file is rotated or takes nothing."""

import json
import os
import signal
import socket
import stat
import subprocess

import pytest

from daemon import Daemon
from kvclient import KvClient
from programs import BIN, limit, wait_until

PAGE = 65536


def lines_of(*paths):
    found = []
    for path in paths:
        text = path.read_text()
        assert text.endswith("\n") or not text
        found += [json.loads(line) for line in text.splitlines() if line.startswith('{"audit":1,')]
    return found


def core_lines(*paths):
    return [line for line in lines_of(*paths) if line["role"] == "core"]


def events_of(*paths):
    return [line["event"] for line in lines_of(*paths)]


def check_numbers(lines):
    """Each line has the number behind that of the one before: none is lost, and none there twice."""
    assert [line["n"] for line in lines] == list(range(1, len(lines) + 1)), [line["n"] for line in lines]


@pytest.fixture
def audited(root, start):
    path = root / "audit.log"
    d = start(pool="8M", page="64K", extra=["--audit", str(path)])
    return d, path


def set_quota(d, weight):
    d.ctl("quota", "set", "uid:7", "--weight", weight)


def test_who_did_what(audited):
    d, path = audited
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    set_quota(d, 200)
    code, _, _ = d.ctl("quota", "set", "nobody", "--weight", 5, check=False)
    assert code == 1
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
        s.connect(str(d.dir / "view.sock"))
        s.sendall(b'{"jsonrpc":"2.0","id":1,"method":"shutdown"}\n')
        assert b"-32001" in s.recv(4096)
    d.stop()
    lines = lines_of(path)
    check_numbers([line for line in lines if line["role"] == "core"])
    by_event = {}
    for line in lines:
        by_event.setdefault(line["event"], []).append(line["fields"])
        assert line["time"].endswith("Z") and line["level"] in ("error", "warn", "info", "debug")
    asked, answered = by_event["admin.request"], by_event["admin.answer"]
    assert [a["method"] for a in asked] == ["quota.set"] * 2 and all(a["uid"] == os.getuid() for a in asked)
    assert "'weight':200" in asked[0]["params"] and asked[0]["pid"] == answered[0]["pid"] > 0
    assert [a["result"] for a in answered] == ["done", "refused"] and "nobody" in answered[1]["reason"]
    assert by_event["admin.denied"][0]["method"] == "shutdown" and by_event["admin.denied"][0]["pid"] == os.getpid()
    assert by_event["quota.set"][0]["weight"] == 200
    assert "mmd.ready" in by_event and "mmd.stopping" in by_event
    assert '{"audit"' not in d.log.read_text() and "tenant.memory" not in d.log.read_text()


def test_tenant(audited):
    """Joined, granted, gave back, closed, gone: with account, amounts and the reason."""
    d, path = audited
    client = KvClient(d, PAGE).hold(3)
    tenant = d.tenants()[0]["tenant"]
    wait_until(lambda: "tenant.memory" in events_of(path), 20, "the record of the grants")
    client.close()
    d.wait_gone(tenant)
    wait_until(lambda: "tenant.gone" in events_of(path), 20, "the last record")
    lines = [line for line in core_lines(path) if line["fields"].get("tenant") == tenant]
    assert lines[0]["event"] == "tenant.joined" and lines[-1]["event"] == "tenant.gone"
    assert lines[0]["fields"]["account"] == f"uid:{os.getuid()}" and lines[0]["fields"]["pid"] == os.getpid()
    memory = [line["fields"] for line in lines if line["event"] == "tenant.memory"]
    assert sum(f["granted_bytes"] for f in memory) == 3 * PAGE
    assert {"reason", "held_bytes", "wanted_bytes", "account", "device"} <= set(memory[0])


def test_core_dies(audited):
    """At any moment: no line is lost, and one that is there twice is marked."""
    d, path = audited
    for i in range(5):
        set_quota(d, 100 + i)
        client = KvClient(d, PAGE, name=b"t%d" % i).hold(2)
        os.kill(d.pids("core")[0], signal.SIGKILL)
        wait_until(d.answers, 30, "the next core")
        set_quota(d, 200 + i)
        client.close()
        wait_until(lambda: not d.tenants(), 30, "the tenant to be gone")
    d.stop()
    lines = core_lines(path)
    first = [line for i, line in enumerate(lines) if i == 0 or line["n"] != lines[i - 1]["n"]]
    twice = [line for i, line in enumerate(lines) if i and line["n"] == lines[i - 1]["n"]]
    assert all(line["again"] for line in twice)
    check_numbers(first)
    weights = [line["fields"]["weight"] for line in first if line["event"] == "quota.set"]
    assert weights == [w for i in range(5) for w in (100 + i, 200 + i)]
    granted = sum(line["fields"]["granted_bytes"] for line in first
                  if line["event"] == "tenant.memory" and not line.get("again"))
    again = sum(line["fields"]["granted_bytes"] for line in first
                if line["event"] == "tenant.memory" and line.get("again"))
    assert granted <= 5 * 2 * PAGE <= granted + again


def test_upgrade(audited):
    """Another build goes on with the numbers, the file and the socket of observers."""
    d, path = audited
    set_quota(d, 101)
    d.ctl("upgrade", BIN / "mmd")
    wait_until(lambda: "upgrade.done" in events_of(path), 60, "the other build")
    set_quota(d, 102)
    assert d.ctl("--socket", d.dir / "view.sock", "events")["events"]
    d.stop()
    check_numbers(core_lines(path))
    asked = [line["fields"]["method"] for line in core_lines(path) if line["event"] == "admin.request"]
    assert asked == ["quota.set", "upgrade", "quota.set"]
    assert {"mmd.stopping", "upgrade.done"} <= {line["event"] for line in lines_of(path) if line["role"] == "keeper"}


def test_rotation(audited, root):
    """By rename and SIGHUP, as logrotate does; and by copy and truncation."""
    d, path = audited
    set_quota(d, 101)
    wait_until(lambda: events_of(path).count("quota.set") == 1, 20, "the first line")
    old = root / "audit.log.1"
    path.rename(old)
    d.process.send_signal(signal.SIGHUP)
    wait_until(path.exists, 20, "the new file")
    set_quota(d, 102)
    wait_until(lambda: events_of(path).count("quota.set") == 1, 20, "the second line")
    check_numbers(core_lines(old, path))
    assert "log.relay_died" not in d.log.read_text()
    os.truncate(path, 0)
    set_quota(d, 103)
    wait_until(lambda: events_of(path).count("quota.set") == 1, 20, "the third line")


def test_file_that_takes_nothing(root, start):
    """Lines that cannot be written to the file, because it may not grow or cannot be opened, are in the log."""
    (root / "logs").mkdir()
    path = root / "logs" / "audit.log"
    d = start(pool="1M", page="64K", extra=["--audit", str(path)])
    set_quota(d, 101)
    wait_until(lambda: events_of(path).count("quota.set") == 1, 20, "the first line")
    path.rename(root / "moved")
    (root / "logs").rmdir()
    d.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "event=audit.unwritable" in d.log.read_text(), 20, "the failure")
    set_quota(d, 102)
    wait_until(lambda: events_of(d.log).count("quota.set") == 1, 20, "the line in the log")
    d.stop()
    check_numbers(core_lines(root / "moved", d.log))


def test_nobody_reads(root, start):
    """A log that takes nothing delays nobody; the audit log goes on where it was when it is read again."""
    reader, writer = os.pipe()

    class PipeDaemon(Daemon):
        def start(self):
            self.process = subprocess.Popen(self.args(), env=self.env, stderr=writer, stdout=writer,
                                            stdin=subprocess.DEVNULL)
            wait_until(self.answers, 20, "mmd to start")
            wait_until(lambda: self.free_pages() == self.pool_pages(), 20, "the pool to stand")
            self.fds_at_start, self.first_xfer = self.settled_fds(), self.pids("xfer")
            return self

    (root / "mmd.log").touch()
    d = start(kind=PipeDaemon, pool="1M", page="64K", extra=["--audit", "stderr"])
    os.close(writer)
    n = 3000  # some hundred bytes each, twice: more than all pipes hold
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s, s.makefile("rb") as stream:
        s.connect(str(d.dir / "admin.sock"))
        s.settimeout(limit(120))
        for i in range(n):
            s.sendall(b'{"jsonrpc":"2.0","id":1,"method":"quota.set","params":{"account":"uid:7","weight":%d}}\n'
                      % (1 + i % 9))
            assert b"result" in stream.readline()
    d.process.send_signal(signal.SIGTERM)
    text = b""
    while part := os.read(reader, 1 << 16):
        text += part
    os.close(reader)
    assert d.process.wait(limit(60)) == 0
    d.process = None
    lines = [json.loads(line) for line in text.decode().splitlines() if line.startswith('{"audit":1,')]
    lines = [line for line in lines if line["role"] == "core"]
    at = 0
    for line in lines:  # what is not there is counted
        lost = line["fields"]["records"] if line["event"] == "audit.dropped" else 1
        at += lost
        assert line["n"] == at
    assert any(line["event"] == "audit.dropped" for line in lines)


@pytest.mark.parametrize("where,sentence", [
    ("relative.log", "neither off nor stderr nor an absolute path"),
    ("/dev/null", "not a file"), ("/", "Is a directory"), ("/no/such/folder/log", "No such file"),
])
def test_wrong_places(root, where, sentence):
    done = subprocess.run([BIN / "mmd", "--dir", root / "mmd", "--driver", "software", "--audit", where],
                          capture_output=True, timeout=limit(30), check=False)
    assert done.returncode in (1, 2) and "--audit" in done.stderr.decode() and sentence in done.stderr.decode()


def test_no_link(root):
    (root / "link").symlink_to(root / "elsewhere")
    done = subprocess.run([BIN / "mmd", "--dir", root / "mmd", "--driver", "software", "--audit", root / "link"],
                          capture_output=True, timeout=limit(30), check=False)
    assert done.returncode == 1 and "a link" in done.stderr.decode() and not (root / "elsewhere").exists()
