# SPDX-License-Identifier: Apache-2.0
"""tools/gpu-suite: reads arguments, looks at the GPU, and runs one part after the other."""

import argparse
import contextlib
import json
import math
import os
import pathlib
import platform
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time

from suite import bench, build, conformance, deps, engines, identity, probe, report, sizes
from suite.work import PARTS, TOP, Failure, Interrupted, OutOfTime, Suite, now

RUN = {
    "build": build.run,
    "conformance": conformance.run,
    "identity": identity.run,
    "engines": engines.run,
    "bench": bench.run,
    "sizes": sizes.run,
}
NO_GPU = 77
FILES = 65536


class Parser(argparse.ArgumentParser):
    def error(self, message):
        print(f"gpu-suite: {message}; try --help", file=sys.stderr)
        sys.exit(2)


def version():
    found = re.search(r"project\(mmd VERSION ([0-9.]+)", (TOP / "CMakeLists.txt").read_text())
    return found.group(1)


def words(known):
    def parse(text):
        got = text.split(",")
        for word in got:
            if word not in known:
                raise argparse.ArgumentTypeError(f"'{word}' is not one of {', '.join(known)}")
        return [word for word in known if word in got]

    return parse


def seconds(text):
    if not re.fullmatch(r"[0-9]{1,7}", text) or not int(text):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds")
    return int(text)


def memory_size(text):
    found = re.fullmatch(r"([0-9]{1,7})([MG])", text)
    if not found:
        raise argparse.ArgumentTypeError(f"'{text}' is not a size like 128G")
    return int(found.group(1)) << {"M": 20, "G": 30}[found.group(2)]


def arguments(text):
    p = Parser(add_help=False)
    p.add_argument("outdir", nargs="?")
    p.add_argument("--help", "-h", action="store_true")
    p.add_argument("--version", action="store_true")
    p.add_argument("--list", action="store_true")
    p.add_argument("--part", type=words(PARTS), default=list(PARTS))
    p.add_argument("--driver", choices=("cuda", "software"), default="cuda")
    p.add_argument("--resume", action="store_true")
    p.add_argument("--budget", type=seconds)
    p.add_argument("--quick", action="store_true")
    p.add_argument("--build", default=TOP / "build")
    p.add_argument("--deps")
    p.add_argument("--no-install", action="store_true")
    p.add_argument("--combo", type=words(tuple(sizes.COMBOS)), default=list(sizes.COMBOS))
    p.add_argument("--work")
    p.add_argument("--trace")
    p.add_argument("--memory", type=memory_size)
    p.add_argument("--commit")
    p.add_argument("--copy")
    p.add_argument("--fetch-deps")
    args = p.parse_args()
    if args.help:
        print(text.strip())
    elif args.version:
        print(f"gpu-suite {version()}")
    elif args.list:
        print(
            "\n".join(
                [
                    *(f"part   {part}" for part in PARTS),
                    *(f"combo  {name:12} {combo.what}" for name, combo in sizes.COMBOS.items()),
                ]
            )
        )
    elif args.fetch_deps is None:
        if args.outdir is None:
            p.error("give a folder for the results")
        if args.deps and not pathlib.Path(args.deps).is_dir():
            p.error(f"--deps: {args.deps} is not a folder")
        return args
    if args.fetch_deps and not (args.help or args.version or args.list):
        sys.exit(deps.fetch(args.fetch_deps))
    sys.exit(0)


def environment(args):
    """Returns the environment of all programs, with no other MM_ variables than those set here."""
    env = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith("MM_SOFTGPU_") and key not in ("MM_DRIVER", "MM_CONF_FACTS", "MMD_SOCKET")
    }
    return {**env, "MM_DRIVER": args.driver, **(deps.environment(args.deps) if args.deps else {})}


