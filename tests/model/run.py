#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the models of the protocols with spin: properties hold, and each switch breaks one.

A model (*.pml) says in its first comment what it has:

    @variant NAME: where in the code        the model is checked once for each; without one, once
    @property NAME: text                    an assertion MUST(NAME, ...) in it; `goes_on` is that
                                            no state is a dead end; `(liveness)`: a formula in it,
                                            `(fair liveness)`: where no process waits for ever
    @switch NAME PROPERTY [VARIANT...]: text
                                            -DNAME removes a step; then PROPERTY breaks

The table of Documentation/models-of-protocols.md is made of these comments; --document compares it.

With MM_TEST_LONG each model has one kill more (-DLONG).

Exit status: 0 all is as stated, 1 it is not, 2 usage, 77 spin or a compiler is missing.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIVENESS = re.compile(r"\((fair )?liveness\) ")
HERE = Path(__file__).resolve().parent
STATES_BYTES_MIB = 2048


class Model:
    """What the first comment of a model says."""

    def __init__(self, path):
        self.path = path
        self.name = path.stem
        comment = path.read_text().split("*/")[1].split("/*")[1]
        text = "\n".join(line.lstrip()[1:].strip() for line in comment.splitlines())
        items = re.findall(r"^@(variant|property|switch) ([^:]+): (.*?)(?=\n@|\n\n|\Z)", text,
                           re.S | re.M)
        self.variants, self.properties, self.switches = {}, {}, {}
        for kind, words, meaning in items:
            name, *rest = words.split()
            meaning = " ".join(meaning.split())
            if kind == "variant":
                self.variants[name] = meaning
            elif kind == "property":
                self.properties[name] = meaning
            else:
                self.switches[name] = (rest[0], rest[1:], meaning)
        for name, (broken, variants, _) in self.switches.items():
            if broken not in self.properties or set(variants) - set(self.variants):
                sys.exit(f"{path.name}: switch {name}: no such property or variant")

    def formulas(self):
        """The properties that are formulas: they are checked one by one."""
        return [p for p, text in self.properties.items() if LIVENESS.match(text)]


class Outcome:
    def __init__(self, broken, states, seconds, text):
        self.broken, self.states, self.seconds, self.text = broken, states, seconds, text


def run(command, folder):
    return subprocess.run(command, cwd=folder, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False)


def broken_property(model, formula, text):
    """Which property pan found broken, or None."""
    found = re.search(r"^pan:\d+: (.*)$", text, re.M)
    if not found:
        return None
    line = found.group(1)
    number = re.search(r"\((\d+)==0\)", line)
    if number:
        return list(model.properties)[int(number.group(1)) - 1]
    if line.startswith("invalid end state"):
        return "goes_on"
    if formula and ("acceptance cycle" in line or "claim violated" in line):
        return formula
    return "?" + line


def flags(model, defines, wanted=None):
    """A property with the number 0 is not looked at."""
    numbers = [f"PROPERTY_{p}={i if wanted in (None, p) else 0}"
               for i, p in enumerate(model.properties, 1)]
    longer = ["LONG"] if os.environ.get("MM_TEST_LONG") else []
    return [f"-D{d}" for d in [*defines, *numbers, *longer]]


def check(model, defines, formula, folder, wanted=None):
    """Makes and runs one checker: for the assertions, or for one formula."""
    begun = time.monotonic()
    made = run(["spin", "-a", *flags(model, defines, wanted), str(model.path)], folder)
    if made.returncode or "rror" in made.stdout:
        sys.exit(f"{model.name} {defines}: spin: {made.stdout}")
    kind = [] if formula else ["-DSAFETY", "-DNOCLAIM"]
    fair = ["-f"] if formula and model.properties[formula].startswith("(fair") else []
    # A search that stops at once is not worth a compiler's time.
    level = "-O0" if set(defines) & set(model.switches) else "-O2"
    made = run([os.environ.get("CC", "cc"), level, "-w", f"-DMEMLIM={STATES_BYTES_MIB}", *kind,
                "-o", "pan", "pan.c"], folder)
    if made.returncode:
        sys.exit(f"{model.name} {defines}: {made.stdout}")
    command = ["./pan", "-m1000000", "-w18"]
    if wanted and wanted != "goes_on" and not formula:
        command.append("-E")  # a dead end that comes of it as well is not of interest
    ran = run(command + (["-a", *fair, "-N", formula] if formula else []), folder)
    states = re.search(r"^\s*(\d+) states, stored", ran.stdout, re.M)
    broken = broken_property(model, formula, ran.stdout)
    if formula and not re.search(rf"never claim\s+\+ \({formula}\)", ran.stdout):
        sys.exit(f"{model.name}: no formula {formula}: {ran.stdout}")
    if not states or (not broken and "Search not completed" in ran.stdout) or \
            "max search depth too small" in ran.stdout:
        sys.exit(f"{model.name} {defines}: {ran.stdout}")
    return Outcome(broken, int(states.group(1)), time.monotonic() - begun, ran.stdout)


