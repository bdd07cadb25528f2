# SPDX-License-Identifier: Apache-2.0
"""The part identity: tokens are the same under all policies, with cycling layers, with graphs."""

import contextlib
import itertools
import json
import os
import pathlib
import random
import select
import socket
import subprocess
import tempfile
import time
from functools import partial

from suite.work import Failure

POLICIES = ("recompute", "elastic", "remap", "swap")
WAIT_S = {"cuda": 60, "software": 180}  # small models load at once, unless the device hangs
SERVE_S = {"cuda": 150, "software": 600}
LAYERS, STORIES_LAYERS = 12, 5
# Sizes of pages and of memory that is short; a layer takes at least the driver's granularity.
SIZES = {
    "cuda": {"page": "2M", "pool": "96M", "trained_pool": "28M", "engine_pool": "256M"},
    "software": {"page": "64K", "pool": "48M", "trained_pool": "4M", "engine_pool": "64M"},
}


# ---- models and requests ----


def random_model(suite, folder, seed):
    path = folder / f"random-{seed}"
    done = suite.run(
        "mkmodel",
        [
            suite.program("mkmodel"),
            "random",
            path,
            "--hidden",
            192,
            "--layers",
            LAYERS,
            "--heads",
            6,
            "--kv-heads",
            3,
            "--ffn",
            512,
            "--vocab",
            1024,
            "--max-position",
            2048,
            "--tied",
            "--dtype",
            "f16",
            "--seed",
            seed,
        ],
    )
    if done.code:
        raise Failure(f"mkmodel: {done.last_words()}")
    return path


def trained_model(suite, folder):
    """Returns (model, the ids that an independent implementation computed); None without the data."""
    data = os.environ.get("MM_TEST_DATA")
    if not data or not (pathlib.Path(data) / "stories260K.bin").exists():
        return None
    path = folder / "stories"
    done = suite.run("mkmodel", [suite.program("mkmodel"), "llama2c", pathlib.Path(data) / "stories260K.bin", path])
    if done.code:
        raise Failure(f"mkmodel: {done.last_words()}")
    return path, json.loads((pathlib.Path(data) / "stories260K_expected.json").read_text())


def write_requests(path, rows):
    path.write_text("".join(json.dumps({"id": str(i), "arrival_s": 0, **row}) + "\n" for i, row in enumerate(rows)))
    return path


def random_requests(path, quick):
    dice = random.Random(1)
    return write_requests(
        path,
        [
            {
                "prompt": [dice.randrange(1024) for _ in range(dice.randrange(8, 120))],
                "max_tokens": dice.randrange(24, 64),
            }
            for _ in range(4 if quick else 16)
        ],
    )


def tokens(path):
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {line["id"]: line["ids"] for line in lines if "ids" in line}


def differences(want, got):
    return sum(
        a != b
        for name in want.keys() | got.keys()
        for a, b in itertools.zip_longest(want.get(name, []), got.get(name, []))
    )


# ---- a daemon and an engine ----


class Daemon:
    """mmd in a folder of its own; the software GPU has a folder of its own as well."""

    def __init__(self, suite, folder, name):
        self.suite, self.dir = suite, folder / name
        self.env = software_env(suite, folder)
        size = SIZES[suite.args.driver]
        self.process = suite.start(
            f"identity-mmd-{name}",
            [
                suite.program("mmd"),
                "--dir",
                self.dir,
                "--driver",
                suite.args.driver,
                "--pool",
                size["engine_pool"],
                "--page",
                size["page"],
                "--policy",
                "remap",
            ],
            self.env,
        )
        self.until("mmd to answer", lambda: self.rpc("status"))

    def until(self, what, condition):
        deadline = time.monotonic() + patience(self.suite)
        while not (got := condition()):
            if self.process.poll() is not None:
                raise Failure(f"mmd ended with {self.process.returncode} while we waited for {what}")
            if time.monotonic() > deadline:
                raise Failure(f"waited in vain for {what}")
            time.sleep(0.01)
        return got

    def rpc(self, method, **params):
        with contextlib.suppress(OSError, ValueError), socket.socket(socket.AF_UNIX) as s:
            s.settimeout(patience(self.suite))
            s.connect(str(self.dir / "admin.sock"))
            s.sendall(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode() + b"\n")
            return json.loads(s.makefile().readline()).get("result")
        return None

    def in_force(self, layers, slots):
        plans = (self.rpc("plan.show") or {}).get("plans") or [{}]
        return (plans[0].get("plan_phase"), plans[0].get("alpha"), plans[0].get("beta")) == ("steady", layers, slots)


