# SPDX-License-Identifier: Apache-2.0
"""mmd as a service: it is reloaded, shows its settings with their origin, and says how it is to a service manager."""

import json
import os
import signal
import socket
import subprocess
import time

import pytest

from daemon import Daemon
from programs import BIN, limit, wait_until
from test_restart import await_core, core_of, kill_core


class Filed(Daemon):
    """An mmd with a file, a folder of drop-ins, and a socket in the place of a service manager's."""

    def __init__(self, root, watchdog_us=0, **kwargs):
        super().__init__(root, **kwargs)
        self.file, self.folder = self.root / "mmd.conf", self.root / "mmd.conf.d"
        self.folder.mkdir(exist_ok=True)
        self.extra += ["--config", str(self.file)]
        self.manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.manager.bind(str(self.root / "notify"))
        os.chmod(self.root / "notify", 0o666)
        self.env["NOTIFY_SOCKET"] = str(self.root / "notify")
        if watchdog_us:
            self.env["WATCHDOG_USEC"] = str(watchdog_us)

    def told(self, within_s=20):
        """The next message as a dict."""
        self.manager.settimeout(limit(within_s) if within_s else 0.001)
        return dict(line.split("=", 1) for line in self.manager.recv(4096).decode().splitlines())

    def await_told(self, key):
        """The next message that has the key; others are passed over."""
        while True:
            told = self.told()
            if key in told:
                return told

    def passed_over(self):
        """Reads all that has come so far. Return: how many messages."""
        n = 0
        try:
            while True:
                self.told(0)
                n += 1
        except TimeoutError:
            return n

    def mmctl(self, *words, status=0):
        done = subprocess.run([str(BIN / "mmctl"), "--dir", str(self.dir), *words], capture_output=True, text=True,
                              env=self.env, timeout=limit(60), check=False)
        assert done.returncode == status, done.stderr
        return done.stdout if status == 0 else done.stderr

    def setting(self, key):
        found = [v for v in json.loads(self.mmctl("config", "show", key, "--json"))["values"] if v["key"] == key]
        return found[0]["value"], found[0]["origin"]

    def quota(self, account):
        return next(a for a in self.ctl("quota", "show")["accounts"] if a["account"] == account)


FILE = """# a test
kill-max: 3
controller: { dwell-ms: 100 }
accounts:
  - { name: web, cgroup: /no/such, min: 2M, weight: 300 }
  - { name: gone, gid: 4000000 }
"""


@pytest.fixture
def filed(root):
    root.joinpath("mmd.conf").write_text(FILE)
    made = []

    def make(**kwargs):
        made.append(Filed(root, **kwargs).start())
        return made[-1]

    yield make
    for d in made:
        d.stop()
        d.manager.close()


def test_reload(filed):
    """What may change does, the rest is listed; the core that follows has the same."""
    d = filed()
    assert d.setting("kill-max") == ("3", f"{d.file}:2")
    assert d.setting("pool") == ("33554432", "command line")
    assert d.setting("hugepages") == ("auto", "default")
    assert d.mmctl("config", "reload") == "nothing has changed\n"
    d.file.write_text(FILE.replace("  - { name: gone, gid: 4000000 }\n", "").replace("kill-max: 3", "kill-max: 4"))
    (d.folder / "20.conf").write_text(
        "controller: { dwell-ms: 250, time-scale: 2 }\nhugepages: off\nlog-level: debug\n"
        "accounts:\n  - { name: web, min: 1M, weight: 7 }\n  - { name: new, uid: 4000000, max: 3M }\n")
    lines = set(d.mmctl("config", "reload").splitlines())
    assert {"applied  kill-max: 3 -> 4", "applied  controller.dwell-ms: 100 -> 250",
            "restart  controller.time-scale: 1 -> 2", "restart  hugepages: auto -> off",
            "applied  log-level: info -> debug", "applied  accounts.web.weight: 300 -> 7",
            "applied  accounts.web.min: 2097152 -> 1048576", "applied  accounts.new: - -> added",
            "restart  accounts.gone: there -> removed"} == lines

    def check():
        assert (d.quota("web")["min_bytes"], d.quota("web")["weight"]) == (1 << 20, 7)
        assert d.quota("new")["max_bytes"] == 3 << 20 and d.quota("gone")["weight"] == 100
        assert d.status()["controller"]["dwell-ms"] == 250
        assert d.setting("kill-max") == ("4", f"{d.file}:2")
        assert d.setting("controller") == ("dwell-ms=250", f"{d.folder}/20.conf:1")

    check()
    assert kill_core(d)
    await_core(d)
    check()


WRONG = [("polcy: remap\n", "20.conf:1: polcy: unknown key; did you mean policy?"),
         ("kill-max: 5\naccounts: [ { name: web, min: 900M } ]\n", "sum up"),
         ("kill-max: 5\naccounts: [ { name: web, max: 1K, min: 0 } ]\n", "less than one page"),
         ("kill-max: [\n", "20.conf:2: ")]


