# SPDX-License-Identifier: Apache-2.0
"""The KV arena: in either layout tokens are the same, chunks come and go, and go back when unused."""

import contextlib
import errno
import json
import os
import signal
import subprocess

import pytest

import abi
import wire
from isolated import isolated
from programs import BIN, limit, some, wait_until
from tenant import make_requests, plain_tokens

LAYOUTS = ["block-major", "separate"]


@pytest.mark.parametrize("policy, layout", some(
    [(policy, layout) for policy in ("recompute", "elastic", "remap") for layout in LAYOUTS],
    [("elastic", "block-major"), ("remap", "separate")]))
def test_layouts(root, start, serve, model_dirs, policy, layout):
    """Two tenants that want more KV than there is, one after the other and both at once."""
    requests = [make_requests(root / f"{i}.jsonl", 10, prompt=(16, 64), output=(40, 80), seed=i)
                for i in range(2)]
    want = [plain_tokens(root, model, path) for model, path in zip(model_dirs, requests)]
    d = start(policy=policy, pool="4800K", page="16K")
    extra = ["--verify", "--kv-layout", layout, "--kv-share", "512K", "--kv-idle", "20"]
    tenants = [serve(f"t{i}", model_dirs[i], requests[i], d, extra=extra, sync=True).ready()
               for i in range(2)]
    for tenant in tenants:
        tenant.go()
    assert [tenant.tokens(120) for tenant in tenants] == want


@pytest.mark.parametrize("layout", some(LAYOUTS, LAYOUTS[1:]))
def test_shrinks_as_load_falls(root, start, serve, model_dirs, layout):
    """One that has served all it had, and stays, keeps no chunk."""
    d = start(policy="elastic", pool="4M", page="16K")
    requests = make_requests(root / "r.jsonl", 8, prompt=(16, 64), output=(40, 80))
    want = plain_tokens(root, model_dirs[0], requests)
    tenant = serve("t", model_dirs[0], requests, d, extra=["--kv-layout", layout, "--kv-idle", "20"],
                   sync=True).ready().go()
    tenant.wait_requests(8)
    wait_until(lambda: d.status()["pages"]["kv"] == 0, 60, "the chunks to go back")
    assert tenant.tokens() == want


@pytest.mark.parametrize("policy, dtype", [("recompute", "f16"), ("remap", "bf16")])
def test_narrow(root, start, serve, model_dirs, policy, dtype):
    """Keys and values of 16 bits: the tokens of an engine without mmd that has them too, in half the memory."""
    d = start(policy=policy, pool="4800K", page="16K")
    path = make_requests(root / "r.jsonl", 10, prompt=(16, 64), output=(40, 80))
    share = ["--kv-share", "256K"] if policy == "recompute" else []
    extra = ["--kv-dtype", dtype, "--kv-layout", "separate", "--kv-idle", "20"]
    tenant = serve(dtype, model_dirs[0], path, d, extra=extra + share, sync=True).ready().go()
    assert tenant.wait(120)["refused"] == 0
    assert tenant.tokens() == plain_tokens(root, model_dirs[0], path, extra)
    if share:  # of which the longest of them does not fit as F32
        tenant = serve("f32", model_dirs[0], path, d, extra=["--kv-layout", "separate"] + share)
        assert tenant.wait(120)["refused"] > 0


SWAP = {"policy": "swap", "pool": "4M", "page": "16K", "extra": ["--swap-max", "64M"]}


def swap_case(root, serve, model, d, layout, swap=None):
    """Little KV memory, so that requests are preempted again and again."""
    path = make_requests(root / "s.jsonl", 12, prompt=(16, 64), output=(60, 90))
    want = plain_tokens(root, model, path)
    extra = ["--verify", "--kv-layout", layout, "--kv-share", "512K", "--block-tokens", "8"]
    tenant = serve("t", model, path, d, extra=extra + (["--swap", swap] if swap else []), sync=True)
    return want, tenant.ready()


