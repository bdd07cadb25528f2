# SPDX-License-Identifier: Apache-2.0
"""Devices by UUID, MIG instances, and what mmctl says of the devices of a machine."""

import concurrent.futures
import contextlib
import json
import os
import subprocess

import pytest

from daemon import Daemon
from programs import BIN, limit, wait_until
from tenant import make_requests, plain_tokens

HOLDER = BIN.parent / "tests" / "e2e-holder"
PROFILE = "1g.1gb"
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


def mig(d, *args, driver="software", **options):
    """Return: exit status, stdout, stderr."""
    done = subprocess.run([str(BIN / "mmctl"), "--dir", str(d.dir), "mig", *map(str, args)], text=True, check=False,
                          env={**d.env, "MM_DRIVER": str(driver), "LD_LIBRARY_PATH": str(d.root)},
                          capture_output=True, timeout=limit(60), **options)
    return done.returncode, done.stdout, done.stderr


def instances(d):
    """What mmctl mig list says of GPU 0: room, and the instances by UUID."""
    code, text, errors = mig(d, "list", "--device", 0, "--json")
    assert code == 0, errors
    (gpu,) = json.loads(text)["devices"]
    (profile,) = gpu["profiles"]
    assert profile["name"] == PROFILE and profile["memory_bytes"] == 1 << 30
    return profile["more"], {x["uuid"]: x for x in gpu["instances"]}


