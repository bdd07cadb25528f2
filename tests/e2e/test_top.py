# SPDX-License-Identifier: Apache-2.0
"""mmctl top and list: what they show on small and wide terminals, and that the terminal comes back whatever happens."""

import fcntl
import json
import os
import pty
import signal
import socket
import struct
import subprocess
import termios
import threading
import time

import pytest

from kvclient import KvClient
from programs import BIN, limit, wait_until
from tenant import make_requests

pyte = pytest.importorskip("pyte", reason="python3-pyte is not installed")

PAGE = 16 << 10


class Terminal:
    """mmctl top in a terminal of its own."""

    def __init__(self, d, columns, lines, *args):
        self.screen = pyte.Screen(columns, lines)
        self.stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self.master, slave = pty.openpty()
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        self.resize(columns, lines)
        self.process = subprocess.Popen([str(BIN / "mmctl"), "--dir", str(d.dir), "top", "--interval", "0.2", *args],
                                        stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                                        env={**d.env, "TERM": "screen"},
                                        preexec_fn=lambda: fcntl.ioctl(slave, termios.TIOCSCTTY, 0))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(limit(20))
        os.close(self.master)
        os.close(self.slave)

    def resize(self, columns, lines):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.screen.resize(lines, columns)

    def type(self, text):
        os.write(self.master, text.encode())

    def look(self):
        os.set_blocking(self.master, False)
        while True:
            try:
                data = os.read(self.master, 65536)
            except (BlockingIOError, OSError):
                break
            if not data:
                break
            self.raw += data
            self.stream.feed(data)
        return self.screen.display

    def text(self):
        return "\n".join(line.rstrip() for line in self.look())

    def shows(self, *words):
        wait_until(lambda: all(word in self.text() for word in words), 30, f"{words} on the screen:\n{self.text()}")
        return self.text()

    def is_restored(self):
        """The alternate screen was left, the cursor is shown, and the modes of the line are those of before."""
        self.look()
        left, shown = self.raw.rfind(b"\x1b[?1049l"), max(self.raw.rfind(b"\x1b[?25h"), self.raw.rfind(b"\x1b[?12l\x1b[?25h"))
        return left > self.raw.rfind(b"\x1b[?1049h") and shown > 0 and termios.tcgetattr(self.slave) == self.before

    def ends(self, status=0):
        assert self.process.wait(limit(20)) == status
        assert self.is_restored(), self.raw[-300:]


@pytest.fixture
def d(start):
    return start(policy="remap", pool="8M", page="16K")


def holder(d, name, chunks):
    client = KvClient(d, PAGE, name=name)
    client.want(chunks)
    wait_until(lambda: client.look() and len(client.chunks) == chunks, 20, "its memory")
    return client


@pytest.mark.parametrize("columns,lines", [(80, 24), (200, 50)])
def test_screen(root, d, serve, model_dirs, columns, lines):
    """Pools as bars, whether mmd helps, and a row for each tenant, while one computes."""
    requests = make_requests(root / "requests.jsonl", 12, output=(60, 90))
    engine = serve("busy", model_dirs[0], requests, d, sync=True).ready()
    with holder(d, b"holder", 20), Terminal(d, columns, lines) as top:
        engine.go()
        text = top.shows("busy", "holder", "in transit", "help: ", "q quit")
        print(text)
        rows = top.look()
        assert len(rows) == lines and all(len(row) == columns for row in rows)
        assert "#" in rows[1] and "k" in rows[1] and rows[1].strip().endswith("]")
        assert ("ACCOUNT" in text) == (columns >= 120)
        assert "help: no layer is away for KV now" in text
        top.type("n")
        top.shows("by name")
        shown = top.text()
        assert shown.index("busy") < shown.index("holder")
        top.type("/hold\n")
        top.shows("1 of 2 tenants", "/hold")
        assert "busy" not in top.text()
        top.type("q")
        top.ends()
    engine.tokens(120)


def test_resize(d):
    with holder(d, b"holder", 4), Terminal(d, 80, 24) as top:
        top.shows("holder")
        for columns, lines in ((132, 40), (20, 3), (1, 1), (80, 24)):
            top.resize(columns, lines)
            os.kill(top.process.pid, signal.SIGWINCH)
            time.sleep(0.3)
            top.look()
            assert top.process.poll() is None
        top.shows("holder", "q quit")
        top.type("q")
        top.ends()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals(d, number):
    with Terminal(d, 80, 24) as top:
        top.shows("q quit")
        os.kill(top.process.pid, number)
        top.ends()


def test_mmd_goes_away(d):
    """The last frame stays, and says so."""
    with holder(d, b"holder", 4), Terminal(d, 80, 24) as top:
        top.shows("holder")
        d.stop()
        top.shows("mmd cannot be reached", "holder")
        top.type("q")
        top.ends()


HOSTILE = "\x1b[2J\x1b]0;x\x07\u00fc\\\u202e"


class Liar(threading.Thread):
    """Answers as an mmd whose tenants have names that mmd would refuse."""

    def __init__(self, folder):
        super().__init__(daemon=True)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(folder / "admin.sock"))
        self.listener.listen()
        self.start()

    def run(self):
        tenant = {"tenant": 1, "name": HOSTILE, "account": HOSTILE, "device": 0, "connection": "open",
                  "pages_kv": 4, "kv_chunks": 4, "alpha": 1, "layers": 2**40, "running": 2**62, "pid": 2**62}
        device = {"device": {"ordinal": 0}, "page_bytes": PAGE, "pool_pages": 8, "pages": {"kv": 2**60, "free": 4}}
        result = {"version": HOSTILE, "policy": HOSTILE, "devices": [device, {}], "tenants": [tenant, {}, 7]}
        while True:
            client, _ = self.listener.accept()
            with client:
                question = json.loads(client.makefile().readline())
                client.sendall(json.dumps({"jsonrpc": "2.0", "id": question["id"], "result": result}).encode() + b"\n")


def test_hostile_names(root):
    """No name moves the cursor or sets a colour, and no line is longer than the terminal."""
    Liar(root)
    for words in (("top", "--once", "--interval", "0.1"), ("list",)):
        done = subprocess.run([str(BIN / "mmctl"), "--dir", str(root), *words], capture_output=True, check=False,
                              timeout=limit(60))
        assert done.returncode == 0, done.stderr
        assert b"\x1b" not in done.stdout and b"\x07" not in done.stdout and b"\\x1b[2J" in done.stdout
        assert done.stdout.isascii() and max(map(len, done.stdout.splitlines())) <= 80, done.stdout.decode()


def test_without_a_terminal(d):
    top = subprocess.run([str(BIN / "mmctl"), "--dir", str(d.dir), "top"], env=d.env, capture_output=True, text=True,
                         stdin=subprocess.DEVNULL, check=False, timeout=limit(60))
    assert top.returncode == 2 and "--once" in top.stderr
    assert d.ctl("list")["tenants"] == []