def trail(model, defines, wanted, folder):
    shown = run(["spin", "-t", "-p", "-g", "-k", f"{model.path.name}.trail",
                 *flags(model, defines, wanted), str(model.path)], folder)
    return "\n".join(shown.stdout.splitlines()[-60:])


class Checker:
    def __init__(self, verbose):
        self.verbose, self.failures = verbose, 0

    def report(self, what, outcome, wanted, defines, folder, model):
        good = outcome.broken == wanted
        self.failures += not good
        print(f"{'ok  ' if good else 'FAIL'} {what}: {outcome.broken or 'holds'}, "
              f"{outcome.states} states, {outcome.seconds:.1f} s", flush=True)
        if not good:
            print(f"     expected: {wanted or 'holds'}")
        if self.verbose and outcome.broken:
            print(trail(model, defines, wanted, folder))

    def model(self, model, only):
        with tempfile.TemporaryDirectory() as folder:
            for variant in model.variants or [None]:
                base = [variant] if variant else []
                if not only:
                    self.whole(model, base, folder)
                for name, (broken, variants, _) in model.switches.items():
                    if (only and name not in only) or (variants and variant not in variants):
                        continue
                    formula = broken if broken in model.formulas() else None
                    what = " ".join([model.name, *base, name])
                    outcome = check(model, [*base, name], formula, folder, broken)
                    self.report(what, outcome, broken, [*base, name], folder, model)

    def whole(self, model, base, folder):
        what = " ".join([model.name, *base])
        for formula in [None, *model.formulas()]:
            self.report(f"{what}: {formula}" if formula else what,
                        check(model, base, formula, folder), None, base, folder, model)


def cell(text):
    text = LIVENESS.sub("", text).replace("|", "\\|")
    return re.sub(r"([\w./]*[\w]+\(\)|[\w/]+\.[ch]\b|MM_\w+|--[\w-]+ \w+)", r"`\1`", text)


def table(model):
    rows = [f"`{model.name}.pml` shows:", ""]
    rows += [f"- `{name}`: {cell(text)}" for name, text in model.properties.items()]
    rows += ["", "| switch | without this step | breaks |", "|---|---|---|"]
    rows += [f"| `{name}` | {cell(text)} | `{broken}` |"
             for name, (broken, _, text) in model.switches.items()]
    return "\n".join(rows)


def document(models, path, renew):
    """Compares (or renews) what stands between the marks of each model."""
    old = text = path.read_text()
    for model in models:
        text, n = re.subn(rf"(<!-- {model.name}: begin -->\n).*?(\n<!-- {model.name}: end -->)",
                          lambda m, model=model: m.group(1) + table(model) + m.group(2), text,
                          flags=re.S)
        if n != 1:
            print(f"{path}: no place for the model {model.name}")
            return 1
    if renew:
        path.write_text(text)
    elif text != old:
        print(f"{path} is not what the models say: run.py --document {path} --renew")
        return 1
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", help="names of models; default: all")
    parser.add_argument("--switch", action="append", help="only this switch")
    parser.add_argument("--trail", action="store_true", help="print how each property is broken")
    parser.add_argument("--document", type=Path, metavar="FILE",
                        help="compare the tables in FILE with the models, and end")
    parser.add_argument("--renew", action="store_true", help="with --document: write them instead")
    args = parser.parse_args()
    models = [Model(p) for p in sorted(HERE.glob("*.pml"))
              if not args.models or p.stem in args.models]
    if len(models) < len(args.models):
        parser.error("no such model")
    if args.document:
        return document(models, args.document, args.renew)
    if not shutil.which("spin") or not shutil.which(os.environ.get("CC", "cc")):
        print("skipped: spin or a C compiler is missing (tools/packages)")
        return 77
    checker = Checker(args.trail)
    begun = time.monotonic()
    for model in models:
        checker.model(model, args.switch)
    print(f"{checker.failures} not as stated, {time.monotonic() - begun:.1f} s")
    return 1 if checker.failures else 0


if __name__ == "__main__":
    sys.exit(main())
