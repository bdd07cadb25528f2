# SPDX-License-Identifier: Apache-2.0
"""Runs mmsim, some at a time, and keeps what each run printed: the next call goes on from there.

A run is kept in a file of the folder `data` with a key: a digest of the program, of the device
profiles beside it, of the files that it reads, and of its command line. A file whose key is another
one counts for nothing. Files are written elsewhere and renamed, so that there is never half of one.
What the digest is made of must not change meanwhile: from then on all runs fail.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import json
import math
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

FORM = 1  # of the files in `data`


class RunError(Exception):
    """A run that failed, in one line."""


class MalformedError(ValueError):
    """A run's JSON lacks what it must have."""


class StoppedError(Exception):
    """The evaluation was stopped while this run was under way, or before it."""


@dataclass(frozen=True)
class Task:
    """One run of mmsim."""

    name: str  # of its file
    words: tuple[str, ...]
    take: Callable[[dict], Any]  # takes what is needed out of the JSON, or raises MalformedError


def take_number(where: Any, key: str) -> float:
    """Returns a finite number of a JSON object."""
    value = where.get(key) if isinstance(where, dict) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise MalformedError(f"no number {key} in the JSON")
    return value


def take_list(where: Any, key: str) -> list:
    """Returns a list of a JSON object."""
    value = where.get(key) if isinstance(where, dict) else None
    if not isinstance(value, list):
        raise MalformedError(f"no list {key} in the JSON")
    return value


def write_file(path: pathlib.Path, text: str) -> None:
    """Writes a file as a whole or not at all."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(handle, "w", encoding="utf-8") as out:
            out.write(text)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException as error:
        if isinstance(error, OSError):
            error.filename = str(path)
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def digest_files(paths: Iterable[pathlib.Path]) -> list[str]:
    """Returns a digest of each file."""
    digests = []
    for path in paths:
        with open(path, "rb") as file:
            digests.append(hashlib.file_digest(file, "sha256").hexdigest())
    return digests


def stamp_files(paths: Iterable[pathlib.Path]) -> list[tuple[int, ...]]:
    """Returns what is different for each file once somebody has written to it or replaced it."""
    states = [path.stat() for path in paths]
    return [(s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns) for s in states]


def explain_end(code: int, errors: str) -> str:
    """Says in one line how a run has ended, and what it printed last."""
    if code < 0:
        try:
            end = f"killed by {signal.Signals(-code).name}"
        except ValueError:
            end = f"killed by signal {-code}"
    else:
        end = f"ended with status {code}"
    last = [line.strip() for line in errors.splitlines() if line.strip()]
    return f"{end}: {last[-1]}" if last else end


class Simulator:
    """The program mmsim, and the runs of it that are under way.

    Threads: run() may be called by several at once, stop() by any. `lock` guards `live` and
    `stopped`.
    """

    def __init__(self, path: pathlib.Path, inputs: Sequence[pathlib.Path],
                 data: pathlib.Path | None = None) -> None:
        profiles = sorted((path.resolve().parent.parent / "share/mmd/profiles").glob("*.conf"))
        self.path = path
        self.data = data
        self.files = [path, *profiles, *inputs]
        self.stamps = stamp_files(self.files)
        self.digests = digest_files(self.files)
        # A child is to end also where this process has no chance to end it.
        setpriv = shutil.which("setpriv")
        self.prefix = [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []
        self.lock = threading.Lock()
        self.live: set[subprocess.Popen] = set()
        self.stopped = False

    def key(self, words: Sequence[str]) -> str:
        """Returns what must be equal for a kept run to stand for this one."""
        text = json.dumps([FORM, self.digests, list(words)])
        return hashlib.sha256(text.encode()).hexdigest()

    def kept(self, task: Task) -> Any:
        """Returns what was taken out of a run that was kept; None if there is none."""
        if self.data is None:
            return None
        try:
            kept = json.loads((self.data / f"{task.name}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        if not isinstance(kept, dict) or kept.get("key") != self.key(task.words):
            return None
        try:
            return task.take(kept.get("output"))
        except MalformedError:
            return None

    def _start(self, words: Sequence[str]) -> subprocess.Popen:
        with self.lock:
            if self.stopped:
                raise StoppedError
            # A group of its own: Ctrl-C comes to this process alone, which then ends its children.
            child = subprocess.Popen(
                [*self.prefix, str(self.path), *words], stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, process_group=0)
            self.live.add(child)
            return child

    def run(self, task: Task) -> Any:
        """Runs mmsim, keeps what it printed, and returns what the task takes out of it.

        Raises RunError with a line if it fails; what has failed is not kept.
        """
        self._check_files()
        try:
            child = self._start(("--json", *task.words))
        except OSError as error:
            raise RunError(f"{self.path}: cannot run it: {error.strerror}") from error
        output, errors = child.communicate()
        with self.lock:
            self.live.discard(child)
            if self.stopped:
                raise StoppedError
        self._check_files()
        text = errors.decode(errors="replace")
        if child.returncode:
            self._log(task, text)
            raise RunError(explain_end(child.returncode, text))
        try:
            printed = json.loads(output)
            taken = task.take(printed)
        except ValueError as error:
            self._log(task, text)
            raise RunError(f"it printed something else: {error}") from error
        self._keep(task, printed)
        return taken

    def _check_files(self) -> None:
        try:
            same = stamp_files(self.files) == self.stamps
        except OSError:
            same = False
        if not same:
            raise RunError("the simulator, a profile or a file that it reads has changed meanwhile")

    def _log(self, task: Task, errors: str) -> None:
        if self.data is not None:
            write_file(self.data / f"{task.name}.log", errors)

    def _keep(self, task: Task, printed: dict) -> None:
        if self.data is None:
            return
        kept = {"key": self.key(task.words), "words": list(task.words), "output": printed}
        write_file(self.data / f"{task.name}.json", json.dumps(kept))
        (self.data / f"{task.name}.log").unlink(missing_ok=True)

    def stop(self) -> None:
        """Ends all runs; those that have not begun will not."""
        with self.lock:
            self.stopped = True
            for child in self.live:
                child.kill()


def run_tasks(simulator: Simulator, tasks: Sequence[Task], at_once: int,
              ended: Callable[[Task, str, bool], None]) -> dict[Task, Any]:
    """Runs what was not kept, and returns what each task takes, or the RunError by which it failed.

    ended() is called for each task with its failure or "", and whether it was kept. Whatever else
    is raised meanwhile, as by a signal's handler, ends the children and is passed on.
    """
    done: dict[Task, Any] = {}
    for task in tasks:
        kept = simulator.kept(task)
        if kept is not None:
            done[task] = kept
            ended(task, "", True)
    pool = concurrent.futures.ThreadPoolExecutor(at_once)
    try:
        running = {pool.submit(simulator.run, task): task for task in tasks if task not in done}
        for future in concurrent.futures.as_completed(running):
            task = running[future]
            try:
                done[task] = future.result()
            except RunError as error:
                done[task] = error
            failure = done[task]
            ended(task, str(failure) if isinstance(failure, RunError) else "", False)
    except BaseException:
        simulator.stop()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
    return done
