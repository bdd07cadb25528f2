# SPDX-License-Identifier: Apache-2.0
"""mmevaluate: reads arguments, runs the cases, writes the report."""

from __future__ import annotations

import argparse
import dataclasses
import errno
import functools
import json
import os
import pathlib
import platform
import re
import shlex
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from . import barcases, barreport, barruns, bars, cases, charts, plots, points, report, runs
from .options import Parser, UsageError, suggest
from .results import Result, join_bases, take_bound, take_run

NAME = "mmevaluate"
SECTION_NAMES = tuple(section.name for section in cases.SECTIONS)
BAR_NAMES = tuple(bars.GROUPS)
SUMMARY = "run the papers' evaluation through the simulator"
DESCRIPTION = """\
DIR gets evaluation.md with tables, what of the targets was reached, and plots (where matplotlib is
installed); evaluation.json with the numbers behind it; and each run's output in DIR/data. A call
that was interrupted goes on from there when it is repeated. With --bars it is bars.md and
bars.json: ideal rotation, static plans by search, capacity, tenants, beside another build."""
STATUS = "0 done, also if targets are missed; 1 a run failed, or was interrupted; 2 usage."


class FailedError(Exception):
    """The evaluation cannot be done, in one line."""


class SignalledError(BaseException):
    """A signal asked to end; BaseException, so that nothing takes it for a failure of its own."""


def whole_number(least: int, most: int) -> Callable[[str], int]:
    """Makes a parser of whole numbers within a range."""
    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,10}", text) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(
                f"'{text[:64]}' is not a whole number within {least} to {most}")
        return int(text)
    return parse


def file_name(text: str) -> str:
    """Parses the name of a file or folder."""
    if not text:
        raise argparse.ArgumentTypeError("is empty; give a name")
    return text


def section_list(text: str) -> tuple[str, ...]:
    """Parses names of sections."""
    names = SECTION_NAMES + BAR_NAMES
    for name in text.split(","):
        if name not in names:
            raise argparse.ArgumentTypeError(f"'{name[:64]}' is none of: {', '.join(names)}"
                                             + suggest(name, names))
    return tuple(text.split(","))


def processors() -> int:
    """Returns how many processors this process may use."""
    return len(os.sched_getaffinity(0))


def make_parser(version: str) -> Parser:
    """Makes the parser of the command line."""
    p = Parser(NAME, version, SUMMARY, DESCRIPTION, STATUS)
    p.add_argument("--quick", action="store_true",
                   help="fewer loads and devices, 4 windows of 30 s instead of 8 of 300 s")
    p.add_argument("--out", metavar="DIR", type=file_name, default="evaluation",
                   help="where the report goes (default: evaluation)")
    p.add_argument("--trace", metavar="FILE", type=file_name,
                   help="arrivals: a CSV with arrival_s (default: bursts from the seed)")
    p.add_argument("--alpaca", metavar="FILE", type=file_name, default="alpaca",
                   help="lengths of the Alpaca-like load (default: a fitted log-normal)")
    p.add_argument("--jobs", metavar="N", type=whole_number(1, 1024), default=processors(),
                   help="simulators at once (1 to 1024; default: one per processor)")
    p.add_argument("--windows", metavar="N", type=whole_number(1, 1000),
                   help="windows of the trace, for each case (1 to 1000; default: 8, with "
                        "--quick 4)")
    p.add_argument("--seconds", metavar="S", type=whole_number(1, 1000000),
                   help="length of a window, in which requests arrive (1 to 1000000 s; default: "
                        "300, with --quick 30)")
    p.add_argument("--seed", metavar="N", type=whole_number(0, 2 ** 32 - 1), default=1,
                   help="of lengths, prompts and synthetic arrivals (default: 1)")
    p.add_argument("--only", metavar="A,B,...", type=section_list, default=(),
                   help="these sections only: " + ", ".join(SECTION_NAMES) + "; with --bars: " +
                        ", ".join(BAR_NAMES) + " (default: all)")
    p.add_argument("--bars", action="store_true",
                   help="what must be reached, in place of the papers' evaluation")
    p.add_argument("--today", metavar="DIR", type=file_name,
                   help="with --bars: a build folder of another commit, to compare with; its mmsim "
                        "must know what this one prints (default: none)")
    p.add_argument("--again", metavar="N", type=whole_number(1, 1000),
                   help="with --bars: windows of a case that falls short (1 to 1000; default: 32, "
                        "with --quick as --windows)")
    p.add_argument("--simulator", metavar="FILE", type=file_name,
                   help="which mmsim (default: that beside this program)")
    p.add_argument("--list", action="store_true",
                   help="print the simulator's command lines, play nothing; not with --bars")
    p.add_argument("--json", action="store_true", help="print evaluation.json instead of a path")
    p.add_argument("-h", "--help", action="help", help="print this help")
    p.add_argument("--version", action="version", version=f"{NAME} {version}",
                   help="print the version")
    return p