@pytest.mark.parametrize("layout", some(LAYOUTS, LAYOUTS[:1]))
def test_swap_identity(root, start, serve, model_dirs, layout):
    want, tenant = swap_case(root, serve, model_dirs[0], start(**SWAP), layout)
    summary = tenant.go().wait(120)
    assert tenant.tokens() == want
    assert summary["preemptions"] > 0 and summary["swaps_failed"] == 0 and summary["slices"] == 0
    assert summary["swapped_in_bytes"] == summary["swapped_out_bytes"] > 0
    # Nothing was computed twice: that is what swapping is for.
    lengths = [len(ids) for ids in want.values()]
    assert summary["computed_tokens"] < 12 * 64 + sum(lengths)


@pytest.mark.parametrize("swap", ["200K", "128M"])
def test_swap_space_too_small_or_refused(root, start, serve, model_dirs, swap):
    d = start(**SWAP)
    want, tenant = swap_case(root, serve, model_dirs[0], d, "block-major", swap)
    summary = tenant.go().wait(120)
    assert tenant.tokens() == want
    assert summary["preemptions"] > 0
    if swap == "128M":
        assert summary["swapped_out_bytes"] == 0
        d.says("tenant.swap_refused")
        assert "no swap space" in tenant.log.read_text() and "swap-max" in tenant.log.read_text()


@pytest.mark.parametrize("layout", some(LAYOUTS, LAYOUTS[1:]))
def test_swap_survives_xfer(root, start, serve, model_dirs, layout):
    """Killed again and again while blocks come and go; what was being copied is copied again."""
    d = start(**SWAP)
    want, tenant = swap_case(root, serve, model_dirs[0], d, layout)
    tenant.go()
    for n in range(1, 7):
        tenant.wait_requests(n)
        old = wait_until(lambda: d.status()["xfer"]["up"] and d.status()["xfer"]["pid"], 60, "xfer")
        os.kill(old, signal.SIGKILL)
        wait_until(lambda: d.status()["xfer"]["up"] and d.status()["xfer"]["pid"] != old, 60,
                   "another xfer")
    summary = tenant.wait(120)
    assert tenant.tokens() == want
    assert summary["swapped_in_bytes"] > 0


@contextlib.contextmanager
def raw_tenant(d):
    """A client of two chunks at most, none of them granted, with a swap space of 64 KiB; at the end mmd has it back."""
    with wire.Raw(d).greet() as client:
        client.push(abi.MM_OP_KV_DECLARE, (16384, 2, 2, 0))
        client.push(abi.MM_OP_SWAP_OPEN, (65536,))
        assert [client.pop()["result"] for _ in range(2)] == [0, 0]
        yield client
    d.wait_gone(client.tenant_id)


@pytest.fixture
def bounded(start):
    return start(policy="elastic", pool="1M", page="16K",
                 extra=["--swap-max", "1M", "--swap-account-max", "128K"])


@isolated()
def test_swap_spaces_are_refused(bounded):
    d = bounded
    with wire.Raw(d).greet() as client:
        for declared, size, want in [(False, 4096, errno.EINVAL), (True, 0, errno.EINVAL),
                                     (True, 131073, errno.EDQUOT), (True, 1 << 63, errno.EDQUOT),
                                     (True, 2**64 - 1, errno.EDQUOT), (True, 65536, 0),
                                     (True, 4096, errno.EEXIST)]:
            client.push(abi.MM_OP_SWAP_OPEN, (size,))
            assert client.pop()["result"] == -want, (declared, size)
            if not declared:
                client.push(abi.MM_OP_KV_DECLARE, (16384, 1, 1, 0))
                assert client.pop()["result"] == 0
        with raw_tenant(d) as second:  # the rest of what the account may have
            assert second.tenant_id != client.tenant_id
            with wire.Raw(d).greet() as third:
                third.push(abi.MM_OP_KV_DECLARE, (16384, 1, 1, 0))
                third.push(abi.MM_OP_SWAP_OPEN, (4096,))
                assert [third.pop()["result"] for _ in range(2)] == [0, -errno.EDQUOT]


