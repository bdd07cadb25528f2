# SPDX-License-Identifier: Apache-2.0
"""Where weights lie: the node asked for, explicit huge pages, a disk when memory does not suffice."""

import ctypes
import fcntl
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

import pytest

import abi
import models
from daemon import Daemon, memory_of
from programs import BIN, BUILD, SANITIZE, count, limit, wait_until
from tenant import make_requests, plain_tokens

NODES = pathlib.Path("/sys/devices/system/node")
HUGE_FREE = pathlib.Path("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")


def nodes():
    return sorted(int(p.name[4:]) for p in NODES.glob("node[0-9]*")) if NODES.exists() else []


def store_lines(pid):
    """Of /proc/PID/numa_maps: the mappings of stores."""
    lines = pathlib.Path(f"/proc/{pid}/numa_maps").read_text().splitlines()
    return [line for line in lines if "mm-store" in line]


def run(root, start, serve, model, **options):
    """One tenant whose tokens are right; what status said of its store, and where its pages lay."""
    d = start(pool="16M", page="64K", **options)
    requests = make_requests(root / "requests.jsonl", 4)
    want = plain_tokens(root, model, requests)
    tenant = serve("t", model, requests, d, extra=["--verify"], sync=True).ready()
    store, pool = d.status()["stores"][0], d.ctl("pool", "show")
    lines = [line for pid in d.pids("xfer") for line in store_lines(pid)] if nodes() else []
    assert tenant.go().tokens() == want
    return store, pool, lines


@pytest.mark.skipif(not nodes(), reason="this kernel has no NUMA")
@pytest.mark.parametrize("node", nodes())
def test_node(root, start, serve, model_dirs, node):
    store, pool, lines = run(root, start, serve, model_dirs[0],
                             extra=["--numa-node", str(node)])
    assert store["numa_node"] == node and pool["numa_node"] == node
    assert lines, "xfer maps no store"
    for line in lines:
        found = set(map(int, re.findall(r" N(\d+)=", line)))
        assert found <= {node}, line
    if len(nodes()) < 2:
        pytest.skip("one NUMA node here: that the asked one of several is taken is not shown")


def test_node_that_is_not_there(root):
    done = subprocess.run([str(BIN / "mmd"), "--dir", str(root / "d"), "--numa-node", "1023"],
                          capture_output=True, timeout=limit(60), check=False, env=dict(os.environ))
    assert done.returncode == 2
    assert b"--numa-node" in done.stderr and b"1023" in done.stderr


def test_huge_pages_within_the_budget(root, start, serve, model_dirs):
    """Rounded up it would not fit: usual pages."""
    store, _, _ = run(root, start, serve, model_dirs[0],
                      extra=["--hugepages", "2M", "--host-store-max", "1M"])
    assert store["hugepage_bytes"] == 0 and store["host_bytes"] == store["bytes"] < 1 << 20


def test_huge_pages(root, start, serve, model_dirs):
    """Where there are any; else usual ones, and status says so."""
    there = int(HUGE_FREE.read_text()) if HUGE_FREE.exists() else 0
    store, pool, _ = run(root, start, serve, model_dirs[0], extra=["--hugepages", "2M"])
    assert pool["hugepages"] == "2M"
    if there < 2:
        assert store["hugepage_bytes"] == 0 and store["host_bytes"] == store["bytes"]
        assert pool["hugepages_bytes"] == 0
        pytest.skip(f"{there} free huge pages of 2 MiB: that a store lies in them is not shown")
    assert store["hugepage_bytes"] == 2 << 20
    assert store["host_bytes"] % (2 << 20) == 0 and store["host_bytes"] >= store["bytes"]
    assert pool["hugepages_bytes"] == store["host_bytes"]


# ---- on disk

CHUNK = 64 << 10
STAGE = abi.MM_STAGE_BUFFERS_DEFAULT * (CHUNK + abi.MM_STAGE_BLOCK_BYTES)
BUDGET = STAGE + (64 << 10)  # room for directories, for no model
SLACK = 4 << 20  # of all roles: their heaps


