# SPDX-License-Identifier: Apache-2.0
"""The part sizes: models of real size with too little KV memory, under each policy.

Weights are random (zeros run faster on real GPUs), the arithmetic is the deterministic one, tokens are
compared between policies. On the software GPU the same runs with small models of the same shapes.
"""

import contextlib
import csv
import dataclasses
import itertools
import json
import math
import os
import pathlib
import random
import shutil
import tempfile

from suite.identity import differences, tokens
from suite.work import Failure, OutOfTime

GIB = 1 << 30
# Each round runs all combos; important ones come first. "unlimited" is recompute with a large pool.
ROUNDS = (("recompute", "remap"), ("unlimited", "elastic"))
POLICIES = ROUNDS[0] + ROUNDS[1]
WINDOW_S, REHEARSAL_WINDOW_S = 30, 1
PROMPT_MAX, OUTPUT_MAX = 1536, 256
# Pages have 16 MiB; with 2 MiB there would be tens of thousands, each an open file in mmd.
PAGES = {"cuda": "16M", "software": "64K"}
# Host memory: a tenant's swap space; the rest for mmd, engines, page cache and system. Free disk.
# Device memory for contexts, activations and cuBLAS's workspaces.
SWAP_BYTES, MEMORY_MARGIN, DISK_MARGIN, DEVICE_MARGIN = 2 * GIB, 8 * GIB, 1 * GIB, 12 * GIB
REHEARSAL_LAYERS, REHEARSAL_RATE = 6, 40
READ_BYTES_PER_S = 0.7e9  # a slow disk
CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
UNLIMITED = 8  # factor of the KV memory that is too little
# For the rate of arrivals only: weights that a device reads in a second, attention and all else included,
# and how many rows share one reading (the deterministic products'). With 4e12, about what its memory
# reads, 21 s of work took an H100 67 s.
DEVICE_BYTES_PER_S, PRODUCT_ROWS, LOAD = 1.25e12, 64, 0.7


@dataclasses.dataclass(frozen=True)
class Shape:
    name: str
    layers: int
    hidden: int
    kv_heads: int
    ffn: int
    vocab: int
    positions: int
    gate: bool
    tied: bool

    def bytes(self, layers=None):
        """The bytes of all weights, in F16."""
        per_layer = self.hidden * (2 * self.hidden + 2 * 128 * self.kv_heads + (3 if self.gate else 2) * self.ffn)
        rest = self.vocab * self.hidden * (1 if self.tied else 2) + (0 if self.gate else self.positions * self.hidden)
        return 2 * ((layers or self.layers) * per_layer + rest)

    def kv_token_bytes(self, layers=None):
        return 2 * 2 * (layers or self.layers) * 128 * self.kv_heads


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("OPT-6.7B", 32, 4096, 32, 16384, 50272, 2048, False, True),
        Shape("OPT-13B", 40, 5120, 40, 20480, 50272, 2048, False, True),
        Shape("OPT-30B", 48, 7168, 56, 28672, 50272, 2048, False, True),
        Shape("Llama-3-8B", 32, 4096, 8, 14336, 128256, 8192, True, False),
    )
}


@dataclasses.dataclass(frozen=True)
class Combo:
    models: tuple
    what: str
    kv_bytes: int  # of all tenants together, too little for them


COMBOS = {
    "opt-13b": Combo(("OPT-13B",), "OPT-13B alone, 4 GiB of KV", 4 * GIB),
    "llama-opt": Combo(("Llama-3-8B", "OPT-6.7B"), "Llama-3-8B and OPT-6.7B, 5 GiB of KV", 5 * GIB),
    "opt-30b": Combo(("OPT-30B", "OPT-6.7B"), "OPT-30B and OPT-6.7B, 9 GiB of KV", 9 * GIB),
}


# ---- where models go ----


def available_bytes():
    """Returns the free memory of the machine, or of the container."""
    with open("/proc/meminfo", encoding="ascii") as lines:
        found = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    for path in CGROUP_LIMITS:
        with contextlib.suppress(OSError, ValueError):  # also of "max"
            found = min(found, int(pathlib.Path(path).read_text()))
    return found


