# SPDX-License-Identifier: Apache-2.0
"""`tools/gpu-suite`: what it says where there is no GPU; a rehearsal on the software GPU and what it writes."""

import ctypes
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tarfile

import pytest

import daemon
from programs import BUILD, SANITIZE, TOP, limit, wait_until

sys.path.insert(0, str(TOP / "tools/lab"))

from suite import identity, report, rows, sizes, work  # noqa: E402
from suite.work import Failure  # noqa: E402

SUITE = TOP / "tools/gpu-suite"
PARTS = ["build", "conformance", "identity", "engines", "bench", "sizes"]


def suite(*args, **environment):
    env = {key: value for key, value in os.environ.items() if not key.startswith("MM_SOFTGPU_")}
    done = subprocess.run(
        [sys.executable, SUITE, *map(str, args)],
        capture_output=True,
        text=True,
        timeout=limit(900),
        check=False,
        env={**env, **environment},
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    wait_until(
        lambda: not [pid for pid in daemon.children(os.getpid()) if daemon.alive(pid)], 20, "all processes to end"
    )


def no_driver():
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return True
    return False


@pytest.mark.skipif(not no_driver(), reason="there is an NVIDIA driver")
def test_engines_of_a_python_without_them(root):
    """A Python that lacks PyTorch runs nothing, and the report names it."""
    (root / "bin").mkdir()
    (root / "bin/python").write_text("#!/bin/sh\necho 'No module named torch' >&2\nexit 1\n")
    (root / "bin/python").chmod(0o755)
    arguments = ("--driver", "software", "--quick", "--no-install", "--build", BUILD, "--part", "engines")
    code, text, errors = suite(root / "out", *arguments, MM_ENGINES_VENV=str(root))
    assert code == 0, text + errors
    part = json.loads((root / "out/gpu-suite.json").read_text())["parts"]["engines"]
    assert part["outcome"] == "done" and "cases" not in part
    assert part["note"] == f"nothing was run: {root}/bin/python: No module named torch"
    assert part["note"] in (root / "out/gpu-suite.md").read_text()


def test_without_a_gpu(root):
    """One sentence and 77, and nothing is written."""
    code, text, errors = suite(root / "out", "--part", "build,bench")
    assert code == 77 and not text
    assert re.fullmatch(r"gpu-suite: no GPU: [^\n]*libcuda\.so\.1[^\n]*\n", errors), errors
    assert not (root / "out").exists()


def a_library():
    """One that any process can load: those of a sanitizer's build want its runtime first."""
    maps = pathlib.Path("/proc/self/maps").read_text(encoding="ascii", errors="replace")
    return re.search(r"/\S*/libc[.-]\S*", maps).group()


def test_a_driver_without_a_device(root):
    """A library of that name which is no driver is named, with what it lacks."""
    (root / "lib").mkdir()
    (root / "lib/libcuda.so.1").symlink_to(a_library())
    code, _, errors = suite(root / "out", LD_LIBRARY_PATH=str(root / "lib"))
    assert code == 77 and errors.startswith("gpu-suite: no GPU: "), errors
    assert not (root / "out").exists()


def check_state(state):
    assert state["schema"] == 1 and state["rehearsal"] and state["driver"] == "software"
    assert state["device"]["software"] and state["commit"] and state["machine"]["cores"] > 0
    assert list(state["parts"]) == PARTS
    for part in state["parts"].values():
        assert part["outcome"] in ("done", "not run") and isinstance(part["why"], str), part


def check_markdown(text):
    assert "rehearsal on the software GPU" in text
    # Every row of a table has as many cells as its head.
    rows = [line for line in text.splitlines()]
    for i, line in enumerate(rows):
        if set(line) <= set("|-") and line.startswith("|-"):
            for row in rows[i + 1 :]:
                if not row.startswith("|"):
                    break
                assert len(re.findall(r"(?<!\\)\|", row)) == line.count("|"), row


def state_of(out):
    state = json.loads((out / "gpu-suite.json").read_text())
    check_state(state)
    check_markdown((out / "gpu-suite.md").read_text())
    assert sorted(path.name for path in out.iterdir()) == ["gpu-suite.json", "gpu-suite.md", "logs"]
    return state


def rehearse(out, *args):
    code, text, errors = suite(
        out, "--driver", "software", "--quick", "--no-install", "--build", BUILD, "--commit", "abc123", *args
    )
    assert code == 0, text + errors
    return state_of(out)


def check_conformance(part):
    assert set(part["programs"]) == set(part["asked"]) >= {"conformance/memory"}
    tests = part["programs"]["conformance/memory"]["tests"]
    assert {test["outcome"] for test in tests} <= {"passed", "skipped"} and len(tests) > 5
    assert "memory/create.descriptors" in part["programs"]["conformance/memory"]["facts"]


def check_sizes(part):
    (one,) = part["combos"].values()
    assert list(one["policies"]) == ["recompute", "remap", "unlimited", "elastic"]
    for policy in one["policies"].values():
        assert (
            policy["differ"] == 0 and policy["requests"] == one["trace"]["requests"] and policy["throughput_tok_s"] > 0
        )
        # Random weights that say the same token always would hide any difference.
        assert policy["distinct_tokens"] > 5


def test_rehearsal(root):
    """Part by part, as on a machine that ends each command: what was done stays."""
    out = root / "out"
    state = rehearse(out, "--part", "conformance", "--copy", root / "copy")
    assert (root / "copy/gpu-suite.json").read_text() == (out / "gpu-suite.json").read_text()
    check_conformance(state["parts"]["conformance"])
    ran_in = re.findall(r"changing into directory: (.*)", "".join(log.read_text() for log in (out / "logs").iterdir()))
    assert ran_in and str(BUILD) not in ran_in, "a ctest around this one writes down there what ran"
    assert state["parts"]["bench"]["outcome"] == "not run"
    assert "*not run*" in (out / "gpu-suite.md").read_text()
    code, _, errors = suite(out, "--driver", "software", "--quick", "--part", "bench")
    assert code == 2 and "--resume" in errors
    state = rehearse(out, "--part", "sizes", "--combo", "opt-13b", "--resume")
    check_conformance(state["parts"]["conformance"])
    check_sizes(state["parts"]["sizes"])
    assert len(state["commands"]) == 2 and state["commit"] == "abc123"
    assert "0 B" in (out / "gpu-suite.md").read_text() or "streamed" in (out / "gpu-suite.md").read_text()


@pytest.mark.skipif(bool(SANITIZE), reason="what runs is tested under sanitizers by itself")
def test_identity_and_bench(root):
    state = rehearse(root / "out", "--part", "identity,bench")
    cases = state["parts"]["identity"]["cases"]
    assert len(cases) >= 4 and all(case["tokens"] > 0 and case["differ"] == 0 for case in cases)
    under = [case for case in cases if "gated_steps" in case]
    assert under and all(case["gated_steps"] == case["steps"] > 0 and case["streamed_bytes"] > 0 for case in under)
    assert any(case["graph_launches"] for case in under)
    parts = state["parts"]["bench"]["parts"]
    assert set(parts) == set(state["parts"]["bench"]["asked"])
    assert all(row["reached"] is None for part in parts.values() for row in part["rows"] if "goal" in row)


class Told:
    """What a suite's arguments are, as far as saving asks."""

    def __init__(self, root):
        self.outdir, self.build, self.driver, self.budget = root / "out", root, "software", None
        self.copy = str(root / "copy")


def a_suite(root):
    suite = work.Suite(Told(root), {})
    # It adopts what its programs leave behind; we do not.
    work.libc().prctl(work.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    return suite


def test_saving_whatever_comes(root):
    """Numbers that JSON has not, a report that fails: the rest is written, and copied with all logs."""
    suite = a_suite(root)
    suite.logs.mkdir(parents=True)
    (suite.logs / "long.log").write_bytes(b"x" * (work.LOG_BYTES + 5) + b"end")
    suite.state = {"a": [float("nan"), 1.5], "b": {"c": float("inf")}}
    suite.report = lambda state: state["nothing"]
    suite.save()
    for folder in (root / "out", root / "copy"):
        assert json.loads((folder / "gpu-suite.json").read_text()) == {"a": [None, 1.5], "b": {"c": None}}
        assert "KeyError" in (folder / "gpu-suite.md").read_text()
    with tarfile.open(root / "copy/logs.tar.gz") as tar:
        (member,) = tar.getmembers()
        assert member.name == "logs/long.log" and member.size == work.LOG_BYTES
        assert tar.extractfile(member).read().endswith(b"end")
    assert sorted(path.name for path in (root / "copy").iterdir()) == [
        "gpu-suite.json",
        "gpu-suite.md",
        "logs.tar.gz",
    ]


def test_a_signal_while_saving(root):
    """It ends the suite wherever it comes, also where a report that fails is no reason to end."""
    suite = a_suite(root)

    def interrupted(state):
        raise work.Interrupted

    suite.report = interrupted
    with pytest.raises(work.Interrupted):
        suite.save()


def test_a_case_that_fails(root):
    """It is told, and the next one is asked for."""
    suite = a_suite(root)
    suite.report = lambda state: ""
    record = {"cases": []}

    def broken():
        raise Failure("no luck")

    once = identity.Once(broken)
    for name in ("first", "second"):
        identity.run_case(suite, record, name, lambda: identity.elsewhere(once, {}))
    identity.run_case(suite, record, "third", lambda: identity.elsewhere(lambda: {"0": [1, 2]}, {"0": [1, 3]}))
    assert [case.get("failed") for case in record["cases"]] == ["no luck", "no luck", None]
    assert record["cases"][2] == {"case": "third", "tokens": 2, "differ": 1}
    text = report.identity({**record, "trained_model": True})
    assert text.count("**failed**: no luck") == 2
    check_markdown("rehearsal on the software GPU\n" + text)


def test_no_time(root):
    """What the budget does not allow is not run, and said so."""
    code, text, _ = suite(
        root / "out", "--driver", "software", "--no-install", "--build", BUILD, "--part", "bench,sizes", "--budget", 1
    )
    assert code == 1
    parts = json.loads((root / "out/gpu-suite.json").read_text())["parts"]
    assert parts["bench"]["outcome"] == "out of time" and "not run: " in parts["bench"]["why"], parts
    assert "out of time" in (root / "out/gpu-suite.md").read_text()


ENDLESS = """#!/bin/sh
case " $* " in *" stream "* | *" --list "*) exec {gpubench} "$@" ;; esac
exec sleep infinity
"""


def endless_build(root):
    """As what is built, but of gpubench's parts only the first ever ends."""
    build = root / "build"
    (build / "bin").mkdir(parents=True)
    (build / "lib").symlink_to((BUILD / "lib").resolve())
    (build / "bin/gpubench").write_text(ENDLESS.format(gpubench=(BUILD / "bin/gpubench").resolve()))
    (build / "bin/gpubench").chmod(0o755)
    for path in (BUILD / "bin").iterdir():
        if path.name != "gpubench":
            (build / "bin" / path.name).symlink_to(path.resolve())
    return build


def test_interrupted(root):
    """A signal ends everything that runs, and what was done is written."""
    log, build = root / "log", endless_build(root)
    options = ["--driver", "software", "--no-install", "--build", build, "--part", "bench"]
    with open(log, "wb") as out:
        process = subprocess.Popen([sys.executable, SUITE, root / "out", *options], stdout=out, stderr=out)
    wait_until(lambda: b"bench stream: done" in log.read_bytes() or process.poll() is not None, 100, "the first part")
    process.send_signal(signal.SIGTERM)
    assert process.wait(limit(60)) == 1, log.read_text()
    part = json.loads((root / "out/gpu-suite.json").read_text())["parts"]["bench"]
    assert part["outcome"] == "interrupted" and part["parts"]["stream"]["outcome"] == "done"


GIB = 1 << 30


def fits(models, shm, disk, memory):
    """What goes where on a machine with so many GiB: {model: (layers, where)}; the text of the failure."""
    found = [sizes.Place(pathlib.Path("/shm"), shm * GIB, True), sizes.Place(pathlib.Path("/disk"), disk * GIB, False)]
    try:
        placed, numbers = sizes.place_all([sizes.SHAPES[name] for name in models], found, memory * GIB)
    except Failure as failure:
        return str(failure)
    assert numbers["host_bytes"] <= memory * GIB
    assert numbers["places"]["/shm"] <= shm * GIB and numbers["places"]["/disk"] <= disk * GIB
    return {shape.name: (layers, str(place.folder)) for shape, layers, place in placed}


def test_where_models_go():
    """Files in memory count twice, as mmd keeps a copy; the largest loses layers when nothing else fits."""
    assert fits(["OPT-13B"], 64, 50, 120) == {"OPT-13B": (40, "/shm")}
    assert fits(["OPT-13B"], 0, 50, 120) == {"OPT-13B": (40, "/disk")}
    assert fits(["Llama-3-8B", "OPT-6.7B"], 64, 50, 120) == {"Llama-3-8B": (32, "/shm"), "OPT-6.7B": (32, "/shm")}
    both = ["OPT-30B", "OPT-6.7B"]
    assert fits(both, 64, 60, 120) == {"OPT-30B": (48, "/disk"), "OPT-6.7B": (32, "/shm")}
    less = fits(both, 64, 40, 120)
    assert less["OPT-6.7B"][0] == 32 and 30 < less["OPT-30B"][0] < 48
    assert "of memory" in fits(both, 8, 8, 24)
    for name in sizes.SHAPES:
        shape = sizes.SHAPES[name]
        assert shape.bytes(shape.layers) == shape.bytes() and shape.kv_token_bytes() % (1 << 10) == 0
    assert sizes.SHAPES["OPT-30B"].kv_token_bytes() == 1376256
    assert abs(sizes.SHAPES["OPT-30B"].bytes() / (2 * 29974540288) - 1) < 1e-3


DOCUMENT = """# Facts
## Memory (`memory.c`)

| fact | test | software GPU | hardware |
|---|---|---|---|
| a context | `memory/test_context_free` (`context_free.map`) | seen | *not yet run* |
| a part | `test_prefix` | told | *not yet run* |
| elsewhere | `share/test_import` | seen | *not yet run* |
| known | `test_prefix` | seen | seen |

| part | ratio | goal | hardware |
|---|---|---|---|
| `grant` `grant` | 144 MiB | ≤ 1.2 | *not yet run* |
"""


def test_rows_of_the_document(root, monkeypatch):
    """A row of gpu.md that waits takes the outcomes of the tests that it names, and the facts; no other does."""
    (root / "gpu.md").write_text(DOCUMENT)
    monkeypatch.setattr(rows, "DOCUMENT", root / "gpu.md")
    conformance = {
        "programs": {
            "conformance/memory": {
                "tests": [
                    {"program": "memory", "test": "test_context_free", "outcome": "passed", "reason": ""},
                    {"program": "memory", "test": "test_prefix", "outcome": "failed", "reason": "a | b"},
                ],
                "facts": {"memory/context_free.map": {"test": "test_context_free", "value": "fine", "unit": ""}},
            }
        }
    }
    rows_of = {"part": "grant", "name": "grant", "unit": "s", "params": {}, "reached": True}
    bench = {"parts": {"grant": {"outcome": "done", "why": "", "rows": [{**rows_of, "ratio": r} for r in (1.1, 1.2)]}}}
    filled = rows.fill({"rehearsal": False, "parts": {"conformance": conformance, "bench": bench}})
    assert [(title, lines) for title, _, lines in filled] == [
        (
            "Memory (`memory.c`)",
            [
                [
                    "a context",
                    "`memory/test_context_free` (`context_free.map`)",
                    "seen",
                    "seen; `context_free.map` fine",
                ],
                ["a part", "`test_prefix`", "told", "failed: test_prefix: a \\| b"],
            ],
        ),
        (
            "Memory (`memory.c`)",
            [["`grant` `grant`", "144 MiB", "≤ 1.2", "1.100 to 1.200 (2 of 2 reach the goal)"]],
        ),
    ]


@pytest.mark.parametrize(
    "args, said",
    [
        ([], "folder"),
        (["/tmp/x", "--part", "bench,all"], "'all'"),
        (["/tmp/x", "--budget", "soon"], "'soon'"),
        (["/tmp/x", "--memory", "9"], "'9'"),
        (["/tmp/x", "--deps", "/nowhere"], "/nowhere"),
        (["/tmp/x", "--combo", "gpt"], "'gpt'"),
    ],
    ids=str,
)
def test_refused(args, said):
    code, text, errors = suite(*args, "--driver", "software")
    assert code == 2 and not text and said in errors and errors.startswith("gpu-suite: "), errors
