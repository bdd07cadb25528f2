# SPDX-License-Identifier: Apache-2.0
"""cuda.core: device, buffers, events, a graph of what a stream does, code that is for another device."""
from cuda.core import Device, ObjectCode

device = Device(0)
device.set_current()
assert device.name == "mmd software GPU" and device.compute_capability == (9, 0)
stream = device.create_stream()

first = device.memory_resource.allocate(4096, stream=stream)
second = device.memory_resource.allocate(4096, stream=stream)
first.copy_to(second, stream=stream)
event = stream.record()
event.sync()
assert event.is_done

builder = stream.create_graph_builder()
builder.begin_building()
first.copy_to(second, stream=builder)
graph = builder.end_building().complete()
graph.upload(stream)
graph.launch(stream)
stream.sync()
graph.close()
builder.close()

try:
    ObjectCode.from_ptx(b".version 8.0\n.target sm_90\n").get_kernel("none")
    raise SystemExit("a kernel was loaded")
except Exception as error:
    assert "CUDA_ERROR_NO_BINARY_FOR_GPU" in str(error), error

first.close()
second.close()
stream.close()
print("done")
