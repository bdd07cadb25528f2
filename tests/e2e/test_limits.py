# SPDX-License-Identifier: Apache-2.0
"""
Limits of the kernel that are met for real: a role's descriptors and address space (RLIMIT_NOFILE, RLIMIT_AS), the
memory of mmd's cgroup; and what a role that crashes leaves in a core dump: nothing.

Whatever runs out: a tenant is served, with the right tokens, or ends with one sentence, mmd goes on or ends with one,
and with all that it needs again everybody is served, every page is free and no descriptor is left.
"""

import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

import daemon as daemon_module
from faults import Work
from programs import LONG, PATIENT, SANITIZE, last_line, limit, wait_until

SHORT_S = 10 if LONG else 2  # how long memory is short
MEMORY_V1 = pathlib.Path("/sys/fs/cgroup/memory")
MEMORY_V2 = pathlib.Path("/sys/fs/cgroup")
pytestmark = pytest.mark.skipif(bool(SANITIZE), reason="a sanitizer needs memory and descriptors of its own")


@pytest.fixture
def seed():
    """One sample for all runs of a build: a failure is the build's, and not the draw's."""
    return int(os.environ.get("MM_TEST_SEED", 1))


def last_said(log):
    """The last sentence of mmd for its operator."""
    return [line for line in log.read_text(errors="replace").splitlines() if line.startswith("mmd: ")][-1:]


def pid_of(d, role):
    return d.process.pid if role == "keeper" else d.pids(role)[0]


# ---- limits of each process


class Limited(daemon_module.Daemon):
    """An mmd whose processes may have so many descriptors, or so much address space. Nobody may raise that."""

    what, most = None, 0

    def start(self):
        before = resource.getrlimit(self.what)
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.args(), env=self.env, stderr=log, stdin=subprocess.DEVNULL, stdout=log,
                                            preexec_fn=self.limit_self)
        assert resource.getrlimit(self.what) == before
        wait_until(self.decided, 60, "mmd to be up, or to end")
        return self.process.poll() is None

    def limit_self(self):
        resource.setrlimit(self.what, (self.most, self.most))

    def decided(self):
        if self.process.poll() is not None:
            return True
        try:
            return self.free_pages() == self.pool_pages()
        except (OSError, ValueError, AssertionError, daemon_module.RpcError):
            return False


# mmd says how many descriptors it needs for so many pages: 2240 here. The loader needs some MiB before main().
LIMITS = {"NOFILE": (8, 48, 2239, 2240),
          "AS": [n << 20 for n in (16, 64, 256, 1024, 2048, 2100, 2200, 2400, 2700, 3000, 3500, 4096)]}


@pytest.mark.parametrize("what", ["NOFILE", "AS"])
def test_limited(root, model_dirs, rng, what):
    work = Work(root, model_dirs)
    for most in LIMITS[what] if LONG else rng.sample(LIMITS[what], 3):
        d = Limited(root, policy="remap", pool="3M", page="16K", extra=PATIENT)
        d.what, d.most = getattr(resource, f"RLIMIT_{what}"), most
        begun = time.monotonic()
        try:
            if d.start():
                d.fds_at_start, d.first_xfer = d.settled_fds(), d.pids("xfer")
                served = work.run(d)
                print(f"{what} {most}: {served}, {time.monotonic() - begun:.1f} s "
                      + "".join(last_line(root / f"{name}.log") for name, good in zip(work.names, served) if not good))
                d.check_idle()
                d.stop()
            else:
                print(f"{what} {most}: mmd ended: {d.process.returncode}: {last_said(d.log)}")
                assert d.process.returncode == 1
                assert last_said(d.log), last_line(d.log)
        finally:
            d.kill()
        shutil.rmtree(d.dir, ignore_errors=True)


# ---- memory of a cgroup


class Group:
    """A cgroup with a limit of memory, of whichever version has the controller."""

    def __init__(self):
        if (MEMORY_V1 / "memory.limit_in_bytes").exists():
            base, self.limit, self.usage = MEMORY_V1, "memory.limit_in_bytes", "memory.usage_in_bytes"
        elif "memory" in ((MEMORY_V2 / "cgroup.subtree_control").read_text().split()
                          if (MEMORY_V2 / "cgroup.subtree_control").exists() else []):
            base, self.limit, self.usage = MEMORY_V2, "memory.max", "memory.current"
        else:
            pytest.skip("no cgroup here has a limit of memory")
        self.path = base / f"mm-limits.{os.getpid()}"
        try:
            self.path.mkdir()
        except OSError as e:
            pytest.skip(f"no cgroup of one's own: {e}")

    def enter(self):
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def at_most(self, number):
        (self.path / self.limit).write_text(str(number))

    def used(self):
        return int((self.path / self.usage).read_text())

    def remove(self):
        wait_until(lambda: not (self.path / "cgroup.procs").read_text().split(), 20, "a cgroup without processes")
        wait_until(self.removed, 20, "the end of a cgroup")

    def removed(self):
        try:
            self.path.rmdir()
            return True
        except OSError:
            return False