def is_memory(folder):
    """Returns whether files in the folder take host memory."""
    best = ("", "")
    with open("/proc/mounts", encoding="utf-8") as lines:
        for line in lines:
            words = line.split()
            if str(folder.resolve()).startswith(words[1]) and len(words[1]) >= len(best[0]):
                best = (words[1], words[2])
    return best[1] in ("tmpfs", "ramfs")


@dataclasses.dataclass
class Place:
    folder: pathlib.Path
    free: int
    memory: bool


def places(args):
    names = args.work.split(",") if args.work else ["/dev/shm", os.environ.get("TMPDIR", "/tmp")]
    found = []
    for folder in map(pathlib.Path, names):
        if folder.is_dir():
            found.append(Place(folder, max(shutil.disk_usage(folder).free - DISK_MARGIN, 0), is_memory(folder)))
    return found


def place_all(shapes, found, memory):
    """Chooses a place for each model. Files in memory are read fastest, but mmd keeps a copy of all
    weights there, too. Layers of the largest model are left out until all fit.

    Returns ([(shape, layers, place)], numbers) or raises Failure with the numbers.
    """
    largest = max(shapes, key=lambda shape: shape.bytes())
    for layers in range(largest.layers, largest.layers // 4 - 1, -1):
        counts = [layers if shape is largest else shape.layers for shape in shapes]
        need = [shape.bytes(n) for shape, n in zip(shapes, counts)]
        for choice in itertools.product(range(len(found)), repeat=len(shapes)):
            on = [sum(n for n, c in zip(need, choice) if c == i) for i in range(len(found))]
            host = (
                sum(need)
                + sum(n for n, place in zip(on, found) if place.memory)
                + len(shapes) * SWAP_BYTES
                + MEMORY_MARGIN
            )
            if host <= memory and all(n <= place.free for n, place in zip(on, found)):
                numbers = {
                    "host_bytes": host,
                    "memory_bytes": memory,
                    "weights_bytes": sum(need),
                    "places": {str(place.folder): n for n, place in zip(on, found)},
                }
                return list(zip(shapes, counts, (found[c] for c in choice))), numbers
    raise Failure(
        f"{sum(shape.bytes() for shape in shapes) / GIB:.1f} GiB of weights need as much host memory again as files; "
        f"there are "
        f"{memory / GIB:.1f} GiB of memory and, free, "
        + ", ".join(f"{place.free / GIB:.1f} GiB in {place.folder}" for place in found)
    )


# ---- models ----


def make_model(suite, shape, layers, folder, seed):
    """Makes a model with mkmodel; for the software GPU a small one of the same proportions."""
    path = folder / f"{shape.name}-{layers}"
    argv = [
        suite.program("mkmodel"),
        "random",
        path,
        "--shape",
        shape.name,
        "--dtype",
        "f16",
        "--seed",
        seed,
        "--layers",
        layers,
    ]
    if suite.software:
        argv += ["--hidden", 256, "--vocab", 512]
    suite.need(shape.bytes(layers) / 1.5e9 if not suite.software else 5)
    done = suite.run(f"mkmodel-{shape.name}", argv)
    if done.code:
        raise Failure(f"mkmodel {shape.name}: {done.last_words() if done.ended else 'no time left'}")
    return path, done.seconds


def weight_bytes(suite, paths, page):
    """Returns the bytes of all models on the device, in whole pages."""
    done = suite.run("footprint", [suite.program("mmctl"), "--json", "footprint", *paths, "--page", page])
    got = done.json()
    if not got:
        raise Failure(f"mmctl footprint: {done.last_words()}")
    return sum(model["page_sizes"][0]["device_bytes"] for model in got["models"])


# ---- the trace ----


def rate_of(shapes):
    """Computes the requests/s that keep the device busy for LOAD of the time."""
    cost = sum(shape.bytes() / DEVICE_BYTES_PER_S * (PROMPT_MAX / 2 / PRODUCT_ROWS + 4) for shape in shapes) / len(
        shapes
    )
    return LOAD / cost


def arrivals(args, n, seed):
    """Returns (arrival, prompt, output) of n successive requests, from the trace if there is one."""
    dice = random.Random(seed)
    data = os.environ.get("MM_TEST_DATA")
    path = pathlib.Path(args.trace or (f"{data}/azure_code.csv" if data else "/nonexistent"))
    if path.exists():
        with open(path, newline="", encoding="utf-8") as lines:
            rows = [
                (float(row["arrival_s"]), int(row["prompt_tokens"]), int(row["output_tokens"]))
                for row in csv.DictReader(lines)
            ]
        first = dice.randrange(max(len(rows) - n, 1))
        return rows[first : first + n], path.name
    now, rows = 0.0, []
    for _ in range(n):
        now += dice.gammavariate(1 / 16, 16)  # a coefficient of variation of 4
        rows.append((now, int(dice.lognormvariate(7, 0.8)) + 1, int(dice.lognormvariate(3, 0.8)) + 1))
    return rows, "synthetic"


def write_trace(suite, path, shapes, seconds):
    """Writes a window of the trace for each tenant, with so many rows in so many seconds."""
    scale = 1 if not suite.software else 1 / 16
    rate = rate_of(shapes) / len(shapes) if not suite.software else REHEARSAL_RATE / (4 if suite.args.quick else 1)
    rows, source = [], ""
    for tenant in range(len(shapes)):
        got, source = arrivals(suite.args, max(int(rate * seconds), 4), 7 + tenant)
        first, span = got[0][0], max(got[-1][0] - got[0][0], 1e-6)
        rows += [
            (
                (at - first) / span * seconds,
                math.ceil(min(prompt, PROMPT_MAX) * scale),
                math.ceil(min(output, OUTPUT_MAX) * scale),
                tenant,
            )
            for at, prompt, output in got
        ]
    with open(path, "w", newline="", encoding="ascii") as out:
        writer = csv.writer(out)
        writer.writerow(["arrival_s", "prompt_tokens", "output_tokens", "tenant"])
        writer.writerows([f"{row[0]:.6f}", *row[1:]] for row in sorted(rows))
    return {
        "trace": source,
        "requests": len(rows),
        "rate_per_s": round(len(rows) / seconds, 2),
        "window_s": seconds,
        "prompt_tokens": sum(row[1] for row in rows),
        "output_tokens": sum(row[2] for row in rows),
    }


# ---- runs ----


def run_policy(suite, combo, policy, case, folder):
    models, device = case["models"], suite.state["device"].get("memory_bytes")
    kv = case["kv"] * (UNLIMITED if policy == "unlimited" else 1)
    if device:
        kv = max(min(kv, device - DEVICE_MARGIN - case["weights"]), case["kv"])
    stem, kept = f"sizes-{combo}-{policy}", folder / policy
    argv = [
        suite.program("mmbench"),
        "serve",
        "--models",
        ",".join(map(str, models)),
        "--trace",
        case["trace"],
        "--duration",
        0,
        "--driver",
        suite.args.driver,
        "--policies",
        "recompute" if policy == "unlimited" else policy,
        "--pool",
        case["weights"] + kv,
        "--kv-share",
        kv // len(models),
        "--page",
        PAGES[suite.args.driver],
        "--max-batch",
        256,
        "--max-batched-tokens",
        2048,
        "--json",
        "--keep",
        kept,
        "--mmserve",
        "--kv-dtype f16" + (f" --swap {SWAP_BYTES}" if policy == "remap" and not suite.software else ""),
    ]
    # Time to read weights and to serve, twice; a run that takes longer hangs.
    limit = None if suite.software else case["weights"] / READ_BYTES_PER_S + 4 * WINDOW_S + 60
    done = suite.run(stem, argv, limit=limit)
    got = done.json()
    if not done.ended and suite.left() < 5:
        raise OutOfTime(f"{policy} was ended by the budget after {done.seconds:.0f} s")
    if not done.ended:
        raise Failure(f"{policy} took longer than {done.seconds:.0f} s: {done.last_words()}; logs/{stem}.log")
    if not got:
        raise Failure(f"{policy}: {done.last_words()}; logs/{stem}.log")
    (result,) = got["results"].values()
    ids = {f"{path.stem}/{name}": each for path in sorted(kept.rglob("*.jsonl")) for name, each in tokens(path).items()}
    (suite.logs / f"{stem}.ids.json").write_text(json.dumps(ids))
    return {
        **result,
        "pool_bytes": got["pool_bytes"],
        "kv_share_bytes": got["kv_share_bytes"],
        "seconds": round(done.seconds, 1),
    }


def compare(suite, combo, policies):
    """Compares with the first run: tokens that differ, and each model's number of distinct tokens."""
    first = None
    for policy in [policy for policy in POLICIES if policy in policies]:
        path = suite.logs / f"sizes-{combo}-{policy}.ids.json"
        if not path.exists():
            continue
        ids = json.loads(path.read_text())
        policies[policy]["distinct_tokens"] = len({token for each in ids.values() for token in each})
        first = ids if first is None else first
        policies[policy]["differ"] = differences(first, ids)


def place_models(suite, shapes, record, folder):
    """Returns [(shape, layers, Place)]."""
    if suite.software:
        placed, record["fits"] = [(shape, REHEARSAL_LAYERS, Place(folder, 0, False)) for shape in shapes], {}
    else:
        placed, record["fits"] = place_all(shapes, places(suite.args), suite.args.memory or available_bytes())
    record["layers"] = {shape.name: [layers, shape.layers] for shape, layers, _ in placed}
    return placed


def run_combo(suite, name, record, wanted, folder):
    combo = COMBOS[name]
    shapes = [SHAPES[model] for model in combo.models]
    record["what"] = combo.what
    models, made, policies = [], [], record.setdefault("policies", {})
    seconds = REHEARSAL_WINDOW_S if suite.software else WINDOW_S
    try:
        for seed, (shape, layers, place) in enumerate(place_models(suite, shapes, record, folder)):
            made.append(pathlib.Path(tempfile.mkdtemp(prefix="mmgs.", dir=place.folder)))
            path, took = make_model(suite, shape, layers, made[-1], seed)
            models.append(path)
            record.setdefault("mkmodel_s", {})[shape.name] = round(took, 1)
        case = {
            "models": models,
            "trace": folder / "trace.csv",
            "weights": weight_bytes(suite, models, PAGES[suite.args.driver]),
            "kv": len(models) << 20 if suite.software else combo.kv_bytes,
        }
        record["weights_bytes"] = case["weights"]
        record["trace"] = write_trace(suite, case["trace"], shapes, seconds)
        failed = []
        for policy in wanted:
            suite.need(1 if suite.software else 2 * seconds)
            try:
                policies[policy] = run_policy(suite, name, policy, case, folder)
            except Failure as error:  # the next run goes on
                failed.append(str(error))
                continue
            compare(suite, name, policies)
            suite.say(
                f"sizes {name} {policy}: {policies[policy]['throughput_tok_s']:.1f} tok/s, "
                f"{policies[policy]['differ']} differ"
            )
            suite.save()
        if failed:
            raise Failure("; ".join(failed))
    finally:
        for path in made:
            shutil.rmtree(path, ignore_errors=True)


def run_round(suite, name, one, wanted):
    """Runs one combo under the policies that have not run; its record states the outcome."""
    wanted = [policy for policy in wanted if policy not in one.get("policies", {})]
    if not wanted:
        return
    one.update(outcome="running", why="")
    with tempfile.TemporaryDirectory(prefix="mmgs.", dir="/tmp") as folder:
        try:
            run_combo(suite, name, one, wanted, pathlib.Path(folder))
            left = [policy for policy in POLICIES if policy not in one["policies"]]
            one.update(outcome="partly done" if left else "done", why=f"not run: {', '.join(left)}" if left else "")
        except Failure as error:
            one.update(outcome="failed", why=str(error))
        except OutOfTime as error:
            one.update(outcome="out of time", why=str(error))
            raise OutOfTime(f"{name}: {error}") from None
        finally:
            suite.save()


def run(suite, record):
    combos = record.setdefault("combos", {})
    for name in suite.args.combo:
        combos.setdefault(name, {"outcome": "not run", "why": "was not begun", "policies": {}})
    for wanted in ROUNDS:
        for name in suite.args.combo:
            if combos[name]["outcome"] != "failed" or wanted is ROUNDS[0]:
                run_round(suite, name, combos[name], wanted)
    bad = [f"{name}: {one['why']}" for name, one in combos.items() if one["outcome"] == "failed"]
    bad += [
        f"{name}: tokens differ"
        for name, one in combos.items()
        if any(policy["differ"] for policy in one["policies"].values())
    ]
    if bad:
        raise Failure("; ".join(bad))
