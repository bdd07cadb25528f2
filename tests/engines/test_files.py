# SPDX-License-Identifier: Apache-2.0
"""Weights from descriptors that the engine made: who shares them, and what is refused."""

import contextlib
import errno
import fcntl
import mmap
import os

import pytest

pytest.importorskip("cffi", reason="python3-cffi is not installed")

import mmd  # noqa: E402
from mmd import _cdef  # noqa: E402

LAYERS = 8
DOWN = "model.layers.{}.mlp.down_proj.weight"
SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK


@pytest.fixture
def memfd(model_dirs):
    """memfd(seals, which) -> a memfd with the weights of a model."""
    with contextlib.ExitStack() as stack:
        def maker(seals=SEALS, which=0):
            fd = os.memfd_create("weights", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            stack.callback(os.close, fd)
            for path in sorted(model_dirs[which].glob("*.safetensors")):
                os.write(fd, path.read_bytes())
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
            return fd

        yield maker


def shared(model):
    return bool(model.info.load_flags & _cdef.MM_LOAD_F_SHARED)


def layer_bytes(model):
    return [bytes(model.store(DOWN.format(layer))) for layer in range(LAYERS)]


def test_sealed_is_shared_by_content(daemon, connect, model_dirs, memfd):
    d = daemon(pool="16M")
    plain = connect(d, "plain").load(model_dirs[0])
    first = connect(d, "first").load(files=[memfd()], layers=LAYERS)
    assert not shared(first) and first.path is None
    second = connect(d, "second").load(files=[memfd()], layers=LAYERS)
    assert shared(second), "two memfds with the same bytes"
    other = connect(d, "other").load(files=[memfd(which=1)], layers=LAYERS)
    assert not shared(other), "one with other bytes"
    assert layer_bytes(second) == layer_bytes(first) == layer_bytes(plain) != layer_bytes(other)


def test_unsealed_is_its_own(daemon, connect, memfd):
    """Its times do not show what is written through a mapping: nobody gets old or false bytes."""
    d = daemon(pool="16M")
    fd = memfd(0)
    first = connect(d, "first").load(files=[fd], layers=LAYERS)
    before = layer_bytes(first)
    with mmap.mmap(fd, 0) as view:
        view[-1] ^= 1
        at = view.find(before[3])
        assert at > 0
        view[at] ^= 1
    second = connect(d, "second").load(files=[fd], layers=LAYERS)
    assert not shared(second) and layer_bytes(second)[3] != before[3]
    assert layer_bytes(first) == before
    third = connect(d, "third").load(files=[memfd()], layers=LAYERS)
    assert not shared(third) and layer_bytes(third) == before


@pytest.mark.parametrize("seals", [fcntl.F_SEAL_WRITE, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK])
def test_half_sealed_is_not_shared(daemon, connect, memfd, seals):
    d = daemon(pool="16M")
    for name in ("first", "second"):
        assert not shared(connect(d, name).load(files=[memfd(seals)], layers=LAYERS))


def test_refused(daemon, connect, model_dirs, memfd, tmp_path):
    client = connect(daemon())

    def refused(number, fds, layers=LAYERS):
        with pytest.raises(mmd.Error) as caught:
            client.load(files=fds, layers=layers)
        assert caught.value.errno == number and caught.value.strerror, caught.value

    folder = os.open(tmp_path, os.O_RDONLY)
    pipe = os.pipe()
    (tmp_path / "w").write_bytes(b"x")
    writing = os.open(tmp_path / "w", os.O_WRONLY)
    short = os.memfd_create("short")
    try:
        refused(errno.EPERM, [folder])
        refused(errno.EPERM, [memfd(), pipe[0]])
        refused(errno.EACCES, [writing])
        refused(errno.EBADMSG, [short])
        refused(errno.EBADF, [-1])
        refused(errno.EINVAL, [memfd()], layers=0)
        refused(errno.EBADMSG, [memfd()], layers=LAYERS + 1)
        refused(errno.E2BIG, [memfd()] * 256)
        with pytest.raises(ValueError):
            client.load()
        with pytest.raises(mmd.Error) as caught:
            client.load(model_dirs[0], layers=LAYERS)
        assert caught.value.errno == errno.EINVAL
        # None of these has left anything behind.
        assert client.load(files=[memfd()], layers=LAYERS).info.n_layers == LAYERS
    finally:
        for fd in (folder, *pipe, writing, short):
            os.close(fd)
