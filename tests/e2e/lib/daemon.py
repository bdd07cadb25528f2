# SPDX-License-Identifier: Apache-2.0
"""An mmd of one's own: started, asked, looked into, ended."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import time

from programs import BIN, check_report, last_line, limit, wait_until


XFER_UID = 65521


class RpcError(Exception):
    def __init__(self, error):
        super().__init__(error.get("message"))
        self.code = error.get("code")
        self.error = error


def children(pid):
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    found = []
    for task in tasks:
        try:
            found += map(int, pathlib.Path(f"/proc/{pid}/task/{task}/children").read_text().split())
        except OSError:
            pass
    return found


def descendants(pid):
    todo, found = [pid], []
    while todo:
        for child in children(todo.pop()):
            todo.append(child)
            found.append(child)
    return found


def role_of(pid):
    """core, xfer, load, or None for a process that is gone or not (yet) ours."""
    try:
        args = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return None
    for i, arg in enumerate(args):
        if arg == b"--role":
            return args[i + 1].decode()
        if arg.startswith(b"--role="):
            return arg[7:].decode()
    return None


def flag_of(pid, name):
    """The value of --name=VALUE in the command line of one of mmd's processes, or None."""
    try:
        args = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return None
    found = [arg for arg in args if arg.startswith(f"--{name}=".encode())]
    return found[0].split(b"=", 1)[1].decode() if found else None


def open_fds(pid):
    """How many a process has open; none when it has ended meanwhile."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except (FileNotFoundError, PermissionError):  # roles show nothing to a user who is not root
        return 0


def give_to_xfer(gpu_dir):
    """Root's mmd has an xfer that is a user of its own, if the device lets that user in."""
    if os.geteuid() == 0 and not os.listdir(gpu_dir):
        os.chown(gpu_dir.resolve(), XFER_UID, XFER_UID)
        for folder in (gpu_dir.resolve().parent, gpu_dir.parent):
            if folder.stat().st_mode & 0o777 == 0o700:
                folder.chmod(0o711)


