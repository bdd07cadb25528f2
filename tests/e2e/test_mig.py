# SPDX-License-Identifier: Apache-2.0
"""Devices by UUID, MIG instances, and what mmctl says of the devices of a machine."""

import json
import subprocess

import pytest

from daemon import Daemon
from programs import BIN, limit, wait_until
from tenant import make_requests, plain_tokens

UUID = "00112233-4455-6677-8899-aabbccddee"


def uuid(kind, last):
    return f"{kind}-{UUID}{last:02x}"


class Named(Daemon):
    """Its devices have UUIDs that we know: GPU n ends in n, MIG instance n in 16 + n."""

    def __init__(self, root, mig=0, by=(), **options):
        super().__init__(root, **options)
        self.env.update(MM_SOFTGPU_UUID=UUID + "00", MM_SOFTGPU_MIG=str(mig))
        if by:
            self.extra = ["--device", ",".join(by)]


def listed(d, env=None):
    """What mmctl devices says: by UUID."""
    done = subprocess.run([str(BIN / "mmctl"), "--dir", str(d.dir), "--json", "devices"],
                          env=env or d.env, capture_output=True, timeout=limit(60), check=False)
    assert done.returncode == 0, done.stderr
    return {x["uuid"]: x for x in json.loads(done.stdout)["devices"]}


def refused(d):
    done = subprocess.run(d.args(), env=d.env, capture_output=True, timeout=limit(60), check=False)
    return done.returncode, done.stderr.decode()


@pytest.fixture
def case(root, model_dirs):
    requests = make_requests(root / "requests.jsonl", 8, output=(30, 60))
    return model_dirs[0], requests, plain_tokens(root, model_dirs[0], requests)


def test_gpus_by_uuid(start, serve, case):
    """The UUID decides, whatever CUDA_VISIBLE_DEVICES and the order of devices are."""
    class Hidden(Named):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            self.env["CUDA_VISIBLE_DEVICES"] = uuid("GPU", 2)

    d = start(kind=Hidden, devices=3, pool="8M", page="16K", by=[uuid("GPU", 1), uuid("GPU", 0)])
    assert [x["device"]["uuid"][-2:] for x in d.status()["devices"]] == ["01", "00"]
    for i, name in enumerate((uuid("GPU", 1), uuid("GPU", 0).replace("-", "").replace("GPU", "GPU-"))):
        (one,) = d.ctl("status", "--device", name)["devices"]
        assert one["device"]["ordinal"] == i
    for name, code, says in ((uuid("GPU", 2), 1, "no device"), (uuid("GPU", 0)[:8], 1, "more than one"),
                             ("GPU-", 2, "neither"), ("GPU", 2, "neither")):
        got = d.ctl("status", "--device", name, check=False)
        assert got[0] == code and says in got[2], got
    assert [x["device"]["ordinal"] for x in d.status()["devices"]] == [0, 1]
    del d.env["CUDA_VISIBLE_DEVICES"]
    seen = listed(d)
    assert {u: x["managed_by"] for u, x in seen.items()} == {
        uuid("GPU", 0): "mmd", uuid("GPU", 1): "mmd", uuid("GPU", 2): "nobody"}
    assert [seen[uuid("GPU", i)]["ordinal"] for i in range(3)] == [0, 1, 2]
    t = serve("t", case[0], case[1], d, extra=["--verify", "--device", "0"], sync=True).ready()
    assert d.tenant("t")["device"] == 1  # GPU 0, which mmd was told second
    assert t.go().tokens() == case[2]


