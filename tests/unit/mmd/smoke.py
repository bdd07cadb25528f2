#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The life of mmd on the software GPU: up, asked, refused twice, xfer killed, stopped."""

import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BIN = pathlib.Path(sys.argv.pop(1))
PAGES, PAGE_BYTES = 64, 65536
PATIENCE_S = 180


class Smoke(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.TemporaryDirectory(prefix="mmd-smoke-")
        self.root = pathlib.Path(self.place.name)
        (self.root / "gpu").mkdir()
        self.env = dict(os.environ, MM_SOFTGPU_DIR=str(self.root / "gpu"),
                        MM_SOFTGPU_MEMORY=str(2 * PAGES * PAGE_BYTES),
                        MM_SOFTGPU_GRANULARITY=str(PAGE_BYTES))
        self.started = []
        self.mmd = self.start("one")
        self.until(lambda: self.ctl("one", "status").returncode == 0, "mmd to answer")

    def tearDown(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait()
            process.stderr.close()
        self.place.cleanup()

    def start(self, name, *flags, **options):
        process = subprocess.Popen(
            [str(BIN / "mmd"), "--dir", str(self.root / name), "--driver", "software", "--pool",
             str(PAGES * PAGE_BYTES), "--page", str(PAGE_BYTES), *flags],
            env=self.env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **options)
        self.started.append(process)
        return process

    def ctl(self, name, *words):
        return subprocess.run([str(BIN / "mmctl"), "--dir", str(self.root / name), *words],
                              env=self.env, capture_output=True, text=True, timeout=PATIENCE_S)

    def status(self):
        done = self.ctl("one", "--json", "status")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def until(self, question, what):
        deadline = time.monotonic() + PATIENCE_S
        while not question():
            self.assertIsNone(self.mmd.poll(), f"mmd ended while waiting for {what}")
            self.assertLess(time.monotonic(), deadline, f"no end of waiting for {what}")
            time.sleep(0.02)

    def ends(self, process):
        _, errors = process.communicate(timeout=PATIENCE_S)
        return process.returncode, errors

    def test_status(self):
        status = self.status()
        self.assertEqual(status["schema"], 1)
        self.assertEqual(status["pool_pages"], PAGES)
        self.assertEqual(status["page_bytes"], PAGE_BYTES)
        self.assertEqual(sum(status["pages"].values()), PAGES)
        self.assertTrue(status["pages_accounted"])
        self.assertEqual((status["tenants"], status["stores"]), ([], []))
        for words in (["pool", "show"], ["plan", "show"]):
            self.assertEqual(json.loads(self.ctl("one", "--json", *words).stdout)["schema"], 1)
        self.assertIn("free", self.ctl("one", "pool", "show").stdout)

    def test_exit_codes(self):
        self.assertEqual(self.ctl("none", "status").returncode, 3)
        self.assertEqual(self.ctl("one", "plan", "set", "x").returncode, 2)
        self.assertEqual(self.ctl("one", "plan", "set", "x", "--layers", "1").returncode, 1)
        self.assertEqual(self.ctl("one", "frobnicate").returncode, 2)

    def test_xfer_comes_back(self):
        for restarts in range(1, 4):
            self.until(lambda: self.status()["pages"]["free"] == PAGES, "all pages to be free")
            os.kill(self.status()["xfer"]["pid"], signal.SIGKILL)
            self.until(lambda: self.status()["xfer"]["restarts"] == restarts
                       and self.status()["xfer"]["up"], "another xfer")
        self.until(lambda: self.status()["pages"]["free"] == PAGES, "all pages to be free again")

    def test_second_in_the_directory(self):
        code, errors = self.ends(self.start("one"))
        self.assertEqual(code, 1)
        self.assertIn(str(self.root / "one"), errors)
        self.status()

    def test_second_on_the_device(self):
        code, errors = self.ends(self.start("two"))
        self.assertEqual(code, 1)
        self.assertRegex(errors, r"(?m)^mmd: .*managed by another mmd")
        self.status()

    def test_orderly_stop(self):
        self.mmd.send_signal(signal.SIGTERM)
        code, errors = self.ends(self.mmd)
        self.assertEqual(code, 0, errors)
        self.assertEqual(sorted(p.name for p in (self.root / "one").iterdir()), ["mmd.lock"])

    def test_stop_of_the_whole_group(self):
        """As a terminal's ^C or systemd's stop does it: every process of mmd gets the signal."""
        for number in (signal.SIGINT, signal.SIGTERM):
            for child in self.children():
                os.kill(child, number)
        self.status()
        self.mmd.send_signal(signal.SIGINT)
        code, errors = self.ends(self.mmd)
        self.assertEqual(code, 0, errors)
        self.assertNotIn("core.died", errors)

    def test_xfer_comes_up_and_dies(self):
        """Again and again, before it has done anything: six are the end, though each of them came up."""
        killed = set()

        def kill():
            done = self.ctl("one", "--json", "status")
            xfer = json.loads(done.stdout)["xfer"] if done.returncode == 0 else {"up": False}
            if xfer["up"] and xfer["pid"] not in killed:
                os.kill(xfer["pid"], signal.SIGKILL)
                killed.add(xfer["pid"])
            return self.mmd.poll() is not None

        self.until(lambda: self.status()["pages"]["free"] == PAGES, "all pages to be free")
        deadline = time.monotonic() + PATIENCE_S
        while not kill():
            self.assertLess(time.monotonic(), deadline, f"{len(killed)} deaths, and no end")
            time.sleep(0.002)
        code, errors = self.ends(self.mmd)
        self.assertEqual(code, 1, errors[-2000:])
        self.assertEqual(len(re.findall(r"(?m)^mmd: device 0: xfer failed \d+ times in a row", errors)), 1)

    def test_signals_that_mean_nothing(self):
        """A terminal that hangs up reaches every process of mmd; whoever wants a reload reaches the first."""
        for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            for pid in [self.mmd.pid, *self.children()]:
                os.kill(pid, number)
            self.status()
        for child in self.children():
            os.kill(child, signal.SIGQUIT)
        self.status()
        self.mmd.send_signal(signal.SIGQUIT)
        code, errors = self.ends(self.mmd)
        self.assertEqual(code, 0, errors)
        for name in ("HUP", "USR1", "USR2"):
            self.assertIn(f"event=signal.ignored signal={name} ", errors)
        self.assertNotIn("died", errors)

    def test_started_without_sigchld(self):
        """As under a parent that leaves reaping to the kernel: the next xfer is started all the same."""
        self.mmd.send_signal(signal.SIGTERM)
        self.ends(self.mmd)
        self.mmd = self.start("one", preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        self.until(lambda: self.ctl("one", "status").returncode == 0, "mmd to answer")
        os.kill(self.status()["xfer"]["pid"], signal.SIGKILL)
        self.until(lambda: self.status()["xfer"]["restarts"] == 1 and self.status()["xfer"]["up"], "another xfer")

    def test_xfer_cannot_be_started(self):
        """Keeper has no fd left for its socket: that counts as a failure, six are the end."""
        xfer = self.status()["xfer"]["pid"]
        resource.prlimit(self.mmd.pid, resource.RLIMIT_NOFILE, (3, 3))
        os.kill(xfer, signal.SIGKILL)
        code, errors = self.ends(self.mmd)
        self.assertEqual(code, 1, errors[-2000:])
        self.assertRegex(errors, r"(?m)^mmd: device 0: xfer failed 6 times in a row")
        self.assertLess(errors.count("event=role.start_failed"), 10)

    def test_death_of_core(self):
        core = next(p for p in self.children() if b"--role=core" in self.words(p))
        os.kill(core, signal.SIGKILL)
        code, errors = self.ends(self.mmd)
        self.assertEqual(code, 1, errors)
        self.assertIn("event=core.died", errors)
        again = self.mmd = self.start("one")
        self.until(lambda: self.ctl("one", "status").returncode == 0, "a new mmd to answer")
        self.assertIsNone(again.poll())

    def children(self):
        text = pathlib.Path(f"/proc/{self.mmd.pid}/task/{self.mmd.pid}/children").read_text()
        return [int(pid) for pid in text.split()]

    @staticmethod
    def words(pid):
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()


if __name__ == "__main__":
    unittest.main()
