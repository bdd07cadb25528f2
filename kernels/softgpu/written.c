/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/softgpu/written.h"

#include <errno.h>
#include <unistd.h>

#include "kernels/softgpu/entry.h"
#include "kernels/softgpu/host.h"
#include "kernels/softgpu/timed.h"
#include "kernels/softgpu/vm.h"
#include "libclient/base/base.h"
#include "mm/softgpu.h"

static uint64_t key_mix(uint64_t x)
{
	x = (x ^ (x >> 31)) * UINT64_C(0x9e3779b97f4a7c15);
	return x ^ (x >> 29);
}

static uint64_t key_from(uint64_t inode, uint64_t offset)
{
	return key_mix(key_mix(inode) + offset) | 1;
}

/* Return: the word's name, never 0. Memory of this process alone has one, too. */
static uint64_t word_key(uint64_t va)
{
	const struct sg_vm_info info = sg_vm_describe(va);
	struct sg_host_info host;

	if (info.mapped)
		return key_from(info.inode, va - info.start);
	host = sg_host_describe(va);
	if (host.known && host.inode)
		return key_from(host.inode, va - host.start + host.offset);
	return key_from((uint64_t)getpid() << 32, va);
}

static struct sg_written *key_place(unsigned int device, uint64_t key)
{
	return &sg_timed_words(device)[(key >> 32) % SG_WRITTEN_WORDS];
}

/* A reader finds no key while the word changes. */
static void word_put(unsigned int device, uint64_t key, uint32_t value, uint64_t time_ns)
{
	struct sg_written *w = key_place(device, key);

	__atomic_store_n(&w->key, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&w->value, value, __ATOMIC_RELEASE);
	__atomic_store_n(&w->time_ns, time_ns, __ATOMIC_RELEASE);
	__atomic_store_n(&w->key, key, __ATOMIC_RELEASE);
}

static uint64_t word_written_ns(unsigned int device, uint64_t key, uint32_t value)
{
	uint64_t written, time_ns;
	const struct sg_written *w = key_place(device, key);

	if (__atomic_load_n(&w->key, __ATOMIC_ACQUIRE) != key)
		return 0;
	time_ns = __atomic_load_n(&w->time_ns, __ATOMIC_ACQUIRE);
	written = __atomic_load_n(&w->value, __ATOMIC_ACQUIRE);
	if (__atomic_load_n(&w->key, __ATOMIC_RELAXED) != key || written != value)
		return 0;
	return time_ns;
}

void sg_written_put(unsigned int device, uint64_t va, uint64_t value, bool is_64, uint64_t time_ns)
{
	word_put(device, word_key(va), (uint32_t)value, time_ns);
	if (is_64)
		word_put(device, word_key(va + 4), (uint32_t)(value >> 32), time_ns);
}

uint64_t sg_written_when(unsigned int device, uint64_t va, uint64_t value, bool is_64)
{
	uint64_t low = word_written_ns(device, word_key(va), (uint32_t)value);
	uint64_t high =
		is_64 ? word_written_ns(device, word_key(va + 4), (uint32_t)(value >> 32)) : 0;

	return MM_MAX(low, high);
}

static bool device_keeps_time(const char *entry, int device)
{
	return !sg_enter(entry, SG_INITIALISED) && device >= 0 &&
	       (unsigned int)device < sg_device_count() && sg_is_timed((unsigned int)device);
}

MM_EXPORT int mm_softgpu_written_ns(int device, uint64_t inode, uint64_t offset, uint32_t value,
				    uint64_t *ret_ns)
{
	uint64_t ns;

	if (!device_keeps_time(__func__, device) || !ret_ns)
		return -EINVAL;
	ns = word_written_ns((unsigned int)device, key_from(inode, offset), value);
	if (!ns)
		return -ENOENT;
	*ret_ns = ns;
	return 0;
}

MM_EXPORT int mm_softgpu_wrote(int device, uint64_t inode, uint64_t offset, uint32_t value,
			       uint64_t ns)
{
	if (!device_keeps_time(__func__, device))
		return -EINVAL;
	word_put((unsigned int)device, key_from(inode, offset), value, ns);
	return 0;
}
