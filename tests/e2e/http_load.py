#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What hostile clients cost a request that runs, beside loops that take as much of the processors.

usage: tests/e2e/http_load.py MODEL_DIR [--seconds N] [--rounds N]

One long request after the other runs on mmserve --plain. Around it, by turns: nobody; hostile clients (connections
that are refused, slow headers, bodies of 1 GB, bad bodies, clients that hang up); and busy loops that take as much
processor time as the hostile clients and the server's own thread for them took. Prints the median and the mean step
of each, from /metrics, and the ratio. Documentation/results/http.md has what came out.
"""
import argparse
import multiprocessing
import os
import pathlib
import resource
import socket
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent / "lib"))

from server import Server  # noqa: E402

BODY = {"temperature": 0, "ignore_eos": True, "stream": False}
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


def crowd(port, n):
    """As many connections as can be, at once."""
    plugs = []
    for _ in range(n):
        plug = socket.socket()
        plug.setblocking(False)
        plug.connect_ex(("127.0.0.1", port))
        plugs.append(plug)
    time.sleep(0.02)
    for plug in plugs:
        plug.close()


def send(port, *parts):
    try:
        with socket.create_connection(("127.0.0.1", port), 10) as plug:
            plug.settimeout(2)
            for part in parts:
                plug.sendall(part)
            plug.recv(4096)
    except OSError:
        pass


def slow(port, n):
    plugs = []
    try:
        for _ in range(n):
            plugs.append(socket.create_connection(("127.0.0.1", port), 10))
            plugs[-1].sendall(HEAD)
        for _ in range(3):
            for plug in plugs:
                plug.send(b"X")
            time.sleep(0.02)
    except OSError:
        pass
    for plug in plugs:
        plug.close()


def hostile(port, until, share, counts):
    """Until the time, and of each 50 ms only this share."""
    kinds = [lambda: crowd(port, 200), lambda: slow(port, 20),
             lambda: send(port, HEAD + b"Content-Length: 1073741824\r\n\r\n", b"x" * 65536),
             lambda: send(port, HEAD + b"Content-Length: 60000\r\n\r\n", b"[" * 60000),
             lambda: send(port, b"\0" * 60000)]
    i = 0
    while time.monotonic() < until:
        begin = time.thread_time()
        kinds[i % len(kinds)]()
        i += 1
        time.sleep((time.thread_time() - begin) * (1 / share - 1))
    counts.put(i)


def spin(until, share):
    """Takes this share of a processor in all, also where others make it wait for a while."""
    begin = time.monotonic()
    while (now := time.monotonic()) < until:
        if time.thread_time() < share * (now - begin):
            end = time.thread_time() + 0.001
            while time.thread_time() < end:
                pass
        else:
            time.sleep(0.001)


def server_thread_cpu(pid):
    """Of mmserve's thread for HTTP, seconds."""
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().strip() == "mmserve-http":
            fields = (task / "stat").read_text().rsplit(")", 1)[1].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    raise SystemExit("mmserve has no thread for HTTP")


def metrics(server):
    """Its metrics, once a connection is not one too many."""
    while True:
        try:
            return server.metrics()
        except (AssertionError, OSError, TypeError, ValueError):
            time.sleep(0.05)


def run(server, seconds, start):
    """Requests one after the other, while start(until) has begun processes. (steps' mean, the processes' time)"""
    until = time.monotonic() + seconds
    before, begin = metrics(server), os.times()
    http = server_thread_cpu(server.process.pid)
    others = start(until)
    while time.monotonic() < until:
        try:
            server.ask("POST", "/v1/completions", {"prompt": [1, 2, 3], "max_tokens": 200, **BODY})
        except (OSError, TypeError, ValueError):
            time.sleep(0.01)  # one of the connections that were too many
    for other in others:
        other.join()
    end = os.times()
    after = metrics(server)
    steps = after["mmserve_step_seconds_count"] - before["mmserve_step_seconds_count"]
    total = after["mmserve_step_seconds_sum"] - before["mmserve_step_seconds_sum"]
    spent = (end.children_user + end.children_system) - (begin.children_user + begin.children_system)
    return total / max(steps, 1), spent + server_thread_cpu(server.process.pid) - http, steps


def processes(target, *args):
    made = [multiprocessing.Process(target=target, args=args) for _ in range(2)]
    for each in made:
        each.start()
    return made


def main():
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("model")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    opts = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    results, counts = {"alone": [], "hostile": [], "loops": []}, multiprocessing.Queue()
    with tempfile.TemporaryDirectory() as root:
        server = Server(root, "m", opts.model, extra=["--kv-share", "4M", "--connections", "64", "--http-timeout", "2000"])
        try:
            for _ in range(opts.rounds):
                results["alone"].append(run(server, opts.seconds, lambda until: []))
                results["hostile"].append(run(server, opts.seconds, lambda until: processes(hostile, server.port, until, 0.5, counts)))
                share = min(results["hostile"][-1][1] / opts.seconds / 2, 1.0)
                results["loops"].append(run(server, opts.seconds, lambda until, share=share: processes(spin, until, share)))
            shown = {name: metrics(server)[f"mmserve_{name}"] for name in (
                "connections_total", "connections_refused_total", "connections_slow_total")}
        finally:
            server.kill()
    for name, runs in results.items():
        means = [mean * 1e6 for mean, _, _ in runs]
        print(f"{name:8} step {statistics.median(means):8.1f} us ({min(means):.1f} to {max(means):.1f}), processors "
              f"{statistics.median(cpu for _, cpu, _ in runs) / opts.seconds:.2f}, steps {sum(n for _, _, n in runs):.0f}")
    ratio = [h[0] / l[0] for h, l in zip(results["hostile"], results["loops"])]
    print(f"hostile over loops: median {statistics.median(ratio):.3f} ({min(ratio):.3f} to {max(ratio):.3f})")
    print(", ".join(f"{name} {value:.0f}" for name, value in shown.items()))


if __name__ == "__main__":
    main()
