/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/xfer/store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "libclient/support/fault.h"
#include "mmd/common/log.h"

enum piece_state { PIECE_NEW, PIECE_REGISTERED, PIECE_REFUSED };

/*
 * True if core sent the memfd unsealed, for a driver that cannot pin read-only memory
 * (mmd/shell/store.c).
 */
static bool fd_may_write(int fd)
{
	const int seals = fcntl(fd, F_GET_SEALS);

	return (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR && seals >= 0 &&
	       !(seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE));
}

int mm_xstores_add(struct mm_xstores *stores, uint64_t id, uint64_t bytes, int fd)
{
	struct mm_xstore *store;
	int r;

	if (mm_xstores_find(stores, id)) {
		close(fd);
		return -EEXIST;
	}
	store = calloc(1, sizeof(*store));
	if (!store) {
		close(fd);
		return -ENOMEM;
	}
	*store = (struct mm_xstore){
		.id = id, .bytes = bytes, .region = MM_REGION_NULL, .disk = { -1, -1 }
	};
	store->pieces = mm_div_up(bytes, MM_XSTORE_PIECE_BYTES);
	store->writable = !stores->dev->host_read_only && fd_may_write(fd);
	r = mm_region_open(fd, bytes, store->writable, &store->region);
	if (r == 0 && mm_fault("xfer.store"))
		r = -ENOMEM;
	if (r == 0) {
		store->piece = calloc(store->pieces, sizeof(*store->piece));
		r = store->piece ? 0 : -ENOMEM;
	}
	if (r < 0) {
		mm_region_done(&store->region);
		free(store);
		return r;
	}
	store->next = stores->first;
	stores->first = store;
	return 0;
}

static int store_file_check(int fd, uint64_t bytes)
{
	struct stat st;

	if ((fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY || fstat(fd, &st) < 0 ||
	    !S_ISREG(st.st_mode) || st.st_size < 0 || (uint64_t)st.st_size < bytes)
		return -EPROTO;
	return 0;
}

int mm_xstores_add_disk(struct mm_xstores *stores, uint64_t id, uint64_t bytes, int fd)
{
	struct mm_xstore *store;
	int r = store_file_check(fd, bytes);

	if (r == 0 && mm_xstores_find(stores, id))
		r = -EEXIST;
	if (r == 0 && !stores->stage->base)
		r = -ENOTSUP;
	store = r == 0 && !mm_fault("xfer.store_disk") ? calloc(1, sizeof(*store)) : NULL;
	if (!store) {
		close(fd);
		return r ? r : -ENOMEM;
	}
	*store = (struct mm_xstore){ .id = id, .bytes = bytes, .region = MM_REGION_NULL };
	store->disk = mm_xreads_file(&stores->stage->reads, fd);
	store->next = stores->first;
	stores->first = store;
	return 0;
}

struct mm_xstore *mm_xstores_find(const struct mm_xstores *stores, uint64_t id)
{
	struct mm_xstore *store = stores->first;

	while (store && store->id != id)
		store = store->next;
	return store;
}

static void *piece_base(const struct mm_xstore *store, uint64_t piece)
{
	return (char *)store->region.base + piece * MM_XSTORE_PIECE_BYTES;
}

void mm_xstores_drop(struct mm_xstores *stores, struct mm_xstore *store)
{
	struct mm_xstore **link = &stores->first;

	while (*link != store)
		link = &(*link)->next;
	*link = store->next;
	for (uint64_t i = 0; i < store->pieces; i++)
		if (store->piece[i] == PIECE_REGISTERED)
			(void)mm_xdev_result(
				stores->dev, "cuMemHostUnregister",
				stores->dev->gpu.cuMemHostUnregister(piece_base(store, i)));
	mm_region_done(&store->region);
	if (mm_xstore_on_disk(store)) {
		mm_xreads_release_file(&stores->stage->reads, &store->disk);
		close(store->disk.fd);
	}
	free(store->piece);
	free(store);
}

void mm_xstores_done(struct mm_xstores *stores)
{
	while (stores->first)
		mm_xstores_drop(stores, stores->first);
}

static void piece_register(const struct mm_xstores *stores, struct mm_xstore *store, uint64_t piece)
{
	unsigned int flags = CU_MEMHOSTREGISTER_PORTABLE;
	uint64_t bytes =
		MM_MIN(store->bytes - piece * MM_XSTORE_PIECE_BYTES, MM_XSTORE_PIECE_BYTES);
	CUresult result;

	if (!store->writable && stores->dev->host_read_only)
		flags |= CU_MEMHOSTREGISTER_READ_ONLY;
	result = mm_fault("xfer.register")
			 ? CUDA_ERROR_OUT_OF_MEMORY
			 : stores->dev->gpu.cuMemHostRegister(piece_base(store, piece),
							      mm_round_up(bytes, MM_ABI_PAGE_BYTES),
							      flags);
	store->piece[piece] = result == CUDA_SUCCESS ? PIECE_REGISTERED : PIECE_REFUSED;
	if (mm_xdev_optional(stores->dev, "cuMemHostRegister", result) < 0)
		mm_log(MM_LOG_WARN, "xfer.store_unregistered",
		       "store=%" PRIu64 " piece=%" PRIu64 " copies=slow", store->id, piece);
}

const void *mm_xstore_at(const struct mm_xstores *stores, struct mm_xstore *store, uint64_t offset,
			 uint64_t *ret_bytes)
{
	uint64_t piece = offset / MM_XSTORE_PIECE_BYTES;
	uint64_t end = MM_MIN(store->bytes, (piece + 1) * MM_XSTORE_PIECE_BYTES);

	if (store->piece[piece] == PIECE_NEW)
		piece_register(stores, store, piece);
	*ret_bytes = end - offset;
	return (const char *)store->region.base + offset;
}
