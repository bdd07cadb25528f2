# SPDX-License-Identifier: Apache-2.0
"""Makes gpu-suite.md from the state in gpu-suite.json."""

from suite import rows as document
from suite.work import PARTS

UNITS = {"bytes_per_s": (1e9, "GB/s"), "flops": (1e12, "TFLOP/s"), "flop_per_s": (1e12, "TFLOP/s"), "s": (1e-6, "µs")}
NOT_RUN = "*not run*"


def cell(value):
    return str(value).replace("|", "\\|").replace("\n", " ")


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(cell(value) for value in row) + " |" for row in rows]) + "\n"


def raw_table(head, lines):
    """Makes a table of cells that are Markdown already."""
    return (
        "\n".join(
            [
                "| " + " | ".join(head) + " |",
                "|" + "---|" * len(head),
                *("| " + " | ".join(line) + " |" for line in lines),
            ]
        )
        + "\n"
    )


def number(value):
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def amount(value, unit):
    if unit == "s" and value >= 1e-2:
        return f"{number(value * 1e3)} ms"
    scale, name = UNITS.get(unit, (1, unit))
    return f"{number(value / scale)} {name}"


def size(value):
    for bits, name in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if value >= 1 << bits:
            return f"{value / (1 << bits):.1f} {name}"
    return f"{value} B"


# ---- what it ran on ----


def machine(state):
    device, host = state["device"], state["machine"]
    build = state["parts"]["build"].get("tools", {})
    rows = [("device", device["name"])]
    if not device["software"]:
        blas = device["cublas"]
        rows += [
            ("UUID", device["uuid"]),
            ("memory", size(device["memory_bytes"])),
            (
                "compute capability",
                f"{device['capability_major']}.{device['capability_minor']}, {device['processors']} multiprocessors",
            ),
            ("driver", f"{host['kernel_driver'] or 'not told'}, CUDA {device['cuda_version']}"),
            ("cuBLAS", blas.get("version") or blas["error"]),
            ("nvcc", build.get("nvcc") or "none"),
        ]
        settings = device.get("settings") or {}
        rows += [
            (
                "PCIe",
                f"generation {settings.get('pcie.link.gen.max', '?')}, "
                f"{settings.get('pcie.link.width.max', '?')} lanes",
            )
        ]
    rows += [
        ("kernel", f"{host['kernel']}, {host['machine']}"),
        ("host", f"{host['cores']} cores, {size(host['memory_bytes'])}"),
        ("date", f"{state['begun']} to {state['saved']}"),
        ("commit", state["commit"]),
        ("sizes", "quick" if state["quick"] else "full"),
    ]
    rows += [("command line", f"`{line}`") for line in state["commands"]]
    return table(("", ""), rows)


def settings(state):
    before, after = state["device"].get("settings"), state["device"].get("settings_after")
    if not before or not after:
        return ""
    keys = [key for key in before if key != "memory.used" and before[key] != after.get(key)]
    return (
        "Settings of the device that changed while the suite ran: "
        + (", ".join(keys) if keys else "none")
        + f". Memory in use before: {before.get('memory.used', '?')}, after: {after.get('memory.used', '?')}.\n\n"
    )


def parts(state):
    rows = [
        (
            name,
            part["outcome"] if part["outcome"] != "not run" else NOT_RUN,
            part.get("seconds", ""),
            part.get("commit", ""),
            part["why"] or part.get("note", ""),
        )
        for name, part in state["parts"].items()
        if name in PARTS
    ]
    return table(("part", "outcome", "seconds", "commit", "why"), rows)


# ---- parts ----


def build(part):
    rows = []
    for name, found in (part.get("fatbins") or {}).items():
        rows.append(
            (name, size(found["bytes"]) if found else "not built", ", ".join(found.get("code", [])) if found else "")
        )
    return table(("CUDA kernels", "size", "machine code, by cuobjdump"), rows) if rows else ""


def conformance(part):
    programs = part.get("programs", {})
    tests = [(name, test) for name, program in programs.items() for test in program["tests"]]
    counts = {}
    for _, test in tests:
        counts[test["outcome"]] = counts.get(test["outcome"], 0) + 1
    text = ", ".join(f"{n} {outcome}" for outcome, n in sorted(counts.items())) or "no test told how it went"
    left = [name for name in part.get("asked", []) if name not in programs]
    text = f"{len(programs)} of {len(part.get('asked', []))} programs; of their tests {text}.\n\n"
    if left:
        text += f"Not run: {', '.join(left)}.\n\n"
    text += table(
        ("program", "outcome", "seconds"),
        [(name, program["outcome"], program["seconds"]) for name, program in programs.items()],
    )
    rows = [
        (name.split("/", 1)[1], test["test"], test["outcome"], test["reason"])
        for name, test in tests
        if test["outcome"] != "passed"
    ]
    text += (
        "\nTests that failed or were skipped:\n\n" + table(("program", "test", "outcome", "why"), rows)
        if rows
        else "\nNo test failed or was skipped.\n"
    )
    if part.get("software"):
        rows = [(row["fact"], row["test"], row["software"], row["here"]) for row in part.get("differs", [])]
        text += (
            (
                "\nFacts whose answer is another one than the software GPU's (durations are not compared):\n\n"
                + table(("fact", "test", "software GPU", "here"), rows)
            )
            if rows
            else "\nEvery fact is as on the software GPU (durations are not compared).\n"
        )
    return text


