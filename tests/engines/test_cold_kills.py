# SPDX-License-Identifier: Apache-2.0
"""Cold blocks while xfer and core are killed in the middle of steps, and plans and windows change."""
import os
import signal

import pytest

pytest.importorskip("cffi", reason="python3-cffi is not installed")

import mmd  # noqa: E402
from daemon import alive  # noqa: E402
from programs import LONG, limit, wait_until  # noqa: E402

LAYERS = 8
UNIT = 1024
ENTRIES = 6
CHUNKS = 16
STEPS = 900 if LONG else 90


@pytest.fixture
def d(daemon):
    return daemon(extra=["--swap-max", "8M"])


def kill(d, role):
    """One of them dies, unless the one before has not stood up yet."""
    if not d.status()["xfer"]["proven"]:
        return False
    for pid in d.pids(role):
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda p=pid: not alive(p), 20, f"{role} to die")
        return True
    return False


class Engine:
    """Has some entries live at any time, and compares what each layer of a step reads of them."""

    def __init__(self, client, model, rng):
        self.client, self.model, self.rng = client, model, rng
        self.arena = client.arena(client.info.page_bytes, chunks=CHUNKS)
        assert self.arena.want(CHUNKS - 1, timeout=limit(60))
        self.swap = client.swap(ENTRIES * LAYERS * UNIT)
        self.cold = model.cold(UNIT, ENTRIES, ENTRIES)
        self.hot, self.window = self.arena.usable()[0], 0
        self.blocks, self.rows = {}, 0
        wait_until(lambda: self.cold.state.limit == ENTRIES, 60, "the limit is told")

    def fill(self, entry):
        """The block goes out to the place of its entry, and becomes live."""
        block = self.rng.randbytes(LAYERS * UNIT)
        self.client.write(self.arena.va(0, self.hot), block)
        self.swap.out([mmd.Piece(self.hot * self.arena.chunk_bytes, entry * len(block),
                                 len(block))], entry)
        wait_until(lambda: self.swap.next(), 60, "the block is copied out")
        self.cold.set(entry)
        self.blocks[entry] = (block, self.cold.commit())

    def drop(self, entry):
        del self.blocks[entry]
        self.cold.set(entry, False)
        self.cold.commit()

    def change(self):
        entry = self.rng.randrange(ENTRIES)
        if entry in self.blocks:
            self.drop(entry)
        else:
            self.fill(entry)

    def move_window(self):
        """Elsewhere among the chunks, of another size, or none."""
        chunks = self.rng.choice((0, 1, 2, 2, 3))
        first = self.rng.randrange(3, CHUNKS - 1 - chunks) if chunks else 0
        self.cold.window(first, chunks)
        wait_until(lambda: not self.cold.state.pending, 60, "the window is answered")
        assert self.cold.state.error == 0
        self.window = self.arena.va(0, first)

    def step(self, between):
        """@between(layer) is called before each layer."""
        state = self.cold.state
        used = {entry: block for entry, (block, version) in self.blocks.items()
                if version <= state.acked and entry < state.entries}
        def work():
            got = {entry: b"" for entry in used}
            for layer in range(LAYERS):
                between(layer)
                with self.model.layer(layer):
                    self.client.synchronize()
                    for entry in used:
                        at = self.window + (self.cold.classes * entry + layer) * UNIT
                        got[entry] += self.client.read(at, UNIT)
            return got

        assert mmd.Step(self.client).run(work) == used
        self.rows += LAYERS * len(used)


def test_kills(d, connect, model_dirs, rng):
    client = connect(d)
    engine = Engine(client, client.load(model_dirs[0]), rng)
    kills = {"xfer": 0, "core": 0}

    def between(layer):
        if rng.random() < 0.04:
            role = rng.choice(("xfer", "xfer", "core"))
            kills[role] += kill(d, role)

    for number in range(STEPS):
        if number % 12 == 0:
            engine.move_window()
        if number % 9 == 4:
            wait_until(lambda: d.ctl("plan", "set", "engine", "--layers", rng.choice((0, 0, 2, 4)),
                                     check=False)[0] == 0, 60, "the plan to be taken")
        for _ in range(rng.randrange(3)):
            engine.change()
        engine.step(between)
    assert engine.rows > 10 * LAYERS and kills["xfer"] > 3
    engine.cold.window(0, 0)
    wait_until(lambda: not engine.cold.state.pending, 60, "the window is answered")
