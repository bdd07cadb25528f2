# SPDX-License-Identifier: Apache-2.0
"""What the programs say to somebody who starts: help, words that are none of a few, sockets that cannot be reached,
waiting for mmd, and the command lines that the documentation shows."""

import contextlib
import ctypes
import json
import os
import pty
import re
import shlex
import signal
import socket
import subprocess
import threading
import time

import pytest

from models import random_model
from programs import BIN, TOP, last_line, limit, one_thread, wait_until

PROGRAMS = {
    "mmd": [[]],
    "mmctl": [[], ["status"], ["pool", "show"], ["plan", "show"], ["plan", "set"], ["devices"], ["footprint"],
              ["quota", "show"], ["quota", "set"], ["quota"], ["plan"], ["wait"],
              ["doctor"]],
    "mmserve": [[]],
    "mmbench": [[], ["serve"], ["serve", "--models", "x"], ["serve", "--profile", "gh200-96"],
                ["steps"], ["decide"], ["hostile"], ["chaos"], ["restart"], ["death"], ["grant"]],
    "gpubench": [[]],
    "mmsim": [[]],
    "mmevaluate": [[]],
    "mkmodel": [[], ["random"], ["llama2c"], ["shapes"], ["sparse"]],
}
SCRIPTS = sorted(path.name for path in (TOP / "tools").iterdir() if path.is_file() and os.access(path, os.X_OK))
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


@one_thread
@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join([os.path.basename(words[0]), *words[1:]]))
def test_help(words):
    """-h is --help: on stdout, with status 0, and nothing on stderr."""
    long, short = run(*words, "--help"), run(*words, "-h")
    assert long[0] == 0 and len(long[1].splitlines()) > 3 or "count-tests" in words[0], long
    assert long == short and not long[2]
    assert re.search(r"\busage\b", long[1], re.I)
    if os.path.basename(words[0]) in PROGRAMS:
        assert max(map(len, long[1].splitlines())) < 80
        assert not re.search(r"\d{11}|\de\+|Options:\n\n", long[1]), "a bound or a heading that says nothing"


@one_thread
@pytest.mark.parametrize("words", [["mmd"], ["mmctl"], ["mmctl", "plan", "set"], ["mmctl", "plan"], ["mmevaluate"]],
                         ids=" ".join)
def test_nobody_reads(words):
    """Output that cannot be written is a failure, not help."""
    for flag in ("--help", "--version", "--help=man", "--help=bash"):
        with open("/dev/full", "w", encoding="ascii") as full:
            done = subprocess.run([BIN / words[0], *words[1:], flag], stdout=full, stderr=subprocess.PIPE, text=True,
                                  timeout=limit(60), check=False)
        assert done.returncode == 1 and "standard output" in done.stderr, done.stderr


@one_thread
@pytest.mark.parametrize("line, says", [
    ("mmd --polcy remap", "did you mean --policy?"),
    ("mmd --policy remaq", "did you mean remap?"),
    ("mmd --ask-timeout 5", "--ask-timeout is now --reclaim-timeout"),
    ("mmd --controller dwel-ms=5", "did you mean dwell-ms?"),
    ("mmd --pool --page 64K", "--pool: needs a value"),
    ("mmctl statsu", "did you mean status?"),
    ("mmctl qouta set x", "did you mean quota set?"),
    ("mmctl quota", "there are: quota show, quota set"),
    ("mmctl plan set x --layres 3", "did you mean --layers?"),
    ("mmctl quota set x --on-timeout kil", "did you mean kill?"),
    ("mmctl --layers 3 plan set x", "an option of 'plan set'"),
    ("mmctl plan set x --layers atuo", "did you mean auto?"),
    ("mmctl plan set x --cold atuo", "did you mean auto?"),
    ("mmctl plan set x", "give --layers, --cold or both"),
    ("mmctl plan set x --slots 2 --cold 3", "--slots: only together with --layers"),
    ("mmd --driver sofware", "did you mean software?"),
    ("gpubench --driver sofware", "did you mean software?"),
    ("gpubench gran", "did you mean grant?"),
    ("mmbench serve --policies remap", "--policies: not an option of 'serve [--profile NAME]', but of 'serve --models"),
    ("mmbench serve --models x --dilation 2", "but of 'serve [--profile NAME]'"),
    ("mmbench serve --models x --ratee 2", "did you mean --rate?"),
    ("mmsim --sharing mgi", "did you mean mig?"),
    ("mmserve --modle x", "did you mean --model?"),
    ("mkmodel randon x", "did you mean random?"),
    ("mmevaluate --quikc", "--quikc: unknown option; did you mean --quick?"),
    ("mmevaluate --only fig8,abltion", "did you mean ablation?"),
    ("mmevaluate --out", "--out: needs a value"),
    ("mmevaluate --quick=1", "--quick: takes no value"),
    ("mmevaluate --help=html", "--help: 'html' is none of: man, bash"),
])
def test_slips(line, says):
    """The nearest word is suggested, on one line, which also says where help is."""
    program, *words = line.split()
    code, out, errors = run(BIN / program, *words)
    assert code == 2 and not out and says in errors, errors
    assert errors.startswith(f"{program}: ") and errors.endswith(" --help\n") and errors.count("\n") == 1, errors


