/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "kernels/softgpu/context.h"
#include "kernels/softgpu/device.h"
#include "kernels/softgpu/entry.h"
#include "kernels/softgpu/range.h"
#include "kernels/softgpu/timed.h"
#include "kernels/softgpu/vm.h"
#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"

struct alloc {
	struct sg_page page;
	CUmemAllocationProp prop;
	uint32_t handle_refs; /* cuMemCreate, import and retain; the handle is valid while > 0 */
	uint32_t map_refs;
	uint32_t slot; /* in vm.slots; an allocation keeps its slot for life */
	uint32_t generation;
};

struct mapping {
	struct alloc *alloc;
	CUmemAccess_flags access;
	bool real; /* the page is mapped, whatever its protection */
	bool sync_memops;
	/*
	 * Memory of cuMemAlloc() owns its reservation, and goes with cuMemFree() or with this
	 * context, a reference; NULL: of cuMemMap().
	 */
	struct sg_context *owner;
};

struct slot {
	struct alloc *alloc; /* NULL = free */
	uint32_t generation;
	uint32_t next_free;
};

#define NO_SLOT UINT32_MAX

static struct {
	pthread_mutex_t mtx; /* guards all below, and the fields of what they point to */
	struct sg_ranges reserved;
	struct sg_ranges mapped; /* of struct mapping */
	struct slot *slots;
	uint32_t n_slots, free_slot;
} vm = { .mtx = PTHREAD_MUTEX_INITIALIZER, .free_slot = NO_SLOT };

static void lock_vm(void)
{
	pthread_mutex_lock(&vm.mtx);
}

static void unlock_vm(void)
{
	pthread_mutex_unlock(&vm.mtx);
}

static void *pointer(uint64_t va)
{
	return (void *)(uintptr_t)va;
}

static bool is_aligned(uint64_t value, uint64_t unit)
{
	return (value & (unit - 1)) == 0;
}

static bool is_range(uint64_t va, size_t bytes, uint64_t unit)
{
	return va && bytes && is_aligned(va, unit) && is_aligned(bytes, unit) &&
	       va <= UINT64_MAX - bytes;
}

/* What the driver's calls take, in timed mode. */
static const struct mm_profile *latency(unsigned int device)
{
	return &sg_device_info(device)->timing.profile;
}

/* ---- Address space ---- */

