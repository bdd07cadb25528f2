# SPDX-License-Identifier: Apache-2.0
"""The command line of mmevaluate as the other programs have theirs (libclient/support/options.h): help, man page and
completion are printed from the table of arguments, and mistyped words get a suggestion."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import NoReturn

COLUMNS, INDENT, WORD_MAX = 79, 28, 64


class UsageError(Exception):
    """Wrong arguments, in one line."""


def distance(a: str, b: str) -> int:
    """Counts insertions, deletions, replacements and exchanges of neighbours between two words."""
    rows = [list(range(len(b) + 1))]
    for i, x in enumerate(a, 1):
        row = [i]
        for j, y in enumerate(b, 1):
            least = min(rows[-1][j] + 1, row[-1] + 1, rows[-1][j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                least = min(least, rows[-2][j - 2] + 1)
            row.append(least)
        rows.append(row)
    return rows[-1][-1]


def suggest(word: str, names: Iterable[str]) -> str:
    """Makes the end of a sentence: the nearest name, if one is near enough to be meant."""
    word = word[:WORD_MAX]
    near = [(1 if len(word) > 2 and name.startswith(word) else distance(word, name), name)
            for name in names]
    least, name = min(near, key=lambda pair: pair[0], default=(len(word), ""))
    return f"; did you mean {name}?" if least <= max(len(word) // 3, 1) and least < len(word) else ""


class Parser(argparse.ArgumentParser):
    """A parser whose option --help=man and --help=bash are those of the other programs."""

    def __init__(self, name: str, version: str, summary: str, text: str, status: str) -> None:
        super().__init__(prog=name, allow_abbrev=False, add_help=False)
        self.version, self.summary, self.text, self.status = version, summary, text, status

    def error(self, message: str) -> NoReturn:
        message = message.removeprefix("argument ").replace("-h/--help", "--help")
        message = re.sub(r": expected one argument$", ": needs a value", message)
        raise UsageError(re.sub(r": ignored explicit argument .*", ": takes no value", message, flags=re.S))

    def options(self) -> Iterator[tuple[str, str, str]]:
        """Lists of each option its names, its value, and its help."""
        for action in self._actions:
            yield ", ".join(action.option_strings), action.metavar or "", action.help or ""

    def unknown(self, word: str) -> NoReturn:
        """Refuses a word that is left over."""
        if not word.startswith("-"):
            raise UsageError(f"unexpected argument '{word[:WORD_MAX]}'")
        name = word.split("=")[0]
        known = [flag[2:] for action in self._actions for flag in action.option_strings]
        near = suggest(name[2:], known).replace("mean ", "mean --")
        raise UsageError(f"{name[:WORD_MAX]}: unknown option{near}")

    def printed(self, words: Sequence[str]) -> str:
        """Makes what --help=KIND asks for; empty if nothing does."""
        for kind in (word.removeprefix("--help=") for word in words if word.startswith("--help=")):
            if kind not in ("man", "bash"):
                raise UsageError(f"--help: '{kind[:WORD_MAX]}' is none of: man, bash")
            return self.format_man() if kind == "man" else self.format_bash()
        return ""

    def format_help(self) -> str:
        fill = textwrap.TextWrapper(COLUMNS, break_long_words=False, break_on_hyphens=False)
        lines = [f"Usage: {self.prog} [OPTIONS]", "", self.summary, "", fill.fill(self.text), "", "Options:"]
        fill.subsequent_indent = " " * INDENT
        for names, value, text in self.options():
            head = f"  {names} {value}".rstrip()
            fill.initial_indent = f"{head:{INDENT}}" if len(head) + 2 <= INDENT else " " * INDENT
            lines += [] if len(head) + 2 <= INDENT else [head]
            lines.append(fill.fill(text))
        fill.initial_indent = fill.subsequent_indent = ""
        return "\n".join(lines + ["", fill.fill(f"Exit status: {self.status}"), ""])

    def format_man(self) -> str:
        """Makes the man page, which cmake/man.cmake puts into its template."""
        def plain(text: str) -> str:
            return text.replace("\\", "\\e").replace("-", "\\-")
        lines = ['.\\" SPDX-License-Identifier: Apache-2.0',
                 f'.TH {self.prog.upper()} 1 "" "mmd {self.version}"', ".SH NAME",
                 f"{self.prog} \\- {plain(self.summary)}", ".SH SYNOPSIS", f".B {self.prog}", "[OPTIONS]",
                 ".SH DESCRIPTION", plain(self.text), ".SH OPTIONS"]
        for names, value, text in self.options():
            lines += [".TP", f"\\fB{plain(names)}\\fR" + (f" \\fI{value}\\fR" if value else ""), plain(text)]
        return "\n".join(lines + [".SH EXIT STATUS", plain(self.status), ""])

    def format_bash(self) -> str:
        """Makes the completion for bash: options; behind one with a value, files."""
        words = " ".join(flag for action in self._actions for flag in action.option_strings if flag[1] == "-")
        return (f"# SPDX-License-Identifier: Apache-2.0\n# Completion of {self.prog} for bash.\n_{self.prog}()\n{{\n"
                "\tCOMPREPLY=()\n\tif [[ ${COMP_WORDS[COMP_CWORD]} == -* ]]; then\n"
                f"\t\tmapfile -t COMPREPLY < <(compgen -W '{words}' -- \"${{COMP_WORDS[COMP_CWORD]}}\")\n\tfi\n}}\n"
                f"complete -o default -F _{self.prog} {self.prog}\n")
