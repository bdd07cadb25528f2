#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The units of systemd are correct, as exposed as the admin guide says, and users and folders are made.

usage: units.py DIR_OF_UNITS

Needs systemd's programs, no systemd that runs; ends with 77 without them.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parents[3]
GUIDE = TOP / "Documentation/admin-guide.md"


def said(*words):
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stdout + done.stderr


def check_units(folder):
    """No warning, and the exposure that the guide has."""
    wrong = []
    for unit in ("mmd", "mmserve@"):
        path = folder / f"{unit}.service"
        code, text = said("systemd-analyze", "verify", "--man=no", str(path))
        # What else this machine has is not ours.
        lines = [line for line in text.splitlines() if unit.rstrip("@") in line]
        if code or lines:
            wrong.append(f"{path.name}: {' | '.join(lines) or text}")
        code, text = said("systemd-analyze", "security", "--offline=true", "--no-pager", str(path))
        found = re.search(r"Overall exposure level for \S+: ([\d.]+)", text)
        if not found:
            wrong.append(f"{path.name}: no exposure: {text}")
        elif f"`{path.name}`: {found[1]}" not in GUIDE.read_text():
            wrong.append(f"{path.name} has {found[1]}; {GUIDE.name} does not say so")
    return wrong


def check_folders():
    """In a root of their own, as root; another user could give nothing away."""
    wrong = []
    with tempfile.TemporaryDirectory() as root:
        pathlib.Path(root, "etc").mkdir()
        for program, name in ("systemd-sysusers", "mmd.sysusers.conf"), ("systemd-tmpfiles", "mmd.tmpfiles.conf"):
            words = [program, f"--root={root}", *(["--create"] if program.endswith("tmpfiles") else [])]
            code, text = said(*words, str(TOP / "mmd/units" / name))
            if code:
                wrong.append(f"{name}: {code}: {text}")
        users = pathlib.Path(root, "etc/passwd").read_text() if not wrong else ""
        groups = pathlib.Path(root, "etc/group").read_text() if not wrong else ""
        if not re.search("^mmd:", users, re.M) or not re.search("^mmd-view:", groups, re.M):
            wrong.append(f"users and groups are not there: {users}{groups}")
        locks = pathlib.Path(root, "run/mmd-locks")
        if not locks.is_dir() or locks.stat().st_mode & 0o777 != 0o700:
            wrong.append("/run/mmd-locks is not there, or not root's alone")
    return wrong


def main():
    if not all(map(shutil.which, ("systemd-analyze", "systemd-sysusers", "systemd-tmpfiles"))):
        print("systemd is not installed")
        return 77
    wrong = check_units(pathlib.Path(sys.argv[1]))
    if os.geteuid() == 0:
        wrong += check_folders()
    print("\n".join(wrong) or "correct")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
