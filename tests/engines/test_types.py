# SPDX-License-Identifier: Apache-2.0
"""The package is typed, strictly; run by in_venv.py."""

import subprocess
import sys

import pytest

from conftest import PACKAGE
from programs import limit


def test_mypy(tmp_path):
    pytest.importorskip("mypy")
    done = subprocess.run([sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path)], cwd=PACKAGE,
                          text=True, capture_output=True, timeout=limit(120), check=False)
    assert done.returncode == 0, done.stdout + done.stderr