def on_disk(folder, budget=BUDGET):
    return ["--chunk", str(CHUNK), "--stage", str(STAGE), "--host-store-max", str(budget),
            "--store-dir", str(folder)]


@pytest.fixture
def disk():
    """A folder that is on a disk, as far as there is one."""
    for base in (tempfile.gettempdir(), "/var/tmp", str(BUILD)):
        kind = subprocess.run(["stat", "-f", "-c", "%T", base], capture_output=True, check=False)
        if kind.returncode == 0 and kind.stdout.strip() not in (b"tmpfs", b"ramfs"):
            path = pathlib.Path(tempfile.mkdtemp(prefix="mm-e2e-disk.", dir=base))
            yield path
            assert not list(path.iterdir()), "a file was left behind"
            path.rmdir()
            return
    pytest.skip("no folder here is on a disk")


def store_of(d, tenant):
    number = d.tenant(tenant)["store"]
    return next(s for s in d.status()["stores"] if s["store"] == number)


def private_bytes(d):
    """Of all roles. Shared memory is the device's here, and the stores', see below; what is theirs of
    programs and libraries depends on who else runs them."""
    return sum(memory_of(pid, "Pss_Anon") for pid in [d.process.pid, *d.pids()])


def files_of(pid):
    """The fds of a role, what they are of, and their stat: some come and go while we look, as roles do."""
    found = []
    for fd in pathlib.Path(f"/proc/{pid}/fd").glob("*"):
        try:
            found.append((fd, os.readlink(fd), fd.stat()))
        except OSError:
            pass
    return found


def store_memory(d):
    """What memfds of stores really take, each counted once, whoever holds them."""
    seen = {}
    for pid in [d.process.pid, *d.pids()]:
        for _, name, st in files_of(pid):
            if "memfd:mm-store" in name:
                seen[st.st_ino] = st.st_blocks * 512
    return sum(seen.values())


@pytest.mark.parametrize("name", ["tenant", "graph"])
def test_tutorials_programs(start, model_dirs, disk, name):
    """They compare with the host copy, which only a model in memory has, and say so."""
    d = start(pool="16M", page="64K", extra=on_disk(disk))
    done = subprocess.run([str(BIN.parent / "examples" / name), str(model_dirs[0]), "3"], check=False,
                          env=dict(d.env, MMD_SOCKET=str(d.dir / "tenant.sock")), capture_output=True,
                          timeout=limit(60))
    assert done.returncode == 1 and b"weights on a disk" in done.stderr, done


def test_budget_smaller_than_the_model(root, start, serve, disk):
    """34 MiB of weights within 8 MiB: the same ids, and the memory is measured."""
    model = models.random_model(root / "model", seed=7, hidden=512, layers=6, heads=8, kv_heads=2,
                                ffn=1408)
    budget = 8 << 20
    d = start(pool="64M", page="64K", extra=on_disk(disk, budget))
    requests = make_requests(root / "requests.jsonl", 2, output=(3, 6))
    want = plain_tokens(root, model, requests)
    before = private_bytes(d)
    tenant = serve("t", model, requests, d, sync=True).ready()
    store = store_of(d, "t")
    assert store["tier"] == "disk" and store["bytes"] > 4 * budget
    d.ctl("plan", "set", "t", "--layers", 3)
    wait_until(lambda: d.status()["alpha_sum"] == 3, 10, "the plan to be in force")
    wait_until(lambda: not d.pids("load"), 60, "the load to end: its memory is not what stays")
    tenant.go()
    tenant.hear("done", 120)
    status = d.status()
    assert status["bytes_streamed"] > 0
    assert status["host_store_bytes"] <= budget
    assert status["xfer"]["stage_bytes"] <= STAGE
    assert store_memory(d) + status["xfer"]["stage_bytes"] <= status["host_store_bytes"]
    grown = private_bytes(d) - before
    print(f"{store['bytes']} bytes of weights, {status['host_store_bytes']} of host memory by our "
          f"account, {store_memory(d)} in stores, roles grew by {grown}")
    if not SANITIZE:  # their run-times keep what was freed
        assert grown < SLACK
    tenant.process.stdin.close()
    assert tenant.tokens(120) == want


