# SPDX-License-Identifier: Apache-2.0
"""The completions that programs print from their tables, as bash and zsh run them: all commands, and all options of each."""

import re
import shutil
import subprocess

import pytest

from programs import BIN, limit

# What zsh's own functions would show is printed: the names of the last array, or that files are completed.
ZSH = """
_describe() {{ local array=${{@[-1]}}; print -rl -- ${{${{(@P)array}}%%:*}}; }}
_files() {{ print -r -- FILES; }}
words=({words}) CURRENT={current}
source {file}
"""
BASH = """
source {file}
COMP_WORDS=({words}) COMP_CWORD={current}
_{program}
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def printed(program, flag):
    return subprocess.run([str(BIN / program), flag], capture_output=True, text=True, check=True, timeout=limit(60)).stdout


@pytest.fixture(params=["bash", "zsh"])
def shell(request, root):
    if not shutil.which(request.param):
        pytest.skip(f"{request.param} is not installed")

    def offers(program, *words):
        """The words that are offered for the last one of the line."""
        file = root / f"_{program}"
        if not file.exists():
            file.write_text(printed(program, f"--help={request.param}"))
        line = " ".join(f"'{word}'" for word in (program, *words))
        text = ZSH.format(words=line, current=len(words) + 1, file=file) if request.param == "zsh" else BASH.format(
            words=line, current=len(words), file=file, program=program)
        flags = ["-f"] if request.param == "zsh" else ["--norc"]
        done = subprocess.run([request.param, *flags, "-c", text], capture_output=True, text=True, check=False,
                              timeout=limit(60))
        assert not done.stderr, done.stderr
        return [word for word in done.stdout.split("\n") if word and word.startswith(words[-1])]

    return offers


def commands():
    """Of mmctl, as its help lists them."""
    text = printed("mmctl", "--help")
    block = text[text.index("Commands:"):].split("\n\n")[0]
    return re.findall(r"^  ([a-z]+(?: [a-z]+)?)(?=  | [A-Z\[]|$)", block, re.MULTILINE)


def test_commands(shell):
    found = commands()
    assert {"status", "plan why", "revoke", "mps limit", "mig create", "top"} <= set(found)
    assert set(shell("mmctl", "")) >= {name.split()[0] for name in found}
    for first in {name.split()[0] for name in found if " " in name}:
        assert set(shell("mmctl", first, "")) == {name.split()[1] for name in found if name.startswith(f"{first} ")}
    assert shell("mmctl", "dra") == ["drain"]


def test_options(shell):
    """Each option of each command that its help has, with the shared ones."""
    for name in commands():
        text = subprocess.run([str(BIN / "mmctl"), *name.split(), "--help"], capture_output=True, text=True, check=True,
                              timeout=limit(60)).stdout
        wanted = set(re.findall(r"^  (--[a-z-]+)", text, re.MULTILINE))
        assert wanted <= set(shell("mmctl", *name.split(), "--")), name
    assert "--layers" in shell("mmctl", "--dir", "/run/plan", "plan", "set", "model", "--l")


def test_values(shell):
    assert shell("mmctl", "quota", "set", "a", "--on-timeout", "") == ["kill", "quarantine"]
    assert set(shell("mmctl", "plan", "set", "m", "--slots", "")) == {"1", "2", "auto"}


def test_programs_without_commands(shell):
    for program, option in (("mmd", "--pool"), ("mmserve", "--model")):
        assert option in shell(program, "--")
