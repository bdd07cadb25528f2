# SPDX-License-Identifier: Apache-2.0
"""KV in host memory, from Python: swapped out and in, and read as cold blocks."""
import errno
import os
import signal
import subprocess

import pytest

pytest.importorskip("cffi", reason="python3-cffi is not installed")

import mmd  # noqa: E402
from mmd import _cdef  # noqa: E402
from programs import BIN, limit, wait_until  # noqa: E402

LAYERS = 8
UNIT = 1024
ENTRIES = 6


@pytest.fixture
def d(daemon):
    return daemon(extra=["--swap-max", "8M"])


@pytest.fixture
def serving(d, connect, model_dirs):
    """serving() -> client, model, arena of 16 pages, swap space; all chunks but one are usable."""
    client = connect(d)
    model = client.load(model_dirs[0])
    arena = client.arena(client.info.page_bytes, chunks=16)
    assert arena.want(15, timeout=limit(60))
    return client, model, arena, client.swap(ENTRIES * LAYERS * UNIT)


def copied(swap, begin, pieces, user_data):
    begin(pieces, user_data)
    done = []
    wait_until(lambda: (found := swap.next()) and done.append(found) or done, 60,
               "the list is copied")
    assert done == [(user_data, 0)]


def refused(number, call, *args):
    with pytest.raises(mmd.Error) as caught:
        call(*args)
    assert caught.value.errno == number and caught.value.strerror


def test_swap(serving):
    client, _, arena, swap = serving
    page = arena.chunk_bytes
    first, second = arena.usable()[:2]
    data = os.urandom(UNIT)
    client.write(arena.va(0, first) + 64, data)
    copied(swap, swap.out, [mmd.Piece(first * page + 64, 2 * UNIT, UNIT)], 7)
    copied(swap, swap.back, [mmd.Piece(second * page, 2 * UNIT, UNIT)], 8)
    assert client.read(arena.va(0, second), UNIT) == data
    assert swap.next() is None
    refused(errno.ERANGE, swap.out, [mmd.Piece(0, swap.length, 1)])
    refused(errno.ENOENT, swap.out, [mmd.Piece(15 * page, 0, 1)])
    refused(errno.EINVAL, swap.out, [])


def stream(client, model, arena, swap, cold):
    """Entry 2 is read by two steps in a row, each layer at its place in the window."""
    page = arena.chunk_bytes
    block = os.urandom(LAYERS * UNIT)
    hot, window = arena.usable()[0], arena.usable()[-2]
    client.write(arena.va(0, hot), block)
    copied(swap, swap.out, [mmd.Piece(hot * page, 2 * LAYERS * UNIT, LAYERS * UNIT)], 1)
    cold.window(window, 2)
    wait_until(lambda: not cold.state.pending, 60, "the window is answered")
    assert cold.state.error == 0 and cold.state.entries == ENTRIES and cold.state.window_chunks == 2
    refused(errno.EBUSY, arena.release, window)
    cold.set(2)
    version = cold.commit()
    assert cold.commit() == version > 0
    read = 0
    for _ in range(50):
        usable = cold.state.acked >= version
        got = []
        with mmd.Step(client):
            for layer in range(LAYERS):
                with model.layer(layer):
                    client.synchronize()
                    got.append(client.read(arena.va(0, window) +
                                           (cold.classes * 2 + layer) * UNIT, UNIT))
        if usable:
            assert b"".join(got) == block
            read += 1
        if read == 2:
            break
    assert read == 2, "no step could read it"
    cold.window(0, 0)
    wait_until(lambda: not cold.state.pending, 60, "the window is answered")
    arena.release(window)


def test_cold(serving):
    client, model, arena, swap = serving
    if not client.info.features & _cdef.MM_FEAT_COLD:
        refused(errno.EOPNOTSUPP, model.cold, UNIT, ENTRIES)
        return
    refused(errno.EINVAL, model.cold, UNIT + 1, ENTRIES)
    refused(errno.E2BIG, model.cold, UNIT, ENTRIES + 1)
    cold = model.cold(UNIT, ENTRIES, ENTRIES)
    assert cold.classes == 4
    refused(errno.EEXIST, model.cold, UNIT, ENTRIES)
    wait_until(lambda: cold.state.limit == ENTRIES, 60, "the limit is told")
    refused(errno.EINVAL, cold.set, ENTRIES)
    stream(client, model, arena, swap, cold)
    model.unload()
    refused(errno.EBADF, cold.commit)
    model.reload()
    refused(errno.EBADF, cold.commit)
    assert model.cold(UNIT, ENTRIES).state.limit >= 0


