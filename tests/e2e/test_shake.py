# SPDX-License-Identifier: Apache-2.0
"""`tools/shake`: whom it holds up goes on, and the command's end is its own."""

import re
import signal
import subprocess
import sys

import pytest

from programs import TOP, limit

SHAKE = TOP / "tools/shake"

# Ends when it has been stopped and continued so many times.
COUNTS_STOPS = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCONT])
for _ in range(5):
    signal.sigwait([signal.SIGCONT])
"""

# Ends when it, and what it has started meanwhile, has starved and been let go.
COUNTS_STARVING = """
import os, time
while os.sched_getscheduler(0) != os.SCHED_IDLE:
    time.sleep(0.0005)
if os.fork() == 0:
    while os.sched_getscheduler(0) == os.SCHED_IDLE:
        time.sleep(0.001)
    os._exit(0)
assert os.wait()[1] == 0
while os.sched_getscheduler(0) == os.SCHED_IDLE:
    time.sleep(0.001)
"""


def shake(*args):
    done = subprocess.run([sys.executable, SHAKE, *map(str, args)], capture_output=True, text=True,
                          timeout=limit(60), check=False)
    return done.returncode, done.stderr


def test_processes_are_stopped_and_go_on():
    code, errors = shake("--seed", 5, "--tick-ms", 5, "--stop-ms", 30, sys.executable, "-c", COUNTS_STOPS)
    assert code == 0 and errors.startswith("shake: seed 5"), errors
    assert int(re.search(r"(\d+) stops", errors)[1]) >= 5, errors


def test_threads_starve_and_recover():
    if "no thread starves" in shake("true")[1]:
        pytest.skip("what is made SCHED_IDLE stays so without CAP_SYS_NICE")
    code, errors = shake("--tick-ms", 5, "--spin", 1, "--", sys.executable, "-c", COUNTS_STARVING)
    assert code == 0, errors
    assert int(re.search(r"(\d+) threads starved", errors)[1]) >= 1, errors


def test_version():
    done = subprocess.run([sys.executable, SHAKE, "--version"], capture_output=True, text=True, timeout=limit(60),
                          check=True)
    assert re.fullmatch(r"shake \(mmd\) [0-9.]+\n", done.stdout) and not done.stderr


@pytest.mark.parametrize("args, code, says", [
    (["sh", "-c", "exit 7"], 7, "seed"), (["sh", "-c", "kill -KILL $$"], 128 + signal.SIGKILL, "seed"),
    (["/nowhere/program"], 127, "/nowhere/program"), ([], 2, "COMMAND"), (["--spin", "x", "true"], 2, "'x'"),
    (["--stop-ms", "1", "true"], 2, "--stop-ms")], ids=str)
def test_how_it_ends(args, code, says):
    got, errors = shake(*args)
    assert got == code and says in errors, errors