@pytest.fixture
def group():
    made = Group()
    yield made
    made.remove()


class Grouped(daemon_module.Daemon):
    """An mmd in a cgroup."""

    group = None

    def args(self):
        return ["/bin/sh", "-c", f'echo $$ > {self.group.path}/cgroup.procs && exec "$0" "$@"', *super().args()]


def test_memory_of_a_cgroup(root, group, model_dirs):
    """The kernel refuses memory to all of mmd, or kills roles for it: another one goes on, or mmd ends as a whole."""
    Grouped.group = group
    work = Work(root, model_dirs)
    for room in (0, 1 << 19, 1 << 20, 2 << 20, 8 << 20) if LONG else (1 << 20,):
        d = Grouped(root, policy="remap", pool="3M", page="16K", extra=PATIENT).start()
        try:
            assert all(work.run(d))
            everyone = d.pids()
            group.at_most(group.used() + room)
            lift = threading.Timer(SHORT_S, group.at_most, (1 << 40,))
            lift.start()
            served = work.run(d)
            lift.join()
            if d.process.poll() is None:
                print(f"room for {room}: {served} "
                      + "".join(last_line(root / f"{name}.log") for name, good in zip(work.names, served) if not good))
                wait_until(d.answers, 20, "mmd to answer")
                assert all(work.run(d)), "with memory again"
                wait_until(lambda: d.free_pages() == d.pool_pages(), 20, "all pages to be free")
            else:
                print(f"room for {room}: {served}, mmd ended: {d.process.returncode}: {last_line(d.log)}")
                wait_until(lambda: not any(map(daemon_module.alive, everyone)), 20, "all roles to end with keeper")
        finally:
            d.kill()
        shutil.rmtree(d.dir, ignore_errors=True)


# ---- core dumps


def dumps(folder):
    return sorted(path.name for path in folder.iterdir())


def crash(folder):
    """What any process leaves that crashes there with the limits of this test."""
    subprocess.run([sys.executable, "-c", "import os; os.abort()"], cwd=folder, check=False,
                   preexec_fn=dumps_allow)
    found = dumps(folder)
    for name in found:
        (folder / name).unlink()
    return found


def dumps_allow():
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


class Dumping(daemon_module.Daemon):
    """An mmd that may dump core, in a folder where everybody may write."""

    def start(self):
        self.folder = self.root / "dumps"
        self.folder.mkdir()
        self.folder.chmod(0o777)
        self.root.chmod(0o711)
        if not crash(self.folder):
            pytest.skip("this kernel writes no core dump into the folder of a process: "
                        + pathlib.Path("/proc/sys/kernel/core_pattern").read_text().strip())
        here = os.getcwd()
        os.chdir(self.folder)
        before = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (before[1], before[1]))
        try:
            return super().start()
        finally:
            resource.setrlimit(resource.RLIMIT_CORE, before)
            os.chdir(here)


@pytest.mark.parametrize("sign", [signal.SIGSEGV, signal.SIGABRT] if LONG else [signal.SIGSEGV])
def test_no_core_dump(root, start, serve, model_dirs, sign):
    """A role that crashes while it has tenants' pages leaves no dump, also where any process may leave one."""
    work = Work(root, model_dirs)
    d = start(kind=Dumping, policy="remap", pool="3M", page="16K", extra=PATIENT)
    for role in ("xfer", "core"):
        t = serve(f"has-{role}", model_dirs[0], work.requests[0], d, sync=True).ready()
        pid = pid_of(d, role)
        os.kill(pid, sign)
        wait_until(lambda old=pid: not daemon_module.alive(old), 20, f"the end of {role}")
        t.go()
        assert t.tokens() == work.want[0]
    everyone = d.pids()
    os.kill(d.pids("log")[0], sign)
    os.kill(d.process.pid, sign)
    assert d.process.wait(limit(60)) == -sign
    wait_until(lambda: not any(map(daemon_module.alive, everyone)), 20, "all roles to end with keeper")
    assert not dumps(d.folder)
    assert crash(d.folder)  # it was possible until now
    d.process = None