@one_thread
@pytest.mark.parametrize("words", [["plan", "show"], ["plan", "set"], ["quota", "set"]], ids=" ".join)
def test_a_name_that_is_no_text(words):
    """It is no question about all models, as without a name."""
    options = ["--layers", "1"] if words == ["plan", "set"] else []
    code, out, errors = run(BIN / "mmctl", *words, os.fsdecode(b"\xff"), *options)
    assert code == 2 and not out and "not a text" in errors, errors


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


@one_thread
@pytest.mark.parametrize("command, flag, words", [
    (MMD, "--driver", ["software", "cuda"]),
    (MMD, "--policy", ["recompute", "elastic", "remap", "swap", "naive", "naive-bounded"]),
    (MMD, "--on-timeout", ["kill", "quarantine"]),
    (MMD, "--hugepages", ["auto", "off", "2M", "1G"]),
    (MMD, "--sandbox", ["on", "log", "off"]),
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
    (["gpubench"], "--driver", ["software", "cuda"]),
    (["mmbench", "decide"], "--policy", ["remap", "elastic", "recompute", "swap"]),
    (["mmbench", "decide"], "--shape", ["OPT-13B"]),
    (["mmbench", "steps", "--profile", "gh200-96"], "--shape", ["OPT-13B"]),
    (["mmevaluate"], "--only", ["fig8", "never-worse"]),
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


@one_thread
@pytest.mark.parametrize("command", [SERVE, BENCH, ["gpubench"], ["mmctl", "devices"]],
                         ids=lambda words: " ".join(words[:2]))
def test_choices_of_the_environment(small, root, command):
    names = {"MODEL": small / "model", "TRACE": small / "trace.csv"}
    command = [names.get(word, word) for word in command]
    code, _, errors = run(BIN / command[0], *command[1:], cwd=root,
                          env={"MM_DRIVER": "sofware", "XDG_RUNTIME_DIR": str(root)})
    assert code == 2 and "MM_DRIVER" in errors and "software, cuda" in errors, errors


def test_a_flag_is_no_model():
    code, _, errors = run(BIN / "mmbench", "serve", "--models", "--help")
    assert code == 2 and "--models: needs a value" in errors
    code, _, errors = run(BIN / "mmbench", "serve", "--models=--help")
    assert code == 2 and "--models: '--help' is a flag" in errors


# ---- sockets that cannot be reached


@contextlib.contextmanager
def bound(path, kind, listens=True):
    with socket.socket(socket.AF_UNIX, kind) as s:
        s.bind(str(path))
        if listens:
            s.listen(1)
        yield s


@contextlib.contextmanager
def place(root, case, kind):
    """A path for which connect() fails in the way that the case is about."""
    path = root / "it.sock"
    other = socket.SOCK_STREAM if kind == socket.SOCK_SEQPACKET else socket.SOCK_SEQPACKET
    if case == "left behind":
        with bound(path, kind):
            pass
    elif case == "a file":
        path.write_text("")
    elif case == "a folder":
        path.mkdir()
    elif case == "no folder":
        (root / "file").write_text("")
        path = root / "file" / "it.sock"
    elif case == "long":
        path = root / ("x" * 120)
    with contextlib.ExitStack() as stack:
        if case == "other kind":
            stack.enter_context(bound(path, other))
        elif case == "denied":
            stack.enter_context(bound(path, kind))
            path.chmod(0o040)
        elif case == "folder denied":
            (root / "closed").mkdir()
            path = root / "closed" / "it.sock"
            stack.enter_context(bound(path, kind))
            (root / "closed").chmod(0)
            stack.callback((root / "closed").chmod, 0o700)
        yield path


CASES = {
    "missing": "there is no such socket; is mmd running?",
    "left behind": "nobody listens on this socket",
    "a file": "a file, not a socket",
    "a folder": "a folder, not a socket",
    "no folder": "a part of the path is not a folder",
    "other kind": "a socket of another kind",
    "long": "longer than the 107 bytes",
    "denied": f"permission denied: it belongs to uid {os.geteuid()}, with mode 0040; run this as",
    "folder denied": f"belongs to uid {os.geteuid()}, with mode 0000; run this as",
}


@pytest.mark.parametrize("case", CASES)
def test_mmctl_says_why(root, case):
    with place(root, case, socket.SOCK_STREAM) as path:
        for command in (["status"], ["wait", "--timeout", "0"]):
            code, out, errors = run(BIN / "mmctl", "--socket", path, *command, obeys=True)
            assert code == (2 if case == "long" else 3) and not out, errors
            assert f"{path}: " in errors and CASES[case] in errors, errors
            assert len(errors.splitlines()) == 1


@pytest.mark.parametrize("case", CASES)
def test_an_engine_says_why(root, small, case):
    """mmserve, and with it every program that libclient is in."""
    (root / "gpu").mkdir(exist_ok=True)
    with place(root, case, socket.SOCK_SEQPACKET) as path:
        code, _, errors = run(BIN / "mmserve", "--model", small / "model", "--trace", small / "trace.csv",
                              "--socket", path, env={"MM_SOFTGPU_DIR": str(root / "gpu"), "MM_DRIVER": "software"},
                              obeys=True)
    assert code == 3 and f"{path}: " in errors and CASES[case] in errors, errors


def test_what_is_denied_is_not_waited_for(root):
    with place(root, "denied", socket.SOCK_STREAM) as path:
        begun = time.monotonic()
        code, _, errors = run(BIN / "mmctl", "--socket", path, "wait", "--timeout", 3600, obeys=True)
        assert code == 3 and "permission denied" in errors and time.monotonic() - begun < 3000


# ---- waiting


def test_wait_is_there_first(root):
    """The race of the tutorial, the wrong way round: who waits begins long before mmd does."""
    folder = root / "mmd"
    waiting = subprocess.Popen([BIN / "mmctl", "--dir", folder, "--json", "wait", "--timeout", "3600"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        await_a_look(folder)
        time.sleep(0.3)
        assert waiting.poll() is None
        with daemon(root, folder) as d:
            out, errors = waiting.communicate(timeout=limit(60))
            assert waiting.returncode == 0 and not errors, errors
            answer = json.loads(out)
            assert answer["ready"] is True and answer["schema"] == 1 and answer["waited_s"] >= 0.3
            wait_until(lambda: "event=mmd.ready" in (root / "log").read_text(), 20, "the log to say so")
            assert run(BIN / "mmctl", "--dir", folder, "wait") == (0, out_of_wait(folder), "")
            assert run(BIN / "mmctl", "--dir", folder, "wait", "--timeout=0")[0] == 0
            assert d.poll() is None
    finally:
        waiting.kill()
        waiting.communicate()


def await_a_look(folder):
    """Until a mmctl that waits has been here: it comes again and again, whatever becomes of its connections."""
    folder.mkdir(mode=0o700)
    with bound(folder / "admin.sock", socket.SOCK_STREAM) as listener:
        listener.settimeout(limit(60))
        listener.accept()[0].close()
    (folder / "admin.sock").unlink()


def out_of_wait(folder):
    status = json.loads(run(BIN / "mmctl", "--dir", folder, "--json", "status")[1])
    return f"mmd {status['version']} is ready\n"


@contextlib.contextmanager
def daemon(root, folder, *extra):
    (root / "gpu").mkdir(exist_ok=True)
    with open(root / "log", "wb") as log:
        process = subprocess.Popen([str(BIN / "mmd"), "--dir", str(folder), "--driver", "software", "--pool", "4M",
                                    "--page", "64K", *extra], stderr=log, stdin=subprocess.DEVNULL,
                                   env={**os.environ, "MM_SOFTGPU_DIR": str(root / "gpu"),
                                        "MM_SOFTGPU_GRANULARITY": "65536"})
    try:
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        assert process.wait(limit(30)) == 0, last_line(root / "log")


def test_wait_gives_up(root):
    code, out, errors = run(BIN / "mmctl", "--dir", root / "none", "wait", "--timeout", "0.2")
    assert code == 3 and not out and "mmd is not ready after 0.2 s" in errors and "no such socket" in errors


def test_wait_for_what_is_silent(root):
    """Somebody listens, and never answers: as an mmd whose pages are not made yet."""
    path = root / "admin.sock"
    with bound(path, socket.SOCK_STREAM):
        code, _, errors = run(BIN / "mmctl", "--dir", root, "wait", "--timeout", "0.3")
    assert code == 3 and "mmd does not answer" in errors, errors


@contextlib.contextmanager
def playing(path, *devices):
    """Plays an mmd: its device is as the first says when it is first asked, and in the end as the last."""
    left = list(devices)

    def answer(listener):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                # One that has waited for long enough may be gone by now: the next is still to be answered.
                with connection, contextlib.suppress(OSError):
                    connection.recv(65536)
                    device = left.pop(0) if len(left) > 1 else left[0]
                    result = {"schema": 1, "version": "x", "devices": [{"device": {"ordinal": 0}, **device}]}
                    reply = {"jsonrpc": "2.0", "id": 1, "result": result}
                    connection.sendall(json.dumps(reply).encode() + b"\n")

    with bound(path, socket.SOCK_STREAM) as listener:
        player = threading.Thread(target=answer, args=(listener,), daemon=True)
        player.start()
        yield
        listener.shutdown(socket.SHUT_RDWR)
        player.join()


@pytest.mark.parametrize("first, says", [
    ({"state": "down"}, "device 0 is down"),
    ({"state": "up", "pages": {"not_created": 7}}, "device 0: 7 pages are not made yet"),
], ids=["down", "pages"])
def test_wait_for_a_device(root, first, says):
    with playing(root / "never.sock", first):
        for timeout_s in (0, 1, 10, 100):  # of a slow machine not even the first answer comes in time
            code, _, errors = run(BIN / "mmctl", "--socket", root / "never.sock", "wait", "--timeout", timeout_s)
            assert code == 3, errors
            if says in errors:
                break
        assert says in errors
    with playing(root / "later.sock", first, {"state": "up", "pages": {"free": 9}}):
        code, out, errors = run(BIN / "mmctl", "--socket", root / "later.sock", "wait", "--timeout", "3600")
        assert code == 0 and out == "mmd x is ready\n", errors


@one_thread
@pytest.mark.parametrize("words", [["--timeout"], ["--timeout", "x"], ["--timeout", "-1"], ["--timeout", "nan"],
                                   ["--timeout", "1", "2"], ["--timeout=1", "2"], ["now"], ["--timeout="]], ids=str)
def test_wait_usage(root, words):
    code, out, errors = run(BIN / "mmctl", "--dir", root, "wait", *words)
    assert code == 2 and not out and len(errors.splitlines()) == 1, errors


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


@one_thread
@pytest.mark.parametrize("page, program, words", SHOWN,
                         ids=lambda value: " ".join(value) if isinstance(value, list) else value)
def test_shown_command_line(root, page, program, words):
    """Not run, but read: no program finds anything wrong with its flags and their values."""
    del page
    if program == "mmctl":
        words = re.sub(r"--dir \S+", "", " ".join(words)).split()
        words += {"wait": ["--timeout", "0"], "exporter": ["--list"]}.get(words[0], [])
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


@one_thread
def test_help_that_is_pointed_at():
    """Each `PROGRAM ... --help` that is named anywhere can be had."""
    named = set()
    for where, text in texts():
        for found in re.finditer(r"\b(%s)((?: [\w./,-]+)*?) --help" % "|".join(PROGRAMS), " ".join(text.split())):
            if found[2] != " COMMAND":
                named.add((where, found[1], found[2]))
    assert len(named) > 3
    for where, program, words in named:
        if words == " COMMAND":  # stands for one of those that the help lists
            continue
        code, _, errors = run(BIN / program, *words.split(), "--help")
        assert code == 0, f"{where}: {program}{words} --help: {errors}"


def block_with(page, word):
    found = [block for block in code_blocks((TOP / page).read_text()) if any(word in line for line in block)]
    assert len(found) == 1, (page, word, found)
    return found[0]


def play(root, lines, env=None):
    """A block as a shell script, where it does no harm: what it makes in build/ or /tmp lies in a folder of ours."""
    script = re.sub(r"(?<![\w/])(?:build/(bin/|examples/)?|/tmp/)",
                    lambda found: f"{BIN.parent if found[1] else root}/{found[1] or ''}", "\n".join(lines))
    script = re.sub(r"(mmctl .*\bwait)\b", rf"\1 --timeout {limit(60)}", script)  # on a slow host
    (root / "gpu").mkdir(exist_ok=True)
    process = subprocess.Popen(["bash", "-euc", script], cwd=root, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, start_new_session=True,
                               env={**os.environ, "XDG_RUNTIME_DIR": str(root), "HOME": str(root),
                                    "MM_SOFTGPU_DIR": str(root / "gpu"), **(env or {})})
    return process


def end(process):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    return process.communicate(timeout=limit(30))


def test_readme_run_it(root):
    """The two terminals of README.md, the second as soon as the first has begun."""
    first = play(root, block_with("README.md", "/mmd --"))
    try:
        second = play(root, block_with("README.md", "/mmserve --"))
        out, errors = second.communicate(timeout=limit(120))
        assert second.returncode == 0 and first.poll() is None, errors
        assert "tenant" in out.lower() or "pool" in out
    finally:
        end(first)


def test_tutorial_start(root):
    """The first block of the tutorial, as it stands, but for what builds."""
    lines = [line for line in block_with("Documentation/tutorial.md", "examples/tenant") if "quickstart" not in line]
    process = play(root, lines)
    try:
        wait_until(lambda: process.poll() is not None, 120, "the tutorial's first block to end", every=0.1)
    finally:
        out, errors = end(process)
    assert process.returncode == 0 and "0 layers were wrong" in out, errors


# ---- a run of mmserve on a terminal


def serve_on(small, root, *flags, terminal):
    """stdout and stderr; with @terminal stderr is one."""
    (root / "gpu").mkdir(exist_ok=True)
    (root / "requests.jsonl").write_text("".join(
        json.dumps({"id": i, "arrival_s": 0.3 * i, "prompt_tokens": 4, "max_tokens": 4}) + "\n" for i in range(3)))
    try:
        master, slave = pty.openpty() if terminal else os.pipe()
    except OSError as error:
        pytest.skip(f"no terminals here: {error}")
    process = subprocess.Popen(
        [str(BIN / "mmserve"), "--plain", "--driver", "software", "--model", str(small / "model"), "--requests",
         str(root / "requests.jsonl"), *flags], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=slave,
        env={**os.environ, "MM_SOFTGPU_DIR": str(root / "gpu")})
    os.close(slave)
    return finish_on(process, master)


def finish_on(process, fd):
    said = b""
    while True:
        try:
            part = os.read(fd, 4096)
        except OSError:  # the end of a terminal
            break
        if not part:
            break
        said += part
    os.close(fd)
    out = process.stdout.read().decode()
    process.stdout.close()
    assert process.wait(limit(60)) == 0, said
    return out, said.decode()


def test_progress_on_a_terminal(small, root):
    out, said = serve_on(small, root, terminal=True)
    assert "loading " in said and re.search(r"serving: \d of 3 requests done", said), said
    assert said.endswith("\r\x1b[K") and "\n" not in said  # one line, and in the end none
    assert out.startswith("Served\n") and "\x1b" not in out


@pytest.mark.parametrize("flags, terminal", [([], False), (["--json"], True), (["--json"], False)], ids=str)
def test_no_progress(small, root, flags, terminal):
    out, said = serve_on(small, root, *flags, terminal=terminal)
    assert not said
    if flags:
        assert json.loads(out)["requests"] == 3
