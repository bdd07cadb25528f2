#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""in_venv.py VENV TEST.py...: runs tests with the Python of tools/engines-venv; 77 without it.

The variable MM_ENGINES_VENV names another folder than VENV. With --vllm or --sglang in front it is
an environment with that, and the variable is MM_ENGINES_VENV_VLLM or MM_ENGINES_VENV_SGLANG.
"""

import os
import pathlib
import sys

KINDS = {"--vllm": ("vLLM", "MM_ENGINES_VENV_VLLM"),
         "--sglang": ("SGLang", "MM_ENGINES_VENV_SGLANG")}


def main():
    words = sys.argv[1:]
    kind = words[0] if words and words[0] in KINDS else ""
    what, variable = KINDS.get(kind, ("PyTorch and transformers", "MM_ENGINES_VENV"))
    option = f" {kind}" if kind else ""
    words = words[bool(kind):]
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
