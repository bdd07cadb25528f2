# SPDX-License-Identifier: Apache-2.0
"""Finds out from the driver which GPU and libraries there are.

It runs as a program of its own, because a driver may hang, and stays in the process that loads it:
    probe.py driver LIBRARY    or    probe.py cublas LIBRARY
prints one JSON object, with "error" on failure.
"""

import contextlib
import ctypes
import glob
import json
import os
import pathlib
import subprocess
import sys

ATTRIBUTES = {"processors": 16, "capability_major": 75, "capability_minor": 76}
DRIVER_PLACES = ("/usr/local/nvidia/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/cuda/compat")
HANGS_S = 60


def call(library, name, *args):
    result = getattr(library, name)(*args)
    if not result:
        return
    text = ctypes.c_char_p()
    if library.cuGetErrorName(result, ctypes.byref(text)) or not text.value:
        raise OSError(f"{name}: error {result}")
    raise OSError(f"{name}: {text.value.decode()}")


def driver(path):
    library = ctypes.CDLL(path)
    number, count, device = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    memory, name, uuid = ctypes.c_size_t(), ctypes.create_string_buffer(128), ctypes.create_string_buffer(16)
    call(library, "cuInit", 0)
    call(library, "cuDriverGetVersion", ctypes.byref(number))
    call(library, "cuDeviceGetCount", ctypes.byref(count))
    if not count.value:
        raise OSError("the driver knows no device")
    call(library, "cuDeviceGet", ctypes.byref(device), 0)
    call(library, "cuDeviceGetName", name, len(name), device)
    call(library, "cuDeviceGetUuid", uuid, device)
    call(library, "cuDeviceTotalMem_v2", ctypes.byref(memory), device)
    found = {
        "name": name.value.decode(),
        "uuid": uuid.raw.hex(),
        "memory_bytes": memory.value,
        "devices": count.value,
        "cuda_version": f"{number.value // 1000}.{number.value % 1000 // 10}",
    }
    for key, attribute in ATTRIBUTES.items():
        call(library, "cuDeviceGetAttribute", ctypes.byref(number), attribute, device)
        found[key] = number.value
    return found


def cublas(path):
    library = ctypes.CDLL(path)
    numbers = [ctypes.c_int() for _ in range(3)]
    for which, number in enumerate(numbers):
        if library.cublasGetProperty(which, ctypes.byref(number)):
            raise OSError(f"{path}: cublasGetProperty fails")
    return {"version": ".".join(str(number.value) for number in numbers), "path": path}


def ask(what, path, env):
    """Returns the answer of a process of its own; {"error": …} if there is none."""
    try:
        done = subprocess.run(
            [sys.executable, __file__, what, path],
            env=env,
            capture_output=True,
            text=True,
            timeout=HANGS_S,
            check=False,
        )
        return json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return {"error": f"{path} does not answer within {HANGS_S} s"}
    except ValueError:
        return {"error": f"{path}: the process that asked it ended with {done.returncode}"}


def find_driver():
    """Returns libcuda.so.1 as the loader finds it, else its path in containers."""
    try:
        ctypes.CDLL("libcuda.so.1")
        return "libcuda.so.1"
    except OSError:
        return next(
            (f"{place}/libcuda.so.1" for place in DRIVER_PLACES if os.path.exists(f"{place}/libcuda.so.1")), None
        )


def nodes():
    return sorted(path for path in glob.glob("/dev/nvidia*") if path[len("/dev/nvidia") :].isdigit())


def keep_open():
    """Opens the GPUs so that they stay initialised; else each process would initialise them anew."""
    found = []
    for path in nodes():
        with contextlib.suppress(OSError):
            found.append(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    return found


def no_gpu(found):
    """Returns one sentence that names what is missing."""
    if nodes():
        seen = f"{', '.join(nodes())} {'is' if len(nodes()) == 1 else 'are'} here"
    else:
        seen = "there is no /dev/nvidia0 either" if found is None else "there is no /dev/nvidia0"
    if found is None:
        return f"no GPU: libcuda.so.1, the NVIDIA driver's library, is not installed; {seen}"
    return f"no GPU: {found}; {seen}"


def find_cublas():
    """Returns the library's path from the loader, a toolkit or a Python package, or None."""
    for name in ("libcublas.so.13", "libcublas.so.12"):
        try:
            ctypes.CDLL(name)
            return name
        except OSError:
            pass
        places = [
            "/usr/local/cuda/lib64",
            "/usr/local/cuda/targets/x86_64-linux/lib",
            *sorted(glob.glob("/usr/local/cuda-*/lib64")),
        ]
        for folder in map(pathlib.Path, sys.path):
            places += sorted(glob.glob(str(folder / "nvidia/*/lib")))
        for place in places:
            if os.path.exists(f"{place}/{name}"):
                return f"{place}/{name}"
    return None


def settings():
    """Returns settings that the suite must not change; empty without nvidia-smi."""
    keys = (
        "name,driver_version,persistence_mode,compute_mode,mig.mode.current,power.limit,clocks.applications.graphics,"
        "ecc.mode.current,pcie.link.gen.max,pcie.link.width.max,memory.used"
    )
    # If nvidia-smi does not know one of the fields, it fails for all of them.
    found = query(keys)
    if found is None:
        return {}
    return found or {key: value for one in keys.split(",") for key, value in (query(one) or {}).items()}


def query(keys):
    """Asks nvidia-smi. Returns {} if it refuses; None if it does not answer."""
    try:
        done = subprocess.run(
            ["nvidia-smi", f"--query-gpu={keys}", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=HANGS_S / 3,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return {}
    return dict(zip(keys.split(","), (word.strip() for word in lines[0].split(","))))


def main():
    try:
        print(json.dumps({"driver": driver, "cublas": cublas}[sys.argv[1]](sys.argv[2])))
    except (OSError, AttributeError) as error:
        print(json.dumps({"error": str(error)}))


if __name__ == "__main__":
    main()