def parse_arguments(parser: Parser, words: Sequence[str]) -> argparse.Namespace:
    """Parses the command line, and checks what argparse does not."""
    arguments, rest = parser.parse_known_args(words)
    if rest:
        parser.unknown(rest[0])
    if "," in arguments.alpaca:
        raise UsageError(f"--alpaca '{arguments.alpaca}': mmsim divides lengths at commas")
    arguments.out = pathlib.Path(arguments.out)
    if not arguments.bars and (arguments.today or arguments.again):
        raise UsageError(f"--{'today' if arguments.today else 'again'} is for --bars")
    if arguments.bars and arguments.list:
        raise UsageError("--list is not for --bars: what a search plays depends on what it found")
    known = BAR_NAMES if arguments.bars else SECTION_NAMES
    for name in arguments.only:
        if name not in known:
            raise UsageError(f"--only {name}: {'not a bar' if arguments.bars else 'give --bars'}")
    if arguments.windows is None:
        arguments.windows = 4 if arguments.quick else 8
    if arguments.seconds is None:
        arguments.seconds = 30 if arguments.quick else 100 if arguments.bars else 300
    return arguments


class Progress:
    """How far the runs are, on a terminal; failures, wherever stderr goes."""

    def __init__(self, total: int) -> None:
        self.total, self.begun = total, time.monotonic()
        self.ended = self.kept = self.failed = 0
        self.terminal = sys.stderr.isatty()

    def count(self, task: runs.Task, failure: str, kept: bool) -> None:
        """Notes that a run has ended."""
        self.ended += 1
        self.kept += kept
        if failure:
            self.failed += 1
            self.clear()
            print(f"{NAME}: {task.name}: {failure}", file=sys.stderr)
        if self.terminal:
            print(f"\r{NAME}: {self.ended} of {self.total} runs{self.rest()}: {task.name}\033[K",
                  end="", file=sys.stderr, flush=True)

    def rest(self) -> str:
        """Says how long the rest takes if it goes on as it went."""
        done, left = self.ended - self.kept, self.total - self.ended
        if not done or not left:
            return ""
        seconds = (time.monotonic() - self.begun) / done * left
        return f", {seconds:.0f} s left" if seconds < 100 else f", {seconds / 60:.0f} min left"

    def clear(self) -> None:
        """Takes the line away that says how far the runs are."""
        if self.terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def count_plot(number: int, total: int) -> None:
    """Says on a terminal how far the plots are."""
    if sys.stderr.isatty():
        line = f"{NAME}: {number} of {total} plots" if number < total else ""
        print(f"\r{line}\033[K", end="", file=sys.stderr, flush=True)


@dataclasses.dataclass
class Evaluation:
    """One call of the program."""

    arguments: argparse.Namespace
    settings: points.Settings
    simulator: runs.Simulator

    def saturations(self, curves: Sequence[points.Curve]) -> dict[tuple[str, ...], float]:
        """Computes the rate of load 1 for each case; without these there is no evaluation."""
        lines = dict.fromkeys(points.saturation_words(curve, self.settings)
                              for curve in curves if not curve.given)
        tasks = [runs.Task(f"load-1-{number}", ("--bound", *line), points.take_saturation)
                 for number, line in enumerate(lines)]
        found = run_quietly(self.simulator, tasks, self.arguments.jobs)
        for task in tasks:
            if isinstance(found[task], runs.RunError):
                raise FailedError(f"mmsim {shlex.join(task.words)}: {found[task]}")
        return {line: found[task] for line, task in zip(lines, tasks)}

    def check_inputs(self) -> None:
        """Plays a moment of the trace, so that a broken file is said once and not by every run."""
        inputs = self.settings.inputs()
        trace = ("--trace", self.settings.trace) if self.settings.trace else ()
        task = runs.Task("inputs", ("--bound", "--lengths", self.settings.alpaca, "--rate", "4",
                                    "--seconds", "1", *trace), take_bound)
        found = run_quietly(self.simulator, [task], 1)[task] if inputs else None
        if isinstance(found, runs.RunError):
            raise FailedError(f"mmsim {shlex.join(task.words)}: {found}")

    def list_points(self) -> list[points.Point]:
        """Lists the points of this call."""
        curves = points.list_curves(self.settings)
        most = self.saturations(curves)
        return [point for curve in curves for point in points.curve_points(
            curve, self.settings, lambda c: most[points.saturation_words(c, self.settings)])]

    def run(self, wanted: Sequence[points.Point]) -> list[Result]:
        """Runs each point and computes its bound."""
        plays = {point: runs.Task(point.id, point.words, functools.partial(
            take_run, point.policies)) for point in wanted}
        bounds = {point: runs.Task(f"{point.id}.bound", ("--bound", *point.words), take_bound)
                  for point in wanted}
        tasks = [task for point in wanted for task in (plays[point], bounds[point])]
        progress = Progress(len(tasks))
        try:
            found = runs.run_tasks(self.simulator, tasks, self.arguments.jobs, progress.count)
        except SignalledError:
            progress.clear()
            raise
        progress.clear()
        seconds = time.monotonic() - progress.begun
        print(f"{NAME}: {len(wanted)} cases, {len(tasks)} runs, of which {progress.kept} were "
              f"there before, in {seconds:.0f} s with {self.arguments.jobs} at once",
              file=sys.stderr)
        made = [make_result(point, found[plays[point]], found[bounds[point]]) for point in wanted]
        join_bases(made)
        return made


