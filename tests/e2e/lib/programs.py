# SPDX-License-Identifier: Apache-2.0
"""Where the programs are, how slow they are, and waiting with a deadline."""

import os
import pathlib
import re
import threading
import time

import pytest

TOP = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ.get("MM_BUILD", TOP / "build"))
BIN = BUILD / "bin"
SANITIZE = os.environ.get("MM_SANITIZE", "")
LONG = bool(os.environ.get("MM_TEST_LONG"))
DATA = os.environ.get("MM_TEST_DATA")

# All waits are given in seconds of the release build on an idle machine, with room to spare. They
# only say when to give up: no test may depend on how fast something is.
SLOWNESS = {"": 5, "address": 20, "thread": 20}[SANITIZE]
PATIENCE_S = 180

# What a program's stderr must never contain.
REPORTS = re.compile(r"AddressSanitizer|LeakSanitizer|ThreadSanitizer|runtime error:|^panic: ", re.M)


one_thread = pytest.mark.skipif(SANITIZE == "thread", reason="what runs has one thread")


def count(release, sanitized):
    """How often a randomised test repeats its thing."""
    n = sanitized if SANITIZE else release
    return n * 10 if LONG else n


# For mmd where memory is short for long: what waits for others to give something back waits so many times as long.
PATIENT = ["--controller", "time-scale=10"]


def some(every, few):
    """The parameters of a test: under a sanitizer those few that go all ways, where the others only go them again."""
    return few if SANITIZE and not LONG else every


class DeadlineError(AssertionError):
    pass


def limit(seconds):
    """How long to wait for what takes so many seconds at most when all is well."""
    return max(PATIENCE_S, seconds * SLOWNESS)


def wait_until(condition, seconds, what, every=0.01):
    """Returns condition()'s first true value; nothing in these tests waits for ever."""
    deadline = time.monotonic() + limit(seconds)
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise DeadlineError(f"waited {limit(seconds)} s in vain: {what}")
        time.sleep(every)


def read_until(process, begins, seconds):
    """
    The lines of a program's output, up to the first that begins so. mmd's books and its log are ahead of the
    programs that they are about, and behind others: what a program has is asserted once it has printed so itself.
    """
    killer = threading.Timer(limit(seconds), process.kill)
    killer.start()
    lines = []
    try:
        while not lines or lines[-1] and not lines[-1].startswith(begins):
            lines.append(process.stdout.readline())
    finally:
        killer.cancel()
    if not lines[-1]:
        rest = process.communicate()
        raise DeadlineError(f"no line '{begins.strip()}' in {limit(seconds)} s: {lines}: {process.returncode}: {rest}")
    return lines


def check_report(path):
    text = pathlib.Path(path).read_text(errors="replace") if os.path.exists(path) else ""
    found = REPORTS.search(text)
    assert not found, f"{path}:\n{text[max(0, found.start() - 200):found.start() + 6000]}"


def last_line(path):
    lines = [line for line in pathlib.Path(path).read_text(errors="replace").splitlines() if line]
    return lines[-1] if lines else ""