def test_both_tiers(root, start, serve, model_dirs, disk):
    """First come, first served: one in memory, the next on disk, shared by two tenants."""
    d = start(pool="16M", page="64K", extra=on_disk(disk, BUDGET + (1 << 20)))
    requests = make_requests(root / "requests.jsonl", 4)
    want = [plain_tokens(root, model_dirs[i], requests) for i in range(2)]
    tenants = {name: serve(name, model_dirs[i], requests, d, extra=["--verify"], sync=True).ready()
               for name, i in (("a", 0), ("b", 1), ("c", 1))}
    assert [store_of(d, t)["tier"] for t in "abc"] == ["memory", "disk", "disk"]
    assert store_of(d, "b")["store"] == store_of(d, "c")["store"]
    assert len(d.pids("spool")) == 1
    for name in "abc":
        d.ctl("plan", "set", name, "--layers", 2)
    for name, tenant in tenants.items():
        assert tenant.go().tokens() == want[name != "a"], name
    wait_until(lambda: not d.pids("spool"), 10, "the spool to end")
    wait_until(lambda: d.status()["host_store_bytes"] == d.status()["xfer"]["stage_bytes"], 60,
               "the stores to be given up")


def test_xfer_dies(root, start, serve, model_dirs, disk, rng):
    d = start(pool="16M", page="64K", extra=on_disk(disk))
    requests = make_requests(root / "requests.jsonl", 12, output=(40, 80))
    want = plain_tokens(root, model_dirs[0], requests)
    tenant = serve("t", model_dirs[0], requests, d, extra=["--verify"], sync=True).ready()
    d.ctl("plan", "set", "t", "--layers", 4)
    tenant.go()
    for _ in range(count(4, 2)):
        restarts = d.status()["xfer"]["restarts"]
        time.sleep(rng.random() * 0.1)
        for pid in d.pids("xfer"):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: d.status()["xfer"]["restarts"] > restarts and d.status()["xfer"]["up"],
                   30, "xfer to come back")
    assert tenant.tokens(120) == want
    wait_until(lambda: not d.status()["stores"], 60, "the store to be given up")


def refused(root, serve, d, model):
    """What the tenant is told."""
    requests = make_requests(root / "requests.jsonl", 1)
    tenant = serve("refused", model, requests, d)
    assert tenant.process.wait(limit(60)) != 0
    return tenant.log.read_text()


def test_store_dir_is_missing(root, start, serve, model_dirs):
    """The tenant is told; one whose model fits is not concerned."""
    budget = BUDGET + (1 << 20)
    d = start(pool="16M", page="64K", extra=on_disk(root / "nowhere", budget))
    requests = make_requests(root / "r.jsonl", 4)
    want = plain_tokens(root, model_dirs[0], requests)
    tenant = serve("t", model_dirs[0], requests, d, sync=True).ready()
    said = refused(root, serve, d, model_dirs[1])
    assert "nowhere: No such file or directory" in said and "--store-dir" in said
    assert tenant.go().tokens() == want


def test_store_dir_is_memory(root, start, serve, model_dirs):
    if subprocess.run(["stat", "-f", "-c", "%T", "/dev/shm"], capture_output=True,
                      check=False).stdout.strip() != b"tmpfs":
        pytest.skip("/dev/shm is no tmpfs here")
    d = start(pool="16M", page="64K", extra=on_disk("/dev/shm"))
    assert "lies in memory" in refused(root, serve, d, model_dirs[0])


