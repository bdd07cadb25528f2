# SPDX-License-Identifier: Apache-2.0
"""An mmserve that listens, and a client of it."""

import http.client
import json
import pathlib
import re
import signal
import socket
import subprocess

from programs import BIN, check_report, last_line, limit, read_until, wait_until
from tenant import KV_TIMEOUT_MS


class Server:
    """mmserve --listen; every method that asks makes a connection of its own."""

    def __init__(self, root, name, model, daemon=None, extra=(), listen="127.0.0.1:0"):
        self.log = pathlib.Path(root) / f"{name}.log"
        where = ["--socket", str(daemon.dir / "tenant.sock")] if daemon else ["--plain"]
        args = [str(BIN / "mmserve"), "--model", str(model), "--listen", listen, "--name", name, "--served-name", name,
                "--kv-timeout", KV_TIMEOUT_MS, "--output", str(self.log) + ".jsonl", *where, *map(str, extra)]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(args, stderr=log, stdout=subprocess.PIPE, text=True,
                                            env=daemon.env if daemon else None)
        line = read_until(self.process, "serving ", 60)[-1]
        self.text = self.process.stdout.readline()
        found = re.fullmatch(r"serving (\S+) at http://([\d.]+):(\d+)\n", line)
        self.name, self.port = name, int(found[3]) if found else None
        self.path = listen.removeprefix("unix:")

    def connect(self, timeout=60):
        """A socket, for those who speak HTTP by hand."""
        if self.port is None:
            plug = socket.socket(socket.AF_UNIX)
            plug.settimeout(limit(timeout))
            plug.connect(self.path)
            return plug
        return socket.create_connection(("127.0.0.1", self.port), limit(timeout))

    def connection(self):
        made = http.client.HTTPConnection("127.0.0.1", self.port or 80, timeout=limit(60))
        made.sock = self.connect()
        return made

    def ask(self, method, path, body=None, headers=()):
        """(status, headers, what it says); JSON where it is."""
        made = self.connection()
        try:
            text = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
            made.request(method, path, text, {"Content-Type": "application/json", **dict(headers)})
            answer = made.getresponse()
            said = answer.read()
            if "json" in answer.headers["Content-Type"]:
                said = json.loads(said)
            return answer.status, answer.headers, said
        finally:
            made.close()

    def complete(self, **body):
        status, _, said = self.ask("POST", "/v1/completions", body)
        assert status == 200, said
        return said

    def events(self, path, **body):
        """The objects of a stream, to its end."""
        status, headers, said = self.ask("POST", path, {**body, "stream": True})
        assert status == 200 and headers["Content-Type"].startswith("text/event-stream"), said
        events = said.decode().split("\n\n")
        assert events[-2:] == ["data: [DONE]", ""], events
        return [json.loads(event.removeprefix("data: ")) for event in events[:-2]]

    def metrics(self):
        """{series: value}"""
        status, _, said = self.ask("GET", "/metrics")
        assert status == 200
        lines = [line for line in said.decode().splitlines() if not line.startswith("#")]
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}

    def wait_metric(self, name, condition, seconds=30):
        wait_until(lambda: condition(self.metrics()[name]), seconds, f"{name} of {self.name}")

    def running(self):
        return self.process.poll() is None

    def stop(self):
        """As Ctrl-C does; it must end well."""
        if self.running():
            self.process.send_signal(signal.SIGINT)
        rest, _ = self.process.communicate(timeout=limit(60))
        check_report(self.log)
        assert self.process.returncode == 0, last_line(self.log)
        return rest

    def kill(self):
        if self.running():
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
