# SPDX-License-Identifier: Apache-2.0
"""pynvml sees the device, its memory and who has some."""
import os

import pynvml
from cuda.bindings import driver

pynvml.nvmlInit()
assert pynvml.nvmlSystemGetDriverVersion() and pynvml.nvmlSystemGetCudaDriverVersion() == 13000
assert pynvml.nvmlDeviceGetCount() == 1
device = pynvml.nvmlDeviceGetHandleByIndex(0)
assert pynvml.nvmlDeviceGetIndex(device) == 0
assert pynvml.nvmlDeviceGetName(device) == "mmd software GPU"
assert pynvml.nvmlDeviceGetUUID(device).startswith("GPU-")
memory = pynvml.nvmlDeviceGetMemoryInfo(device)
assert (memory.total, memory.free, memory.used) == (1 << 30, 1 << 30, 0)

driver.cuInit(0)
driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])
error, there = driver.cuMemAlloc(1 << 20)
assert error == driver.CUresult.CUDA_SUCCESS
assert pynvml.nvmlDeviceGetMemoryInfo(device).used == 1 << 20
assert pynvml.nvmlDeviceGetMemoryInfo(device, version=pynvml.nvmlMemory_v2).used == 1 << 20
processes = pynvml.nvmlDeviceGetComputeRunningProcesses(device)
assert [(p.pid, p.usedGpuMemory) for p in processes] == [(os.getpid(), 1 << 20)]
driver.cuMemFree(there)
assert pynvml.nvmlDeviceGetMemoryInfo(device).used == 0
pynvml.nvmlShutdown()
print("done")