class DaemonWithSmallDisk(Daemon):
    """In a mount namespace of its own: the file system goes with it."""

    def args(self):
        return ["unshare", "-m", "sh", "-c", 'mount -o loop "$0" "$1" && shift && exec "$@"',
                str(self.root / "image"), str(self.root / "small"), *super().args()]


def test_store_dir_is_full(root, serve, start, model_dirs):
    small = root / "small"
    small.mkdir()
    with open(root / "image", "wb") as image:
        image.truncate(512 << 10)
    # Where it is not in everybody's PATH, or not at all.
    program = shutil.which("mkfs.ext4", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if not program:
        pytest.skip("there is no mkfs.ext4 here")
    made = subprocess.run([program, "-q", "-F", "-O", "^has_journal", str(root / "image")],
                          capture_output=True, check=False)
    tried = made.returncode == 0 and subprocess.run(
        ["unshare", "-m", "mount", "-o", "loop", str(root / "image"), str(small)],
        capture_output=True, check=False).returncode == 0
    if not tried:
        pytest.skip("a small file system cannot be mounted here")
    d = start(kind=DaemonWithSmallDisk, pool="16M", page="64K", extra=on_disk(small))
    said = refused(root, serve, d, model_dirs[0])
    assert "No space left on device" in said and "no room for" in said


def end_lease(pid, number):
    """What keeps everybody, us too, from opening the file to write it."""
    pidfd = os.pidfd_open(pid)
    fd = ctypes.CDLL(None).syscall(438, pidfd, number, 0)  # pidfd_getfd
    os.close(pidfd)
    if fd < 0:
        pytest.skip("this kernel does not let us take a role's file")
    if fcntl.fcntl(fd, fcntl.F_GETLEASE) == fcntl.F_RDLCK:  # some file systems have none
        with pytest.raises(BlockingIOError):
            os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    os.close(fd)


def test_spool_dies(root, start, serve, model_dirs, disk):
    """Nothing is lost with it; a disk that fails ends the tenants of what lies on it, with the reason."""
    d = start(pool="16M", page="64K", extra=on_disk(disk, BUDGET + (1 << 20)))
    requests = make_requests(root / "requests.jsonl", 6, output=(30, 60))
    want = [plain_tokens(root, model_dirs[i], requests) for i in range(2)]
    memory = serve("memory", model_dirs[0], requests, d, sync=True).ready()
    good = serve("good", model_dirs[1], requests, d, sync=True).ready()
    [spool] = d.pids("spool")
    os.kill(spool, signal.SIGKILL)
    wait_until(lambda: not d.pids("spool"), 10, "the spool to be gone")
    d.ctl("plan", "set", "good", "--layers", 3)
    assert good.go().tokens() == want[1]
    [core] = d.pids("core")

    def on_the_disk():
        return [fd for fd, name, _ in files_of(core) if name.startswith(str(disk))]

    wait_until(lambda: not on_the_disk(), 60, "the file to go with the store")
    bad = serve("bad", model_dirs[2], requests, d, sync=True).ready()
    [file] = on_the_disk()
    end_lease(core, int(file.name))
    os.truncate(file, 4096)
    d.ctl("plan", "set", "bad", "--layers", 3)
    bad.go()
    assert bad.process.wait(limit(60)) != 0
    for words in ("tenant.unreadable", "cannot be read from --store-dir"):
        wait_until(lambda: words in d.log.read_text(), 60, f"the log to say {words}")
    assert memory.go().tokens() == want[0]


def test_flags(root):
    """One clear error each."""
    for flags, words in ((["--store-dir", "relative"], ("--store-dir", "absolute")),
                         (["--store-dir", "/tmp", "--stage", "1M"], ("--stage", "two chunks")),
                         (["--store-dir", "/tmp", "--host-store-max", "1M"],
                          ("--stage", "--host-store-max"))):
        done = subprocess.run([str(BIN / "mmd"), "--dir", str(root / "d"), *flags],
                              capture_output=True, timeout=limit(60), check=False)
        assert done.returncode == 2
        for word in words:
            assert word in done.stderr.decode(), done.stderr