@contextlib.contextmanager
def held(d, name, size, killed=False):
    """A process that is nobody's has memory of the instance, or only a context."""
    with subprocess.Popen([str(HOLDER), str(size)], env=dict(d.env, CUDA_VISIBLE_DEVICES=name),
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        yield holder
        if killed:
            holder.kill()
        holder.stdin.close()
        assert killed or holder.wait(limit(20)) == 0


def test_instance_is_made_and_removed(root, start, serve, case):
    """mmd and a tenant work on an instance that was made; it is not removed under them, and made again afterwards."""
    before = Named(root, mig=1)
    assert instances(before) == (6, {uuid("MIG", 16): {
        "uuid": uuid("MIG", 16), "managed_by": "nobody", "profile": PROFILE}})
    code, text, errors = mig(before, "create", "--device", 0, PROFILE, "--json")
    made = json.loads(text)
    assert code == 0 and made == {"schema": 1, "uuid": uuid("MIG", 17), "profile": PROFILE}, errors
    d = start(kind=Named, mig=1, pool="8M", page="16K", by=[made["uuid"]])
    assert instances(d)[0] == 5 and instances(d)[1][made["uuid"]]["managed_by"] == "mmd"
    end = ("destroy", "--device", uuid("GPU", 0), "--yes")
    code, _, errors = mig(d, *end, made["uuid"])
    assert code == 1 and f"{made['uuid']}: mmd manages it" in errors
    # Another instance goes meanwhile; nothing of this one changes its place.
    code, text, errors = mig(d, *end, uuid("MIG", 16), "--json")
    assert code == 0 and json.loads(text) == {"schema": 1, "uuid": uuid("MIG", 16), "gpu_instance": True}, errors
    assert list(instances(d)[1]) == [made["uuid"]]
    d.env["CUDA_VISIBLE_DEVICES"] = made["uuid"]
    assert serve("t", case[0], case[1], d, extra=["--verify"]).tokens() == case[2]
    d.stop()
    code, text, errors = mig(d, *end, made["uuid"])
    assert code == 0 and f"{made['uuid']}: removed" in text, errors
    assert instances(d) == (7, {}) and not (d.gpu_dir / "mig-2").exists()
    code, errors = refused(d)
    assert code == 1 and f"no device {made['uuid']}" in errors, errors
    assert mig(d, "create", "--device", 0, PROFILE)[0] == 0 and list(instances(d)[1]) == [uuid("MIG", 16)]


def test_instance_of_a_process(root):
    """Who holds memory is named; who has no memory keeps it as well; what a killed one held goes with it."""
    d, one = Named(root, mig=2), uuid("MIG", 17)
    end = ("destroy", "--device", 0, one, "--yes")
    with held(d, one, 1 << 20) as holder:
        code, _, errors = mig(d, *end)
        assert code == 1 and f"{one}: process {holder.pid} uses it" in errors
        assert mig(d, "destroy", "--device", 0, uuid("MIG", 16), "--yes")[0] == 0
    with held(d, one, 0):
        code, _, errors = mig(d, *end)
        assert code == 1 and f"{one}: a process uses it" in errors
    with held(d, one, 1 << 20, killed=True):
        pass
    assert list(instances(d)[1]) == [one] and (d.gpu_dir / "mig-2").exists()
    assert mig(d, *end)[0] == 0
    assert instances(d) == (7, {})
    # No instance is no device.
    done = subprocess.run([str(HOLDER), "4096"], env=d.env, capture_output=True, stdin=subprocess.DEVNULL, check=False,
                          timeout=limit(60))
    assert done.returncode == 1 and done.stderr


def test_no_room(root):
    d = Named(root, mig=6)
    assert mig(d, "create", "--device", 0, PROFILE)[0] == 0
    code, _, errors = mig(d, "create", "--device", 0, f"MIG {PROFILE}")
    assert code == 1 and f"{PROFILE}: the GPU has no room for it" in errors and len(instances(d)[1]) == 7


def test_many_at_once(root):
    """Each gets an instance of its own, or is told that there is no room; then each goes once."""
    d = Named(root, mig=1)
    with concurrent.futures.ThreadPoolExecutor(9) as several:
        done = list(several.map(lambda _: mig(d, "create", "--device", 0, PROFILE), range(9)))
        made = [text.split(":")[0] for code, text, _ in done if code == 0]
        assert len(made) == 6 and all("no room" in errors for code, _, errors in done if code), done
        assert instances(d)[0] == 0 and set(instances(d)[1]) == {uuid("MIG", 16), *made}
        done = list(several.map(lambda one: mig(d, "destroy", "--device", 0, one, "--yes"), made * 2))
    assert sorted(code for code, _, _ in done) == [0] * 6 + [1] * 6, done
    assert instances(d)[0] == 6 and list(instances(d)[1]) == [uuid("MIG", 16)]


def test_list_text(root):
    code, text, _ = mig(Named(root, mig=1, devices=2), "list")
    lines = text.splitlines()
    assert code == 0 and max(map(len, lines)) <= 80
    assert lines[0] == f"GPU 0 {uuid('GPU', 0)}: MIG mode on" and lines[-1] == f"GPU 1 {uuid('GPU', 1)}: MIG mode off"
    assert lines[2].split() == [PROFILE, "1.0", "GiB", "6"]
    assert lines[4].split() == [uuid("MIG", 16), PROFILE, "nobody"]


@pytest.mark.parametrize("args, code, says", [
    (("create", PROFILE), 2, "--device is needed"),
    (("create", "--device", "0"), 2, "PROFILE"),
    (("create", "--device", "0", "1g.1bg"), 1,
     f"'1g.1bg' is no profile of this GPU: {PROFILE}; did you mean {PROFILE}?"),
    (("create", "--device", "0", "\033[2Jx"), 1, "is no profile"),
    (("create", "--device", "1", PROFILE), 1, "GPU 1 is not in MIG mode; nvidia-smi -i 1 -mig 1"),
    (("create", "--device", "2", PROFILE), 1, "there is no such GPU"),
    (("create", "--device", "GPU-0011", PROFILE), 1, "several GPUs"),
    (("create", "--device", uuid("MIG", 16), PROFILE), 1, "there is no such GPU"),
    (("list", "--device", "GPU-77"), 1, "there is no such GPU"),
    (("destroy", "--device", "0", uuid("MIG", 16)), 2, "--yes"),
    (("destroy", "--yes", uuid("MIG", 16)), 2, "--device is needed"),
    (("destroy", "--device", "0", "--yes", uuid("MIG", 17)), 1, "is no MIG instance of GPU 0"),
    (("destroy", "--device", "0", "--yes", "MIG-"), 1, "the whole UUID is needed"),
    (("destroy", "--device", "0", "--yes", uuid("GPU", 0)), 1, "is no MIG instance of GPU 0"),
    (("destroy", "--device", "1", "--yes", uuid("MIG", 16)), 1, "not in MIG mode")])
def test_mig_refused(root, args, code, says):
    d = Named(root, mig=1, devices=2)
    done = mig(d, *args)
    assert done[0] == code and says in done[2] and not done[1], done
    assert "\x1b" not in done[2] and len(done[2].splitlines()) == 1
    assert instances(d) == (6, {uuid("MIG", 16): {
        "uuid": uuid("MIG", 16), "managed_by": "nobody", "profile": PROFILE}})


@pytest.mark.parametrize("entry, words, says", [
    (b"mm_softgpu_stats", ("list",), "MIG needs NVML: "),
    (b"nvmlDeviceCreateGpuInstance", ("create", "--device", 0, PROFILE), "this driver's NVML cannot make MIG instances"),
    (b"nvmlComputeInstanceDestroy", ("destroy", "--device", 0, "--yes", uuid("MIG", 16)),
     "this driver's NVML cannot remove MIG instances")])
def test_driver_without(root, entry, words, says):
    """A driver that has another name for an entry. By the first one a software GPU is known, the NVML of others is a
    library of its own, which here is none."""
    d = Named(root, mig=1)
    text = (BIN.parent / "lib" / "libmm-softgpu.so").read_bytes()
    assert text.count(b"\0" + entry + b"\0") >= 1
    (root / "driver.so").write_bytes(text.replace(b"\0" + entry + b"\0", b"\0" + entry[:-1] + b"_\0"))
    (root / "libnvidia-ml.so.1").touch()
    code, _, errors = mig(d, *words, driver=root / "driver.so")
    assert code == 1 and says in errors and len(errors.splitlines()) == 1, errors
    code, text, errors = mig(d, "list", driver=root / "driver.so")
    assert code == (entry == b"mm_softgpu_stats"), errors


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be somebody else")
def test_only_root_makes_instances(root):
    """The directory of the software GPU is what only some may write."""
    d = Named(root, mig=1)
    for words in (("create", "--device", 0, PROFILE), ("destroy", "--device", 0, "--yes", uuid("MIG", 16))):
        code, _, errors = mig(d, *words, user=65534, group=65534, extra_groups=[])
        assert code == 1 and "only root may do that" in errors, errors
    assert list(instances(d)[1]) == [uuid("MIG", 16)]
