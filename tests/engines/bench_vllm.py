#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two engines of vLLM on one software GPU that is too small for both, and what mmd costs one alone.

usage: bench_vllm.py --venv DIR [--build DIR] [--requests N] [--tokens N] [--pool MIB]
                     [--rounds N] [--repeat N]

Of each of these it prints output tokens a second, as lines of JSON, all measured in this one run:

  plain    one engine without mmd, and the product of matrices that the plugin has
  mmd      the same engine with mmd, and memory for all of it: overhead is plain's speed over mmd's
  halves   two engines, each with half of the memory to itself, as in a static split: weights stay
           (policy elastic, which takes no layers), KV has what they leave
  trading  the same halves, but each engine lends its own layers to its own KV (policy remap)
  shared   the same two in one pool of the whole size (policy remap)

The two are busy one after the other: the second one begins when the first has half of its rounds
behind it. Nothing is judged: this is no test. Status: 0 done; 1 an engine failed; 2 usage.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import statistics
import sys
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "tests/e2e/lib")]


def arguments():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--venv", type=pathlib.Path, required=True)
    parser.add_argument("--build", type=pathlib.Path, default=TOP / "build")
    for name, default in (("requests", 16), ("tokens", 200), ("pool", 112), ("rounds", 2),
                          ("repeat", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    if min(args.requests, args.tokens, args.pool, args.rounds, args.repeat) < 1:
        parser.error("numbers are 1 or more")
    return args


@contextlib.contextmanager
def daemons(count, pool_mib, policy="remap"):
    """So many of mmd, each with a software GPU of its own."""
    import daemon

    root = pathlib.Path(tempfile.mkdtemp(prefix="mm-bench."))
    memory = pathlib.Path(tempfile.mkdtemp(prefix="mm-bench.", dir="/dev/shm"))
    made = []
    try:
        for number in range(count):
            (root / str(number)).mkdir()
            (memory / str(number)).mkdir()
            made.append(daemon.Daemon(root / str(number), pool=f"{pool_mib}M", page="64K",
                                      policy=policy, gpu_dir=memory / str(number)).start())
        yield made
    finally:
        for one in made:
            one.kill()
        shutil.rmtree(root)
        shutil.rmtree(memory)


class Bench:
    """The engines, all on one model."""

    def __init__(self, args, folder):
        import models

        self.args = args
        self.site = folder / "site"
        self.model = models.random_model(folder / "llama", seed=7, hidden=256, layers=12, heads=4,
                                         kv_heads=2, ffn=768, dtype="f32")
        source = folder / "source"
        shutil.copytree(TOP / "libclient/python", source,
                        ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg*"))
        self._run("-m", "pip", "install", "-q", "--no-deps", "--no-index", "--no-build-isolation",
                  "--disable-pip-version-check", "--target", self.site, source)

    def _run(self, *words):
        import subprocess

        subprocess.run([str(self.args.venv / "bin/python"), *map(str, words)], check=True)

    def start(self, name, d=None):
        """An engine that waits for its go."""
        import subprocess

        job = {"model": str(self.model), "requests": self.args.requests, "wait": True,
               "tokens": self.args.tokens, "rounds": self.args.rounds, "torch_gemm": d is None,
               "kv_bytes": self.args.pool << 20}
        env = dict(d.env if d else os.environ, PYTHONPATH=str(self.site), OMP_NUM_THREADS="1",
                   VLLM_TARGET_DEVICE="cpu", VLLM_CPU_OMP_THREADS_BIND="nobind",
                   VLLM_LOGGING_LEVEL="ERROR", VLLM_ENABLE_V1_MULTIPROCESSING="0",
                   MM_CLIENT_LIB=str(self.args.build / "lib/libmm-client.so.0"))
        if d:
            env["MMD_SOCKET"] = str(d.dir / "tenant.sock")
            job |= {"options": {"load_format": "mmd",
                                "model_loader_extra_config": {"name": name}},
                    "until": {"steps": 1 << 60}}
        process = subprocess.Popen([str(self.args.venv / "bin/python"),
                                    str(TOP / "tests/engines/vllm_engine.py"), json.dumps(job)],
                                   env=env, text=True, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        for line in process.stdout:
            if line == "ready\n":
                return process
        raise RuntimeError(f"the engine {name} did not come up")

    def race(self, *engines, pause=0.0):
        """Lets engines go, one after the other; the seconds until the last is done, and results."""
        begin = time.monotonic()
        for number, process in enumerate(engines):
            if number:
                time.sleep(pause)
            process.stdin.write("go\n")
            process.stdin.flush()
        lines = [process.communicate()[0].splitlines()[-1] for process in engines]
        if any(process.returncode for process in engines):
            raise RuntimeError("an engine failed")
        return time.monotonic() - begin, [json.loads(line) for line in lines]

    @property
    def tokens(self):
        return self.args.requests * self.args.tokens * self.args.rounds


def say(what, seconds, tokens, results, ids):
    stats = [one["stats"] for one in results if one["stats"]]
    print(json.dumps({
        "what": what, "seconds": round(seconds, 2), "tokens_per_second": round(tokens / seconds, 1),
        "identical": all(rows == ids for one in results for rows in one["ids"]),
        "chunks_most": [one["chunks_most"] for one in stats],
        "gated": [f"{one['gated']}/{one['steps']}" for one in stats],
        "preempted": [one["preempted"] for one in stats],
        "returned": [one["returned"] for one in stats]}), flush=True)
    return tokens / seconds


def main():
    args = arguments()
    os.environ["MM_BUILD"] = str(args.build)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="mm-bench-vllm."))
    try:
        bench = Bench(args, folder)
        # Both by turns, so that what else the machine does meets both.
        ratios, pause = [], 0.0
        for _ in range(args.repeat):
            one = bench.start("plain")
            seconds, plain = bench.race(one)
            ids, pause = plain[0]["ids"][0], seconds / 2
            speed = say("plain", seconds, bench.tokens, plain, ids)
            with daemons(1, 4 * args.pool) as (d,):
                seconds, with_mmd = bench.race(bench.start("one", d))
            ratios.append(speed / say("mmd", seconds, bench.tokens, with_mmd, ids))
        speeds = {}
        for what, count, policy in (("halves", 2, "elastic"), ("trading", 2, "remap"),
                                    ("shared", 1, "remap")):
            with daemons(count, args.pool // count, policy) as made:
                pair = [bench.start(name, d) for name, d in zip(("one", "two"), made * 2)]
                seconds, results = bench.race(*pair, pause=pause)
            speeds[what] = say(what, seconds, 2 * bench.tokens, results, ids)
        print(json.dumps({"overhead": round(statistics.median(ratios), 3),
                          "shared_over_halves": round(speeds["shared"] / speeds["halves"], 3),
                          "shared_over_trading": round(speeds["shared"] / speeds["trading"], 3)}))
    except (OSError, RuntimeError) as error:
        print(f"bench_vllm: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
