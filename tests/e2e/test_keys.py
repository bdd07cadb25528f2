# SPDX-License-Identifier: Apache-2.0
"""Keys of models: who finds them, and what is left of a commit that did not come to its end."""

import errno
import fcntl
import json
import os
import signal
import select
import socket

import pytest

import abi
import wire
from children import as_user, ended
from programs import wait_until
from wire import Raw

KEY = b"models/llama@4f2a int8 tp0/1"
FEATURES = wire.FEATURES | abi.MM_FEAT_KEY
SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK
LAYERS = 2
ROOT = os.geteuid() == 0
USER, OTHER_USER, GROUP = 54321, 54322, 54323
needs_users = pytest.mark.skipif(not ROOT, reason="another user needs root")
KEPT = []  # connections of a child, as long as it lives


def sealed(*parts):
    fd = os.memfd_create("made", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    for part in parts:
        while part:
            part = part[os.write(fd, part):]
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    return fd


def layout_of(octet, length=4096):
    """The files of a model whose weights are all the same octet, each a memfd."""
    header = {f"layers.{n}.w": {"dtype": "U8", "shape": [length // 64, 64],
                                "data_offsets": [n * length, (n + 1) * length]} for n in range(LAYERS)}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return [(abi.MM_LOAD_CONFIG, "config.json", sealed(json.dumps({"num_hidden_layers": LAYERS}).encode())),
            (abi.MM_LOAD_SAFETENSORS, "m.safetensors",
             sealed(len(text).to_bytes(8, "little"), text, *[bytes([octet]) * length] * LAYERS))]


class Tenant(Raw):
    """One that acknowledges fds: events come only behind those that were sent before them."""

    def drain(self):
        try:
            if not self.is_ready(select.POLLIN):
                return True
            data, fds, _, _ = socket.recv_fds(self.socket, 4096, 253)
        except ConnectionResetError:
            return False
        self.fds += fds
        if len(data) == abi.mm_fd_batch.size:
            self.push(abi.MM_OP_FDS_ACK, (abi.mm_fd_batch.unpack(data)["seq"],))
        return bool(data)


def joined_with(d, features=FEATURES):
    KEPT.append(Tenant(d).greet(wire.hello(features=features)))
    KEPT[-1].push(abi.MM_OP_MODEL_OPEN, user_data=1)
    return KEPT[-1]


def concluded(client, channel):
    """load's last word. What was loaded is the tenant's when mmd says so, and its key is there then."""
    result, text = channel.last_status()
    while result == 0 and client.pop()["opcode"] != abi.MM_EV_MODEL_LOADED:
        pass
    return result, text


def commits(d, key, octet, features=FEATURES):
    client = joined_with(d, features)
    with client.load_channel() as channel:
        channel.send(wire.load_key(key))
        for kind, name, fd in layout_of(octet):
            channel.send_file(kind, name, fd)
        channel.send(wire.load_file(abi.MM_LOAD_END, b""))
        return concluded(client, channel)


def attaches(d, key, features=FEATURES, **values):
    client = joined_with(d, features)
    with client.load_channel() as channel:
        channel.send(wire.load_key(key, **{"flags": abi.MM_LOAD_KEY_ATTACH} | values))
        channel.send(wire.load_file(abi.MM_LOAD_END, b""))
        return concluded(client, channel)


def once(uid, body, *args):
    """What a child says that ends at once."""
    child = as_user(uid, body, *args)
    ended(child)
    return tuple(child[0])


def keys_of(d):
    return sorted((key["key"], key["account"], key["account_uid"])
                  for store in d.status()["stores"] for key in store["keys"])


def begin(start, root, accounts=()):
    d = start(pool="16M", page="16K", extra=["--accounts", json.dumps(list(accounts))])
    root.chmod(0o711)
    return d


@needs_users
def test_foreign_users_find_nothing(start, root):
    """The answer is the same whether a user has the key, another one has it, or nobody."""
    d = begin(start, root)
    nobody = once(OTHER_USER, attaches, d, KEY)
    assert nobody[0] == -errno.ENOENT and "no weights under this key" in nobody[1]
    owner = as_user(USER, commits, d, KEY, 1)
    assert owner[0][0] == 0, owner
    assert keys_of(d) == [(KEY.decode(), f"uid:{USER}", USER)]
    assert once(OTHER_USER, attaches, d, KEY) == nobody
    assert once(os.geteuid(), attaches, d, KEY) == nobody, "mmd's own user neither"
    assert once(USER, attaches, d, KEY + b"x")[0] == -errno.ENOENT
    assert once(USER, attaches, d, KEY)[0] == 0
    # Others may have other bytes under the same key, and they are what they find.
    other = as_user(OTHER_USER, commits, d, KEY, 2)
    assert other[0][0] == 0, other
    assert len(d.status()["stores"]) == 2
    result, text = once(USER, commits, d, KEY, 2)
    assert result == -errno.EEXIST and KEY.decode() in text
    assert once(OTHER_USER, attaches, d, KEY)[0] == 0
    ended(other)
    wait_until(lambda: len(d.status()["stores"]) == 1, 60, "the other user's store to go")
    assert once(OTHER_USER, attaches, d, KEY) == nobody
    ended(owner)


@needs_users
def test_one_store_has_keys_of_several_users(start, root):
    """The same bytes are one store; each user finds it by its own key, as long as one of its tenants is there."""
    d = begin(start, root)
    other = as_user(OTHER_USER, commits, d, b"own", 1)
    owner = as_user(USER, commits, d, KEY, 1)
    assert owner[0][0] == other[0][0] == 0
    assert len(d.status()["stores"]) == 1 and len(keys_of(d)) == 2
    assert once(USER, attaches, d, b"own")[0] == -errno.ENOENT
    assert once(USER, attaches, d, KEY)[0] == 0
    ended(owner)
    wait_until(lambda: keys_of(d) == [("own", f"uid:{OTHER_USER}", OTHER_USER)], 60, "the first user's key to go")
    assert once(USER, attaches, d, KEY)[0] == -errno.ENOENT
    assert once(OTHER_USER, attaches, d, b"own")[0] == 0
    ended(other)


@needs_users
def test_foreign_accounts_find_nothing(start, root):
    """One user in two accounts, as containers are, and two users in one."""
    d = begin(start, root, [{"name": "box", "gid": GROUP}])

    def boxed(uid, body, *args):
        """As @uid, but of the account of the group: a child of root changes its user last."""
        def run():
            os.setgid(GROUP)
            os.setuid(uid)
            return body(*args)
        return as_user(0, run)

    inside = boxed(USER, commits, d, KEY, 1)
    assert inside[0][0] == 0, inside
    assert keys_of(d) == [(KEY.decode(), "box", USER)]
    assert once(USER, attaches, d, KEY)[0] == -errno.ENOENT, "the same user, outside"
    stranger = boxed(OTHER_USER, attaches, d, KEY)
    friend = boxed(USER, attaches, d, KEY)
    assert stranger[0][0] == -errno.ENOENT, "the same account, another user"
    assert friend[0][0] == 0
    ended(stranger, friend, inside)


def dies(d, key, how):
    """Passes all but the end, and then the load dies, or the tenant."""
    client = joined_with(d)
    with client.load_channel() as channel:
        channel.send(wire.load_key(key))
        for kind, name, fd in layout_of(3):
            channel.send_file(kind, name, fd)
        if how == "tenant":
            return 0, ""
        load = wait_until(lambda: d.pids("load"), 60, "the load")
        os.kill(load[0], signal.SIGKILL)
        while True:
            event = client.pop()
            if event["opcode"] == abi.MM_EV_MODEL_READY:
                return event["result"], ""


@pytest.mark.parametrize("how", ["tenant", "load"])
def test_a_commit_that_dies_leaves_no_key(start, root, how):
    d = begin(start, root)
    us = os.geteuid()
    result, _ = once(us, dies, d, KEY, how)
    assert result == (0 if how == "tenant" else -errno.EAGAIN)
    wait_until(lambda: not d.status()["stores"] and not d.pids("load"), 60, "all to be over")
    assert once(us, attaches, d, KEY)[0] == -errno.ENOENT
    again = as_user(us, commits, d, KEY, 4)
    assert again[0][0] == 0
    ended(again)


def fills_slowly(d, key):
    """A model that takes a while to be filled; who it is when that has begun."""
    client = joined_with(d)
    channel = client.load_channel()
    channel.send(wire.load_key(key))
    for kind, name, fd in layout_of(5, 32 << 20):
        channel.send_file(kind, name, fd)
    channel.send(wire.load_file(abi.MM_LOAD_END, b""))
    KEPT.append(channel)
    wait_until(lambda: [s for s in d.status()["stores"]] or not d.pids("load"), 60, "the store", every=0.0005)
    for pid in d.pids("load"):
        os.kill(pid, signal.SIGSTOP)
    filling = [s for s in d.status()["stores"] if not s["ready"]]
    return d.pids("load")[:1] if filling else []


def test_who_waits_for_a_commit_that_dies(start, root):
    """A load is stopped while it fills: who asks for the key waits, and gets nothing when it dies."""
    d = start(pool="128M", page="2M")
    us = os.geteuid()

    def attempt():
        """On a fast host the store may be full before we look."""
        child = as_user(us, fills_slowly, d, KEY)
        if child[0]:
            return child
        ended(child)
        wait_until(lambda: not d.status()["stores"], 60, "the store to go")
        return None

    filler = wait_until(attempt, 60, "a load that is filling")

    def asks():
        client = joined_with(d)
        with client.load_channel() as channel:
            channel.send(wire.load_key(KEY, abi.MM_LOAD_KEY_ATTACH))
            channel.send(wire.load_file(abi.MM_LOAD_END, b""))
            wait_until(lambda: d.status()["stores"][0]["refs"] == 2, 60, "the load to wait for the other's store")
            os.kill(filler[0][0], signal.SIGKILL)
            return concluded(client, channel)

    result, text = once(us, asks)
    assert result == -errno.ENOENT and "no weights under this key" in text
    ended(filler)


def test_digest_is_compared(start, root):
    d = begin(start, root)
    us = os.geteuid()
    owner = as_user(us, commits, d, KEY, 1)
    assert owner[0][0] == 0
    digest = abi.MM_LOAD_KEY_ATTACH | abi.MM_LOAD_KEY_DIGEST
    result, text = once(us, lambda: attaches(d, KEY, flags=digest, digest=bytes(32)))
    assert result == -errno.ESTALE and "another digest" in text
    ended(owner)


def test_nonsense(start, root):
    """Each costs its sender the load, and nobody else anything; the core's part is in the unit tests."""
    d = begin(start, root)
    us = os.geteuid()
    for values, word in (({"flags": 5}, "unknown flags"), ({"key_bytes": 0}, "no byte"),
                         ({"key_bytes": 257}, "more than"), ({"key_bytes": 2}, "tail"),
                         ({"digest": b"x" * 32}, "digest"), ({"magic": 7}, "does not know")):
        result, text = once(us, lambda v=values: attaches(d, b"key", **v))
        assert result in (-errno.EINVAL, -errno.EPROTO) and word in text, (values, result, text)
    result, text = once(us, attaches, d, KEY, wire.FEATURES)
    assert result == -errno.EOPNOTSUPP and "did not offer" in text
    result, text = once(us, commits, d, KEY, 1, wire.FEATURES)
    assert result == -errno.EOPNOTSUPP
    assert not d.status()["stores"]