def patience(suite):
    return min(WAIT_S[suite.args.driver], max(suite.left(), 1))


def software_env(suite, folder):
    if not suite.software:
        return {}
    (folder / "gpu").mkdir(exist_ok=True)
    return {
        "MM_SOFTGPU_DIR": str(folder / "gpu"),
        "MM_SOFTGPU_MEMORY": str(1 << 30),
        "MM_SOFTGPU_GRANULARITY": "4096",
        # Any cuBLAS that is installed would need a GPU.
        "MM_CUBLAS_LIB": str(suite.build / "lib/libmm-softblas.so"),
    }


def plain(suite, folder, name, model, requests, extra):
    out = folder / f"{name}.jsonl"
    done = suite.run(
        f"identity-{name}",
        [
            suite.program("mmserve"),
            "--plain",
            "--driver",
            suite.args.driver,
            "--model",
            model,
            "--requests",
            requests,
            "--output",
            out,
            *extra,
        ],
        software_env(suite, folder),
        limit=patience(suite),
    )
    if done.code:
        raise Failure(f"mmserve --plain {' '.join(extra)}: {done.last_words()}")
    return tokens(out)


def read_line(process, want, seconds):
    """Checks that the next line of its stdout is this one; otherwise the caller ends the process."""
    deadline, text = time.monotonic() + seconds, b""
    while not text.endswith(b"\n"):
        if not select.select([process.stdout], [], [], max(deadline - time.monotonic(), 0))[0]:
            raise Failure(f"mmserve did not say '{want}' within {seconds:.0f} s")
        got = os.read(process.stdout.fileno(), 1)
        if not got:
            raise Failure(f"mmserve ended before it said '{want}'")
        text += got
    if text.decode().strip() != want:
        raise Failure(f"mmserve said '{text.decode().strip()}' instead of '{want}'")


