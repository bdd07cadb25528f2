# SPDX-License-Identifier: Apache-2.0
"""What tenants do while something fails, and what is judged afterwards."""

import re
import select
import signal
import subprocess
import time

import daemon as daemon_module
from programs import BUILD, check_report, last_line, limit, wait_until
from tenant import Tenant, make_requests, plain_tokens, read_output

# What mmd's log must not have: roles that end by a signal, and what the C library says of its heap.
BAD_END = re.compile(r"^panic: |^[a-z_]+\(\): |status=0x(6|7|8|b|86|87|88|8b)$", re.M)


KEYED = BUILD / "tests" / "e2e-keyed"
PART = BUILD / "tests" / "fault-tenant"


class Work:
    """What tenants do while something fails: the same each time, in a second or so."""

    names = ("first", "second")

    def __init__(self, root, model_dirs):
        self.root, self.models, self.may_kill = root, model_dirs, False
        self.requests = [make_requests(root / f"below{i}.requests", 5, output=(20, 40), seed=i) for i in range(2)]
        self.want = [plain_tokens(root, model_dirs[i], self.requests[i]) for i in range(2)]

    def tenant(self, d, name, i, wrap=()):
        return Tenant(self.root, name, self.models[i], self.requests[i], d,
                      extra=["--verify", "--kv-share", "256K"], wrap=wrap)

    def run(self, d, victim_env=None):
        """Two tenants that end by themselves while the plans of one change, and one that is killed."""
        wrap = ["env", *(f"{k}={v}" for k, v in victim_env.items())] if victim_env else []
        tenants = [self.tenant(d, "first", 0), self.tenant(d, "second", 1, wrap)]
        doomed = self.tenant(d, "doomed", 0)
        try:
            for layers in (3, 0):
                self.put_plan(d, "second", layers)
            doomed.wait_requests(1)
            doomed.kill()
            return [self.judged(t, self.want[i]) for i, t in enumerate(tenants)]
        finally:
            for t in (*tenants, doomed):
                t.kill()

    @staticmethod
    def put_plan(d, name, layers):
        """It may come too early or too late, and it may be what fails: but it has an answer."""
        code, _, errors = d.ctl("plan", "set", name, "--layers", layers, "--slots", 1, check=False)
        assert code == 0 or errors.startswith("mmctl: "), errors

    def judged(self, tenant, want):
        """Whether it was served. If not it has said why, once."""
        try:
            tenant.process.wait(limit(60))
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{tenant.name} hangs: {last_line(tenant.log)}") from None
        check_report(tenant.log)
        if tenant.process.returncode == 0:
            assert read_output(tenant.output) == want, f"{tenant.name}: other tokens"
            return True
        if self.may_kill and tenant.name == "second" and tenant.process.returncode == -signal.SIGKILL:
            return False
        assert tenant.process.returncode in (1, 3), \
            f"{tenant.name}: {tenant.process.returncode}: {last_line(tenant.log)}"
        said = [line for line in tenant.log.read_text().splitlines() if line.startswith("mmserve: ")]
        assert len(said) == 1, f"{tenant.name}: {said}"
        return False


class Keyed:
    """e2e-keyed: an engine that commits weights under a key, or asks for them."""

    def __init__(self, d, what, model, log):
        self.what, self.log = what, log
        env = dict(d.env, MMD_SOCKET=str(d.dir / "tenant.sock"))
        with open(log, "wb") as errors:
            self.process = subprocess.Popen([str(KEYED), what, "made by us", str(model / "model.safetensors"), "8"],
                                            env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)

    def is_loaded(self):
        """Waits until it has its weights, or has ended without."""
        assert select.select([self.process.stdout], [], [], limit(60))[0], f"{self.what} hangs"
        return self.process.stdout.readline() == b"loaded\n"

    def ended(self):
        """Gives the weights back. Whether all went well; if not it has said why, once."""
        self.process.stdin.close()
        try:
            code = self.process.wait(limit(60))
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.what} hangs: {last_line(self.log)}") from None
        check_report(self.log)
        said = [line for line in self.log.read_text().splitlines() if line.startswith("e2e-keyed: ")]
        assert (code, len(said)) in ((0, 0), (1, 1)), f"{self.what}: {code}: {said}"
        return code == 0

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