def test_mig_instance(start, serve, case):
    """A process sees one instance; tenants in it and mmd mean the same by its UUID."""
    mine, other = uuid("MIG", 17), uuid("MIG", 16)
    d = start(kind=Named, mig=2, pool="8M", page="16K", by=[mine])
    wait_until(lambda: d.device(0)["health"]["seen"], 60, "xfer to look at the device")
    assert d.device(0)["device"]["mig"] and d.device(0)["device"]["named"] == mine
    seen = listed(d)
    assert seen[uuid("GPU", 0)]["mig_mode"] and seen[uuid("GPU", 0)]["mig_instance"] is None
    assert [seen[u]["managed_by"] for u in (mine, other)] == ["mmd", "nobody"]
    assert [seen[u]["mig_instance"] for u in (other, mine)] == [0, 1]
    assert seen[mine]["free_bytes"] < seen[other]["free_bytes"] == seen[other]["total_bytes"]
    d.env["CUDA_VISIBLE_DEVICES"] = mine
    assert serve("t", case[0], case[1], d, extra=["--verify"]).tokens() == case[2]
    # Events of the GPU that are another instance's are not ours.
    for line in ("xid 94 gi 1", "xid 31", "xid 31 gi 2"):
        with open(d.gpu_dir / "events", "a", encoding="ascii") as events:
            events.write(line + "\n")
    wait_until(lambda: d.device(0)["health"]["xids"] == 2, 60, "the Xids to be heard of")
    assert d.device(0)["health"]["memory_errors"] == 0


def test_two_instances(start, serve, case):
    """One mmd has several instances of a GPU: an xfer for each, in its own."""
    uuids = [uuid("MIG", 16), uuid("MIG", 17)]
    d = start(kind=Named, mig=2, pool="8M", page="16K", by=uuids)
    for i, u in enumerate(uuids):
        d.env["CUDA_VISIBLE_DEVICES"] = u
        t = serve(f"t{i}", case[0], case[1], d, extra=["--verify"], sync=True).ready()
        assert d.tenant(f"t{i}")["device"] == i
        assert t.go().tokens() == case[2]


@pytest.mark.parametrize("by, mig, says", [
    (["GPU-77"], 0, "no device GPU-77"), (["GPU-0011"], 0, "several devices begin with"),
    ([uuid("GPU", 0)], 2, "MIG mode"), ([uuid("MIG", 18)], 2, "no device MIG-")])
def test_no_such_uuid(root, by, mig, says):
    d = Named(root, mig=mig, devices=1 if mig else 2, by=by)
    code, errors = refused(d)
    assert code == 1 and says in errors, errors


@pytest.mark.parametrize("by, says", [
    (["0", "GPU-0011"], "some by UUID"), (["GPU-0011", "gpu-0011"], "nor a UUID"),
    (["GPU-0a", "GPU-0A"], "twice"), (["GPU-"], "nor a UUID"), (["MIG-00/1"], "nor a UUID")])
def test_bad_flag(root, by, says):
    code, errors = refused(Named(root, by=by))
    assert code == 2 and says in errors, errors


def test_file_and_prefix(root, start):
    """UUIDs in a file, and as much of one as tells it from others."""
    path = root / "mmd.json"
    path.write_text(json.dumps({"devices": [
        {"device": uuid("GPU", 1), "pool": "2M"}, {"device": uuid("GPU", 0), "pool": "4M"}]}))

    class Filed(Named):
        def args(self):
            return [str(BIN / "mmd"), "--dir", str(self.dir), "--driver", "software", "--page",
                    "16K", "--config", str(path)]

    d = start(kind=Filed, devices=2)
    assert [(x["device"]["uuid"][-2:], x["pool_pages"]) for x in d.status()["devices"]] == [
        ("01", 128), ("00", 256)]
    d.stop()
    one = start(kind=Named, devices=1, pool="2M", page="16K", by=["GPU-0011"], name="one")
    assert one.device(0)["device"]["named"] == "GPU-0011"


def test_devices_without_mmd(root):
    """mmctl lists devices where nobody manages any; and says why there are none."""
    d = Named(root, devices=2)
    env = dict(d.env, MM_DRIVER="software")
    assert [x["managed_by"] for x in listed(d, env).values()] == ["nobody"] * 2
    text = subprocess.run([str(BIN / "mmctl"), "--dir", str(d.dir), "devices"], env=env,
                          capture_output=True, text=True, timeout=limit(60), check=True).stdout
    assert uuid("GPU", 1) in text and "nobody" in text
    bad = subprocess.run([str(BIN / "mmctl"), "devices"], capture_output=True, text=True,
                         env=dict(env, MM_DRIVER="/nonexistent/libx.so"), timeout=limit(60),
                         check=False)
    assert bad.returncode == 1 and "libx.so" in bad.stderr
