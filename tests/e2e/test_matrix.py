# SPDX-License-Identifier: Apache-2.0
"""A small part of tools/matrix: the same tokens whatever the model, its dtype, slots, store, devices."""

import json
import subprocess

import pytest

from programs import BUILD, TOP, limit, some

# Rows are in the order of how many pairs of values they add: the first ones see the most.
ROWS = some((0, 1, 2), (0,))


@pytest.mark.parametrize("row", ROWS)
def test_row(row):
    done = subprocess.run(
        [str(TOP / "tools" / "matrix"), "--build", str(BUILD), "--rows", str(row), "--requests", "8",
         "--json"],
        capture_output=True, text=True, timeout=limit(600), check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["schema"] == 1 and result["wrong"] == 0
    got = result["rows"][0]
    assert got["row"] == row and got["requests"] == 16 * got["devices"]
    assert got["tokens"] > got["requests"]


def test_pairs_meet():
    """Any two values of two columns stand in one row, whichever of them this build knows."""
    done = subprocess.run([str(TOP / "tools" / "matrix"), "--build", str(BUILD), "--list"],
                          capture_output=True, text=True, timeout=limit(60), check=True)
    rows = [dict(word.split("=") for word in line.split()[1:]) for line in done.stdout.splitlines()]
    values = {name: {row[name] for row in rows} for name in rows[0]}
    assert values["devices"] == {"1", "2"} and len(values["family"]) == 4
    product = 1
    for name, there in values.items():
        product *= len(there)
        for other in set(values) - {name}:
            met = {(row[name], row[other]) for row in rows}
            assert len(met) == len(there) * len(values[other]), (name, other)
    assert len(rows) < product
