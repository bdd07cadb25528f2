# SPDX-License-Identifier: Apache-2.0
"""
mmctl upgrade: another build goes on under load, one is refused by preflight, one fails and is taken back.

Tokens stay what they are, and no page is lost, whatever comes of it.
"""

import json
import os
import shutil
import signal
import subprocess
import threading

import abi
import wire
from daemon import Daemon, role_of
from programs import BUILD, limit, wait_until
from test_chaos import Bystander, await_xfer, bystanders, cycle_plans, kill_role

OTHERS = BUILD / "tests"
LATER, NEEDS, FAILS, FIRST, MOVED, LACKS, KEEPER_LACKS, KEEPER_FAILS = (
    OTHERS / f"mmd-{name}"
    for name in ["later", "needs", "fails", "first", "moved", "lacks", "keeper-lacks", "keeper-fails"])


def core_program(d):
    """The file that core runs."""
    pids = [pid for pid in d.pids("core") if role_of(pid) == "core"]
    return os.path.basename(os.readlink(f"/proc/{pids[0]}/exe"))


def keeper_program(d):
    """The file that keeper runs, which is the process that was started."""
    return os.path.basename(os.readlink(f"/proc/{d.process.pid}/exe"))


def upgrade(d, *args):
    """Returns the exit status, and what was said."""
    done = subprocess.run([BUILD / "bin" / "mmctl", "--dir", d.dir, "upgrade", *map(str, args)], text=True,
                          capture_output=True, timeout=limit(120))
    return done.returncode, (done.stdout + done.stderr).strip()


def test_upgrade_under_load(root, start, serve, model_dirs, rng):
    """Builds follow each other while two tenants trade KV memory and change their plans."""
    d = start(policy="remap", pool="8M", page="16K")
    tenants = bystanders(serve, root, d, model_dirs)
    assert core_program(d) == "mmd"
    xfers = d.pids("xfer")
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
        assert core_program(d) == keeper_program(d) == runs
    assert d.pids("xfer") == xfers
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


def builds(d):
    """By process, what mmd says that it runs."""
    shown = json.loads(subprocess.run([BUILD / "bin" / "mmctl", "--dir", d.dir, "upgrade", "--check", "--json"],
                                      text=True, capture_output=True, timeout=limit(120)).stdout)
    return {b["role"]: b["build"] for b in shown["builds"]}


def test_keeper_becomes_the_other_build(root, start, serve, model_dirs):
    """Or stays what it was: where it could not be read nothing changes; where it fails, core is the other build."""
    d = start(policy="remap", pool="8M", page="16K")
    tenant = Bystander(serve, root, d, "t0", model_dirs[0], 0)
    tenant.poke()
    status, text = upgrade(d, KEEPER_LACKS)
    assert status == 1 and "refused: its keeper: not known here: field conn_serial of struct mm_keeper" in text
    assert core_program(d) == keeper_program(d) == "mmd"
    status, text = upgrade(d, KEEPER_FAILS)
    assert status == 1 and "keeper stays as it was: it was built to fail" in text
    assert (core_program(d), keeper_program(d)) == ("mmd-keeper-fails", "mmd")
    first = builds(d)
    assert first["keeper"] == first["xfer"] != first["core"]
    status, text = upgrade(d, LATER)
    assert status == 0 and text.count("(until it ends)") == 1
    assert core_program(d) == keeper_program(d) == "mmd-later"
    second = builds(d)
    assert second["keeper"] == second["core"] != second["xfer"] == first["xfer"]
    # What keeper does is done as before: children are reaped, and start from the new file.
    tenant.finish()
    os.kill(d.pids("xfer")[0], 9)
    wait_until(lambda: builds(d).get("xfer") == second["core"], 20, "an xfer of the other build")
    tenant.poke()
    tenant.finish()
    d.check_accounts()


