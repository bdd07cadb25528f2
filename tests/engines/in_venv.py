#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""in_venv.py VENV TEST.py...: runs tests with the Python of tools/engines-venv; 77 without it.

The variable MM_ENGINES_VENV names another folder than VENV.
"""

import os
import pathlib
import sys


def main():
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    venv = pathlib.Path(os.environ.get("MM_ENGINES_VENV") or sys.argv[1])
    python = venv / "bin/python"
    if not python.exists():
        print(f"skipped: no PyTorch and transformers in {venv}: tools/engines-venv DIR installs them, "
              f"MM_ENGINES_VENV=DIR names the folder")
        return 77
    os.execv(python, [str(python), "-m", "pytest", "-q", "-rs", "--tb=short", "-p",
                      "no:cacheprovider", *sys.argv[2:]])


if __name__ == "__main__":
    sys.exit(main())
