# SPDX-License-Identifier: Apache-2.0
"""The part engines: PyTorch and transformers on mmd's memory, with a Python that has them."""

import os
import pathlib
import sys

from suite.work import TOP, Failure

NEEDS = ("cffi", "torch", "transformers")
# Name, arguments of the program, most seconds, whether it needs a GPU. Demonstrations end by a line that says it.
CASES = (
    ("demo", ["-m", "mmd.hf.demo"], 180, False),
    ("torch", [TOP / "tests/engines/gpu_torch.py"], 120, True),
    ("overhead", [TOP / "tests/engines/overhead.py"], 180, False),
)


def python_of(suite):
    """Returns a Python that has all of NEEDS, or None and a sentence that says what is missing."""
    venv = os.environ.get("MM_ENGINES_VENV")
    python = str(pathlib.Path(venv) / "bin/python") if venv else sys.executable
    done = suite.run("engines-python", [python, "-c", f"import {', '.join(NEEDS)}"], limit=120)
    return (python, "") if not done.code and done.ended else (None, f"{python}: {done.last_words()}")


def versions(suite, python):
    text = "; ".join(f"import {name}; print('{name}', {name}.__version__)" for name in NEEDS)
    return suite.run("engines-versions", [python, "-c", text], limit=120).text().split("\n")[:-1]


def run_one(suite, python, name, argv, limit):
    env = {
        "MM_CLIENT_LIB": str(suite.build / "lib/libmm-client.so.0"),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(TOP / "libclient/python"), os.environ.get("PYTHONPATH")])),
        "PYTHONUNBUFFERED": "1",
    }
    options = [] if name == "torch" else ["--driver", suite.args.driver]
    if suite.args.quick:
        options += {"demo": ["--tokens", "8", "--rounds", "1"], "overhead": ["--tokens", "8", "--rounds", "9"]}.get(
            name, []
        )
    done = suite.run(f"engines-{name}", [python, *argv, *options], env=env, limit=min(limit, max(suite.left() - 5, 1)))
    lines = done.text().strip().splitlines()
    outcome = "took too long" if not done.ended else "failed" if done.code else "done"
    return {
        "outcome": outcome,
        "why": "" if outcome == "done" else done.last_words(),
        "seconds": round(done.seconds, 1),
        "lines": lines[-6:],
    }


def run(suite, record):
    suite.program("mmd")
    python, missing = python_of(suite)
    if not python:
        record["note"] = f"nothing was run: {missing}"
        return
    record["versions"] = versions(suite, python)
    cases = record.setdefault("cases", {})
    for name, argv, limit, gpu in CASES:
        if cases.get(name, {}).get("outcome") == "done" or (gpu and suite.software):
            continue
        suite.need(20)
        cases[name] = run_one(suite, python, name, argv, limit)
        suite.say(f"engines {name}: {cases[name]['outcome']} {cases[name]['why']}".rstrip())
        suite.save()
    bad = [f"{name}: {one['outcome']} {one['why']}" for name, one in cases.items() if one["outcome"] != "done"]
    if bad:
        raise Failure("; ".join(bad))
