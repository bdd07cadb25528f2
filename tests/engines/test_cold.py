# SPDX-License-Identifier: Apache-2.0
"""KV in host memory, from Python: swapped out and in, and read as cold blocks."""
import errno
import os

import pytest

pytest.importorskip("cffi", reason="python3-cffi is not installed")

import mmd  # noqa: E402
from mmd import _cdef  # noqa: E402
from programs import limit, wait_until  # noqa: E402

LAYERS = 8
UNIT = 1024
ENTRIES = 6


@pytest.fixture
def serving(daemon, connect, model_dirs):
    """serving() -> client, model, arena of 16 pages, swap space; all chunks but one are usable."""
    client = connect(daemon(extra=["--swap-max", "8M"]))
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