static void *map_nothing(uint64_t va, size_t bytes, int flags)
{
	return mmap(pointer(va), bytes, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
}

static uint64_t reserve_aligned(size_t bytes, uint64_t alignment)
{
	size_t span = bytes + alignment;
	uint64_t base, va;
	void *addr;

	if (span < bytes)
		return 0;
	addr = map_nothing(0, span, 0);
	if (addr == MAP_FAILED)
		return 0;
	base = (uintptr_t)addr;
	va = (base + alignment - 1) & ~(alignment - 1);
	if (va > base)
		munmap(addr, va - base);
	if (base + span > va + bytes)
		munmap(pointer(va + bytes), base + span - (va + bytes));
	return va;
}

static uint64_t reserve(size_t bytes, uint64_t alignment, uint64_t hint_va)
{
	void *addr;

	if (hint_va && is_aligned(hint_va, alignment)) {
		addr = map_nothing(hint_va, bytes, MAP_FIXED_NOREPLACE);
		if (addr == pointer(hint_va))
			return hint_va;
		if (addr != MAP_FAILED)
			munmap(addr, bytes);
	}
	return reserve_aligned(bytes, alignment);
}

CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr *va, size_t bytes, size_t alignment,
				     CUdeviceptr hint_va, unsigned long long flags)
{
	const struct sg_device_info *info = sg_device_info(0);
	uint64_t unit, found;
	int err;

	SG_ENTER();
	unit = MM_MAX(alignment, sg_granularity_max());
	if (!va || flags || !bytes || !is_aligned(bytes, info->host_page_bytes) ||
	    !is_aligned(hint_va, info->host_page_bytes) || !is_aligned(unit, unit) ||
	    bytes > UINT64_MAX / 2)
		return CUDA_ERROR_INVALID_VALUE;
	found = reserve(bytes, unit, hint_va);
	if (!found)
		return CUDA_ERROR_OUT_OF_MEMORY;
	lock_vm();
	err = sg_ranges_add(&vm.reserved, found, found + bytes, NULL);
	unlock_vm();
	if (err) {
		munmap(pointer(found), bytes);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*va = found;
	return CUDA_SUCCESS;
}

static struct sg_range *find_reservation(uint64_t va, size_t bytes)
{
	struct sg_range *r = sg_ranges_find(&vm.reserved, va);

	return r && r->start == va && r->end - r->start == bytes ? r : NULL;
}

CUresult CUDAAPI cuMemAddressFree(CUdeviceptr va, size_t bytes)
{
	CUresult res = CUDA_ERROR_INVALID_VALUE;
	struct sg_range *r;

	SG_ENTER();
	lock_vm();
	r = find_reservation(va, bytes);
	if (r && !sg_ranges_overlaps(&vm.mapped, r->start, r->end)) {
		size_t i = (size_t)(r - vm.reserved.items);

		munmap(pointer(va), bytes);
		sg_ranges_remove(&vm.reserved, i, i + 1);
		res = CUDA_SUCCESS;
	}
	unlock_vm();
	return res;
}

/* ---- Handles ---- */

static uint32_t take_slot(void)
{
	uint32_t n = vm.n_slots, grown = n ? n * 2 : 256, i;
	struct slot *slots;

	if (vm.free_slot == NO_SLOT) {
		slots = realloc(vm.slots, grown * sizeof(*slots));
		if (!slots)
			return NO_SLOT;
		vm.slots = slots;
		for (i = grown; i-- > n;) {
			slots[i] = (struct slot){ .next_free = vm.free_slot };
			vm.free_slot = i;
		}
		vm.n_slots = grown;
	}
	i = vm.free_slot;
	vm.free_slot = vm.slots[i].next_free;
	return i;
}

/* Slot and generation: a handle that was released is not mistaken for the next one. */
static CUmemGenericAllocationHandle handle_of(const struct alloc *a)
{
	return (uint64_t)a->generation << 32 | (a->slot + 1);
}

static struct alloc *find_alloc(CUmemGenericAllocationHandle handle)
{
	uint32_t slot = (uint32_t)handle - 1;
	struct alloc *a;

	if (slot >= vm.n_slots)
		return NULL;
	a = vm.slots[slot].alloc;
	return a && a->generation == (uint32_t)(handle >> 32) && a->handle_refs ? a : NULL;
}

/* Takes over @page. */
static CUresult add_alloc(struct sg_page *page, const CUmemAllocationProp *prop,
			  struct alloc **ret_alloc)
{
	struct alloc *a = calloc(1, sizeof(*a));
	uint32_t slot = NO_SLOT;

	if (a) {
		lock_vm();
		slot = take_slot();
		if (slot != NO_SLOT) {
			*a = (struct alloc){ .page = *page,
					     .prop = *prop,
					     .handle_refs = 1,
					     .slot = slot,
					     .generation = ++vm.slots[slot].generation };
			vm.slots[slot].alloc = a;
		}
		unlock_vm();
	}
	if (slot == NO_SLOT) {
		free(a);
		sg_page_close(page);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*ret_alloc = a;
	return CUDA_SUCCESS;
}

/*
 * With the lock held: takes an allocation that nobody refers to out of the tables. Its page is
 * closed by the caller when the lock is gone, because that may wait for other processes.
 */
static void retire(struct alloc *a, struct sg_page *ret_page)
{
	struct slot *slot = &vm.slots[a->slot];

	*ret_page = SG_PAGE_NULL;
	if (a->handle_refs || a->map_refs)
		return;
	*ret_page = a->page;
	slot->alloc = NULL;
	slot->next_free = vm.free_slot;
	vm.free_slot = a->slot;
	free(a);
}

static bool is_device(const CUmemLocation *location)
{
	return location->type == CU_MEM_LOCATION_TYPE_DEVICE && location->id >= 0 &&
	       (unsigned int)location->id < sg_device_count();
}

static bool is_device_prop(const CUmemAllocationProp *prop)
{
	static const int exportable = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

	return prop && prop->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
	       prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
	       ((int)prop->requestedHandleTypes & ~exportable) == 0 && !prop->win32HandleMetaData;
}

/* What the device lacks is refused with another code than what nobody could have. */
static CUresult check_prop(const CUmemAllocationProp *prop)
{
	if (!prop)
		return CUDA_ERROR_INVALID_VALUE;
	if (prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE && !is_device(&prop->location))
		return CUDA_ERROR_INVALID_DEVICE;
	if ((int)prop->requestedHandleTypes & (int)CU_MEM_HANDLE_TYPE_FABRIC)
		return CUDA_ERROR_NOT_SUPPORTED;
	return is_device_prop(prop) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
					       CUmemAllocationGranularity_flags option)
{
	SG_ENTER();
	if (!granularity || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
			     option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
		return CUDA_ERROR_INVALID_VALUE;
	SG_TRY(check_prop(prop));
	*granularity = sg_device_info((unsigned int)prop->location.id)->granularity_bytes;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
			     const CUmemAllocationProp *prop, unsigned long long flags)
{
	unsigned int device;
	struct sg_page page;
	struct alloc *a;

	SG_ENTER();
	if (!handle || flags || !bytes || !is_aligned(bytes, sg_granularity_min()))
		return CUDA_ERROR_INVALID_VALUE;
	SG_TRY(check_prop(prop));
	device = (unsigned int)prop->location.id;
	if (!is_aligned(bytes, sg_device_info(device)->granularity_bytes))
		return CUDA_ERROR_INVALID_VALUE;
	SG_TRY(sg_page_create(device, bytes, &page));
	SG_TRY(add_alloc(&page, prop, &a));
	sg_timed_call(device, latency(device)->create_ns);
	*handle = handle_of(a);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle)
{
	struct sg_page page = SG_PAGE_NULL;
	unsigned int device = 0;
	struct alloc *a;

	SG_ENTER();
	lock_vm();
	a = find_alloc(handle);
	if (a) {
		device = a->page.device;
		a->handle_refs--;
		retire(a, &page);
	}
	unlock_vm();
	sg_page_close(&page);
	if (a)
		sg_timed_call(device, latency(device)->release_ns);
	return a ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuMemExportToShareableHandle(void *os_handle, CUmemGenericAllocationHandle handle,
					      CUmemAllocationHandleType type,
					      unsigned long long flags)
{
	CUresult res = CUDA_ERROR_INVALID_VALUE;
	unsigned int device = 0;
	struct alloc *a;
	int fd;

	SG_ENTER();
	if (!os_handle || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	lock_vm();
	a = find_alloc(handle);
	if (a && ((int)a->prop.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) {
		device = a->page.device;
		fd = sg_page_export(&a->page);
		res = fd < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
		if (fd >= 0)
			*(int *)os_handle = fd;
	}
	unlock_vm();
	if (!res)
		sg_timed_call(device, latency(device)->export_ns);
	return res;
}

CUresult CUDAAPI cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle,
						void *os_handle, CUmemAllocationHandleType type)
{
	/* Whoever exported it may; the properties do not travel with the descriptor. */
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE },
	};
	struct sg_page page;
	struct alloc *a;

	SG_ENTER();
	if (!handle || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
	    (uintptr_t)os_handle > INT32_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	SG_TRY(sg_page_adopt((int)(uintptr_t)os_handle, &page));
	prop.location.id = (int)page.device;
	SG_TRY(add_alloc(&page, &prop, &a));
	sg_timed_call((unsigned int)prop.location.id,
		      latency((unsigned int)prop.location.id)->import_ns);
	*handle = handle_of(a);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
							CUmemGenericAllocationHandle handle)
{
	struct alloc *a;

	SG_ENTER();
	if (!prop)
		return CUDA_ERROR_INVALID_VALUE;
	lock_vm();
	a = find_alloc(handle);
	if (a)
		*prop = a->prop;
	unlock_vm();
	return a ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
	struct sg_range *r;
	struct mapping *m = NULL;

	SG_ENTER();
	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	lock_vm();
	r = sg_ranges_find(&vm.mapped, (uintptr_t)addr);
	if (r)
		m = r->value;
	if (m && !m->owner) {
		m->alloc->handle_refs++;
		*handle = handle_of(m->alloc);
	}
	unlock_vm();
	return m && !m->owner ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- Mappings ---- */

/* With the lock held. A mapping may cross from one reservation into the next: as the driver, no. */
static CUresult add_mapping(uint64_t va, struct alloc *a, struct sg_context *owner,
			    struct mapping **ret_mapping)
{
	struct sg_range *r = sg_ranges_find(&vm.reserved, va);
	struct mapping *m;

	if (!r || a->page.bytes > r->end - va ||
	    sg_ranges_overlaps(&vm.mapped, va, va + a->page.bytes))
		return CUDA_ERROR_INVALID_VALUE;
	m = calloc(1, sizeof(*m));
	if (!m)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (sg_ranges_add(&vm.mapped, va, va + a->page.bytes, m) < 0) {
		free(m);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (owner)
		sg_object_ref(&owner->object);
	*m = (struct mapping){ .alloc = a, .owner = owner };
	a->map_refs++;
	*ret_mapping = m;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemMap(CUdeviceptr va, size_t bytes, size_t offset,
			  CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	CUresult res = CUDA_ERROR_INVALID_VALUE;
	unsigned int device = 0;
	struct mapping *m;
	struct alloc *a;

	SG_ENTER();
	if (flags || offset || !is_range(va, bytes, sg_granularity_min()))
		return CUDA_ERROR_INVALID_VALUE;
	lock_vm();
	a = find_alloc(handle);
	if (a && a->page.bytes == bytes) {
		device = a->page.device;
		res = add_mapping(va, a, NULL, &m);
	}
	unlock_vm();
	if (!res)
		sg_timed_call(device, latency(device)->map_ns);
	return res;
}

/* [@va, @va + @bytes) as whole mappings without a gap: their indices. With the lock held. */
static bool find_mappings(uint64_t va, size_t bytes, size_t *ret_first, size_t *ret_last)
{
	size_t first = sg_ranges_lower(&vm.mapped, va), i = first;
	uint64_t at = va, end = va + bytes;

	while (i < vm.mapped.n && vm.mapped.items[i].start == at && at < end)
		at = vm.mapped.items[i++].end;
	*ret_first = first;
	*ret_last = i;
	return at == end;
}

static int protection(CUmemAccess_flags access)
{
	switch (access) {
	case CU_MEM_ACCESS_FLAGS_PROT_READ:
		return PROT_READ;
	case CU_MEM_ACCESS_FLAGS_PROT_READWRITE:
		return PROT_READ | PROT_WRITE;
	default:
		return PROT_NONE;
	}
}

/* With the lock held. The page's first access maps it: before, there are no bytes to see. */
static CUresult set_access(struct sg_range *r, CUmemAccess_flags access)
{
	struct mapping *m = r->value;
	size_t bytes = r->end - r->start;

	if (m->real) {
		if (mprotect(pointer(r->start), bytes, protection(access)) < 0)
			return errno == EACCES ? CUDA_ERROR_NOT_PERMITTED
					       : CUDA_ERROR_OPERATING_SYSTEM;
	} else if (access != CU_MEM_ACCESS_FLAGS_PROT_NONE) {
		if (mmap(pointer(r->start), bytes, protection(access), MAP_SHARED | MAP_FIXED,
			 m->alloc->page.fd, 0) == MAP_FAILED)
			return errno == EACCES ? CUDA_ERROR_NOT_PERMITTED
					       : CUDA_ERROR_OPERATING_SYSTEM;
		m->real = true;
	}
	m->access = access;
	return CUDA_SUCCESS;
}

static bool is_access(const CUmemAccessDesc *desc)
{
	return is_device(&desc->location) && (desc->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ||
					      desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
					      desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

/* With the lock held. */
static CUresult are_of(size_t first, size_t last, int device)
{
	for (size_t i = first; i < last; i++) {
		const struct mapping *m = vm.mapped.items[i].value;

		if ((int)m->alloc->page.device != device)
			return CUDA_ERROR_INVALID_DEVICE;
	}
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemSetAccess(CUdeviceptr va, size_t bytes, const CUmemAccessDesc *desc,
				size_t count)
{
	CUresult res = CUDA_ERROR_INVALID_VALUE;
	size_t first = 0, last = 0;
	unsigned int device;

	SG_ENTER();
	/* No device has access to another's memory: one description. */
	if (!desc || count != 1 || !is_access(desc) || !is_range(va, bytes, sg_granularity_min()))
		return CUDA_ERROR_INVALID_VALUE;
	sg_vm_order();
	lock_vm();
	if (find_mappings(va, bytes, &first, &last)) {
		res = are_of(first, last, desc->location.id);
		for (size_t i = first; i < last && !res; i++)
			res = set_access(&vm.mapped.items[i], desc->flags);
	}
	unlock_vm();
	sg_vm_order();
	device = (unsigned int)desc->location.id;
	if (!res)
		sg_timed_call(device, (last - first) * latency(device)->set_access_ns);
	return res;
}

CUresult CUDAAPI cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
				CUdeviceptr va)
{
	const struct mapping *m;
	struct sg_range *r;

	SG_ENTER();
	if (!flags || !location || !is_device(location))
		return CUDA_ERROR_INVALID_VALUE;
	lock_vm();
	r = sg_ranges_find(&vm.mapped, va);
	m = r ? r->value : NULL;
	if (m)
		*flags = (int)m->alloc->page.device == location->id ? m->access
								    : CU_MEM_ACCESS_FLAGS_PROT_NONE;
	unlock_vm();
	return r ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* With the lock held: forgets mappings [@first, @last), and closes what nobody holds any more. */
static void drop_mappings(size_t first, size_t last, struct sg_page *pages)
{
	for (size_t i = first; i < last; i++) {
		struct mapping *m = vm.mapped.items[i].value;

		m->alloc->map_refs--;
		retire(m->alloc, &pages[i - first]);
		if (m->owner)
			sg_object_put(&m->owner->object);
		free(m);
	}
	sg_ranges_remove(&vm.mapped, first, last);
}

static bool any_legacy(size_t first, size_t last)
{
	for (size_t i = first; i < last; i++)
		if (((struct mapping *)vm.mapped.items[i].value)->owner)
			return true;
	return false;
}

/* With the lock held: of what is mapped at @va, the first device's if there is nothing. */
static unsigned int device_of(uint64_t va)
{
	const struct sg_range *r = sg_ranges_find(&vm.mapped, va);

	return r ? ((const struct mapping *)r->value)->alloc->page.device : 0;
}

/* With the lock held. At the kernel's limit of mappings even this can fail. */
static CUresult unmap(uint64_t va, size_t bytes, struct sg_page **ret_pages, size_t *ret_n)
{
	size_t first, last;
	struct sg_page *pages;

	if (!find_mappings(va, bytes, &first, &last) || any_legacy(first, last))
		return CUDA_ERROR_INVALID_VALUE;
	pages = calloc(last - first, sizeof(*pages));
	if (!pages)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (map_nothing(va, bytes, MAP_FIXED) == MAP_FAILED) {
		free(pages);
		return CUDA_ERROR_OPERATING_SYSTEM;
	}
	drop_mappings(first, last, pages);
	*ret_pages = pages;
	*ret_n = last - first;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemUnmap(CUdeviceptr va, size_t bytes)
{
	mm_cleanup(mm_free_ptr) struct sg_page *pages = NULL;
	unsigned int device = 0;
	CUresult res;
	size_t n = 0;

	SG_ENTER();
	if (!is_range(va, bytes, sg_granularity_min()))
		return CUDA_ERROR_INVALID_VALUE;
	sg_vm_order();
	lock_vm();
	device = device_of(va);
	res = unmap(va, bytes, &pages, &n);
	unlock_vm();
	for (size_t i = 0; i < n; i++)
		sg_page_close(&pages[i]);
	if (!res)
		sg_timed_call(device, n * latency(device)->unmap_ns);
	return res;
}

void sg_vm_order(void)
{
	static unsigned int passed;

	__atomic_fetch_add(&passed, 1, __ATOMIC_ACQ_REL);
}

/* ---- For the older entry points ---- */

struct sg_vm_info sg_vm_describe(uint64_t va)
{
	struct sg_vm_info info = { 0 };
	struct sg_range *r;

	lock_vm();
	r = sg_ranges_find(&vm.reserved, va);
	if (r) {
		info.reserved = true;
		info.range_start = r->start;
		info.range_end = r->end;
	}
	r = sg_ranges_find(&vm.mapped, va);
	if (r) {
		struct mapping *m = r->value;

		info.mapped = true;
		info.legacy = m->owner != NULL;
		info.sync_memops = m->sync_memops;
		info.start = r->start;
		info.end = r->end;
		info.access = m->access;
		info.handle_types = m->alloc->prop.requestedHandleTypes;
		info.block_id = handle_of(m->alloc);
		info.device = m->alloc->page.device;
		info.inode = m->alloc->page.inode;
	}
	unlock_vm();
	return info;
}

bool sg_vm_set_sync_memops(uint64_t va, bool on)
{
	struct sg_range *r;

	lock_vm();
	r = sg_ranges_find(&vm.mapped, va);
	if (r)
		((struct mapping *)r->value)->sync_memops = on;
	unlock_vm();
	return r != NULL;
}

bool sg_vm_allows(uint64_t va, uint64_t bytes, bool writes)
{
	uint64_t at = va, end = va + bytes;
	size_t i;

	if (end < va)
		return false;
	lock_vm();
	for (i = sg_ranges_lower(&vm.mapped, va); i < vm.mapped.n && at < end; i++) {
		const struct sg_range *r = &vm.mapped.items[i];
		const struct mapping *m = r->value;

		if (r->start > at || !((int)m->access & (writes ? 2 : 1)))
			break;
		at = r->end;
	}
	unlock_vm();
	return at >= end;
}

/* Takes over the allocation's only reference; with the lock held. */
static CUresult map_legacy(struct alloc *a, struct sg_context *owner, uint64_t va)
{
	struct mapping *m = NULL;
	struct sg_range *r;
	CUresult res;

	if (sg_ranges_add(&vm.reserved, va, va + a->page.bytes, NULL) < 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	res = add_mapping(va, a, owner, &m);
	if (!res) {
		r = sg_ranges_find(&vm.mapped, va);
		res = set_access(r, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	}
	return res;
}

CUresult sg_vm_alloc(struct sg_context *owner, size_t bytes, uint64_t *ret_va)
{
	const CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = (int)owner->device },
	};
	const struct sg_device_info *info = sg_device_info(owner->device);
	struct sg_page page;
	struct alloc *a;
	CUresult res;
	uint64_t va;

	bytes = mm_round_up(bytes, info->host_page_bytes);
	if (!bytes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	SG_TRY(sg_page_create(owner->device, bytes, &page));
	SG_TRY(add_alloc(&page, &prop, &a));
	va = reserve(bytes, info->host_page_bytes, 0);
	lock_vm();
	res = va ? map_legacy(a, owner, va) : CUDA_ERROR_OUT_OF_MEMORY;
	a->handle_refs = 0;
	page = SG_PAGE_NULL;
	if (!a->map_refs)
		retire(a, &page);
	unlock_vm();
	sg_page_close(&page);
	if (!res)
		*ret_va = va;
	else if (va)
		sg_vm_free(va);
	return res;
}

/* With the lock held: the mapping of cuMemAlloc() that begins at @va, or NULL. */
static struct sg_range *find_legacy(uint64_t va)
{
	struct sg_range *r = sg_ranges_find(&vm.mapped, va);

	return r && r->start == va && ((struct mapping *)r->value)->owner ? r : NULL;
}

/* With the lock held: takes away mapping and reservation; the page is the caller's to close. */
static void drop_legacy(struct sg_range *r, struct sg_page *ret_page)
{
	struct sg_range *reservation = sg_ranges_find(&vm.reserved, r->start);
	size_t i;

	munmap(pointer(r->start), r->end - r->start);
	i = (size_t)(reservation - vm.reserved.items);
	sg_ranges_remove(&vm.reserved, i, i + 1);
	i = (size_t)(r - vm.mapped.items);
	drop_mappings(i, i + 1, ret_page);
}

CUresult sg_vm_free(uint64_t va)
{
	struct sg_page page = SG_PAGE_NULL;
	struct sg_range *r;

	lock_vm();
	r = find_legacy(va);
	if (r)
		drop_legacy(r, &page);
	unlock_vm();
	sg_page_close(&page);
	return r ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

struct sg_context *sg_vm_owner(uint64_t va)
{
	struct sg_context *owner = NULL;
	struct sg_range *r;

	lock_vm();
	r = find_legacy(va);
	if (r) {
		owner = ((struct mapping *)r->value)->owner;
		sg_object_ref(&owner->object);
	}
	unlock_vm();
	return owner;
}

/* Frees the first that @owner has at @va or behind. Return: where to go on; 0: there was none. */
static uint64_t free_next(const struct sg_context *owner, uint64_t va)
{
	struct sg_page page = SG_PAGE_NULL;
	uint64_t next = 0;
	size_t i;

	lock_vm();
	i = sg_ranges_lower(&vm.mapped, va);
	while (i < vm.mapped.n && ((struct mapping *)vm.mapped.items[i].value)->owner != owner)
		i++;
	if (i < vm.mapped.n) {
		next = vm.mapped.items[i].end;
		drop_legacy(&vm.mapped.items[i], &page);
	}
	unlock_vm();
	sg_page_close(&page);
	return next;
}

void sg_vm_free_owned(const struct sg_context *owner)
{
	uint64_t va = 0;

	do
		va = free_next(owner, va);
	while (va);
}

void sg_vm_drop_all(void)
{
	lock_vm();
	for (size_t i = 0; i < vm.mapped.n; i++) {
		struct sg_range *r = &vm.mapped.items[i];

		map_nothing(r->start, r->end - r->start, MAP_FIXED);
	}
	for (uint32_t i = 0; i < vm.n_slots; i++)
		if (vm.slots[i].alloc)
			sg_page_close(&vm.slots[i].alloc->page);
	unlock_vm();
}