def run_quietly(simulator: runs.Simulator, tasks: Sequence[runs.Task],
                at_once: int) -> dict[runs.Task, Any]:
    """Runs tasks that take no time worth telling."""
    return runs.run_tasks(simulator, tasks, at_once, lambda task, failure, kept: None)


def make_result(point: points.Point, played: dict | runs.RunError,
                bound: tuple[float, float] | runs.RunError) -> Result:
    """Makes the result of a point, which is a failure if either of its runs is."""
    for found in (played, bound):
        if isinstance(found, runs.RunError):
            return Result(point, str(found))
    return Result(point, "", played, *bound)


def describe(arguments: argparse.Namespace, version: str, commit: str) -> dict:
    """Makes the head of the report: by what it was made."""
    trace = os.path.basename(arguments.trace) if arguments.trace else None
    alpaca = os.path.basename(arguments.alpaca)
    words = [NAME, *(["--bars"] if arguments.bars else []),
             *(["--quick"] if arguments.quick else []),
             *(["--trace", trace] if trace else []),
             *(["--alpaca", alpaca] if alpaca != "alpaca" else []),
             "--windows", str(arguments.windows), "--seconds", str(arguments.seconds), "--seed",
             str(arguments.seed),
             *(["--only", ",".join(arguments.only)] if arguments.only else [])]
    settings = {"quick": arguments.quick, "trace": trace, "alpaca": alpaca,
                "windows": arguments.windows, "seconds": arguments.seconds,
                "seed": arguments.seed, "only": list(arguments.only) or None}
    return {"program": NAME, "version": version, "commit": commit,
            "host": f"{platform.system()} {platform.machine()}", "command": shlex.join(words),
            "settings": settings}


def make_folders(out: pathlib.Path) -> None:
    """Makes the folders of the report, and finds out whether they can be written to."""
    for folder in (out, out / "data", out / "figures"):
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".{NAME}.{os.getpid()}"
        probe.touch()
        probe.unlink()


def open_evaluation(arguments: argparse.Namespace, beside: pathlib.Path) -> Evaluation:
    """Finds mmsim and what it reads."""
    settings = points.Settings(arguments.quick, arguments.windows, arguments.seconds,
                               arguments.seed, arguments.trace, arguments.alpaca, arguments.only)
    path = pathlib.Path(arguments.simulator or beside / "mmsim")
    if not path.is_file() or not os.access(path, os.X_OK):
        raise FailedError(f"{path}: cannot run the simulator: "
                          f"{'it may not be executed' if path.is_file() else 'no such file'}")
    for read in settings.inputs():
        if read.exists() and not read.is_file():
            raise FailedError(f"{read}: not a file")
    if not arguments.list:
        make_folders(arguments.out)
    return Evaluation(arguments, settings, runs.Simulator(
        path.absolute(), settings.inputs(), None if arguments.list else arguments.out / "data"))


def open_runner(arguments: argparse.Namespace, evaluation: Evaluation) -> barruns.Runner:
    """Makes what plays cases with this build, and with that of --today."""
    sizes = barcases.Sizes(
        arguments.windows, arguments.seconds,
        arguments.again or (arguments.windows if arguments.quick else 32),
        arguments.seed, arguments.trace, arguments.alpaca, arguments.quick,
        3600 if arguments.quick else 86400)
    simulators = {"ours": evaluation.simulator}
    if arguments.today:
        path = pathlib.Path(arguments.today) / "bin" / "mmsim"
        if not path.is_file() or not os.access(path, os.X_OK):
            raise FailedError(f"{path}: cannot run today's simulator")
        simulators["today"] = runs.Simulator(path.absolute(), evaluation.settings.inputs(),
                                             evaluation.simulator.data)
    count = [0]

    def tell(name: str) -> None:
        count[0] += 1
        if sys.stderr.isatty():
            print(f"\r{NAME}: {count[0]} runs: {name}\033[K", end="", file=sys.stderr, flush=True)
    return barruns.Runner(simulators, sizes, arguments.jobs, tell)


