# SPDX-License-Identifier: Apache-2.0
"""mmctl mps, against a program that takes the commands of nvidia-cuda-mps-control as NVIDIA documents them."""

import json
import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

from kvclient import KvClient
from programs import BIN, limit

# Keeps its state in the pipe directory. A command that it does not know, or with other arguments, is refused.
CONTROL = textwrap.dedent("""\
    #!{python}
    import json, os, pathlib, re, sys
    folder = pathlib.Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/nowhere"))
    state = folder / "state.json"
    with open(os.environ["MPS_LOG"], "a") as log:
        print(json.dumps([sys.argv[1:], os.environ.get("CUDA_MPS_LOG_DIRECTORY")]), file=log)
        if sys.argv[1:] == ["-d"]:
            if state.exists():
                sys.exit("An instance of this daemon is already running")
            folder.mkdir(exist_ok=True)
            state.write_text(json.dumps({{"default": 100.0, "servers": {{}}}}))
            sys.exit(0)
        assert len(sys.argv) == 1, sys.argv
        commands = sys.stdin.read().splitlines()
        print(json.dumps(commands), file=log)
    if not state.exists():
        sys.exit("Cannot find MPS control daemon process")
    s = json.loads(state.read_text())
    for command in commands:
        word, *args = command.split(" ")
        if word == "quit" and not args:
            state.unlink()
            sys.exit(0)
        elif word == "get_server_list" and not args:
            print("\\n".join(s["servers"]))
        elif word == "get_client_list" and len(args) == 1 and args[0] in s["servers"]:
            print("\\n".join(map(str, s["servers"][args[0]]["clients"])))
        elif word == "get_default_active_thread_percentage" and not args:
            print(s["default"])
        elif word == "get_active_thread_percentage" and args[0] in s["servers"]:
            print(s["servers"][args[0]]["percent"])
        elif word == "set_default_active_thread_percentage" and re.fullmatch("[0-9.]+", args[0]):
            s["default"] = float(args[0])
        elif word == "set_active_thread_percentage" and args[0] in s["servers"] and re.fullmatch("[0-9.]+", args[1]):
            s["servers"][args[0]]["percent"] = float(args[1])
        elif word == "lie":
            pass
        else:
            sys.exit(f"Unknown command {{command}}")
    state.write_text(json.dumps(s))
""")


class Mps:
    def __init__(self, root, folder=None):
        self.root, self.pipe = root, root / "mps"
        self.bin = root / "bin"
        self.bin.mkdir()
        self.program(CONTROL.format(python=sys.executable))
        self.folder = folder or root / "nobody"
        self.log = root / "mps.log"
        self.env = dict(os.environ, PATH=f"{self.bin}:{os.environ['PATH']}", MPS_LOG=str(self.log))

    def program(self, text):
        path = self.bin / "nvidia-cuda-mps-control"
        path.write_text(text)
        path.chmod(0o755)

    def run(self, *args, env=None):
        words = [str(BIN / "mmctl"), "--dir", str(self.folder), "mps", args[0], "--pipe-dir", str(self.pipe)]
        return subprocess.run([*words, *map(str, args[1:])], env=env or self.env, capture_output=True, text=True,
                              check=False, timeout=limit(60))

    def json(self, *args):
        done = self.run(*args, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def state(self):
        return json.loads((self.pipe / "state.json").read_text())

    def serve(self, **servers):
        (self.pipe / "state.json").write_text(json.dumps({"default": 100.0, "servers": {
            pid.removeprefix("p"): {"percent": 100.0, "clients": clients} for pid, clients in servers.items()}}))


@pytest.fixture
def mps(root):
    return Mps(root)


def test_life(mps):
    done = mps.run("status")
    assert done.returncode == 1 and "get_server_list: Cannot find MPS control daemon process" in done.stderr
    done = mps.run("start", "--percent", 50, "--log-dir", mps.root / "log")
    assert done.returncode == 0 and f"CUDA_MPS_PIPE_DIRECTORY={mps.pipe}" in done.stdout
    assert mps.state()["default"] == 50
    first = json.loads(mps.log.read_text().splitlines()[2])
    assert first == [["-d"], str(mps.root / "log")], mps.log.read_text()
    got = mps.json("status")
    assert got["default_percent"] == 50 and got["servers"] == []
    done = mps.run("start")
    assert done.returncode == 1 and "already running" in done.stderr
    assert mps.run("stop").returncode == 0 and not (mps.pipe / "state.json").exists()
    done = mps.run("stop")
    assert done.returncode == 1 and "quit: Cannot find" in done.stderr


def test_tenants(root, start):
    """Clients are named by the tenant that they are, and the limit is of the server that serves one."""
    d = start(policy="remap", pool="2M", page="16K")
    mps = Mps(root, d.dir)
    assert mps.run("start").returncode == 0
    with KvClient(d, 16 << 10, name=b"one"):
        mps.serve(p70=[os.getpid(), 4], p71=[5])
        got = mps.json("status")
        assert got["servers"] == [
            {"pid": 70, "percent": 100, "clients": [{"pid": os.getpid(), "tenant": "one"}, {"pid": 4, "tenant": None}]},
            {"pid": 71, "percent": 100, "clients": [{"pid": 5, "tenant": None}]}]
        text = mps.run("status").stdout
        assert "one" in text and "no tenant of this mmd" in text and max(map(len, text.splitlines())) <= 80
        done = mps.run("limit", "one", "--percent", 30)
        assert done.returncode == 0 and "server 70: 30 %" in done.stdout, done.stderr
        assert mps.state()["servers"]["70"]["percent"] == 30 and mps.state()["servers"]["71"]["percent"] == 100
        done = mps.run("limit", "two", "--percent", 30)
        assert done.returncode == 1 and "two: no tenant of that name" in done.stderr
        assert mps.json("limit", "--percent", 60)["percent"] == 60 and mps.state()["default"] == 60


def test_no_program(mps):
    done = mps.run("status", env=dict(mps.env, PATH="/nowhere"))
    assert done.returncode == 1 and "nvidia-cuda-mps-control: not found in PATH" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("text", ["echo zero", "echo -5", "head -c 100000 /dev/zero | tr '\\0' 7", "printf '1\\n\\033[2J'",
                                  "kill -9 $$", "exit 3"])
def test_answers_that_are_none(mps, text):
    """What the program says is not believed, and does nothing to a terminal."""
    mps.program(f"#!/bin/sh\ncat > /dev/null\n{text}\n")
    done = mps.run("status")
    assert done.returncode == 1 and "nvidia-cuda-mps-control: " in done.stderr
    assert "\x1b" not in done.stderr + done.stdout and len(done.stderr) < 300


@pytest.mark.parametrize("args,says", [(("limit",), "--percent"), (("limit", "--percent", "0"), "--percent"),
                                       (("limit", "--percent", "101"), "--percent"), (("status", "x"), "x")])
def test_usage(mps, args, says):
    done = mps.run(*args)
    assert done.returncode == 2 and says in done.stderr
    assert not mps.log.exists()
