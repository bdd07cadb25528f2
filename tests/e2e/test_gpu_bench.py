# SPDX-License-Identifier: Apache-2.0
"""gpubench: the rehearsal on the software GPU runs all parts, and one that fails costs no other."""

import contextlib
import json
import os
import pty
import subprocess

import pytest

import daemon
from programs import BIN, limit, wait_until


def gpu(*args, **environment):
    env = {key: value for key, value in os.environ.items()
           if key != "MM_DRIVER" and not key.startswith("MM_SOFTGPU_")}
    env.update(environment)
    if "--patience" not in args:
        args = (*args, "--patience", limit(300))
    done = subprocess.run([str(BIN / "gpubench"), *map(str, args)], capture_output=True,
                          timeout=limit(900), check=False, env=env)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    wait_until(lambda: not [pid for pid in daemon.children(os.getpid()) if daemon.alive(pid)], 20,
               "all processes to end")


def parts():
    code, text, _ = gpu("--list")
    assert code == 0
    return [line.split()[0] for line in text.splitlines() if not line.startswith(" ")]


def check_row(row):
    assert row["figure"]["n"] > 0
    assert 0 <= row["figure"]["p10"] <= row["figure"]["median"] <= row["figure"]["p90"], row
    assert row["unit"] and row["part"] and row["name"] and isinstance(row["params"], dict)
    if "reference" in row:
        assert row["reference_name"] and row["reference"]["median"] > 0, row
        ratio = row["figure"]["median"] / row["reference"]["median"]
        assert abs(row["ratio"] / ratio - 1) < 1e-6
    if "goal" in row:
        assert list(row["goal"]) in (["at_least"], ["at_most"])
        # Nothing is reached, and nothing missed, on a device that is made of software.
        assert row["reached"] is None


def test_rehearsal(root):
    out = root / "out.jsonl"
    code, text, errors = gpu("--quick", "--repeat", 2, "--json", "--out", out, "--keep", root / "k")
    assert code == 0, errors
    result = json.loads(text)
    assert result["schema"] == 1 and result["rehearsal"] and not result["modelled"]
    assert result["device"]["device"] and result["device"]["driver"] == "software"
    assert [part["part"] for part in result["parts"]] == parts()
    for part in result["parts"]:
        assert part["outcome"] == "done", part
    for row in result["results"]:
        check_row(row)
    # What mmd says that it brought in is what the steps must have waited for.
    streams = [row for row in result["results"] if row["name"] == "h2d"]
    assert streams
    for row in streams:
        steps = row["figure"]["n"] * row["steps"]
        assert row["mmd_streamed_bytes"] >= steps * row["layers_cycling"] * row["layer_bytes"]
        assert row["layers_cycling"] == 6 and row["layer_bytes"] > 0
    done = {part["part"] for part in result["parts"] if part["outcome"] == "done"}
    assert {row["part"] for row in result["results"]} == done
    assert result["goals"] == {"reached": 0, "missed": 0}
    assert len([row for row in result["results"] if row["part"] == "kernels"]) == 15
    # Gates were in graphs too.
    assert {row["params"]["graphs"] for row in result["results"] if row["name"] == "step"} == {
        "on", "off"}
    # What was written as it came is the same.
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line for line in lines if "figure" in line] == result["results"]
    assert [line for line in lines if "outcome" in line] == result["parts"]


def test_a_software_gpu_by_another_name(root):
    """What is measured on it is a rehearsal, whatever the driver's file is called."""
    (root / "libcuda.so.1").symlink_to((BIN.parent / "lib" / "libmm-softgpu.so").resolve())
    (root / "device").mkdir()
    code, text, errors = gpu("scrub", "--driver", root / "libcuda.so.1", "--repeat", 1, "--json",
                             MM_SOFTGPU_DIR=str(root / "device"), MM_SOFTGPU_MEMORY="64M",
                             MM_SOFTGPU_GRANULARITY="64K")
    assert code == 0, errors
    result = json.loads(text)
    assert result["rehearsal"] and result["device"]["rehearsal"]
    assert {row["params"]["page"] for row in result["results"]} == {64 << 10, 256 << 10}


def test_table():
    code, text, errors = gpu("scrub", "--quick", "--repeat", 1, "--pages", "64K,1M")
    assert code == 0, errors
    assert "page=64K" in text and "page=1M" in text and "say nothing about hardware" in text
    assert "reached" not in text and "MISSED" not in text


