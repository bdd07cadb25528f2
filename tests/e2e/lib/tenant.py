# SPDX-License-Identifier: Apache-2.0
"""mmserve processes: with a daemon, or --plain as the reference."""

import json
import pathlib
import random
import select
import signal
import subprocess
import time

from programs import BIN, check_report, last_line, limit, wait_until


def make_requests(path, n, prompt=(8, 24), output=(16, 48), vocab=256, seed=1, spread_s=0.0):
    """A JSONL file of n requests with ids r0, r1, ..."""
    rng = random.Random(seed)
    arrivals = sorted(rng.uniform(0, spread_s) for _ in range(n))
    with open(path, "w") as out:
        for i, arrival in enumerate(arrivals):
            ids = [rng.randrange(vocab) for _ in range(rng.randint(*prompt))]
            out.write(json.dumps({"id": f"r{i}", "arrival_s": round(arrival, 4), "prompt": ids,
                                  "max_tokens": rng.randint(*output)}) + "\n")
    return path


def read_lines(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]


def read_output(path):
    """{request id: [token ids]} of a finished run."""
    result = {}
    for request in read_lines(path):
        if "summary" in request:
            continue
        assert "error" not in request, f"{path}: {request}"
        assert request["id"] not in result, f"{path}: request {request['id']} twice"
        result[request["id"]] = request["ids"]
    return result


# On a slow machine others may need all KV memory for long: no request is refused for that.
KV_TIMEOUT_MS = "3600000"


class Tenant:
    """One mmserve. With sync=True its clock starts at go(), when its model stands."""

    def __init__(self, root, name, model, requests, daemon=None, extra=(), sync=False, wrap=()):
        self.name = name
        self.log = pathlib.Path(root) / f"{name}.log"
        self.output = pathlib.Path(root) / f"{name}.jsonl"
        self.output.unlink(missing_ok=True)
        where = ["--socket", str(daemon.dir / "tenant.sock")] if daemon else ["--plain"]
        args = [*wrap, str(BIN / "mmserve"), "--model", str(model), "--requests", str(requests), "--output",
                str(self.output), "--name", name, "--kv-timeout", KV_TIMEOUT_MS, *where,
                *map(str, extra)]
        self.sync = sync
        pipe = subprocess.PIPE if sync else subprocess.DEVNULL
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(args + ["--sync"] * sync, stderr=log, stdin=pipe,
                                            env=daemon.env if daemon else None, stdout=pipe, bufsize=0)

    def hear(self, word, seconds):
        assert select.select([self.process.stdout], [], [], limit(seconds))[0], \
            f"{self.name} does not say '{word}': {last_line(self.log)}"
        said = self.process.stdout.readline().decode().strip()
        assert said == word, f"{self.name} says '{said}', not '{word}': {last_line(self.log)}"

    def ready(self):
        self.hear("ready", 30)
        return self

    def go(self):
        self.process.stdin.write(f"start {time.monotonic_ns()}\n".encode())
        return self

    def wait(self, seconds=60):
        """Until it ends by itself: its summary."""
        if self.sync and not self.process.stdin.closed:
            self.hear("done", seconds)
            self.process.stdin.close()
        try:
            self.process.wait(timeout=limit(seconds))
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.name} hangs: {last_line(self.log)}") from None
        check_report(self.log)
        assert self.process.returncode == 0, f"{self.name}: {last_line(self.log)}"
        summary = read_lines(self.output)[-1]["summary"]
        assert summary.get("checksum_failures", 0) == 0, summary
        return summary

    def tokens(self, seconds=60):
        self.wait(seconds)
        return read_output(self.output)

    def wait_requests(self, n, seconds=30):
        """Until it has finished so many requests."""
        wait_until(lambda: self.output.exists() and len(self.output.read_bytes().splitlines()) >= n
                   or self.process.poll() is not None, seconds, f"{self.name}'s {n} requests")

    def running(self):
        return self.process.poll() is None

    def kill(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()


def plain_tokens(root, model, requests, extra=()):
    """What the model says without any daemon: the truth for all comparisons."""
    return Tenant(root, "plain", model, requests, extra=extra).tokens()