def cycling(suite, folder, name, model, requests, plan, extra):
    """Runs the engine under mmd with layers away all the time. Returns its tokens and summary."""
    daemon = Daemon(suite, folder, name)
    out, engine = folder / f"{name}.jsonl", None
    try:
        argv = [
            suite.program("mmserve"),
            "--socket",
            daemon.dir / "tenant.sock",
            "--driver",
            suite.args.driver,
            "--model",
            model,
            "--requests",
            requests,
            "--output",
            out,
            "--name",
            "t",
            "--verify",
            "--sync",
            *extra,
        ]
        engine = suite.start(f"identity-{name}", argv, daemon.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        seconds = patience(suite)
        read_line(engine, "ready", seconds)
        if not daemon.rpc("plan.set", name="t", layers=plan[0], slots=plan[1]):
            raise Failure(f"plan {plan} was refused")
        daemon.until(f"plan {plan} to be in force", lambda: daemon.in_force(*plan))
        engine.stdin.write(f"start {time.monotonic_ns()}\n".encode())
        engine.stdin.flush()
        read_line(engine, "done", seconds)
        engine.stdin.close()
        engine.wait(seconds)
        streamed = daemon.rpc("status")["bytes_streamed"]
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failure(f"{name}: {error}") from None
    finally:
        for process in (engine, daemon.process):
            if process:
                suite.end(process)
    summary = json.loads(out.read_text().splitlines()[-1])["summary"]
    return tokens(out), {
        "streamed_bytes": streamed,
        "checksum_failures": summary["checksum_failures"],
        "steps": summary["steps"],
        "gated_steps": summary["gated_steps"],
        "graph_launches": summary.get("graph_launches", 0),
    }


# ---- cases ----


def serve_case(suite, name, models, pool):
    """Serves the same requests under every policy with little memory; mmbench compares the tokens."""
    size = SIZES[suite.args.driver]
    argv = [
        suite.program("mmbench"),
        "serve",
        "--models",
        ",".join(map(str, models)),
        "--synthetic",
        "--seed",
        1,
        "--driver",
        suite.args.driver,
        "--pool",
        pool,
        "--page",
        size["page"],
        "--policies",
        ",".join(POLICIES),
        "--verify",
        "--json",
        *(["--speed", 4, "--token-scale", 0.2] if suite.args.quick else []),
    ]
    done = suite.run(f"identity-{name}", argv, limit=SERVE_S[suite.args.driver])
    got = done.json()
    if not got:
        raise Failure(f"{name}: {done.last_words()}; logs/identity-{name}.log")
    return {
        "differ": got["token_mismatches"],
        "checksum_failures": got["checksum_failures"],
        "tokens": sum(result["tokens"] for result in got["results"].values()),
        "streamed_bytes": got["results"]["remap"]["bytes_streamed"],
        "preemptions": {policy: got["results"][policy]["preemptions"] for policy in got["results"]},
    }


class Once:
    """A value that several cases need, made for the first one; if that fails, each case fails."""

    def __init__(self, make):
        self.make, self.got, self.error = make, None, None

    def __call__(self):
        if self.error:
            raise self.error
        if self.got is None:
            try:
                self.got = self.make()
            except Failure as error:
                self.error = error
                raise
        return self.got


def alone(suite, folder, name, model, requests, reference, gemm):
    got = plain(suite, folder, f"{name}-plain-graphs", model, requests, ["--graphs", "on", *gemm])
    return {"tokens": sum(map(len, reference().values())), "differ": differences(reference(), got)}


def under_mmd(suite, folder, name, model, requests, reference, plan, graphs, gemm):
    extra = ["--graphs", graphs, *gemm]
    got, more = cycling(suite, folder, f"{name}-mmd-{graphs}", model, requests, plan, extra)
    return {"tokens": sum(map(len, reference().values())), "differ": differences(reference(), got), **more}


def elsewhere(reference, want):
    return {"tokens": sum(map(len, reference().values())), "differ": differences(want, reference())}


def engine_cases(suite, folder, name, model, requests, plan, want=None):
    """Yields (case, function of its result): alone and under mmd, graphs off and on, both products."""
    # The products that suit the driver, then the others.
    other = "cublas" if suite.software else "kernel"
    for gemm in [[]] if suite.args.quick else [[], ["--gemm", other]]:
        stem = f"{name}{'-' + other if gemm else ''}"
        graphless = ["--graphs", "off", *gemm]
        of = (suite, folder, stem, model, requests)
        reference = Once(partial(plain, suite, folder, f"{stem}-plain", model, requests, graphless))
        if want and not gemm:
            yield f"{stem}: alone, against ids computed elsewhere", partial(elsewhere, reference, want)
        yield f"{stem}: alone, graphs on against off", partial(alone, *of, reference, gemm)
        for graphs in ("off", "on"):
            yield (
                f"{stem}: under mmd, {plan[0]} layers cycling, graphs {graphs}, against alone",
                partial(under_mmd, *of, reference, plan, graphs, gemm),
            )


def cases(suite, folder):
    size = SIZES[suite.args.driver]
    models = [random_model(suite, folder, seed) for seed in (100, 101, 102)]
    trained = trained_model(suite, folder)
    yield (
        "three random models, bursts, every policy",
        partial(serve_case, suite, "random", models, size["pool"]),
    )
    yield from engine_cases(
        suite, folder, "random", models[0], random_requests(folder / "random.requests", suite.args.quick), (6, 1)
    )
    if not trained:
        return
    model, expected = trained
    if not suite.args.quick:
        yield (
            "two trained models, bursts, every policy",
            partial(serve_case, suite, "trained", [model, model], size["trained_pool"]),
        )
    n = 2 if suite.args.quick else 6
    requests = write_requests(
        folder / "trained.requests", [{"prompt": expected["prompt_token_ids"], "max_tokens": expected["steps"]}] * n
    )
    yield from engine_cases(
        suite, folder, "trained", model, requests, (3, 1), {str(i): expected["greedy_token_ids"] for i in range(n)}
    )


def run_case(suite, record, name, make):
    """Runs a case. A failure is recorded, and does not stop the next case."""
    try:
        result = make()
        suite.say(f"identity: {name}: {result['differ']} of {result['tokens']} differ")
    except Failure as error:
        result = {"tokens": 0, "differ": 0, "failed": str(error)}
        suite.say(f"identity: {name}: {error}")
    record["cases"].append({"case": name, **result})
    suite.save()


def run(suite, record):
    record["cases"] = []
    record["trained_model"] = bool(os.environ.get("MM_TEST_DATA"))
    # The paths of sockets must be short.
    with tempfile.TemporaryDirectory(prefix="mmgs.", dir="/tmp") as folder:
        for name, make in cases(suite, pathlib.Path(folder)):
            suite.need(30)
            run_case(suite, record, name, make)
    wrong = [case["case"] for case in record["cases"] if case["differ"] or case.get("checksum_failures")]
    failed = [f"{case['case']}: {case['failed']}" for case in record["cases"] if "failed" in case]
    if wrong:
        failed.insert(0, f"other tokens or wrong bytes: {'; '.join(wrong)}")
    if failed:
        raise Failure("; ".join(failed))
