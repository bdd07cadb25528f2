# SPDX-License-Identifier: Apache-2.0
"""Documentation/first-hour.md: its blocks are typed as they stand, in their order, and do what it says."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess

import pytest

from programs import BIN, SANITIZE, TOP, limit

# What is for the machine's administrator, or about the machine.
NOT_HERE = ("cmake --workflow", "apt install", "mmctl doctor --host", "mmd --check-config && systemctl")
PREAMBLE = """
mmctl() {
    [[ " $* " == *" --dir "* ]] || set -- --dir ~/mmd "$@"   # as if it were the usual place
    command mmctl "$@"
}
answers() {
    until curl -sf 127.0.0.1:$1/health > /dev/null; do sleep 0.1; done
}
"""


def blocks():
    """The indented blocks of the page, in their order."""
    found, block = [], []
    for line in (TOP / "Documentation" / "first-hour.md").read_text().splitlines() + ["end"]:
        if line.startswith("    ") or not line and block:
            block.append(line[4:])
        elif block:
            found.append("\n".join(block).strip())
            block = []
    return [block for block in found if not block.startswith("- ")]


def free_ports(n):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(n)]
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]


def as_script(found, ports):
    """What is typed behind what makes the program that answers it ready, where a hand would have been slower."""
    lines = []
    for line in "\n".join(found).splitlines():
        if line.startswith(NOT_HERE):
            continue
        if line.startswith("mmd "):
            line = f"{line} &\nmmctl wait --timeout {limit(60)}"
        if line == "mmctl config reload":
            line = f"cp accounts.conf ~/mmd.conf\n{line}"
        if line.startswith("curl "):
            line = f"answers 8001; answers 8002\n{line}"
        if line.startswith("mmctl --dir ~/mmd plan why"):
            line += "\nuntil mmctl --json status | grep -q '\"takes\": *[1-9]'; do sleep 0.1; done"
        lines.append(line.replace("/usr/bin/mmd", str(BIN / "mmd")))
    return PREAMBLE + "\n".join(lines).replace("8001", str(ports[0])).replace("8002", str(ports[1]))


@pytest.mark.skipif(bool(SANITIZE), reason="the page is the same, and minutes of it")
@pytest.mark.skipif(not (BIN / "mmserve").exists() or not shutil.which("curl"), reason="no mmserve, or no curl")
def test_first_hour(root):
    found = blocks()
    config = [block for block in found if block.startswith("accounts:")]
    assert len(config) == 1 and len(found) > 8
    (root / "accounts.conf").write_text(config[0] + "\n")
    (root / "gpu").mkdir(exist_ok=True)
    script = as_script([block for block in found if block not in config], free_ports(2))
    for words in ("mmserve --model blue", "mmctl quota set web", "mmctl upgrade", "mmctl shutdown"):
        assert words in script
    process = subprocess.Popen(
        ["bash", "-euc", script], cwd=root, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True, env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(root),
                                                "MM_SOFTGPU_DIR": str(root / "gpu")})
    try:
        out, errors = process.communicate(timeout=limit(120))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)
        out, errors = process.communicate(timeout=limit(30))
    assert process.returncode == 0, errors[-4000:]
    assert len(json.loads(re.search(r'^{"id".*$', out, re.M)[0])["choices"]) == 1
    assert re.search(r"^red .*", out, re.M) and "web" in out, out