def told(part):
    rows = []
    for name, program in part.get("programs", {}).items():
        for fact, told_as in program["facts"].items():
            value = told_as["value"]
            rows.append(
                (
                    fact,
                    "not finite" if value is None else number(value) if isinstance(value, (int, float)) else value,
                    told_as["unit"],
                )
            )
    return "\nAll facts:\n\n" + table(("fact", "value", "unit"), rows) if rows else ""


def identity(part):
    rows = []
    for case in part.get("cases", []):
        more = [f"{size(case['streamed_bytes'])} streamed"] if "streamed_bytes" in case else []
        if "preemptions" in case:
            more += ["preemptions " + ", ".join(f"{policy} {n}" for policy, n in case["preemptions"].items())]
        if "gated_steps" in case:
            more += [
                f"{case['gated_steps']} of {case['steps']} steps with layers away, {case['graph_launches']} as graphs"
            ]
        if "failed" in case:
            rows.append((case["case"], "–", "–", "–", f"**failed**: {case['failed']}"))
            continue
        rows.append((case["case"], case["tokens"], case["differ"], case.get("checksum_failures", "–"), "; ".join(more)))
    text = table(("case", "tokens", "differ", "layers with wrong bytes", ""), rows)
    return text if part.get("trained_model") else text + "\nWithout the trained model (MM_TEST_DATA is not set).\n"


def goal(row):
    if not row.get("goal"):
        return "–", "–"
    ((kind, value),) = row["goal"].items()
    reached = {True: "reached", False: "missed", None: "not judged"}[row.get("reached")]
    return f"{'≥' if kind == 'at_least' else '≤'} {value:g}", reached


def bench(part):
    rows = []
    for name in part.get("asked", []):
        done = part["parts"].get(name)
        if not done:
            rows.append((name, NOT_RUN, "", "", "", "", "", ""))
            continue
        if done["outcome"] != "done":
            rows.append((name, done["outcome"], "", "", "", "", "", done["why"]))
        for row in done["rows"]:
            params = ", ".join(f"{key}={value}" for key, value in row["params"].items())
            against = amount(row["reference"]["median"], row["unit"]) if "reference" in row else "–"
            ratio = f"{row['ratio']:.3f} ({row['ratio_p10']:.3f} – {row['ratio_p90']:.3f})" if "ratio" in row else "–"
            rows.append(
                (
                    name,
                    row["name"],
                    params,
                    amount(row["figure"]["median"], row["unit"]),
                    f"{against}, {row['reference_name']}" if "reference" in row else "–",
                    ratio,
                    *goal(row),
                )
            )
    return table(("part", "figure", "", "measured", "reference", "ratio (p10 – p90)", "goal", ""), rows)


def goals(part):
    """Returns one line for each goal, with its worst case."""
    worst = {}
    for name in part.get("asked", []):
        for row in part["parts"].get(name, {}).get("rows", []):
            if not row.get("goal") or "ratio" not in row:
                continue
            ((kind, value),) = row["goal"].items()
            off = row["ratio"] / value if kind == "at_most" else value / row["ratio"] if row["ratio"] else float("inf")
            known = worst.setdefault((name, row["name"]), [off, row, 0, 0])
            known[2] += row.get("reached") is True
            known[3] += 1
            if off > known[0]:
                known[:2] = off, row
    rows = [
        (
            name,
            figure,
            goal(row)[0],
            f"{row['ratio']:.3f}",
            ", ".join(f"{key}={value}" for key, value in row["params"].items()),
            f"{reached} of {n}" if row.get("reached") is not None else "not judged",
        )
        for (name, figure), (_, row, reached, n) in worst.items()
    ]
    return (
        "Goals, each by its worst case:\n\n"
        + table(("part", "figure", "goal", "worst ratio", "where", "cases that reach it"), rows)
        + "\n"
        if rows
        else ""
    )