def evaluate_bars(arguments: argparse.Namespace, head: dict, evaluation: Evaluation) -> int:
    """Plays the cases of the bars, and writes bars.md and bars.json."""
    runner = open_runner(arguments, evaluation)
    judged = bars.Bars(runner)
    groups = arguments.only or BAR_NAMES
    if arguments.today:
        head["today"] = read_commit(runner)
    try:
        rows = judged.rows(groups)
        text = barreport.make_bars_report(head, judged, rows, groups, played="worse" in groups)
    finally:
        runner.stop()
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr)
    numbers = json.dumps(barreport.make_bars_json(head, judged, rows), indent=1) + "\n"
    runs.write_file(arguments.out / "bars.json", numbers)
    runs.write_file(arguments.out / "bars.md", text)
    print(numbers if arguments.json else arguments.out / "bars.md",
          end="" if arguments.json else "\n")
    for failure in runner.failures:
        print(f"{NAME}: {failure}", file=sys.stderr)
    return 1 if runner.failures else 0


def take_commit(output: Any) -> str:
    """Takes the commit out of mmsim's JSON."""
    commit = output.get("commit") if isinstance(output, dict) else None
    if not isinstance(commit, str):
        raise runs.MalformedError("no commit in the JSON")
    return commit


def read_commit(runner: barruns.Runner) -> str:
    """Returns the commit of today's simulator."""
    task = runs.Task("today-commit", ("--bound", "--rate", "4", "--seconds", "1"), take_commit)
    try:
        return runner.simulators["today"].run(task)
    except runs.RunError as error:
        raise FailedError(f"--today: {error}") from error


def evaluate(arguments: argparse.Namespace, head: dict, beside: pathlib.Path) -> int:
    """Does what the command line asks for, and returns the exit status."""
    evaluation = open_evaluation(arguments, beside)
    evaluation.check_inputs()
    if arguments.bars:
        return evaluate_bars(arguments, head, evaluation)
    wanted = evaluation.list_points()
    if arguments.list:
        print("\n".join(f"mmsim {point.line}" for point in wanted))
        return 0
    drawn = plots.available()
    if not drawn:
        print(f"{NAME}: {plots.MISSING}", file=sys.stderr)
    results = evaluation.run(wanted)
    every = [chart for name in SECTION_NAMES for chart in charts.list_charts(results, name)]
    plotted = plots.draw_all(every, arguments.out / "figures", arguments.jobs, count_plot) \
        if drawn else frozenset()
    numbers = json.dumps(report.make_json(head, results), indent=1, allow_nan=False) + "\n"
    runs.write_file(arguments.out / "evaluation.json", numbers)
    runs.write_file(arguments.out / "evaluation.md", report.make_report(head, results, plotted))
    print(numbers if arguments.json else arguments.out / "evaluation.md",
          end="" if arguments.json else "\n")
    failed = sum(bool(result.failure) for result in results)
    if failed:
        print(f"{NAME}: {failed} of {len(results)} cases failed; the report names them",
              file=sys.stderr)
    return 1 if failed else 0


def raise_signalled(number: int, _frame: object) -> NoReturn:
    """Handles a signal: all ends in order. A second one changes nothing."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    raise SignalledError(signal.Signals(number).name)


def fail(sentence: str) -> int:
    """Prints why nothing came of it, and returns the exit status."""
    print(f"{NAME}: {sentence}", file=sys.stderr)
    return 1


def main(words: Sequence[str], beside: pathlib.Path, version: str, commit: str) -> int:
    """Runs the program. beside: the folder that it is in."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, raise_signalled)
    arguments = None
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="ascii")
    if not sys.stdout:
        return fail("standard output: " + os.strerror(errno.EBADF))
    try:
        parser = make_parser(version)
        if page := parser.printed(words):
            sys.stdout.write(page)
            sys.stdout.flush()
            return 0
        arguments = parse_arguments(parser, words)
        status = evaluate(arguments, describe(arguments, version, commit), beside)
        sys.stdout.flush()
        return status
    except UsageError as error:
        sentence = str(error)
        print(f"{NAME}: {sentence}{' See' if sentence[-1] == '?' else '; see'} {NAME} --help",
              file=sys.stderr)
        return 2
    except FailedError as error:
        return fail(str(error))
    except SignalledError as error:
        if arguments is None or arguments.list:
            return fail(f"ended by {error}")
        return fail(f"ended by {error}; what has been run is in {arguments.out / 'data'}, and the "
                    "same command goes on from there")
    except OSError as error:
        if not error.filename:  # what remains in the buffer of stdout must not fail again
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return fail(f"{error.filename or 'standard output'}: {error.strerror}")
