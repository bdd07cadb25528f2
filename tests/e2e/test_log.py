# SPDX-License-Identifier: Apache-2.0
"""The log of a running mmd: its clocks, and priorities for systemd's journal."""

import datetime
import os
import re
import subprocess

from daemon import Daemon
from programs import BIN, limit, wait_until

PRIORITIES = {"error": 3, "warn": 4, "info": 6, "debug": 7}
LINE = re.compile(r"(?:<(\d)>)?ts=(\d+\.\d{6}) time=(\S+) level=(\w+) role=([\w-]+) event=([a-z]+\.[a-z_]+)(?: .*)?")


class JournalDaemon(Daemon):
    """Its stderr is what JOURNAL_STREAM names, as under systemd."""

    def start(self):
        self.log.touch()
        info = os.stat(self.log)
        self.env["JOURNAL_STREAM"] = f"{info.st_dev}:{info.st_ino}"
        return super().start()


def lines_of(d):
    found = [LINE.fullmatch(line) for line in d.log.read_text().splitlines()]
    assert found and all(found), d.log.read_text()
    return found


def test_clocks(start):
    before = datetime.datetime.now(datetime.timezone.utc)
    d = start(pool="1M", page="64K", extra=["--log-level", "debug"])
    lines = lines_of(d)
    after = datetime.datetime.now(datetime.timezone.utc)
    assert not any(line[1] for line in lines)
    for line in lines:
        assert line[3].endswith("Z")
        at = datetime.datetime.fromisoformat(line[3].replace("Z", "+00:00"))
        assert before <= at <= after
    assert {"core", "xfer-0"} <= {line[5] for line in lines}


def test_journal(start):
    """All roles have priorities, and one that starts later as well."""
    d = start(kind=JournalDaemon, pool="1M", page="64K", extra=["--log-level", "debug"])
    os.kill(d.pids("core")[0], 9)
    wait_until(lambda: "event=core.resumed" in d.log.read_text(), 20, "the next core")
    d.stop()
    lines = lines_of(d)
    assert all(int(line[1]) == PRIORITIES[line[4]] for line in lines)
    assert {"keeper", "core", "xfer-0"} <= {line[5] for line in lines}
    assert "core.resumed" in {line[6] for line in lines}


def test_last_words(root):
    """So does the sentence with which mmd ends."""
    path = root / "log"
    with open(path, "wb") as log:
        info = os.stat(path)
        done = subprocess.run([BIN / "mmd", "--dir", root / "none" / "mmd"], stderr=log, timeout=limit(30), check=False,
                              env=dict(os.environ, JOURNAL_STREAM=f"{info.st_dev}:{info.st_ino}"))
    assert done.returncode == 1
    assert path.read_text().startswith("<3>mmd: "), path.read_text()
