# SPDX-License-Identifier: Apache-2.0
"""mmctl doctor: what mmd finds in itself, what its processes look like, and what the host has."""

import json
import os
import resource
import signal
import subprocess

import pytest

from programs import BIN, limit, wait_until
from tenant import make_requests

RESULTS = ("ok", "note", "warn", "fail")
BOOKS = ("books/0", "pages/0", "stores")
OF_DEVICE = {"books/0", "pages/0", "xfer/0", "places/0", "numa/0", "driver/0", "health/0"}
OF_HOST = {"kernel", "io_uring", "ulimit -Hn", "ulimit -Hl", "pids", "hugepages", "/proc", "mappings"}


def run(*words, **options):
    return subprocess.run([str(BIN / "mmctl"), *map(str, words)], capture_output=True, text=True,
                          timeout=limit(60), check=False, **options)


def checks(done):
    result = json.loads(done.stdout)
    assert result["schema"] == 1
    for check in result["checks"]:
        assert check["result"] in RESULTS and check["text"], check
    for one in RESULTS:
        assert result[one] == sum(check["result"] == one for check in result["checks"])
    return {check["name"]: check for check in result["checks"]}, result


def test_a_healthy_mmd(root, start, serve, model_dirs):
    d = start(policy="remap", pool="8M", page="16K")
    t = serve("doc", model_dirs[0], make_requests(root / "r.jsonl", 2), d, sync=True).ready()
    found, result = checks(run("--dir", d.dir, "--json", "doctor"))
    assert result["mmd"] and not result["fail"], result
    assert OF_DEVICE | OF_HOST | {"stores", "files", "keeper", "core", "xfer"} <= set(found), found
    assert {found[name]["result"] for name in BOOKS} == {"ok"}, found
    assert found["stores"]["text"].startswith("1 host copies"), found["stores"]
    assert found["places/0"]["text"].startswith("1 of "), found["places/0"]
    t.go()
    t.wait()
    lines = run("--dir", d.dir, "doctor").stdout.splitlines()
    assert len(lines) >= len(found) and all(line.split()[0] in RESULTS for line in lines), lines


def test_an_xfer_that_is_gone_is_seen(start):
    """While no xfer is up doctor warns, and fails nothing: books stay whole."""
    d = start(policy="remap", pool="8M", page="16K")
    before = d.status()["devices"][0]["xfer"]["restarts"]
    for _ in range(3):
        for pid in d.pids("xfer"):
            os.kill(pid, signal.SIGKILL)
        found, result = checks(run("--dir", d.dir, "--json", "doctor"))
        assert not result["fail"], result
        assert found["xfer/0"]["result"] in ("ok", "warn")
        assert found["books/0"]["result"] == "ok"
        wait_until(lambda: d.pids("xfer") and d.status()["devices"][0]["xfer"]["up"], 180, "an xfer")
    assert d.status()["devices"][0]["xfer"]["restarts"] > before


def test_without_mmd(root):
    """The host is looked at in any case; that mmd is not reached is said, and the exit status."""
    done = run("--dir", root / "nowhere", "--json", "doctor")
    found, result = checks(done)
    assert done.returncode == 3 and "there is no such socket" in done.stderr
    assert not result["mmd"] and OF_HOST <= set(found)
    done = run("--dir", root / "nowhere", "doctor", "--host")
    assert done.returncode == 0 and not done.stderr, done


@pytest.mark.parametrize("files,result", [(1024, "warn"), (8192, "ok")])
def test_limits_are_seen(root, files, result):
    def lower():
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

    found, _ = checks(run("--dir", root / "nowhere", "--json", "doctor", "--host", preexec_fn=lower))
    assert found["ulimit -Hn"]["result"] == result and str(files) in found["ulimit -Hn"]["text"]
    assert bool(found["ulimit -Hn"]["advice"]) == (result == "warn")


def test_full_disk(root):
    with open("/dev/full", "w", encoding="utf-8") as full:
        for flags in ([], ["--json"]):
            done = subprocess.run([str(BIN / "mmctl"), *flags, "doctor", "--host"], stdout=full,
                                  stderr=subprocess.PIPE, timeout=limit(20), check=False)
            assert done.returncode == 1 and b"standard output" in done.stderr, done