def test_death_around_the_change(root, start, serve, model_dirs, rng):
    """core or xfer is killed while keeper becomes another build: nobody notices, and all goes on.

    Only mmctl may not have got an answer, when core was killed before it had one for it.
    """
    d = start(policy="remap", pool="8M", page="16K")
    tenant = Bystander(serve, root, d, "t0", model_dirs[0], 0)
    done = []
    for i in range(8):
        tenant.poke()
        program = LATER if keeper_program(d) == "mmd" else BUILD / "bin" / "mmd"
        change = threading.Thread(target=lambda p=program: done.append(upgrade(d, p)))
        change.start()
        log = d.log.stat().st_size
        if i % 2:  # when core stands, keeper executes the other file next
            wait_until(lambda at=log: b"upgrade.done" in d.log.read_bytes()[at:] or not change.is_alive(), 30,
                       "the other core to stand")
        kill_role(d, rng.choice(["core", "xfer"]), rng)
        change.join(limit(120))
        assert not change.is_alive() and done[-1][0] in (0, 1, 3), done
        wait_until(d.answers, 30, "mmd to answer")
    tenant.finish()
    assert [status for status, _ in done].count(0) >= 4, done
    assert d.log.read_text(errors="replace").count("event=keeper.replaced") >= 4
    d.check_accounts()


class First(Daemon):
    """mmd of a build whose gate and plan regions are as short as those of the first version."""

    def args(self):
        return [str(FIRST), *super().args()[1:]]


def offers_cold(d):
    with wire.Raw(d).greet(wire.hello(features=wire.FEATURES | abi.MM_FEAT_COLD)) as raw:
        return bool(raw.welcome["features"] & abi.MM_FEAT_COLD)


def test_sessions_with_shorter_regions_go_on(root, start, serve, model_dirs, rng):
    """With core and xfer of the later build. The tenant stands still meanwhile, so that it does not end before."""
    os.environ["MM_SOFTGPU_LIB"] = str(next((BUILD / "lib").glob("libmm-softgpu.so")))
    try:
        d = start(kind=First, policy="remap", pool="8M", page="16K")
    finally:
        del os.environ["MM_SOFTGPU_LIB"]
    tenant = Bystander(serve, root, d, "t0", model_dirs[0], 0, n=60, output=(60, 90))
    tenant.poke()
    wait_until(tenant.has_model, 20, "its model")
    os.kill(tenant.tenant.process.pid, signal.SIGSTOP)
    joined = d.tenant("t0")["tenant"]
    status, text = upgrade(d, BUILD / "bin" / "mmd")
    assert status == 0 and "goes on" in text, text
    assert core_program(d) == keeper_program(d) == "mmd"
    assert not offers_cold(d)  # its xfer would stream none, and steps would wait for ever
    kill_role(d, "xfer", rng)
    await_xfer(d)
    assert offers_cold(d)
    assert d.tenant("t0")["tenant"] == joined  # it lives through both
    os.kill(tenant.tenant.process.pid, signal.SIGCONT)
    cycle_plans(d, "t0", rng)
    tenant.finish()
    d.check_accounts()


class Installed(Daemon):
    """mmd from a file of its own, which may be replaced."""

    def args(self):
        return [str(self.root / "installed"), *super().args()[1:]]


def test_without_a_file_the_installed_one_is_taken(root, start):
    shutil.copy(BUILD / "bin" / "mmd", root / "installed")
    env = dict(os.environ)
    os.environ["MM_SOFTGPU_LIB"] = str(next((BUILD / "lib").glob("libmm-softgpu.so")))
    try:
        d = start(kind=Installed, policy="remap", pool="4M", page="16K")
    finally:
        os.environ.clear()
        os.environ.update(env)
    before = builds(d)["core"]
    shutil.copy(LATER, root / "next")
    os.rename(root / "next", root / "installed")
    status, text = upgrade(d)
    assert status == 0 and "goes on" in text
    after = builds(d)
    assert after["keeper"] == after["core"] != before == after["xfer"]
    os.rename(root / "installed", root / "elsewhere")
    assert upgrade(d) == (1, f"mmctl: {root / 'installed'}: there is no such file any more; name one")
