# SPDX-License-Identifier: Apache-2.0
"""What a device says about itself, its errors, and who else has its memory."""

import os
import re
import signal
import subprocess
import time

import pytest

from daemon import Daemon
from programs import BIN, limit, read_until, wait_until
from tenant import make_requests, plain_tokens

HOLDER = BIN.parent / "tests" / "e2e-holder"


@pytest.fixture
def case(root, model_dirs):
    """A model, what to ask of it, and what it answers."""
    requests = make_requests(root / "requests.jsonl", 8, output=(30, 60))
    return model_dirs[0], requests, plain_tokens(root, model_dirs[0], requests)


def tell(d, line, device=0):
    """As the driver would."""
    path = d.gpu_dir / (f"device-{device}/events" if device else "events")
    with open(path, "a", encoding="ascii") as events:
        events.write(line + "\n")


def health(d, device=0):
    return d.device(device)["health"]


def refused(d):
    done = subprocess.run(d.args(), env=d.env, capture_output=True, timeout=limit(60), check=False)
    return done.returncode, done.stderr.decode()


def logged(d, event, word=""):
    return [line for line in d.log.read_text(errors="replace").splitlines()
            if f"event={event} " in line and word in line]


def await_log(d, event, word=""):
    return wait_until(lambda: logged(d, event, word), 60, f"'{event}' with '{word}' in the log")


