# SPDX-License-Identifier: Apache-2.0
"""Engines in processes of their own that know of mmd by the package's entry points only."""
import contextlib
import json
import os
import queue
import shutil
import subprocess
import sys
import threading

from conftest import PACKAGE
from programs import BUILD, limit


def install(path):
    """The package as a user has it, with its entry points, in path/site."""
    shutil.copytree(PACKAGE, path / "source",
                    ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg*"))
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index",
                    "--no-build-isolation", "--disable-pip-version-check", "--target",
                    str(path / "site"), str(path / "source")], check=True, timeout=limit(120))
    return path / "site"


class Engine:
    """A process with an engine: `program JOB`, which answers with lines of text."""

    def __init__(self, program, job, env):
        everything = dict(os.environ) | env | {
            "MM_CLIENT_LIB": str(BUILD / "lib/libmm-client.so.0"), "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1"}
        self.process = subprocess.Popen([sys.executable, *map(str, program), json.dumps(job)],
                                        text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, env=everything)
        self.errors, self.lines = [], queue.Queue()
        self._threads = [threading.Thread(target=self._read_errors),
                         threading.Thread(target=self._read)]
        for thread in self._threads:
            thread.start()

    def _read_errors(self):
        for line in self.process.stderr:
            self.errors.append(line)

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def line(self):
        """The next line of its output; None at its end."""
        return self.lines.get(timeout=limit(900))

    def until_ready(self):
        while (line := self.line()) != "ready\n":
            assert line is not None, "".join(self.errors)

    def go(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def result(self):
        """What its last line says."""
        last = None
        while (line := self.line()) is not None:
            last = line
        assert self.process.wait(limit(60)) == 0, "".join(self.errors)
        return json.loads(last)

    def failure(self):
        """The text of its errors after it has failed."""
        while self.line() is not None:
            pass
        assert self.process.wait(limit(60)) != 0
        return "".join(self.errors)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for thread in self._threads:
            thread.join()


@contextlib.contextmanager
def while_plans_change(d, name):
    """mmctl gives one number of layers away after the other, as long as the block runs."""
    stop = threading.Event()

    def change():
        plans = 0
        while not stop.is_set():
            d.ctl("plan", "set", name, "--layers", (0, 3, 7, 10, 5, 2)[plans % 6], check=False)
            plans += 1
            stop.wait(0.05)

    changer = threading.Thread(target=change)
    changer.start()
    try:
        yield
    finally:
        stop.set()
        changer.join()


@contextlib.contextmanager
def greedy(client, seconds=1):
    """A tenant wants three quarters of the memory, and has nothing to do, by turns."""
    info = client.info
    most = info.pool_pages * 3 // 4
    arena = client.arena(info.page_bytes, 1, most, most // 2)
    stop = threading.Event()

    def take():
        while not stop.is_set():
            client.hint(used=arena.usable_count, running=4, waiting=4, queued=most)
            try:
                arena.want(most, timeout=2)
            except OSError:
                pass  # denied for now; what there is has been taken
            for _ in client.events():
                pass
            stop.wait(seconds)
            client.hint()
            arena.release(arena.usable())
            stop.wait(seconds)

    taker = threading.Thread(target=take)
    taker.start()
    try:
        yield
    finally:
        stop.set()
        taker.join()
        arena.release(arena.usable())


def refused(errors, sentence):
    """The sentence is one line of what the user sees, and the last such of its traceback."""
    lines = [line for line in errors.splitlines() if sentence in line]
    assert lines, errors[-4000:]
    return lines[-1]