def commit(args):
    if args.commit:
        return args.commit
    done = (
        subprocess.run(
            ["git", "-C", str(TOP), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
            capture_output=True,
            text=True,
            check=False,
        )
        if shutil.which("git")
        else None
    )
    return done.stdout.strip() if done and not done.returncode else "unknown"


def raise_limits():
    """Raises the limit of open files as far as root may, because each page of mmd's pool is one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for most in (max(hard, FILES), hard):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
            return


def machine():
    with open("/proc/meminfo", encoding="ascii") as lines:
        memory = {key: int(rest.split()[0]) << 10 for key, rest in (line.split(":") for line in lines)}
    kernel_driver = pathlib.Path("/proc/driver/nvidia/version")
    found = re.search(r"Module\s+(?:for \S+\s+)?(\S+)", kernel_driver.read_text()) if kernel_driver.exists() else None
    return {
        "kernel": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": memory["MemTotal"],
        "kernel_driver": found.group(1) if found else None,
    }


def look(args, env):
    """Returns the device, or exits with one sentence why there is none."""
    if args.driver == "software":
        return {"name": "mmd software GPU", "software": True}
    path = probe.find_driver()
    found = probe.ask("driver", path, env) if path else None
    if not found or "error" in found:
        print(f"gpu-suite: {probe.no_gpu(found and found['error'])}", file=sys.stderr)
        sys.exit(NO_GPU)
    if "/" in path:
        env["LD_LIBRARY_PATH"] = ":".join(filter(None, [os.path.dirname(path), env.get("LD_LIBRARY_PATH")]))
    library = probe.find_cublas()
    blas = probe.ask("cublas", library, env) if library else {"error": "no libcublas.so.13 or .12 was found"}
    if "/" in (library or ""):
        env["MM_CUBLAS_LIB"] = library
        env["LD_LIBRARY_PATH"] = ":".join(filter(None, [env.get("LD_LIBRARY_PATH"), os.path.dirname(library)]))
    return {**found, "software": False, "cublas": blas, "settings": probe.settings()}


def begin(suite, device):
    """Returns a new state, or the existing one."""
    args, path = suite.args, suite.out / "gpu-suite.json"
    line = shlex.join(["tools/gpu-suite", *sys.argv[1:]])
    state = {
        "schema": 1,
        "version": version(),
        "driver": args.driver,
        "rehearsal": suite.software,
        "quick": args.quick,
        "begun": now(),
        "commands": [],
        "parts": {},
    }
    if path.exists():
        if not args.resume:
            raise SystemExit(usage(f"{path} is there already: --resume goes on with it, or name another folder"))
        try:
            state = json.loads(path.read_text())
        except ValueError as error:
            raise SystemExit(usage(f"{path}: {error}")) from None
        if not isinstance(state, dict) or (state.get("schema"), state.get("driver"), state.get("quick")) != (
            1,
            args.driver,
            args.quick,
        ):
            raise SystemExit(usage(f"{path} is of another driver, or of other sizes (--quick)"))
    state.update(device=device, machine=machine(), commit=commit(args), saved=now())
    state["commands"].append(line)
    for part in PARTS:
        state["parts"].setdefault(part, {"outcome": "not run", "why": "was not asked for so far"})
    return state


def usage(text):
    print(f"gpu-suite: {text}", file=sys.stderr)
    return 2


def run_part(suite, part):
    """Runs a part; its record states the outcome, also after an error."""
    old = suite.state["parts"][part]
    record = old if suite.args.resume and old["outcome"] != "not run" else {}
    record.update(outcome="running", why="", date=now(), commit=suite.state["commit"])
    suite.state["parts"][part] = record
    begun, before = time.monotonic(), record.get("seconds", 0)
    suite.save()
    suite.say(f"{part}…")
    try:
        record["outcome"], record["why"] = "done", ""
        RUN[part](suite, record)
    except Failure as error:
        record.update(outcome="failed", why=str(error))
    except OutOfTime as error:
        record.update(outcome="out of time", why=str(error))
    except (Interrupted, KeyboardInterrupt):
        record.update(outcome="interrupted", why="a signal ended the suite")
        raise
    except Exception as error:  # the other parts run after any error
        record.update(outcome="failed", why=f"{type(error).__name__}: {error}")
    finally:
        record["seconds"] = round(before + time.monotonic() - begun, 1)
        suite.state["saved"] = now()
        suite.copied = -math.inf
        suite.save()
        suite.say(
            f"{part}: {record['outcome']}{': ' + record['why'] if record['why'] else ''} " f"({record['seconds']} s)"
        )


def interrupt(number, frame):
    raise Interrupted


def main(text):
    args = arguments(text)
    env = environment(args)
    device = look(args, env)
    kept = [] if args.driver == "software" else probe.keep_open()
    raise_limits()
    suite = Suite(args, env)
    suite.report = report.markdown
    suite.state = begin(suite, device)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, interrupt)
    try:
        for part in args.part:
            run_part(suite, part)
        if "conformance" in args.part:
            conformance.beside(suite)
    except Interrupted:
        print("gpu-suite: interrupted; what was done is in the results", file=sys.stderr)
        return 1
    finally:
        suite.sweep()
        if not suite.software:
            device["settings_after"] = probe.settings()
            suite.save()
        if args.copy:
            suite.copy()
        for fd in kept:
            os.close(fd)
    suite.say(f"{suite.out / 'gpu-suite.md'}")
    return 0 if all(suite.state["parts"][part]["outcome"] == "done" for part in args.part) else 1