@isolated()
def test_lists_that_lie(bounded):
    """What a list names is refused; a lot that cannot be ends the connection."""
    d, far = bounded, 2**64 - 1
    with raw_tenant(d) as client:
        for piece, want in [((0, 0, 0, 0), errno.ERANGE), ((0, 0, 1, 2), errno.ERANGE),
                            ((far, 0, 2, 0), errno.ERANGE), ((0, far, 2, 0), errno.ERANGE),
                            ((32768, 0, 1, 0), errno.ERANGE), ((0, 65536, 1, 0), errno.ERANGE),
                            ((0, 0, 1, 1), errno.ENOENT), ((32767, 65535, 1, 0), errno.ENOENT)]:
            at = abi.mm_tenant_region.offset["swap"]
            client.tenant[at:at + abi.mm_swap_piece.size] = abi.mm_swap_piece.pack(*piece)
            client.push(abi.MM_OP_SWAP, (0, 1, 0), user_data=7)
            event = client.pop()
            assert (event["opcode"], event["result"], event["user_data"]) == \
                (abi.MM_EV_SWAPPED, -want, 7), piece
    for arg in [(abi.MM_SWAP_LOTS, 1, 0), (1 << 32, 1, 0), (0, 0, 0), (0, abi.MM_SWAP_PIECES + 1, 0),
                (0, far, 0), (0, 1, 2), (0, 1, 0, 1)]:
        with raw_tenant(d) as client:
            client.push(abi.MM_OP_SWAP, arg)
            assert client.ended(), arg
    with wire.Raw(d).greet() as client:
        client.push(abi.MM_OP_SWAP, (0, 1, 0))  # it has no space
        assert client.ended()


@isolated()
def first_comes(d):
    """Who comes late gets none: mmd says so in the log and in its status, until it gets one."""
    with wire.Raw(d).greet() as first, wire.Raw(d).greet() as late:
        for client in (first, late):
            client.push(abi.MM_OP_KV_DECLARE, (16384, 1, 1, 0))
            assert client.pop()["result"] == 0
        first.push(abi.MM_OP_SWAP_OPEN, (49152,))
        assert first.pop()["result"] == 0
        late.push(abi.MM_OP_SWAP_OPEN, (32768,))
        assert late.pop()["result"] == -errno.EDQUOT
        status = d.status()
        assert (status["swap_bytes"], status["swap_max_bytes"]) == (49152, 65536)
        assert sorted(t["swap_refused_bytes"] for t in status["tenants"]) == [0, 32768]
        said = subprocess.run([str(BIN / "mmctl"), "--dir", str(d.dir), "status"], check=True, text=True,
                              capture_output=True, timeout=limit(20)).stdout
        assert "swap space: 48.0 KiB of 64.0 KiB are given out" in said
        assert "has none: it was refused 32.0 KiB, and computes again what it evicts" in said
        d.says("event=tenant.swap_refused")
        late.push(abi.MM_OP_SWAP_OPEN, (16384,))
        assert late.pop()["result"] == 0
        assert not any(t["swap_refused_bytes"] for t in d.status()["tenants"])


def test_who_comes_late_is_shown_without_swap(start):
    first_comes(start(policy="remap", pool="1M", page="16K", extra=["--swap-max", "64K"]))


@pytest.fixture
def accounted(start):
    accounts = [{"name": "me", "uid": os.getuid(), "host_max": "96K"}]
    return start(policy="elastic", pool="1M", page="16K",
                 extra=["--swap-max", "1M", "--accounts", json.dumps(accounts)])


@isolated()
def test_swap_is_charged_to_the_account(accounted):
    with raw_tenant(accounted), wire.Raw(accounted).greet() as client:
        client.push(abi.MM_OP_KV_DECLARE, (16384, 1, 1, 0))
        client.push(abi.MM_OP_SWAP_OPEN, (32769,))
        client.push(abi.MM_OP_SWAP_OPEN, (32768,))
        assert [client.pop()["result"] for _ in range(3)] == [0, -errno.EDQUOT, 0]
        used = [t["swap_bytes"] for t in accounted.status()["tenants"]]
        assert sorted(used) == [32768, 65536]
