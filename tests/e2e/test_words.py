# SPDX-License-Identifier: Apache-2.0
"""What the programs say to somebody who starts: help, words that are none of a few, and the command lines that the
documentation shows."""

import ctypes
import os
import re
import shlex
import subprocess

import pytest

from models import random_model
from programs import BIN, TOP, limit

PROGRAMS = {
    "mmd": [[]],
    "mmctl": [[], ["status"], ["pool", "show"], ["plan", "show"], ["plan", "set"], ["devices"], ["footprint"],
              ["quota", "show"], ["quota", "set"]],
    "mmserve": [[]],
    "mmbench": [[], ["serve"], ["serve", "--models", "x"], ["serve", "--profile", "gh200-96"], ["evaluate"],
                ["steps"], ["decide"], ["gpu"]],
    "mmsim": [[]],
    "mkmodel": [[], ["random"], ["llama2c"], ["shapes"], ["sparse"]],
}
SCRIPTS = ("check", "count-tests", "gpu-suite", "kernel-report", "matrix", "plan-cost", "quickstart", "shake",
           "sim-vs-timed")
COMMANDS = [[str(BIN / name), *words] for name, all_words in PROGRAMS.items() for words in all_words] + \
    [[str(TOP / "tools" / name)] for name in SCRIPTS]
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, PR_CAPBSET_DROP = 1, 2, 24


def run(*words, env=None, cwd=None, obeys=False):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=limit(60),
                          env={**os.environ, **(env or {})}, cwd=cwd, stdin=subprocess.DEVNULL,
                          preexec_fn=obey_modes if obeys else None)
    return done.returncode, done.stdout, done.stderr


def obey_modes():
    """From its exec on a process of root's is bound by modes of files, as everybody else is."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
            libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


# ---- help


def test_all_scripts_are_known():
    found = {path.name for path in (TOP / "tools").iterdir() if path.is_file() and os.access(path, os.X_OK)}
    assert found == set(SCRIPTS)


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join([os.path.basename(words[0]), *words[1:]]))
def test_help(words):
    """-h is --help: on stdout, with status 0, and nothing on stderr."""
    long, short = run(*words, "--help"), run(*words, "-h")
    assert long[0] == 0 and len(long[1].splitlines()) > 3 or "count-tests" in words[0], long
    assert long == short and not long[2]
    assert re.search(r"\busage\b", long[1], re.I)


# ---- words that are none of a few


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A model and a trace, so that nothing else is wrong."""
    folder = tmp_path_factory.mktemp("small")
    random_model(folder / "model", seed=1)
    (folder / "trace.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,2,2\n")
    return folder


SERVE = ["mmserve", "--plain", "--model", "MODEL", "--trace", "TRACE"]
MMD = ["mmd", "--dir", "DIR", "--pool", "8M"]
BENCH = ["mmbench", "serve", "--models", "MODEL"]
QUOTA = ["mmctl", "--dir", "DIR", "quota", "set", "x"]
PLAN = ["mmctl", "--dir", "DIR", "plan", "set", "x"]


@pytest.mark.parametrize("command, flag, words", [
    (MMD, "--driver", ["software", "cuda"]),
    (MMD, "--policy", ["recompute", "elastic", "remap", "swap", "naive", "naive-bounded"]),
    (MMD, "--on-timeout", ["kill", "quarantine"]),
    (MMD, "--hugepages", ["auto", "off", "2M", "1G"]),
    (MMD, "--plan-change", ["partial", "full"]),
    (MMD, "--slots", ["auto", "1", "2"]),
    (MMD, "--log-level", ["error", "warn", "info", "debug"]),
    (SERVE, "--driver", ["software", "cuda"]),
    (SERVE, "--kernels", ["host", "emulated", "cuda"]),
    (SERVE, "--gemm", ["kernel", "cublas"]),
    (SERVE, "--graphs", ["on", "off", "auto"]),
    (SERVE, "--admit", ["whole", "full", "chunk"]),
    (SERVE, "--kv-dtype", ["f32", "f16", "bf16"]),
    (SERVE, "--kv-layout", ["block-major", "separate"]),
    (SERVE, "--turns", ["quantum", "drain"]),
    (BENCH, "--driver", ["software", "cuda"]),
    (BENCH, "--policies", ["recompute", "elastic", "remap", "swap", "naive", "naive-bounded"]),
    (BENCH, "--slots", ["auto", "1", "2"]),
    (BENCH, "--kv-layout", ["block-major", "separate"]),
    (["mmbench", "gpu"], "--driver", ["software", "cuda"]),
    (["mmbench", "decide"], "--policy", ["remap", "elastic", "recompute", "swap"]),
    (["mmbench", "decide"], "--shape", ["OPT-13B"]),
    (["mmbench", "steps", "--profile", "gh200-96"], "--shape", ["OPT-13B"]),
    (["mmbench", "evaluate"], "--only", ["fig8", "never-worse"]),
    (["mmsim"], "--policy", ["recompute", "unlimited", "naive-bounded"]),
    (["mmsim"], "--sharing", ["temporal", "spatial", "mig"]),
    (["mmsim"], "--turns", ["drain", "quantum"]),
    (["mmsim"], "--slots", ["auto", "1", "2"]),
    (["mmsim"], "--combo", ["C1", "C2"]),
    (["mmsim"], "--shapes", ["OPT-13B", "Llama-3-8B"]),
    (["mkmodel", "random", "OUT"], "--dtype", ["f32", "f16", "bf16"]),
    (["mkmodel", "random", "OUT"], "--vector-dtype", ["f32", "f16", "bf16"]),
    (["mkmodel", "random", "OUT"], "--family", ["llama", "qwen2", "opt"]),
    (["mkmodel", "random", "OUT"], "--rope-scaling", ["linear:", "llama3:"]),
    (["mkmodel", "random", "OUT"], "--shape", ["OPT-30B"]),
    (QUOTA, "--on-timeout", ["kill", "quarantine"]),
    (PLAN, "--layers", ["auto"]),
    ([*PLAN, "--layers", "1"], "--slots", ["1", "2", "auto"]),
], ids=lambda value: value[0] if isinstance(value, list) else value)
def test_choices(small, root, command, flag, words):
    """A slip is a usage error that names the flag, the word and what may stand there; nothing was started."""
    names = {"MODEL": small / "model", "TRACE": small / "trace.csv", "DIR": root / "mmd", "OUT": root / "out"}
    command = [names.get(word, word) for word in command]
    code, out, errors = run(BIN / command[0], *command[1:], flag, "sofware", cwd=root)
    assert code == 2 and not out, (code, errors)
    assert "sofware" in errors and flag.lstrip("-").rstrip("s") in errors
    assert len(errors.splitlines()) == 1, errors
    assert [word for word in words if word not in errors] == [], errors
    assert not names["DIR"].exists() and not names["OUT"].exists()