@pytest.mark.parametrize("text, says", WRONG)
def test_wrong_file(filed, text, says):
    """Nothing of it is applied, and mmd goes on."""
    d = filed()
    (d.folder / "20.conf").write_text(text)
    assert says in d.mmctl("config", "reload", status=1)
    assert d.setting("kill-max") == ("3", f"{d.file}:2") and d.quota("web")["min_bytes"] == 2 << 20
    wait_until(lambda: "event=config.refused" in d.log.read_text(), 20, "the log to say so")


def test_save(filed):
    """What quota set --save writes is there after a restart; by hand it lasts until then."""
    d = filed()
    d.mmctl("quota", "set", "web", "--weight", "50")
    assert d.mmctl("quota", "set", "web", "--max", "4M", "--save").endswith(f"saved in {d.folder}/90-mmctl.conf\n")
    d.mmctl("quota", "set", "gone", "--priority", "3", "--on-timeout", "quarantine", "--save")
    assert (d.folder / "90-mmctl.conf").stat().st_mode & 0o777 == 0o644
    assert os.listdir(d.folder) == ["90-mmctl.conf"]
    assert "has no name" in d.mmctl("quota", "set", "uid:5", "--max", "4M", "--save", status=1)
    d.mmctl("config", "reload")
    assert (d.quota("web")["max_bytes"], d.quota("gone")["priority"]) == (4 << 20, 3)
    d.stop()
    d.start()
    assert (d.quota("web")["max_bytes"], d.quota("web")["weight"]) == (4 << 20, 300)
    assert (d.quota("gone")["priority"], d.quota("gone")["on_timeout"]) == (3, "quarantine")


def test_core_dies_while_it_reloads(filed):
    """Whenever it dies, the next one has all of it or, until it is sent again, nothing; and it ends with all."""
    d = filed()
    for i in range(8):
        weight = 10 + i
        (d.folder / "20.conf").write_text(f"kill-window: {1000 + i}\naccounts: [ {{ name: web, weight: {weight} }} ]\n")
        d.process.send_signal(signal.SIGHUP)
        time.sleep(i * 0.001)
        kill_core(d)
        await_core(d)
        wait_until(lambda: d.quota("web")["weight"] == weight, 20, "the reload")  # pylint: disable=cell-var-from-loop
        wait_until(lambda: d.setting("kill-window")[0] == str(1000 + i), 20, "the settings")


def test_service_manager(filed):
    """READY when it serves, RELOADING and READY, a line when core dies, STOPPING."""
    d = filed()
    assert d.await_told("READY")["STATUS"] == "serving"
    before = time.monotonic_ns() // 1000
    d.process.send_signal(signal.SIGHUP)
    assert before <= int(d.await_told("RELOADING")["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000
    assert d.await_told("READY")["STATUS"] == "serving"
    (d.folder / "20.conf").write_text("polcy: remap\n")
    d.process.send_signal(signal.SIGHUP)
    d.await_told("RELOADING")
    assert "refused" in d.await_told("READY")["STATUS"]
    kill_core(d)
    assert "another one goes on" in d.await_told("STATUS")["STATUS"]
    assert d.await_told("STATUS")["STATUS"] == "serving"
    d.process.send_signal(signal.SIGTERM)
    assert d.await_told("STOPPING")["STOPPING"] == "1"


def test_watchdog(filed):
    """It is said as long as core works, and not while it does not."""
    d = filed(watchdog_us=400000, extra=["--core-timeout", "0"])
    d.await_told("READY")
    for _ in range(3):
        assert d.await_told("WATCHDOG") == {"WATCHDOG": "1"}
    core = core_of(d)
    os.kill(core, signal.SIGSTOP)
    wait_until(lambda: not (time.sleep(0.5) or d.passed_over()), 20, "silence")
    os.kill(core, signal.SIGCONT)
    assert d.await_told("WATCHDOG") == {"WATCHDOG": "1"}


def test_wrong_address(root, start):
    """What is no address of a service manager is logged, and mmd runs."""
    class Lost(Daemon):
        def start(self):
            self.env["NOTIFY_SOCKET"] = "nowhere"
            return super().start()

    d = start(kind=Lost)
    wait_until(lambda: "event=notify.failed" in d.log.read_text(), 20, "the log to say so")


def test_upgraded(filed):
    """A keeper of another build reads the same files, and tells the same service manager."""
    d = filed(watchdog_us=2000000)
    d.await_told("READY")
    (d.folder / "20.conf").write_text("kill-window: 1000\naccounts: [ { name: web, weight: 5 } ]\n")
    d.mmctl("config", "reload")
    d.mmctl("upgrade", str(BIN.parent / "tests" / "mmd-later"))
    wait_until(lambda: "event=keeper.reexec" in d.log.read_text(), 30, "keeper to become the other build")
    await_core(d)
    assert d.setting("kill-window") == ("1000", f"{d.folder}/20.conf:1") and d.quota("web")["weight"] == 5
    (d.folder / "20.conf").write_text("kill-window: 2000\naccounts: [ { name: web, weight: 6 } ]\n")
    assert set(d.mmctl("config", "reload").splitlines()) == {"applied  kill-window: 1000 -> 2000",
                                                             "applied  accounts.web.weight: 5 -> 6"}
    d.passed_over()
    d.await_told("WATCHDOG")
