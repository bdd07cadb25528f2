# SPDX-License-Identifier: Apache-2.0
"""A run of the suite: its folder, its clock, its state, and the processes that it starts."""

import contextlib
import ctypes
import datetime
import io
import json
import math
import os
import pathlib
import shutil
import signal
import subprocess
import tarfile
import time

TOP = pathlib.Path(__file__).resolve().parents[3]
PARTS = ("build", "conformance", "identity", "engines", "bench", "sizes")
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
END_S = 30  # for a program to end after SIGTERM
COPY_EVERY_S = 20
LOG_BYTES = 4 << 20  # only the end of a longer log is copied


class Failure(Exception):
    """A part cannot go on; the text says why."""


class OutOfTime(Exception):
    """The budget is spent."""


class Interrupted(BaseException):
    """A signal ends the suite. Code that goes on after any other error must let this one through."""


class Done:
    """How a program ended."""

    def __init__(self, code, out, log, seconds, ended):
        self.code, self.out, self.log, self.seconds, self.ended = code, out, log, seconds, ended

    def text(self):
        return self.out.read_text(errors="replace")

    def last_words(self):
        """The last line on its stderr, else on its stdout."""
        for path in (self.log, self.out):
            lines = [line.strip() for line in path.read_text(errors="replace").splitlines() if line.strip()]
            if lines:
                return lines[-1][:400]
        return f"exit status {self.code}"

    def json(self):
        """The object on its stdout, or on the last line of it."""
        text = self.text()
        for candidate in (text, *text.strip().splitlines()[-1:]):
            with contextlib.suppress(ValueError):
                return json.loads(candidate)
        return None


def libc():
    return ctypes.CDLL(None, use_errno=True)


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def children(pid):
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(OSError):
            found += [int(word) for word in (task / "children").read_text().split()]
    return found


def finite(value):
    """Returns a copy without numbers that JSON cannot express."""
    if isinstance(value, dict):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Suite:
    def __init__(self, args, env):
        self.args, self.env = args, env
        self.out = pathlib.Path(args.outdir).resolve()
        self.logs = self.out / "logs"
        self.build = pathlib.Path(args.build).resolve()
        self.bin = self.build / "bin"
        self.begun = time.monotonic()
        self.software = args.driver == "software"
        self.state = {}
        self.stuck = set()  # pids that SIGKILL does not end, because they hang in the driver
        self.copied = -math.inf  # time of the last copy
        self.report = None  # called with the state whenever it is saved
        libc().prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    # ---- time ----

    def left(self):
        if not self.args.budget:
            return 7 * 86400.0
        return self.args.budget - (time.monotonic() - self.begun)

    def need(self, seconds):
        """Raises OutOfTime if there is not enough time to begin something that takes so long."""
        if self.left() < seconds:
            raise OutOfTime(f"not begun: about {seconds:.0f} s are needed, {max(self.left(), 0):.0f} s are left")

    # ---- state ----

    def save(self):
        """Saves the state. No output of a program may prevent that."""
        self.out.mkdir(parents=True, exist_ok=True)
        state = finite(self.state)
        self.write(self.out / "gpu-suite.json", json.dumps(state, indent=1, allow_nan=False) + "\n")
        try:
            text = self.report(state)
        except Exception as error:
            text = f"# GPU suite\n\nNo report can be made of gpu-suite.json: {type(error).__name__}: {error}\n"
        self.write(self.out / "gpu-suite.md", text)
        if self.args.copy and time.monotonic() - self.copied > COPY_EVERY_S:
            self.copy()

    def copy(self):
        """Copies the results, and the logs in one file, to the folder of --copy."""
        to = pathlib.Path(self.args.copy)
        try:
            to.mkdir(parents=True, exist_ok=True)
            for name in ("gpu-suite.json", "gpu-suite.md"):
                shutil.copyfile(self.out / name, to / f"{name}.part")
                os.replace(to / f"{name}.part", to / name)
            with tarfile.open(to / "logs.tar.gz.part", "w:gz", compresslevel=1) as tar:
                for path in sorted(self.logs.glob("*")):
                    self.pack(tar, path)
            os.replace(to / "logs.tar.gz.part", to / "logs.tar.gz")
        except OSError as error:
            self.say(f"--copy: {error}")
        self.copied = time.monotonic()

    @staticmethod
    def pack(tar, path):
        """Packs a file that may be written to in the meantime."""
        with open(path, "rb") as file:
            info = tar.gettarinfo(arcname=f"logs/{path.name}", fileobj=file)
            file.seek(max(info.size - LOG_BYTES, 0))
            data = file.read(LOG_BYTES)
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))

    @staticmethod
    def write(path, text):
        beside = path.with_suffix(path.suffix + ".part")
        beside.write_text(text)
        beside.rename(path)

    def say(self, text):
        print(f"gpu-suite: {text}", flush=True)

    # ---- programs ----

    def start(self, name, argv, env=None, **options):
        """Starts a program in a session of its own, with output in logs/NAME.out and logs/NAME.log."""
        self.logs.mkdir(parents=True, exist_ok=True)
        parent = os.getpid()

        def before():
            libc().prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(127)

        with open(self.logs / f"{name}.log", "wb") as log, open(self.logs / f"{name}.out", "wb") as out:
            log.write((" ".join(map(str, argv)) + "\n").encode())
            log.flush()
            return subprocess.Popen(
                [str(arg) for arg in argv],
                env={**self.env, **(env or {})},
                stdin=options.get("stdin", subprocess.DEVNULL),
                stdout=options.get("stdout", out),
                stderr=log,
                start_new_session=True,
                preexec_fn=before,
                cwd=options.get("cwd", TOP),
            )

    def run(self, name, argv, env=None, limit=None, **options):
        """Runs a program until it ends, `limit` seconds have passed, or the budget is spent."""
        begun = time.monotonic()
        seconds = min(limit or 7 * 86400.0, max(self.left(), 1))
        process = self.start(name, argv, env, **options)
        ended = True
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            ended = False
        finally:
            self.end(process)
        return Done(
            -signal.SIGKILL if process.returncode is None else process.returncode,
            self.logs / f"{name}.out", self.logs / f"{name}.log", time.monotonic() - begun, ended
        )

    def end(self, process):
        """Ends a program, and the processes that it has started."""
        if process.poll() is None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
        if process.poll() is None:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
        self.sweep()

    def sweep(self):
        """Ends processes that outlived their parents, and so became children of this one."""
        deadline = time.monotonic() + END_S
        while left := [pid for pid in children(os.getpid()) if pid not in self.stuck]:
            if time.monotonic() > deadline:
                self.say(f"not to be ended: {', '.join(map(str, left))}")
                self.stuck.update(left)
            for pid in left:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
                with contextlib.suppress(OSError):
                    os.waitpid(pid, os.WNOHANG)
            time.sleep(0.01)

    def program(self, name):
        path = self.bin / name
        if not path.exists():
            raise Failure(f"{path} is not there: run the part build first, or give --build")
        return path