@pytest.mark.parametrize("command", [SERVE, BENCH, ["mmbench", "gpu"], ["mmctl", "devices"]],
                         ids=lambda words: " ".join(words[:2]))
def test_choices_of_the_environment(small, root, command):
    names = {"MODEL": small / "model", "TRACE": small / "trace.csv"}
    command = [names.get(word, word) for word in command]
    code, _, errors = run(BIN / command[0], *command[1:], cwd=root,
                          env={"MM_DRIVER": "sofware", "XDG_RUNTIME_DIR": str(root)})
    assert code == 2 and "MM_DRIVER" in errors and "software, cuda" in errors, errors


def test_a_flag_is_no_model():
    code, _, errors = run(BIN / "mmbench", "serve", "--models", "--help")
    assert code == 2 and "--models needs folders" in errors


# ---- command lines that are shown


def pages():
    yield TOP / "README.md"
    yield from sorted((TOP / "Documentation").glob("*.md"))


def code_blocks(text):
    """Fenced and indented blocks: lists of lines, without the indent; a line that goes on is one line."""
    block, fenced = [], False
    for line in text.replace("\\\n", " ").splitlines() + [""]:
        if line.startswith("```"):
            fenced = not fenced
            line = "" if not fenced else None
        elif not fenced and line and not line.startswith("    "):
            line = ""
        if line is None:
            continue
        if line or fenced:
            block.append(line if fenced else line[4:])
        elif block:
            yield block
            block = []


LINE = re.compile(r"((?:[A-Z_]+=\S+ )*)(?:build/bin/|bin/)?(%s)((?: .*)?)$" % "|".join(PROGRAMS))
PLACEHOLDER = re.compile(r"…|\.\.\.|^[A-Z]+$|^[<\[]")


def command_lines():
    for page in pages():
        for block in code_blocks(page.read_text()):
            for line in block:
                found = LINE.match(line)
                if not found:
                    continue
                rest = re.split(r"\s#|\s\||\s&|\s>|\s{3,}", found[3])[0]
                words = shlex.split(rest)
                if not any(PLACEHOLDER.search(word) for word in words if word not in ("DIR", "FILE")):
                    yield page.name, found[2], words


SHOWN = list(command_lines())


def test_command_lines_are_found():
    assert len(SHOWN) > 20 and {"README.md", "tutorial.md"} <= {page for page, _, _ in SHOWN}


@pytest.mark.parametrize("page, program, words", SHOWN, ids=lambda value: " ".join(value) if isinstance(value, list) else
                         value)
def test_shown_command_line(root, page, program, words):
    """Not run, but read: no program finds anything wrong with its flags and their values."""
    del page
    if program == "mmctl":
        words = re.sub(r"--dir \S+", "", " ".join(words)).split()
        code, _, errors = run(BIN / program, "--dir", root / "none", *words)
        assert code in (0, 1, 3), errors
        return
    (root / "mmd.json").write_text("{}")
    words = [word.replace("/etc/", f"{root}/") for word in words]
    code, _, errors = run(BIN / program, *words, "--help", cwd=root)
    assert code == 0, errors


def texts():
    """All that tells of commands: pages, manuals, and what --help prints."""
    for page in [*pages(), *(TOP / "Documentation" / "man").iterdir()]:
        yield page.name, page.read_text().replace("\\-", "-")
    for words in COMMANDS:
        yield " ".join([os.path.basename(words[0]), *words[1:]]), run(*words, "--help")[1]


def test_help_that_is_pointed_at():
    """Each `PROGRAM ... --help` that is named anywhere can be had."""
    named = set()
    for where, text in texts():
        for found in re.finditer(r"\b(%s)((?: [\w./,-]+)*?) --help" % "|".join(PROGRAMS), " ".join(text.split())):
            named.add((where, found[1], found[2]))
    assert len(named) > 3
    for where, program, words in named:
        code, _, errors = run(BIN / program, *words.split(), "--help")
        assert code == 0, f"{where}: {program}{words} --help: {errors}"