class Daemon:
    def __init__(self, root, policy="remap", pool="32M", page="64K", gpu_memory=None, extra=(),
                 gpu_dir=None, name="mmd", devices=1):
        self.root = pathlib.Path(root)
        self.dir = self.root / name
        self.log = self.root / f"{name}.log"
        self.policy, self.pool, self.page, self.extra = policy, pool, page, list(extra)
        self.gpu_dir = gpu_dir = pathlib.Path(gpu_dir or self.root / "gpu")
        gpu_dir.mkdir(exist_ok=True)
        give_to_xfer(gpu_dir)
        self.env = dict(os.environ, MM_SOFTGPU_DIR=str(gpu_dir), MM_SOFTGPU_GRANULARITY="4096",
                        MM_SOFTGPU_MEMORY=str(gpu_memory or 1 << 30),
                        MM_SOFTGPU_DEVICES=str(devices))
        if devices > 1:
            self.extra += ["--device", ",".join(map(str, range(devices)))]
        self.process = None
        self.fds_at_start = None

    # ---- life

    def args(self):
        return [str(BIN / "mmd"), "--dir", str(self.dir), "--driver", "software", "--pool",
                self.pool, "--page", self.page, "--policy", self.policy, *self.extra]

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.args(), env=self.env, stderr=log,
                                            stdin=subprocess.DEVNULL, stdout=log)
        wait_until(self.answers, 20, "mmd to start")
        wait_until(lambda: self.free_pages() == self.pool_pages(), 20, "the pool to stand")
        self.fds_at_start, self.first_xfer = self.settled_fds(), self.pids("xfer")
        return self

    def answers(self):
        assert self.process.poll() is None, f"mmd ended: {last_line(self.log)}"
        try:
            return bool(self.status())
        except (OSError, ValueError):
            return False

    def stop(self):
        """Orderly end; nothing of it may be left."""
        if self.process is None:
            return
        everyone = self.pids()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(limit(20))
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError("mmd does not end after SIGTERM") from None
        self.process = None
        assert code == 0, f"mmd: exit status {code}: {last_line(self.log)}"
        wait_until(lambda: not any(map(alive, everyone)), 5, f"roles to end: {everyone}")
        check_report(self.log)

    def kill(self):
        """Away with it, whatever state it is in."""
        if self.process is None:
            return
        for pid in [self.process.pid, *self.pids()]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()
        self.process = None

    # ---- questions

    def rpc(self, method, params=None):
        request = {"jsonrpc": "2.0", "id": 7, "method": method}
        if params is not None:
            request["params"] = params
        reply = json.loads(self.raw_rpc(json.dumps(request).encode() + b"\n"))
        refused = "error" in reply and reply["id"] is None  # before it was read: too many connections
        assert reply["jsonrpc"] == "2.0" and (reply["id"] == 7 or refused), reply
        if "error" in reply:
            raise RpcError(reply["error"])
        return reply["result"]

    def raw_rpc(self, data):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
            s.settimeout(limit(10))
            s.connect(str(self.dir / "admin.sock"))
            s.sendall(data)
            reply = b""
            while not reply.endswith(b"\n"):
                part = s.recv(65536)
                if not part:
                    break
                reply += part
            return reply

    def status(self):
        return self.rpc("status")

    def ctl(self, *args, check=True):
        """mmctl: its exit status, its JSON (or None), its stderr."""
        done = subprocess.run([str(BIN / "mmctl"), "--dir", str(self.dir), "--json", *map(str, args)],
                              capture_output=True, timeout=limit(20), env=self.env)
        text, errors = done.stdout.decode(), done.stderr.decode()
        if check:
            assert done.returncode == 0, errors
            return json.loads(text)
        return done.returncode, text, errors

    def pool_pages(self):
        return self.status()["pool_pages"]

    def page_states(self):
        return self.status()["pages"]

    def free_pages(self):
        return self.page_states().get("free", 0)

    def tenants(self):
        return self.status()["tenants"]

    def tenant(self, name):
        found = [t for t in self.tenants() if t["name"] == name]
        return found[0] if found else None

    def put_plan(self, name, layers, slots):
        """mmctl plan set, and until it is in force: each step that the tenant begins from then on has it."""
        self.ctl("plan", "set", name, "--layers", layers, "--slots", slots)
        wait_until(lambda: [self.tenant(name)[k] for k in ("alpha", "beta")] == [layers, slots], 60,
                   f"the plan to be in force: {layers} layers, {slots} slots")

    def wait_gone(self, tenant_id):
        """Until a tenant that has left or was thrown out has left nothing behind: what it held is held, and charged
        to its account, until xfer has let go of it."""
        wait_until(lambda: tenant_id not in [t["tenant"] for t in self.tenants()], 60,
                   f"tenant {tenant_id} to be gone")

    # ---- devices

    def device(self, ordinal):
        """What status says of one device."""
        return [d for d in self.status()["devices"] if d["device"]["ordinal"] == ordinal][0]

    def xfer_of(self, ordinal):
        return self.device(ordinal)["xfer"]["pid"]

    # ---- processes

    def pids(self, role=None):
        """Of all roles but the keeper, or of one."""
        found = descendants(self.process.pid) if self.process else []
        return [pid for pid in found if role is None or role_of(pid) == role]

    def fds(self):
        """How many each long-lived role has open."""
        count = {"keeper": open_fds(self.process.pid)}
        for role in ("core", "xfer"):
            for pid in self.pids(role):
                count[role] = count.get(role, 0) + open_fds(pid)
        return count

    def settled_fds(self):
        """Without our own questions' connections, which core closes a moment later."""
        samples = []
        while len(samples) < 8 or samples[-8:] != samples[-1:] * 8:
            samples.append(self.fds())
            time.sleep(0.03)
            assert len(samples) < 2000, f"the number of fds never settles: {samples[-8:]}"
        return samples[-1]

    def fds_are_back(self):
        now, then = self.fds(), dict(self.fds_at_start)
        # A later xfer has adopted its pages instead of making them: not quite the same number.
        if self.pids("xfer") != self.first_xfer and \
                now.get("xfer", 0) <= then["xfer"] + 2 * len(self.first_xfer):
            then["xfer"] = now.get("xfer")
        # Fewer is no leak: a question's connection may have been open when they were counted.
        return all(now[role] <= then.get(role, 0) for role in now)

    # ---- judgement

    def check_accounts(self):
        """Right now: every page in one state, and all of them there."""
        states = self.page_states()
        assert sum(states.values()) == self.pool_pages(), states
        failed = [check for check in self.rpc("doctor")["checks"] if check["result"] == "fail"]
        assert not failed, failed

    def says(self, words):
        """Waits for @words in the log: lines go through a process of their own, and come later than what they tell."""
        wait_until(lambda: words in self.log.read_text(), 30, f"the log to say {words}")

    def check_idle(self):
        """After the last tenant left: books in order, all pages free, no fd more than at the start."""
        self.check_accounts()
        wait_until(lambda: self.free_pages() == self.pool_pages(), 10,
                   f"pages to become free: {self.page_states()}")
        wait_until(lambda: not self.pids("load"), 10, "loads to end")
        try:
            wait_until(self.fds_are_back, 5, "fds to be closed")
        except AssertionError:
            raise AssertionError(f"fds at the start {self.fds_at_start}, now {self.fds()}") from None


def memory_of(pid, what):
    """A line of smaps_rollup, in bytes; of a process that has ended meanwhile 0."""
    try:
        text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith(what + ":"))


def alive(pid):
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"
