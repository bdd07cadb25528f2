/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libmm-torch: what PyTorch calls for memory of mm_mem_alloc(), one client for each device
 *
 * Concept:   torch.cuda.memory.CUDAPluggableAllocator takes two functions of a library by name. It
 *            has no place for a client, so the package sets one for each device before, with the
 *            functions of the libmm-client that it has loaded: this library is linked to nothing.
 * Threading: any thread may allocate and free; setting a client is not at the same time as either.
 */
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define EXPORT  __attribute__((visibility("default")))
#define DEVICES 64

struct source {
	void *client; /* NULL: no memory can be had, and what was had is gone */
	int (*alloc)(void *client, uint64_t bytes, uint32_t flags, uint64_t *ret_va);
	int (*free)(void *client, uint64_t va);
	int (*synchronize)(void *stream); /* the driver's cuStreamSynchronize() */
};

static struct source sources[DEVICES];

EXPORT int mm_torch_set(int device, const struct source *source);
EXPORT void *mm_torch_malloc(ssize_t bytes, int device, void *stream);
EXPORT void mm_torch_free(void *memory, ssize_t bytes, int device, void *stream);

static const struct source *source_of(int device)
{
	const int known = device >= 0 && device < DEVICES;

	return known && sources[device].client ? &sources[device] : NULL;
}

/* Return: 0; -1 no such device. */
int mm_torch_set(int device, const struct source *source)
{
	if (device < 0 || device >= DEVICES)
		return -1;
	sources[device] = *source;
	return 0;
}

/* Return: NULL: PyTorch reports that it is out of memory. */
void *mm_torch_malloc(ssize_t bytes, int device, void *stream)
{
	const struct source *source = source_of(device);
	uint64_t va;

	(void)stream;
	if (!source || bytes <= 0 || source->alloc(source->client, (uint64_t)bytes, 0, &va))
		return NULL;
	return (void *)(uintptr_t)va;
}

/* The memory is unmapped at once, so what the stream still does with it has to end first. */
void mm_torch_free(void *memory, ssize_t bytes, int device, void *stream)
{
	const struct source *source = source_of(device);

	(void)bytes;
	if (!source || !memory)
		return;
	source->synchronize(stream);
	source->free(source->client, (uint64_t)(uintptr_t)memory);
}