def cold_of(d):
    """What status says of the only tenant's cold blocks; plan show says the same."""
    shown = d.ctl("plan", "show")["plans"][0]["cold"]
    assert d.tenant("engine")["cold"] == shown
    return shown


def text_of(d, *words):
    return subprocess.run([BIN / "mmctl", "--dir", d.dir, *words], text=True, capture_output=True,
                          timeout=limit(60), check=True).stdout


def test_operator(d, serving):
    """The limit by hand, and what mmctl says of it."""
    client, model, arena, swap = serving
    assert cold_of(d) is None and "cold" not in text_of(d, "status")
    code, _, errors = d.ctl("plan", "set", "engine", "--cold", 1, check=False)
    assert code == 1 and "it has declared no cold blocks" in errors
    cold = model.cold(UNIT, ENTRIES, 2)
    wait_until(lambda: cold.state.limit == 2, 60, "the floor is told")
    assert cold_of(d) == {
        "entries_max": ENTRIES, "floor": 2, "limit": 2, "limit_why": "floor", "limit_streamed": 2,
        "by_hand": None, "live": 0, "load_permille": None, "slow_permille": None, "block_bytes": LAYERS * UNIT, "window_first": 0, "window_chunks": 0,
        "window_bytes": 0, "window_entries": 0, "window_pending": False}
    code, _, errors = d.ctl("plan", "set", "engine", "--cold", ENTRIES + 1, check=False)
    assert code == 1 and f"7 entries cannot be live; it has declared {ENTRIES}" in errors
    done = d.ctl("plan", "set", "engine", "--layers", "auto", "--cold", 5)
    assert done["cold_by_hand"] == 5 and done["cold_limit"] == 5 and done["alpha_by_hand"] is None
    wait_until(lambda: cold.state.limit == 5, 60, "the limit is told")
    stream(client, model, arena, swap, cold)
    streamed = d.tenant("engine")["cold_bytes_streamed"]
    assert streamed >= 2 * LAYERS * UNIT and streamed % UNIT == 0

    first = arena.usable()[0]
    cold.window(first, 2)
    wait_until(lambda: not cold.state.pending, 60, "the window is answered")
    now = cold_of(d)
    assert now["limit_why"] == "by_hand" and now["by_hand"] == 5
    assert (now["window_first"], now["window_chunks"], now["window_entries"]) == (first, 2, ENTRIES)
    assert now["window_bytes"] == 2 * arena.chunk_bytes
    metrics = d.rpc("metrics")["tenants"][0]
    assert metrics["cold_limit"] == 5 and metrics["cold_window_bytes"] == 2 * arena.chunk_bytes
    line = (f"5 of {ENTRIES} cold blocks may be live (by_hand); the window is 2 chunks from {first} "
            f"on, 32.0 KiB, with room for {ENTRIES}; ")
    assert "engine: " + line in text_of(d, "status") and "  " + line in text_of(d, "plan", "show")
    why = d.ctl("plan", "why", "engine")["devices"][0]["tenants"][0]
    assert why["has"]["cold"]["limit_why"] == "by_hand"
    assert f"Of its KV cache 5 blocks may be cold, of {ENTRIES} that" in " ".join(why["sentences"])
    said = " ".join(text_of(d, "plan", "why", "engine").split())
    assert "with --cold auto mmd decides again." in said

    assert text_of(d, "plan", "set", "engine", "--cold", "0") == "engine: at most 0 cold blocks, by hand\n"
    wait_until(lambda: cold.state.limit == 0, 60, "the limit is told")
    assert cold.state.deadline_ns > 0 and cold_of(d)["limit_streamed"] == 5
    said = text_of(d, "plan", "set", "engine", "--cold", "auto")
    assert said == "engine: cold blocks auto, at most 2 now\n"
    wait_until(lambda: cold.state.limit == 2, 60, "the limit is told")
    assert cold_of(d)["by_hand"] is None


def test_bytes_outlive(d, connect, serving):
    """Bytes streamed are counted on by core's successor, and when the tenant has left."""
    client, model, arena, swap = serving
    cold = model.cold(UNIT, ENTRIES, ENTRIES)
    stream(client, model, arena, swap, cold)
    streamed = d.status()["cold_bytes_streamed"]
    assert streamed == d.rpc("metrics")["tenants"][0]["cold_bytes_streamed"] > 0
    client.close()
    wait_until(lambda: not d.tenants(), 60, "the tenant is gone")
    core = d.pids("core")
    os.kill(core[0], signal.SIGKILL)
    wait_until(lambda: d.pids("core") not in ([], core) and d.answers(), 60, "another core")
    assert d.rpc("metrics")["node"]["core_restarts"] == 1
    assert d.rpc("metrics")["devices"][0]["cold_bytes_streamed"] == streamed
