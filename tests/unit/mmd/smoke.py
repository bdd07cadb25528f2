#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""mmd on the software GPU: start, requests, two refused starts, death of xfer, stop."""

import json
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

BIN = pathlib.Path(sys.argv.pop(1))
PAGES, PAGE_BYTES = 64, 65536
TIMEOUT_S = 180
OTHER_UID = 4321

# Another /run, as in a container, so that the locks there are this test's own.
APART = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs tmpfs /run && exec "$@"', "sh"]
APART_ROOTLESS = [APART[0], "--user", "--map-root-user", *APART[1:]]


def works(words, **options):
    return subprocess.run([*words, "true"], stderr=subprocess.DEVNULL, check=False, **options).returncode == 0


class Smoke(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.TemporaryDirectory(prefix="mmd-smoke-")
        self.root = pathlib.Path(self.place.name)
        (self.root / "gpu").mkdir()
        self.env = dict(os.environ, MM_SOFTGPU_DIR=str(self.root / "gpu"),
                        MM_SOFTGPU_MEMORY=str(2 * PAGES * PAGE_BYTES),
                        MM_SOFTGPU_GRANULARITY=str(PAGE_BYTES))
        self.bin = BIN
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

    def start(self, name, *flags, under=(), **options):
        process = subprocess.Popen(
            [*under, str(self.bin / "mmd"), "--dir", str(self.root / name), "--driver", "software", "--pool",
             str(PAGES * PAGE_BYTES), "--page", str(PAGE_BYTES), *flags],
            env=self.env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **options)
        self.started.append(process)
        return process

    def ctl(self, name, *words):
        return subprocess.run([str(BIN / "mmctl"), "--dir", str(self.root / name), *words],
                              env=self.env, capture_output=True, text=True, timeout=TIMEOUT_S)

    def status(self):
        done = self.ctl("one", "--json", "status")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def until(self, question, what):
        deadline = time.monotonic() + TIMEOUT_S
        while not question():
            self.assertIsNone(self.mmd.poll(), f"mmd ended while waiting for {what}")
            self.assertLess(time.monotonic(), deadline, f"no end of waiting for {what}")
            time.sleep(0.02)

    def ends(self, process):
        _, errors = process.communicate(timeout=TIMEOUT_S)
        return process.returncode, errors

    def refused_in(self, name, says):
        code, errors = self.ends(self.start(name))
        self.assertEqual(code, 1, errors)
        self.assertRegex(errors, rf"(?m)^mmd: {re.escape(str(self.root / name))}: .*{says}")

    def test_directory_of_others(self):
        """A directory that others may write to is refused: they could replace the sockets."""
        self.stop()
        for mode in (0o777, 0o1777, 0o775, 0o757):
            path = self.root / f"mode{mode:o}"
            path.mkdir()
            path.chmod(mode)
            self.refused_in(path.name, f"mode {mode:04o}: others may write there")
        (self.root / "link").symlink_to(self.root / "one")
        self.refused_in("link", "symbolic link")
        if os.geteuid() == 0:
            (self.root / "theirs").mkdir(0o755)
            os.chown(self.root / "theirs", 4321, 4321)
            self.refused_in("theirs", "belongs to uid 4321")

    @unittest.skipIf(os.environ.get("MM_SANITIZE"), "sanitizers need all addresses that there are")
    def test_ready_means_pages(self):
        """With any limit of address space mmd either gets some pages, or ends and reports why."""
        self.stop()
        ends, ready = [], 0
        page, memory = 64 << 20, 256 << 20
        self.env.update(MM_SOFTGPU_DIR=str(self.root / "gpu2"), MM_SOFTGPU_MEMORY=str(4 * memory))
        (self.root / "gpu2").mkdir()
        # core maps memory for what outlives it, most of which never exists.
        book = 2 << 30
        for limit in (memory + (64 << 20), memory + (book >> 1), memory + book):
            self.mmd = self.start("one", "--pool", str(memory), "--page", str(page),
                                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
            lines = []
            for line in self.mmd.stderr:
                lines.append(line)
                if "event=mmd.ready" in line:
                    break
            if "event=mmd.ready" in lines[-1]:
                self.assertGreater(self.status()["pages"]["free"], 0, lines)
                self.stop()
                ready += 1
                continue
            self.assertEqual(self.mmd.wait(TIMEOUT_S), 1, lines)
            ends.append([line for line in lines if line.startswith("mmd: ") or "event=core.failed" in line])
            self.assertTrue(ends[-1], lines)
        self.assertGreater(ready, 0, ends)

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
        self.assertRegex(errors, rf"(?m)^mmd: .*managed by another mmd \(pid {self.mmd.pid}, uid {os.geteuid()}\)")
        self.status()

    def claim(self):
        """The abstract name that marks the device as taken; any process may bind it first."""
        uuid = self.status()["device"]["uuid"].replace("-", "").lower()
        return "\0mmd/device/" + uuid.removeprefix("gpu")

    def test_device_stays_ours(self):
        """A process that waits for the death of xfer cannot take the device in its place."""
        name, xfer = self.claim(), self.status()["xfer"]["pid"]
        self.until(lambda: self.status()["xfer"]["proven"], "an xfer that has done something")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as squatter:
            os.kill(xfer, signal.SIGKILL)
            deadline = time.monotonic() + 1
            while time.monotonic() < deadline:
                with self.assertRaises(OSError, msg="the name was free for a moment"):
                    squatter.bind(name)
            self.until(lambda: self.status()["xfer"]["restarts"] == 1 and self.status()["xfer"]["up"], "another xfer")
        self.test_second_on_the_device()

    def stop(self):
        self.mmd.send_signal(signal.SIGTERM)
        code, errors = self.ends(self.mmd)
        self.assertEqual(code, 0, errors)

    def test_device_claimed_by_another(self):
        """Only root reaches the file of its lock; an ordinary user gets the holder of the name."""
        name = self.claim()
        self.stop()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as squatter:
            squatter.bind(name)
            squatter.listen()
            self.mmd = self.start("one")
            if os.geteuid() == 0:
                self.until(lambda: self.ctl("one", "status").returncode == 0, "mmd to answer")
                self.test_second_on_the_device()
                self.stop()
            else:
                code, errors = self.ends(self.mmd)
                self.assertEqual(code, 1, errors)
                self.assertIn(f"(pid {os.getpid()}, uid {os.geteuid()})", errors)

    def queue_fill(self, name):
        """Any user can fill the queue: connections wait in it until they are accepted."""
        waiting = []
        self.addCleanup(lambda: [one.close() for one in waiting])
        while True:
            waiting.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            waiting[-1].setblocking(False)
            try:
                waiting[-1].connect(name)
            except BlockingIOError:
                return

    def refused_or_up(self, name):
        """Expects a second mmd to be refused; one that starts fails the test at once."""
        process = self.started[-1]
        self.until(lambda: process.poll() is not None or self.ctl(name, "status").returncode == 0, "the second mmd")
        if process.poll() is None:
            process.kill()
            self.fail("two mmds manage one device: " + self.ends(process)[1])
        code, errors = self.ends(process)
        self.assertEqual(code, 1, errors)
        self.assertRegex(errors, r"(?m)^mmd: .*managed by another mmd \(.*uid \d+")

    @unittest.skipUnless(works(APART), "needs root and a mount namespace")
    def test_second_in_a_container(self):
        """With a shared network and separate files the claim binds, even with a full queue."""
        self.start("two", under=APART)
        self.refused_or_up("two")
        self.queue_fill(self.claim())
        self.start("three", under=APART)
        self.refused_or_up("three")

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to become somebody else")
    def test_device_claimed_with_a_full_queue(self):
        """An ordinary user cannot keep root's mmd from starting by filling the queue either."""
        name = self.claim()
        self.stop()
        os.seteuid(OTHER_UID)
        try:
            squatter = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            squatter.bind(name)
            squatter.listen(1)
        finally:
            os.seteuid(0)
        with squatter:
            self.queue_fill(name)
            self.mmd = self.start("one")
            self.until(lambda: self.ctl("one", "status").returncode == 0, "mmd to answer")
            self.mmd.send_signal(signal.SIGTERM)
            code, errors = self.ends(self.mmd)
            self.assertEqual(code, 0, errors)
            self.assertRegex(errors, rf"event=device.name_taken .*holder=\"uid {OTHER_UID}; ")

    def test_fds_passed_to_the_claim(self):
        """A lingering socket that was passed to the claim must not delay mmd's end."""
        with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as lingers:
            lingers.connect(server.getsockname())
            lingers.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 10 * TIMEOUT_S))
            lingers.setblocking(False)
            try:
                while True:
                    lingers.send(bytes(1 << 16))  # which nobody reads
            except BlockingIOError:
                pass
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sender:
                sender.connect(self.claim())
                try:
                    socket.send_fds(sender, [b"x"], [lingers.fileno()])
                except PermissionError:  # Linux 6.16 refuses it, and our own close would wait
                    lingers.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
            lingers.close()
            self.stop()

    @unittest.skipUnless(works(APART), "needs root and a mount namespace")
    def test_locks_of_other_devices(self):
        """Lock files of other devices are left alone: even a brief lock marks a device busy."""
        self.stop()
        other = "/run/mmd-locks/" + "5a" * 16
        left = f'mkdir -m 700 /run/mmd-locks && touch {other} && exec "$@"'
        self.mmd = self.start("one", under=[*APART, "sh", "-c", left, "sh"])
        self.until(lambda: self.ctl("one", "status").returncode == 0, "mmd to answer")
        seen = pathlib.Path(f"/proc/{self.mmd.pid}/root{other}")
        self.assertEqual(len(list(seen.parent.iterdir())), 2, "its own lock, and the other's")
        self.assertTrue(seen.exists())

    def become_other(self):
        self.stop()
        shutil.rmtree(self.root / "one")
        self.bin = self.root / "built" / "bin"  # the tree that we were built in may be closed to others
        shutil.copytree(BIN.parent / "lib", self.root / "built" / "lib", symlinks=True)
        self.bin.mkdir()
        shutil.copy2(BIN / "mmd", self.bin)
        for path in (self.root, self.root / "gpu", *(self.root / "gpu").rglob("*")):
            os.chown(path, OTHER_UID, OTHER_UID)

    @unittest.skipUnless(os.geteuid() == 0 and works(APART_ROOTLESS, user=OTHER_UID, group=OTHER_UID, extra_groups=[]),
                         "needs root, to become somebody else, and user namespaces")
    def test_root_of_a_user_namespace(self):
        """Root in a container has its own locks, so any holder of the claim binds it."""
        other = {"user": OTHER_UID, "group": OTHER_UID, "extra_groups": []}
        name = self.claim()
        self.become_other()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as claimed:
            claimed.bind(name)
            claimed.listen()
            self.mmd = self.start("one", under=APART_ROOTLESS, **other)
            deadline = time.monotonic() + TIMEOUT_S
            while self.mmd.poll() is None and self.ctl("one", "status").returncode != 0:
                self.assertLess(time.monotonic(), deadline, "it neither starts nor ends")
            self.assertIsNotNone(self.mmd.poll(), "it took the device, which another has claimed")
            code, errors = self.ends(self.mmd)
            self.assertEqual(code, 1, errors)
            self.assertIn("managed by another mmd (pid", errors)

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to become somebody else")
    def test_device_claimed_before_an_ordinary_user(self):
        name = self.claim()
        self.become_other()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as squatter:
            squatter.bind(name)
            squatter.listen()
            code, errors = self.ends(self.start("one", user=4321, group=4321, extra_groups=[]))
            self.assertEqual(code, 1, errors)
            self.assertIn(f"(pid {os.getpid()}, uid 0)", errors)
        self.mmd = self.start("one", user=4321, group=4321, extra_groups=[])
        self.until(lambda: self.ctl("one", "status").returncode == 0, "mmd to answer")
        code, errors = self.ends(self.start("two", user=4321, group=4321, extra_groups=[]))
        self.assertEqual(code, 1, errors)
        self.assertIn(f"(pid {self.mmd.pid}, uid 4321)", errors)

    def test_orderly_stop(self):
        self.mmd.send_signal(signal.SIGTERM)
        code, errors = self.ends(self.mmd)
        self.assertEqual(code, 0, errors)
        self.assertEqual(sorted(p.name for p in (self.root / "one").iterdir()), ["mmd.lock"])

    def test_stop_of_the_whole_group(self):
        """Every process of mmd gets the signal, as with a terminal's ^C or systemd's stop."""
        for number in (signal.SIGINT, signal.SIGTERM):
            for child in self.children():
                os.kill(child, number)
        self.status()
        self.mmd.send_signal(signal.SIGINT)
        code, errors = self.ends(self.mmd)
        self.assertEqual(code, 0, errors)
        self.assertNotIn("core.died", errors)

    def test_xfer_comes_up_and_dies(self):
        """After six xfers that came up but died before they did a job mmd ends."""
        killed = set()

        def kill():
            done = self.ctl("one", "--json", "status")
            xfer = json.loads(done.stdout)["xfer"] if done.returncode == 0 else {"up": False}
            if xfer["up"] and xfer["pid"] not in killed:
                os.kill(xfer["pid"], signal.SIGKILL)
                killed.add(xfer["pid"])
            return self.mmd.poll() is not None

        self.until(lambda: self.status()["pages"]["free"] == PAGES, "all pages to be free")
        deadline = time.monotonic() + TIMEOUT_S
        while not kill():
            self.assertLess(time.monotonic(), deadline, f"{len(killed)} deaths, and no end")
            time.sleep(0.002)
        code, errors = self.ends(self.mmd)
        self.assertEqual(code, 1, errors[-2000:])
        self.assertEqual(len(re.findall(r"(?m)^mmd: device 0: xfer failed \d+ times in a row", errors)), 1)

    def ask(self, admin, **params):
        admin.sendall(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "quota.set",
                                  "params": {"account": "uid:77", **params}}).encode() + b"\n")
        reply = b""
        while not reply.endswith(b"\n"):
            reply += admin.recv(65536)
        self.assertIn("result", json.loads(reply), reply)

    def test_log_that_nobody_reads(self):
        """With a stopped reader of the log mmd goes on, and later reports dropped lines."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as admin:
            admin.settimeout(TIMEOUT_S)
            admin.connect(str(self.root / "one" / "admin.sock"))
            for i in range(6000):  # some 180 bytes of log each, many times what pipes hold
                self.ask(admin, weight=1 + i % 2)
            self.status()
            os.kill(self.mmd.pid, signal.SIGUSR1)
            os.kill(self.status()["xfer"]["pid"], signal.SIGKILL)
            self.until(lambda: self.status()["xfer"]["restarts"] == 1 and self.status()["xfer"]["up"], "another xfer")
            lines = []
            reader = threading.Thread(target=lambda: lines.extend(self.mmd.stderr))
            reader.start()

            def told():
                self.ask(admin, weight=3)
                return any(re.search(r"role=core event=log.dropped lines=\d{3}", line) for line in lines)

            self.until(told, "the number of lines that are missing")
        self.mmd.send_signal(signal.SIGTERM)
        self.assertEqual(self.mmd.wait(TIMEOUT_S), 0)
        reader.join()

    def test_stop_with_a_log_that_nobody_reads(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as admin:
            admin.settimeout(TIMEOUT_S)
            admin.connect(str(self.root / "one" / "admin.sock"))
            for i in range(3000):
                self.ask(admin, weight=1 + i % 2)
        self.mmd.send_signal(signal.SIGTERM)
        self.assertEqual(self.mmd.wait(TIMEOUT_S), 0)

    def test_relay_dies(self):
        relay = next(p for p in self.children() if b"--role=log" in self.words(p))
        os.kill(relay, signal.SIGKILL)
        self.until(lambda: any(b"--role=log" in self.words(p) for p in self.children() if p != relay), "another relay")
        self.mmd.send_signal(signal.SIGUSR1)
        self.mmd.send_signal(signal.SIGTERM)
        code, errors = self.ends(self.mmd)
        self.assertEqual(code, 0, errors)
        for event in ("log.relay_died", "signal.ignored", "mmd.stopping"):
            self.assertIn(f"event={event} ", errors)

    def test_signals_that_mean_nothing(self):
        """A hang-up of the terminal reaches all processes of mmd; a reload only the first."""
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
        self.assertIn("event=config.reloaded applied=0 need_restart=0", errors)
        for name in ("USR1", "USR2"):
            self.assertIn(f"event=signal.ignored signal={name} ", errors)
        self.assertNotIn("died", errors)

    def test_started_without_sigchld(self):
        """With SIGCHLD ignored by the parent the next xfer is started all the same."""
        self.mmd.send_signal(signal.SIGTERM)
        self.ends(self.mmd)
        self.mmd = self.start("one", preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        self.until(lambda: self.ctl("one", "status").returncode == 0, "mmd to answer")
        os.kill(self.status()["xfer"]["pid"], signal.SIGKILL)
        self.until(lambda: self.status()["xfer"]["restarts"] == 1 and self.status()["xfer"]["up"], "another xfer")

    def test_xfer_cannot_be_started(self):
        """Without an fd for a socket the start of xfer counts as failed; six end mmd."""
        xfer = self.status()["xfer"]["pid"]
        resource.prlimit(self.mmd.pid, resource.RLIMIT_NOFILE, (3, 3))
        os.kill(xfer, signal.SIGKILL)
        code, errors = self.ends(self.mmd)
        self.assertEqual(code, 1, errors[-2000:])
        self.assertRegex(errors, r"(?m)^mmd: device 0: xfer failed 6 times in a row")
        self.assertLess(errors.count("event=role.start_failed"), 10)

    def test_death_of_core(self):
        """Another core goes on; only the death of keeper ends mmd, and a new one can be started then."""
        core = next(p for p in self.children() if b"--role=core" in self.words(p))
        os.kill(core, signal.SIGKILL)
        self.until(lambda: self.ctl("one", "status").returncode == 0, "the next core to answer")
        self.assertIsNone(self.mmd.poll())
        self.assertNotIn(core, self.children())
        self.mmd.kill()
        _, errors = self.ends(self.mmd)
        self.assertIn("event=core.died", errors)
        again = self.mmd = self.start("one")
        self.until(lambda: self.ctl("one", "status").returncode == 0, "a new mmd to answer")
        self.assertIsNone(again.poll())

    def children(self):
        text = pathlib.Path(f"/proc/{self.mmd.pid}/task/{self.mmd.pid}/children").read_text()
        return [int(pid) for pid in text.split()]

    @staticmethod
    def words(pid):
        try:
            return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return b""


if __name__ == "__main__":
    unittest.main()