def test_gemm():
    """By the software GPU's cuBLAS, or absent where the library that is named is not there."""
    code, text, errors = gpu("gemm", "--repeat", 2, "--json")
    assert code == 0, errors
    result = json.loads(text)
    assert [part["outcome"] for part in result["parts"]] == ["done"], result["parts"]
    assert {row["name"] for row in result["results"]} == {"product", "fixed", "fixed_wide", "kernel"}
    for row in result["results"]:
        check_row(row)
        bytes_per_s, flops = row["bytes_per_s"], row["flops"]
        operations = 2 * row["params"]["rows"] * row["outputs"] * row["k"]
        assert abs(flops * row["figure"]["median"] / operations - 1) < 1e-6 and bytes_per_s > 0
    code, text, errors = gpu("gemm", "--json", MM_CUBLAS_LIB="/nowhere/libcublas.so")
    assert code == 0, errors
    (part,) = json.loads(text)["parts"]
    assert part["outcome"] == "absent" and "/nowhere/libcublas.so" in part["why"], part


def sharing_rows(dilation):
    """The figures of a modelled device that is @dilation times slower than its profile says."""
    code, text, errors = gpu("sharing", "--quick", "--repeat", 3, "--json",
                             MM_SOFTGPU_DILATION=str(dilation),
                             MM_SOFTGPU_PROFILE="gh200-96,link_slows_in=60,link_slows_out=200")
    assert code == 0, errors
    result = json.loads(text)
    assert result["modelled"]
    for row in result["results"]:
        check_row(row)
    return {row["name"]: row for row in result["results"]}


def sharing_faults(rows):
    """What of @rows is not what the profile states."""
    credit = rows["stall_credit"]
    holds = {
        "in": abs(rows["link_slows_in"]["link_slows_permille"] - 60) < 10,
        "out": abs(rows["link_slows_out"]["link_slows_permille"] - 200) < 10,
        "both": abs(rows["link_slows_both"]["link_slows_permille"] - 260) < 15,
        "rate": abs(rows["link_slows_in"]["h2d_bytes_per_s"] / 419e9 - 1) < 0.05,
        # Two that compute share the device by halves; what one of them leaves, the other has.
        "halves": 1.8 < rows["beside_computing"]["ratio"] < 2.4,
        "ratio": credit["ratio"] < 0.75,
        "left": 0.2 < credit["left_part"] < 0.5,
        "credit": 0.7 < credit["credit"] < 1.3,
        "rho": 500 <= credit["rho_permille"] < 650,
    }
    return [name for name, is_so in holds.items() if not is_so]


def test_sharing_finds_the_modelled_device():
    """Of a modelled device gpubench finds the price of copies that the profile states, and that stalls are used."""
    # A host that is late leaves the device idle. The slower the device, the less that is of its
    # time; a program that measures something else finds it at no speed.
    for dilation in (10, 20, 40, 80):
        rows = sharing_rows(dilation)
        faults = sharing_faults(rows)
        if not faults:
            return
    assert not faults, rows


def rows_of_units(dilation):
    """The part stream2d of a modelled device that is @dilation times slower than its profile says."""
    code, text, errors = gpu("stream2d", "--repeat", 3, "--json", MM_SOFTGPU_DILATION=str(dilation),
                             MM_SOFTGPU_PROFILE="h200-pcie5,h2d_gbps=50,d2h_gbps=50,duplex_loss=0.2")
    assert code == 0, errors
    rows = json.loads(text)["results"]
    for row in rows:
        check_row(row)
    return rows


def rows_are_modelled(rows):
    """
    Does each row say what the profile does? A host that is late leaves a link idle. Both ways at
    once are 1.6 of one, but for copies that began alone.
    """
    by_name = {name: [row for row in rows if row["name"] == name]
               for name in ("rows", "pieces", "lanes")}
    return (all(abs(row["figure"]["median"] / 50e9 - 1) < 0.03
                for row in by_name["rows"] + by_name["pieces"]) and
            all(1.55 < row["ratio"] < 1.9 for row in by_name["lanes"]))


def test_stream2d_counts_the_bytes_that_a_link_moves():
    """The rates are those of the profile's link, alone and both ways; pieces are those that xfer makes."""
    for dilation in (1, 4, 16):
        rows = rows_of_units(dilation)
        if rows_are_modelled(rows):
            break
    assert rows_are_modelled(rows), rows
    assert [row["params"]["row"] >> 10 for row in rows if row["name"] == "rows"] == [64, 128, 256, 320, 448, 512]
    for row in rows:
        unit, block = row["params"]["row"], row["layers"] * row["params"]["row"]
        assert (row["layers"], row["classes"]) == (40, 4)
        assert row["rows"] == (2 << 30) // block and row["moved_bytes"] == row["rows"] * unit
        assert row["rows_of_a_piece"] == (128 << 20) // block
        assert row.get("goal") == (None if row["name"] in ("lanes", "call") else {"at_least": 0.95})


