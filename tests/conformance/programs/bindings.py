# SPDX-License-Identifier: Apache-2.0
"""cuda-bindings: contexts that take their memory along, freeing without one, copies, a graph."""
import ctypes

import cuda.bindings
from cuda.bindings import driver

CUDA_12 = cuda.bindings.__version__.startswith("12.")
LARGE = 256 << 20


def ok(result, want=driver.CUresult.CUDA_SUCCESS):
    error, *values = result
    assert error == want, error
    return values[0] if len(values) == 1 else values


def create_context():
    return ok(driver.cuCtxCreate(0, device) if CUDA_12 else driver.cuCtxCreate(None, 0, device))


ok(driver.cuInit(0))
device = ok(driver.cuDeviceGet(0))
known = [error for error in driver.CUresult if driver.cuGetErrorName(error)[1]]
assert len(known) >= 99, len(known)

for i in range(5):
    context = create_context()
    ok(driver.cuMemAlloc(LARGE))
    ok(driver.cuCtxDestroy(context))

context = ok(driver.cuDevicePrimaryCtxRetain(device))
ok(driver.cuCtxSetCurrent(context))
assert ok(driver.cuMemGetInfo())[0] == 1 << 30

stream = ok(driver.cuStreamCreate(0))
there = ok(driver.cuMemAlloc(4096))
ok(driver.cuMemsetD2D8(there, 64, 5, 32, 64))
ok(driver.cuPointerSetAttribute(True, driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, there))
back = bytearray(4096)
ok(driver.cuMemcpyDtoH(back, there, 4096))
assert back == (bytes([5]) * 32 + bytes(32)) * 64

ok(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
ok(driver.cuMemsetD8Async(there, 7, 4096, stream))
graph = ok(driver.cuStreamEndCapture(stream))
params = driver.CUDA_GRAPH_INSTANTIATE_PARAMS()
executable = ok(driver.cuGraphInstantiateWithParams(graph, params))
ok(driver.cuGraphLaunch(executable, stream))
ok(driver.cuStreamSynchronize(stream))
ok(driver.cuMemcpyDtoH(back, there, 4096))
assert back == bytes([7]) * 4096

host = ok(driver.cuMemHostAlloc(4096, 0))
page = ctypes.create_string_buffer(8192)
address = ctypes.addressof(page)
ok(driver.cuMemHostRegister(address, 8192, 0))
ok(driver.cuMemHostUnregister(address + 1), driver.CUresult.CUDA_ERROR_INVALID_VALUE)
library = ok(driver.cuLibraryLoadData(b".version 8.0\n.target sm_90\n", None, None, 0, None, None, 0))
ok(driver.cuLibraryGetModule(library), driver.CUresult.CUDA_ERROR_NO_BINARY_FOR_GPU)
ok(driver.cuLibraryUnload(library))
ok(driver.cuMemAllocManaged(4096, 1), driver.CUresult.CUDA_ERROR_NOT_SUPPORTED)

ok(driver.cuCtxPopCurrent())
ok(driver.cuMemFree(there))
ok(driver.cuMemFreeHost(host))
ok(driver.cuMemHostUnregister(address))
ok(driver.cuStreamDestroy(stream))
ok(driver.cuDevicePrimaryCtxRelease(device))
print("done")