def verdict(policies):
    """Returns sentences about the gain of remapping."""
    base, remap = policies.get("recompute"), policies.get("remap")
    if not base or not remap:
        return ""
    gain = remap["throughput_tok_s"] / base["throughput_tok_s"] - 1 if base["throughput_tok_s"] else 0
    ttft = f"TTFT P99 {base['ttft_p99_s']:.2f} s → {remap['ttft_p99_s']:.2f} s"
    if not remap.get("layers_remapped_max"):
        return f"The controller declined: nothing was remapped. Tokens/s {gain:+.1%} (pooled KV alone), {ttft}.\n"
    if not remap.get("bytes_streamed"):
        return (
            f"Layers of idle models were lent, nothing was streamed. Tokens/s {gain:+.1%} against recompute, {ttft}.\n"
        )
    pays = "Remapping pays" if gain > 0.02 else "Remapping does not pay"
    return f"{pays}: tokens/s {gain:+.1%} against recompute, {ttft}.\n"


def combo(name, one):
    text = f"### {name}: {one.get('what', '')}\n\n"
    if one["outcome"] != "done":
        text += f"{one['outcome']}: {one['why']}\n\n"
    less = [f"{model} with {n} of {whole} layers" for model, (n, whole) in one.get("layers", {}).items() if n != whole]
    if less:
        text += f"**Not whole**: {', '.join(less)}.\n\n"
    if one.get("fits"):
        fits = one["fits"]
        text += (
            f"Weights {size(fits['weights_bytes'])}, files in "
            + ", ".join(f"{folder} ({size(n)})" for folder, n in fits["places"].items())
            + f"; host memory wanted {size(fits['host_bytes'])} of {size(fits['memory_bytes'])}.\n\n"
        )
    if "trace" in one:
        trace = one["trace"]
        text += (
            f"{trace['requests']} requests of {trace['trace']} in {trace['window_s']} s "
            f"({trace['rate_per_s']} per second), "
            f"{trace['prompt_tokens']} prompt and {trace['output_tokens']} output tokens.\n\n"
        )
    rows = []
    for policy, got in one.get("policies", {}).items():
        rows.append(
            (
                policy,
                size(got["kv_share_bytes"]),
                f"{got['throughput_tok_s']:.1f}",
                f"{got['ttft_p50_s']:.3f}",
                f"{got['ttft_p99_s']:.3f}",
                f"{got['tbt_p99_s']:.4f}",
                got["preemptions"],
                got.get("layers_remapped_max", "–"),
                size(got["bytes_streamed"]) if "bytes_streamed" in got else "–",
                got.get("plan_changes", "–"),
                got["differ"],
                got["distinct_tokens"],
            )
        )
    if rows:
        text += (
            table(
                (
                    "policy",
                    "KV share",
                    "tokens/s",
                    "TTFT P50 s",
                    "P99 s",
                    "TBT P99 s",
                    "preemptions",
                    "layers away",
                    "streamed",
                    "plan changes",
                    "tokens that differ",
                    "different tokens",
                ),
                rows,
            )
            + "\n"
            + verdict(one["policies"])
            + "\n"
        )
    return text


def sizes(part):
    return "".join(combo(name, one) for name, one in part.get("combos", {}).items())


def engines(part):
    text = f"{', '.join(part['versions'])}.\n\n" if part.get("versions") else ""
    rows = [
        (name, one["outcome"], one["seconds"], line)
        for name, one in part.get("cases", {}).items()
        for line in (one["lines"] or [one["why"]])[-3:]
    ]
    return text + (table(("program", "outcome", "seconds", "its last lines"), rows) if rows else "")


BODIES = (
    ("build", "Build", build),
    ("conformance", "Conformance", conformance),
    ("identity", "Token identity", identity),
    ("engines", "Engines", engines),
    ("bench", "Benchmarks", lambda part: goals(part) + bench(part)),
    ("sizes", "Real sizes", sizes),
)


def markdown(state):
    text = "# GPU suite\n\n"
    if state["rehearsal"]:
        text += (
            "**A rehearsal on the software GPU**, with small sizes: it shows that the suite runs. Its numbers say "
            "nothing about "
            "hardware.\n\n"
        )
    text += machine(state) + "\n" + settings(state) + parts(state)
    for name, title, body in BODIES:
        part = state["parts"][name]
        text += f"\n## {title}\n\n"
        if part["outcome"] == "not run":
            text += f"{NOT_RUN}: {part['why']}\n"
            continue
        if part["outcome"] != "done":
            text += f"**{part['outcome']}**{': ' + part['why'] if part['why'] else ''}\n\n"
        text += body(part)
    if told(state["parts"]["conformance"]):
        text += "\n## Facts\n" + told(state["parts"]["conformance"])
    filled = document.fill(state)
    if filled:
        text += "\n## Rows for Documentation/results/gpu.md\n"
    for title, head, lines in filled:
        text += f"\n### {title}\n\n" + raw_table(head, lines)
    return text