class KeyedWork(Work):
    """As Work, beside an engine that commits weights under a key, and one that asks for them, which come and go."""

    names = ("first", "second", "commit", "attach")

    def run(self, d, victim_env=None):
        owner = Keyed(d, "commit", self.models[2], self.root / "commit.log")
        guest = None
        try:
            there = owner.is_loaded()
            guest = Keyed(d, "attach", self.models[2], self.root / "attach.log")
            served = super().run(d, victim_env)
            there = guest.is_loaded() and there
            return [*served, *(k.ended() and there for k in (owner, guest))]
        finally:
            for k in (owner, guest):
                if k:
                    k.kill()


class PartsWork:
    """Tenants that use one part of libclient each, all at the same time (tests/fault/tenant.c)."""

    names = ("kv", "mem", "swap", "hold", "unload", "turns", "keys")

    def __init__(self, root, model_dirs):
        self.root, self.models, self.may_kill = root, model_dirs, False

    def run(self, d, victim_env=None):
        del victim_env
        env = dict(d.env, MMD_SOCKET=str(d.dir / "tenant.sock"))
        env.pop("LD_PRELOAD", None)
        tenants = []
        try:
            for i, name in enumerate(self.names):
                with open(self.root / f"{name}.log", "wb") as log:
                    tenants.append(subprocess.Popen([str(PART), name, str(self.models[i % len(self.models)])], env=env,
                                                    stdout=subprocess.DEVNULL, stderr=log, stdin=subprocess.DEVNULL))
            return [self.judged(name, t) for name, t in zip(self.names, tenants)]
        finally:
            for t in tenants:
                t.kill()
                t.wait()

    def judged(self, name, tenant):
        """Whether it has done all. If not it has said why, once."""
        log = self.root / f"{name}.log"
        try:
            code = tenant.wait(limit(60))
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{name} hangs: {last_line(log)}") from None
        check_report(log)
        said = [line for line in log.read_text().splitlines() if line.startswith("fault-tenant: ")]
        assert (code, len(said)) in ((0, 0), (1, 1)), f"{name}: {code}: {said}"
        return code == 0


class Place:
    """An mmd, with the library in it where there is one; a new one when the last has ended of a fault."""

    def __init__(self, root, below, **options):
        self.root, self.below, self.options, self.daemon = root, below, options, None

    def made(self):
        d = daemon_module.Daemon(self.root, **self.options)
        if self.below:
            d.env.update(self.below.env)
        return d

    def up(self):
        if self.daemon is None:
            if self.below:
                self.below.disarm()
            self.daemon = self.made()
            self.daemon.start()
        return self.daemon

    def judge(self):
        """After the work. Whether mmd is still there; it has ended with a sentence, or nothing is left of the work."""
        while not self.ended():
            try:
                self.daemon.check_idle()
                break
            except OSError:  # it is on its way out, or core is followed by another one
                time.sleep(0.05)
        else:
            return False
        wait_until(lambda: not zombies(self.daemon), 5, f"zombies to be gone: {zombies(self.daemon)}")
        return True

    def ended(self):
        d = self.daemon
        if d.process.poll() is None:
            return False
        assert d.process.returncode == 1, f"mmd: exit status {d.process.returncode}"
        said = [line for line in d.log.read_text(errors="replace").splitlines()[-20:]
                if line.startswith("mmd: ") or " level=error " in line]
        assert said, f"mmd has ended without a word: {last_line(d.log)}"
        d.process = self.daemon = None
        return True

    def down(self):
        if self.daemon is not None:
            self.daemon.stop()
            self.daemon = None

    def kill(self):
        if self.below and not self.below.map.closed:
            self.below.disarm()
        if self.daemon is not None:
            self.daemon.kill()
            self.daemon = None


def zombies(d):
    return [pid for pid in daemon_module.descendants(d.process.pid) if not daemon_module.alive(pid)]