def test_stream2d_says_which_copy_failed():
    code, text, errors = gpu("stream2d", "--repeat", 1, "--json", MM_SOFTGPU_FAIL="cuMemcpy2DAsync:0:2")
    assert code == 1, errors
    (part,) = json.loads(text)["parts"]
    assert part["outcome"] == "failed"
    assert part["why"] == "units row=4K: rows in one call: cuMemcpy2DAsync: CUDA_ERROR_OUT_OF_MEMORY"


def test_a_part_that_fails_costs_no_other(root):
    out = root / "out.jsonl"
    code, text, errors = gpu("scrub,grant", "--quick", "--repeat", 1, "--json", "--out", out,
                             MM_SOFTGPU_FAIL="cuMemcpyDtoDAsync:0:2")
    assert code == 1
    outcomes = {part["part"]: part for part in json.loads(text)["parts"]}
    assert outcomes["scrub"]["outcome"] == "failed"
    assert outcomes["scrub"]["why"].startswith("fills page=64K: a copy: "), outcomes["scrub"]
    assert "cuMemcpyDtoDAsync: CUDA_ERROR_OUT_OF_MEMORY" in outcomes["scrub"]["why"]
    assert "cuMemcpyDtoDAsync" in errors
    assert outcomes["grant"]["outcome"] == "done"
    assert {row["part"] for row in json.loads(text)["results"]} == {"grant"}
    assert any(json.loads(line).get("outcome") == "failed" for line in out.read_text().splitlines())


def test_a_part_that_takes_too_long_is_ended():
    code, text, errors = gpu("grant,scrub", "--repeat", 10000, "--pages", "64K", "--patience", 2,
                             "--json")
    assert code == 1
    outcomes = {part["part"]: part["outcome"] for part in json.loads(text)["parts"]}
    assert outcomes["grant"] == "took too long" and "within 2 s" in errors
    assert "scrub" in outcomes


@pytest.mark.parametrize("args, code, said", [
    (["--driver", "/nowhere/libcuda.so.1"], 1, "/nowhere/libcuda.so.1"),
    (["--device", "7"], 1, "no device 7"),
    (["scrub,nothing"], 2, "no part 'nothing'"),
    (["scrub,scrub"], 2, "scrub twice"),
    (["scrub", "grant"], 2, "'grant'"),
    (["--pages", "3M"], 2, "'3M'"),
    (["--pages", "4M,2M"], 2, "ascend"),
    (["--repeat", "0"], 2, "--repeat: '0'"),
    (["--device", "x"], 2, "--device: 'x'"),
    (["--repaet", "1"], 2, "did you mean --repeat?"),
    (["scurb"], 2, "did you mean scrub"),
    (["--out", "/nowhere/file", "scrub"], 1, "/nowhere/file"),
], ids=str)
def test_refused(args, code, said):
    got, text, errors = gpu(*args)
    assert got == code and not text, errors
    assert said in errors, errors
    assert errors.startswith("gpubench: ")


def test_list():
    """Each measurement has its unit, which way is better, and its reference; no device is asked for anything."""
    code, text, errors = gpu("--list", "--driver", "/nowhere/libcuda.so.1")
    assert code == 0 and not errors
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if line.split()[0] == "token_to_token")
    assert "s, less is better: " in lines[at]
    assert lines[at + 1].split("reference: ")[1] == "mmserve --plain; goal: ratio <= 1.01"
    at = next(i for i, line in enumerate(lines) if line.split()[0] == "scrub_apart")
    assert "bytes_per_s, more is better: " in lines[at] and "goal" not in lines[at + 1]


def test_its_old_name():
    done = subprocess.run([str(BIN / "mmbench"), "gpu", "scrub"], capture_output=True, text=True, timeout=limit(60),
                          check=False)
    assert done.returncode == 2 and not done.stdout
    assert done.stderr == "mmbench: 'gpu' is a program of its own now: gpubench; see mmbench --help\n"


def test_progress():
    """On a terminal one line shows which round of which case of which part runs."""
    master, slave = pty.openpty()
    with os.fdopen(master, "rb", 0) as terminal:
        done = subprocess.run([str(BIN / "gpubench"), "scrub", "--quick", "--repeat", "2", "--pages", "64K"],
                              stdout=subprocess.DEVNULL, stderr=slave, timeout=limit(300), check=False,
                              env={**os.environ, "MM_DRIVER": "software"})
        os.close(slave)
        said = b""
        with contextlib.suppress(OSError):  # all of it was read
            while part := terminal.read(4096):
                said += part
    assert done.returncode == 0, said
    assert b"\r\x1b[Kgpubench: scrub (1 of 1): fills page=64K: round 2 of 3" in said, said
    assert said.count(b"\n") == 1 and b"gpubench: scrub: done in" in said.splitlines()[-1], said
