# SPDX-License-Identifier: Apache-2.0
"""
mmctl upgrade: another build goes on under load, one is refused by preflight, one fails and is taken back.

Tokens stay what they are, and no page is lost, whatever comes of it.
"""

import os
import shutil
import subprocess

from daemon import role_of
from programs import BUILD, limit
from test_chaos import Bystander, cycle_plans

OTHERS = BUILD / "tests"
LATER, NEEDS, FAILS, MOVED, LACKS = (OTHERS / f"mmd-{name}" for name in ["later", "needs", "fails", "moved", "lacks"])


def core_program(d):
    """The file that core runs."""
    pids = [pid for pid in d.pids("core") if role_of(pid) == "core"]
    return os.path.basename(os.readlink(f"/proc/{pids[0]}/exe"))


def upgrade(d, *args):
    """Returns the exit status, and what was said."""
    done = subprocess.run([BUILD / "bin" / "mmctl", "--dir", d.dir, "upgrade", *map(str, args)], text=True,
                          capture_output=True, timeout=limit(120))
    return done.returncode, (done.stdout + done.stderr).strip()


def test_upgrade_under_load(root, start, serve, model_dirs, rng):
    """Builds follow each other while two tenants trade KV memory and change their plans."""
    d = start(policy="remap", pool="8M", page="16K")
    tenants = [Bystander(serve, root, d, f"t{i}", model_dirs[i], i) for i in range(2)]
    assert core_program(d) == "mmd"
    for program, status, words, runs in [
            (NEEDS, 1, "refused: damaged: not complete", "mmd"),
            (LACKS, 1, "refused: its book: field swap_bytes of struct mm_session_kept is not known here", "mmd"),
            (MOVED, 0, "goes on", "mmd-moved"),
            (FAILS, 1, "did not go on", "mmd-moved"),
            (BUILD / "bin" / "mmd", 0, "goes on", "mmd"),
            (FAILS, 1, "did not go on", "mmd"),
            (LATER, 0, "goes on", "mmd-later"),
            (FAILS, 1, "did not go on", "mmd-later"),
            (BUILD / "bin" / "mmd", 0, "goes on", "mmd")]:
        for t in tenants:
            t.poke()
        cycle_plans(d, rng.choice(["t0", "t1"]), rng)
        got = upgrade(d, program)
        assert got[0] == status and words in got[1], (program, got)
        assert core_program(d) == runs
    for t in tenants:
        t.finish()
    d.check_accounts()


def test_check_changes_nothing(root, start):
    d = start(policy="remap", pool="4M", page="16K")
    before = d.pids("core")
    assert upgrade(d, "--check", LATER)[0] == 0
    status, text = upgrade(d, "--check", NEEDS)
    assert status == 1 and "refused" in text
    assert d.pids("core") == before


def test_refused_files(root, start):
    """No program, another program, and a file that others can change."""
    d = start(policy="remap", pool="4M", page="16K")
    assert upgrade(d, root / "nothing") == (1, f"mmctl: {root / 'nothing'}: there is no such file")
    assert "no program" in upgrade(d, root)[1]
    assert "does not check" in upgrade(d, shutil.which("true"))[1]
    copy = root / "mmd-for-all"
    shutil.copy(LATER, copy)
    copy.chmod(0o777)
    assert "others than mmd's user can change it" in upgrade(d, copy)[1]
    assert core_program(d) == "mmd"
