# SPDX-License-Identifier: Apache-2.0
"""The part bench: `gpubench`, one part per process, so that a crash costs only one of them."""

import contextlib
import json

from suite.work import Failure, OutOfTime

PATIENCE_S = 120


def read_rows(path):
    rows = []
    for line in path.read_text().splitlines() if path.exists() else []:
        with contextlib.suppress(ValueError):
            row = json.loads(line)
            if "figure" in row:
                rows.append(row)
    return rows


def run_one(suite, part, seconds):
    out = suite.logs / f"bench-{part}.jsonl"
    out.unlink(missing_ok=True)
    patience = max(int(min(PATIENCE_S, seconds)), 1)
    argv = [
        suite.bin / "gpubench",
        part,
        "--driver",
        suite.args.driver,
        "--out",
        out,
        "--json",
        "--patience",
        patience,
    ]
    # gpubench ends a part that takes too long, unless it hangs in the driver.
    quick = ["--quick", "--repeat", "2"] if suite.args.quick else []
    done = suite.run(f"bench-{part}", argv + quick, limit=patience + 60)
    got = done.json() or {}
    outcomes = got.get("parts") or [{"outcome": "failed" if done.ended else "took too long", "why": done.last_words()}]
    return {
        "outcome": outcomes[0]["outcome"],
        "why": outcomes[0].get("why", ""),
        "seconds": round(done.seconds, 1),
        "device": got.get("device"),
        "rows": read_rows(out),
    }


def run(suite, record):
    suite.program("gpubench")
    listed = suite.run("bench-list", [suite.bin / "gpubench", "--list"]).text().splitlines()
    # The measurements of a part are indented below it.
    parts = [line.split()[0] for line in listed if line[:1].strip()]
    if not parts:
        raise Failure("gpubench --list names no part")
    record["asked"] = parts
    done = record.setdefault("parts", {})
    # A part that failed is tried again after all others.
    for part in sorted(parts, key=lambda part: part in done):
        if part in done and done[part]["outcome"] in ("done", "absent"):
            continue
        try:
            suite.need(15)
        except OutOfTime as error:
            left = [name for name in parts if name not in done]
            raise OutOfTime(f"{error}; not run: {', '.join(left) or part}") from None
        done[part] = run_one(suite, part, suite.left() - 5)
        suite.say(f"bench {part}: {done[part]['outcome']} {done[part]['why']}".rstrip())
        suite.save()
    bad = [part for part in parts if done[part]["outcome"] not in ("done", "absent")]
    if bad:
        raise Failure("; ".join(f"{part}: {done[part]['outcome']} {done[part]['why']}".rstrip() for part in bad))
