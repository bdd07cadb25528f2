#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""in_venv.py VENV TEST.py...: runs tests with the Python of tools/engines-venv; 77 without it.

The variable MM_ENGINES_VENV names another folder than VENV. With --vllm in front it is an
environment with vLLM, and the variable is MM_ENGINES_VENV_VLLM.
"""

import os
import pathlib
import sys


def main():
    words = sys.argv[1:]
    vllm = words[:1] == ["--vllm"]
    what, option, variable = (("vLLM", " --vllm", "MM_ENGINES_VENV_VLLM") if vllm else
                              ("PyTorch and transformers", "", "MM_ENGINES_VENV"))
    words = words[vllm:]
    if len(words) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    venv = pathlib.Path(os.environ.get(variable) or words[0])
    python = venv / "bin/python"
    if not python.exists():
        print(f"skipped: no {what} in {venv}: tools/engines-venv DIR{option} installs it, "
              f"{variable}=DIR names the folder")
        return 77
    os.execv(python, [str(python), "-m", "pytest", "-q", "-rs", "--tb=short", "-p",
                      "no:cacheprovider", *words[1:]])


if __name__ == "__main__":
    sys.exit(main())
