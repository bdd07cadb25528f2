# SPDX-License-Identifier: Apache-2.0
"""numba: arrays on the device and back, pinned and mapped memory, events; then it gives the device up."""
import os
import site

if os.environ.get("MM_TEST_SITE"):
    site.addsitedir(os.environ["MM_TEST_SITE"])  # its .pth file puts numba-cuda in the place of numba.cuda

import numpy  # noqa: E402
from numba import cuda  # noqa: E402

there = numpy.arange(100_000, dtype=numpy.float32)
free = cuda.current_context().get_memory_info().free
assert free == 1 << 30

stream = cuda.stream()
on_device = cuda.to_device(there, stream=stream)
copy = cuda.device_array_like(there, stream=stream)
copy.copy_to_device(on_device, stream=stream)
event = cuda.event()
event.record(stream)
event.synchronize()
assert (copy.copy_to_host() == there).all()

pinned = cuda.pinned_array(1000, dtype=numpy.int32)
pinned[:] = 3
assert (cuda.to_device(pinned, stream=stream).copy_to_host(stream=stream) == 3).all()
with cuda.pinned(there):
    pass
mapped = cuda.mapped_array(16, dtype=numpy.int32)
mapped[:] = 4
assert mapped.sum() == 64
assert cuda.current_context().get_memory_info().free < free

# Finalizers run when no context is current any more.
del copy, pinned, mapped
cuda.close()
del on_device, event, stream
print("numba_cuda" if "numba_cuda" in cuda.__file__ else "numba", "done")