class Holder:
    """A process that has memory of the device and is nobody of mmd's."""

    def __init__(self, d, size):
        self.process = subprocess.Popen([str(HOLDER), str(size)], env=d.env, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        read_until(self.process, "held\n", 60)
        self.pid = self.process.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()


def test_contained(start, serve, case):
    """Who ran into bad memory ends; what it had comes back as other memory; its neighbour goes on."""
    d = start(pool="8M", page="16K")
    victim = serve("victim", case[0], case[1], d, extra=["--verify"], sync=True).ready()
    other = serve("other", case[0], case[1], d, extra=["--verify"], sync=True).ready()
    wait_until(lambda: health(d)["seen"], 60, "xfer to look at the device")
    pages = d.tenant("victim")["pages"]
    assert pages > 0 and health(d)["pages_suspect"] == 0
    tell(d, "xid 94")
    wait_until(lambda: health(d)["memory_errors"] == 1, 60, "the error to be heard of")
    assert health(d)["last_xid"] == 94
    assert health(d)["pages_suspect"] == pages + d.tenant("other")["pages"]
    await_log(d, "device.health", "contained")
    victim.kill()
    wait_until(lambda: health(d)["pages_quarantined"] >= pages, 60, "its pages to be quarantined")
    d.check_accounts()
    assert other.go().tokens() == case[2]
    wait_until(lambda: d.page_states()["quarantine"] == 0, 60, "other memory to be had")
    assert serve("next", case[0], case[1], d, extra=["--verify"]).tokens() == case[2]


def test_only_noted(start):
    """Other people's faults and corrected errors are counted, and nothing is done."""
    d = start(pool="2M", page="16K")
    wait_until(lambda: health(d)["events"], 60, "xfer to look at the device")
    for line in ("xid 31", "xid 4711", "sbe", "nonsense", "xid 13"):
        tell(d, line)
    wait_until(lambda: health(d)["xids"] == 3, 60, "the Xids to be heard of")
    seen = health(d)
    assert seen["single_bit_events"] == 1 and seen["last_xid"] == 13
    assert seen["memory_errors"] == seen["lost"] == seen["pages_suspect"] == 0
    assert 1 <= len(await_log(d, "device.health")) <= 4
    begun = time.monotonic()
    for _ in range(300):
        tell(d, "sbe")
    wait_until(lambda: health(d)["single_bit_events"] == 301, 120, "all of them to be heard of")
    tell(d, "xid 94")
    wait_until(lambda: health(d)["memory_errors"] == 1, 60, "the error to be heard of")
    await_log(d, "device.health", "xid=94")
    lines = logged(d, "device.health")
    assert "xid=94" in lines[-1]
    # At most one a second; how long it took to be heard of is not said.
    assert len(lines) < 10 + time.monotonic() - begun
    assert d.device(0)["state"] == "up"


def test_lost(start, serve, case):
    """A GPU that is gone takes its own tenants along, and comes back when it can; the other stays."""
    d = start(devices=2, pool="8M", page="16K")
    tenants = [serve(f"t{i}", case[0], case[1], d, extra=["--verify", "--device", str(i)],
                     sync=True).ready() for i in range(2)]
    spared = d.xfer_of(0)
    wait_until(lambda: health(d, 1)["events"], 60, "xfer to look at the device")
    tell(d, "xid 79", 1)
    wait_until(lambda: health(d, 1)["lost"] == 1, 60, "the error to be heard of")
    await_log(d, "pool.down")
    wait_until(lambda: d.tenant("t1") is None or d.tenant("t1")["connection"] == "closed", 60,
               "its tenant to be told")
    tenants[1].kill()
    assert tenants[0].go().tokens() == case[2]
    assert d.xfer_of(0) == spared and health(d, 0)["lost"] == 0
    wait_until(lambda: d.device(1)["state"] == "up" and d.device(1)["xfer"]["up"], 120,
               "device 1 to be up again")
    assert serve("again", case[0], case[1], d,
                 extra=["--verify", "--device", "1"]).tokens() == case[2]


@pytest.mark.parametrize("line, logs", [("xid 95", "xid=95"), ("lost", "nvml=15")])
def test_the_only_one_lost(start, line, logs):
    """By an Xid, or without one: NVML does not reach it any more."""
    d = start(pool="2M", page="16K")
    wait_until(lambda: health(d)["events"], 60, "xfer to look at the device")
    tell(d, line)
    assert d.process.wait(limit(60)) == 1
    d.says("the GPU is lost")
    assert await_log(d, "device.health", logs)
    d.process = None


def test_repair(start):
    d = start(pool="2M", page="16K")
    wait_until(lambda: health(d)["events"], 60, "xfer to look at the device")
    assert not health(d)["repair_pending"]
    tell(d, "remap pending")
    tell(d, "xid 63")
    wait_until(lambda: health(d)["repair_pending"], 60, "the repair to be seen")
    await_log(d, "device.repair_pending")


def test_memory_of_others(root, start):
    """Who else has memory is named: in status, and where it is why a pool has no room."""
    d = start(pool="2M", page="16K", gpu_memory=32 << 20)
    with Holder(d, 8 << 20) as holder:
        tell(d, "sbe")
        wait_until(lambda: [o for o in health(d)["others"] if o["pid"] == holder.pid], 60,
                   "the other to be seen")
        other = health(d)["others"]
        assert len(other) == 1 and other[0]["bytes"] == 8 << 20, other
        assert other[0]["name"].startswith("e2e-holder")
    d.stop()
    late = Daemon(root, name="late", pool="30M", page="16K", gpu_memory=32 << 20)
    with Holder(late, 8 << 20) as holder:
        code, errors = refused(late)
        assert code == 1 and f"pid {holder.pid} (e2e-holder" in errors, errors


@pytest.mark.parametrize("attribute, says", [
    (102, "virtual memory management"), (103, "file descriptors"), (122, "64-bit stream memory"),
    (41, "unified addressing")])
def test_attribute_missing(root, attribute, says):
    d = Daemon(root)
    d.env["MM_SOFTGPU_ATTRIBUTES"] = f"{attribute}=0"
    code, errors = refused(d)
    assert code == 1 and says in errors and str(attribute) in errors, errors


def test_attributes_told(root, serve, case, start):
    """What is missing and can be done without is said, and done without."""
    class Poor(Daemon):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            self.env["MM_SOFTGPU_ATTRIBUTES"] = "113=0,110=1,32=1,133=0"

    d = start(kind=Poor, pool="8M", page="16K")
    device = d.device(0)["device"]
    assert device["host_read_only"] is False and device["gpudirect"] is True
    assert device["ecc"] is True and device["mps"] is False and device["mig"] is False
    assert re.fullmatch(r"\d+\.\d", device["cuda"]) and device["compute_capability"] == "9.0"
    await_log(d, "xfer.device", "host_read_only=no")
    engine = serve("t", case[0], case[1], d, extra=["--verify"])
    assert engine.tokens() == case[2]
    # Weights are pinned although the driver pins for writing only; tenants can read them, no more.
    assert not logged(d, "xfer.store_unregistered") and not logged(d, "store.sealed_for_xfer")


def test_pinned_for_writing(serve, case, start):
    """Where the driver pins for writing only, mmd alone has the weights writable."""
    class Poor(Daemon):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            self.env["MM_SOFTGPU_ATTRIBUTES"] = "113=0"

    d = start(kind=Poor, pool="8M", page="16K")
    tenant = serve("t", case[0], case[1], d, extra=["--verify"], sync=True).ready()
    folder = f"/proc/{tenant.process.pid}/fd"
    stores = [fd for fd in os.listdir(folder) if "memfd:mm-store" in os.readlink(f"{folder}/{fd}")]
    assert stores
    for fd in stores:
        with open(f"{folder}info/{fd}", encoding="ascii") as info:
            flags = int(re.search(r"flags:\s*(\d+)", info.read())[1], 8)
        assert flags & os.O_ACCMODE == os.O_RDONLY
        assert os.stat(f"{folder}/{fd}").st_mode & 0o777 == 0o600
    assert tenant.go().tokens() == case[2]


@pytest.mark.parametrize("environment, says", [
    ({"FAKE_INIT": "100"}, "no GPU is visible"), ({"FAKE_INIT": "802"}, "nvidia-fabricmanager"),
    ({"FAKE_INIT": "803"}, "reboot"), ({"FAKE_VERSION": "12000"}, "12.4 or later"),
    ({"FAKE_LACKS": "cuMemCreate,cuMemMap"}, "cuMemCreate(10020) cuMemMap(10020)")])
def test_bad_driver(root, environment, says):
    """One sentence that helps, and status 1."""
    class Bad(Daemon):
        def args(self):
            return [fake if word == "software" else word for word in super().args()]

    fake = str(BIN.parent / "lib" / "libmm-test-fake-driver.so")
    d = Bad(root)
    d.env.update(environment)
    code, errors = refused(d)
    sentence = [line for line in errors.splitlines() if line.startswith("mmd: ")]
    assert code == 1 and len(sentence) == 1 and says in sentence[0], errors


def test_killed_while_watching(start):
    """The thread that watches is no reason why an xfer would not end, or start again."""
    d = start(pool="2M", page="16K")
    os.kill(d.xfer_of(0), signal.SIGKILL)
    wait_until(lambda: d.device(0)["xfer"]["restarts"] == 1 and d.device(0)["xfer"]["up"], 60,
               "the next xfer")
    wait_until(lambda: health(d)["events"], 60, "it to look at the device")
    tell(d, "xid 43")
    wait_until(lambda: health(d)["xids"] == 1, 60, "the Xid to be heard of")
