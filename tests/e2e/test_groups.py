# SPDX-License-Identifier: Apache-2.0
"""Ranks of one model on several devices: chunks, plans, void steps and ends of all ranks or none."""

import errno
import mmap
import os
import re
import select
import signal
import struct
import subprocess
import time

import pytest

import abi
from isolated import KEEPS_PAGES_S, isolated
from models import random_model
from programs import BIN, limit, read_until, wait_until
from tenant import make_requests
from wire import FEATURES, Raw, hello

EXAMPLE = BIN.parent / "examples" / "ranks"
LINE = re.compile(r"rank (\d+): (\d+) steps, (\d+) void, (\d+) plans, (\d+) reclaimed, (\d+) wrong")


class Ranks:
    """The processes of a group; standard input of the first one ends them all."""

    def __init__(self, root, d, model, size=2, steps=0):
        # ThreadSanitizer else sleeps for a second at the end of a process, which keeps its pages meanwhile.
        env = dict(d.env, MMD_SOCKET=str(d.dir / "tenant.sock"),
                   TSAN_OPTIONS=os.environ.get("TSAN_OPTIONS", "") + " atexit_sleep_ms=0")
        shared = root / f"shared{time.monotonic_ns()}"
        self.processes = [
            subprocess.Popen([str(EXAMPLE), str(rank), str(size), str(model), str(shared), str(steps)], env=env,
                             text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for rank in range(size)]

    def ready(self):
        for process in self.processes:
            read_until(process, "ready\n", 60)
        return self

    def end(self):
        """What each rank has to say: (steps, void, plans, reclaimed, wrong)."""
        self.processes[0].stdin.close()
        self.processes[0].stdin = None
        said = []
        for process in self.processes:
            out, errors = process.communicate(timeout=limit(60))
            assert process.returncode == 0, out + errors
            said.append(tuple(map(int, LINE.search(out).groups()[1:])))
        return said

    def kill(self):
        for process in self.processes:
            process.kill()
            process.communicate()


@pytest.fixture
def ranks(root, start):
    """ranks(daemon, ...) -> Ranks; killed before daemons are judged."""
    del start  # only for the order of the ends
    groups = []
    model = random_model(root / "model", seed=5)

    def starter(d, **options):
        groups.append(Ranks(root, d, model, **options))
        return groups[-1]

    yield starter
    for group in groups:
        group.kill()


def ranks_of(d):
    return sorted((t for t in d.tenants() if t["group"]), key=lambda t: t["group"]["rank"])


def steps_of(d):
    return min(t["steps"] for t in ranks_of(d))


def test_all_or_none(start, ranks):
    """200 plans by hand, and reclaims on one device: every result is what the host computed, on both."""
    d = start(devices=2, pool="8M", page="16K")
    group = ranks(d).ready()
    assert [t["group"] for t in ranks_of(d)] == [
        {"name": "ranks", "rank": i, "ranks": 2, "complete": True} for i in range(2)]
    for i in range(200):
        layers = i % 4
        d.ctl("plan", "set", f"rank{i % 2}", "--layers", layers)
        wait_until(lambda layers=layers: [t["alpha"] for t in ranks_of(d)] == [layers] * 2, 20, "the plan on both")
        if i % 10 == 5:
            before = steps_of(d)
            wait_until(lambda before=before: steps_of(d) > before, 20, "steps with it")
    held = [t["kv_chunks"] for t in ranks_of(d)]
    assert abs(held[0] - held[1]) <= 12, held
    (steps, void, plans, _, wrong), other = group.end()
    assert wrong == other[4] == 0 and steps == other[0] > 100 and void == other[1] == steps // 50
    assert plans >= 150 and other[2] >= 150


def test_plan_of_all(start, ranks):
    """A plan that one rank cannot have, none has."""
    d = start(devices=2, pool="8M", page="16K")
    group = ranks(d).ready()
    d.ctl("plan", "set", "rank0", "--layers", 1)
    code, _, errors = d.ctl("plan", "set", "rank1", "--layers", 900, check=False)
    assert code == 1 and "rank" in errors, errors
    wait_until(lambda: [t["alpha"] for t in ranks_of(d)] == [1, 1], 20, "the plan on both")
    assert all(said[4] == 0 for said in group.end())


def test_reclaim_and_void(start, ranks, serve, model_dirs, root):
    """A tenant beside rank 1 takes memory; the xfer of rank 0 dies: both ranks release, and repeat."""
    d = start(devices=2, pool="2M", page="16K")
    group = ranks(d).ready()
    d.ctl("plan", "set", "rank0", "--layers", 3)
    requests = make_requests(root / "requests.jsonl", 24, output=(40, 80))
    beside = serve("beside", model_dirs[0], requests, d, extra=["--verify", "--device", "1"], sync=True).ready()
    beside.go()
    for n in range(4):
        before = steps_of(d)
        wait_until(lambda before=before: steps_of(d) > before + 3, 30, "steps")
        os.kill(d.xfer_of(0), signal.SIGKILL)
        wait_until(lambda n=n: d.device(0)["xfer"]["restarts"] == n + 1 and d.device(0)["xfer"]["up"], 20, "xfer")
    beside.tokens()
    first, second = group.end()
    assert first[4] == second[4] == 0 and first[0] == second[0]
    # A void step is one of both. Whether mmd had to reclaim depends on when the ranks gave something by themselves.
    assert first[1] == second[1], (first, second)


@pytest.mark.parametrize("victim", [0, 1])
def test_killed(start, ranks, victim):
    """The others end with a sentence, and the pages are back."""
    d = start(devices=2, pool="8M", page="16K")
    free = [x["pages"]["free"] for x in d.status()["devices"]]
    for round_ in range(6):
        group = ranks(d).ready()
        d.ctl("plan", "set", "rank0", "--layers", 1 + round_ % 3)
        time.sleep(0.05 * round_)
        begun = time.monotonic()
        group.processes[victim].kill()
        other = group.processes[1 - victim]
        # Its input stays open: at the end of that rank 0 would end by itself.
        other.wait(limit(60))
        errors = other.stderr.read()
        # mmd kills who keeps pages for two seconds without a connection: on a slow machine before its own end.
        late = other.returncode == -signal.SIGKILL and time.monotonic() - begun >= KEEPS_PAGES_S
        assert late or other.returncode == 1, errors
        assert late or f"rank {victim} of 2 of its group ranks is gone" in errors, errors
        wait_until(lambda: [x["pages"]["free"] for x in d.status()["devices"]] == free, 20, "the pages")
    assert not d.tenants()


def test_who_may_join(start, ranks):
    """A name is one group's; its ranks agree on how many they are."""
    d = start(devices=2, pool="8M", page="16K")
    group = ranks(d).ready()
    late = ranks(d)
    for process in late.processes:
        _, errors = process.communicate(timeout=limit(60))
        assert process.returncode == 1 and "or is in use" in errors, errors
    assert all(said[4] == 0 for said in group.end())
    # It is free again.
    again = ranks(d).ready()
    assert all(said[4] == 0 for said in again.end())


# ---- by hand

NAME = struct.unpack("<3Q", b"by-hand".ljust(24, b"\0"))


@pytest.fixture
def d(start):
    return start(pool="2M", page="16K")


def rank_args(rank, size, name=NAME):
    return (*name, rank | size << 32)


def raw_rank(d, features=FEATURES | abi.MM_FEAT_GROUP):
    return Raw(d).greet(hello(features=features))


def answer(raw, event=abi.MM_EV_REPLY):
    """The next such event."""
    while True:
        message = raw.pop()
        assert message is not None, "the connection has ended"
        if message["opcode"] == event:
            return message


def share_of(raw):
    """The fd of what the ranks share, which comes before the answer."""
    while len(raw.fds) < 4:
        assert select.select([raw.socket], [], [], limit(5))[0] and raw.drain(), "no fd comes"
    raw.push(abi.MM_OP_FDS_ACK, (1,))
    return raw.fds[3]


@isolated()
def test_refused_by_hand(d):
    """What libclient would never send."""
    for args in (rank_args(0, 1), rank_args(0, 17), rank_args(2, 2), rank_args(2 ** 32 - 1, 2 ** 32 - 1)):
        with raw_rank(d) as raw:
            raw.push(abi.MM_OP_GROUP_JOIN, args)
            assert answer(raw)["result"] == -errno.EINVAL, args
    names = (b"", b"a b", b"a\0b", b"\x7f", b"\"", b"\xff" * 24, b"\n")
    wrong = [(abi.MM_OP_GROUP_JOIN, rank_args(0, 2, struct.unpack("<3Q", n.ljust(24, b"\0")))) for n in names]
    wrong += [(abi.MM_OP_GROUP_MAPPED, (0,)), (abi.MM_OP_GROUP_MAPPED, (2 ** 64 - 1,))]
    for opcode, args in wrong:
        with raw_rank(d) as raw:
            raw.push(opcode, args)
            assert raw.ended(), (opcode, args)
    with raw_rank(d, features=FEATURES) as raw:
        raw.push(abi.MM_OP_GROUP_JOIN, rank_args(0, 2))
        assert raw.ended()


@isolated()
def test_what_ranks_share(d):
    """It can be neither shorter nor longer, and what one writes there is nothing to mmd."""
    with raw_rank(d) as one, raw_rank(d) as two:
        for rank, raw in enumerate((one, two)):
            raw.push(abi.MM_OP_GROUP_JOIN, rank_args(rank, 2))
            assert answer(raw)["result"] == 0
        fds = [share_of(raw) for raw in (one, two)]
        for length in (0, 4096, 1 << 20):
            with pytest.raises(PermissionError):
                os.ftruncate(fds[0], length)
        shared = [mmap.mmap(fd, os.fstat(fd).st_size) for fd in fds]
        shared[0][:8] = b"scribble"
        assert shared[1][:8] == b"scribble"
        shared[1][:] = b"\xff" * len(shared[1])
        for m in shared:
            m.close()
        # A chunk that it does not hold, then one of no arena.
        two.push(abi.MM_OP_KV_DECLARE, (16384, 1, 8, 0))
        answer(two)
        two.push(abi.MM_OP_GROUP_MAPPED, (3,))
        assert two.ended()
        assert one.ended(), "alone it could not go on"
    wait_until(lambda: not d.tenants(), 20, "the end of both")


@isolated()
def test_too_many(d):
    """An account has so many groups, and each rank of them is counted once."""
    ranks = []
    results = []
    for i in range(20):
        ranks.append(raw_rank(d))
        ranks[-1].push(abi.MM_OP_GROUP_JOIN,
                       rank_args(0, 2, struct.unpack("<3Q", f"group{i}".encode().ljust(24, b"\0"))))
        results.append(answer(ranks[-1])["result"])
    assert results == [0] * 16 + [-errno.EDQUOT] * 4
    for raw in ranks[:16]:
        raw.push(abi.MM_OP_GROUP_JOIN, rank_args(1, 2))
        assert answer(raw)["result"] == -errno.EEXIST
    for raw in ranks:
        raw.close()
    wait_until(lambda: not d.tenants(), 20, "their end")
    with raw_rank(d) as raw:
        raw.push(abi.MM_OP_GROUP_JOIN, rank_args(0, 2))
        assert answer(raw)["result"] == 0
