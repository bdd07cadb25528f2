/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/kept.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/fault.h"
#include "mmd/fields/layout.h"
#include "mmd/shell/kept_layout.h"

#define UNIT UINT64_C(4096) /* areas begin at multiples of it */

static uint64_t front_bytes(void)
{
	return mm_round_up(sizeof(struct mm_kept_front), UNIT);
}

static uint64_t pool_bytes(void)
{
	return MM_KEPT_JOURNAL_BYTES + MM_KEPT_IMAGES * MM_KEPT_IMAGE_BYTES;
}

static uint64_t outbox_bytes(void)
{
	return mm_round_up(sizeof(struct mm_outbox_kept), UNIT);
}

/* The tables of the structs are between the front and the areas of the pools. */
static struct mm_book_parts book_parts(uint32_t n_pools)
{
	const uint64_t pools_at = front_bytes() + MM_LAYOUT_BYTES;

	return (struct mm_book_parts){
		.schema_at = front_bytes(),
		.front_bytes = sizeof(struct mm_kept_front),
		.pools_at = pools_at,
		.pool_bytes = pool_bytes(),
		.journal_bytes = MM_KEPT_JOURNAL_BYTES,
		.image_bytes = MM_KEPT_IMAGE_BYTES,
		.outboxes_at = pools_at + n_pools * pool_bytes(),
		.outbox_bytes = outbox_bytes(),
	};
}

static uint64_t book_bytes(uint32_t n_pools, uint32_t n_sessions)
{
	return book_parts(n_pools).outboxes_at + n_sessions * outbox_bytes();
}

static unsigned char *area_at(const struct mm_kept *kept, uint64_t offset)
{
	return (unsigned char *)kept->front + offset;
}

static int book_map(struct mm_kept *kept)
{
	void *base = mmap(NULL, kept->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, kept->fd, 0);

	if (base == MAP_FAILED)
		return -errno;
	kept->front = base;
	return 0;
}

int mm_kept_create(uint32_t n_pools, uint32_t n_sessions, struct mm_kept *ret_kept)
{
	mm_cleanup(mm_kept_done) struct mm_kept kept = MM_KEPT_NULL;
	struct mm_book_head *head;
	int r;

	mm_assert(n_pools <= MM_DEVICES_MAX && n_sessions <= MM_SESSIONS_MAX);
	if (mm_fault("kept.create"))
		return -ENOMEM;
	kept.fd = memfd_create("mm-book", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (kept.fd < 0)
		return -errno;
	kept.bytes = book_bytes(n_pools, n_sessions);
	if (fchmod(kept.fd, 0600) < 0 || ftruncate(kept.fd, (off_t)kept.bytes) < 0 ||
	    fcntl(kept.fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return -errno;
	r = book_map(&kept);
	if (r < 0)
		return r;
	head = &kept.front->head;
	head->parts = book_parts(n_pools);
	head->parts.schema_bytes = mm_kept_schema(area_at(&kept, head->parts.schema_at));
	head->parts.layout = mm_kept_layout();
	head->magic = MM_BOOK_MAGIC;
	head->format = MM_BOOK_FORMAT;
	head->bytes = kept.bytes;
	head->n_pools = n_pools;
	head->n_sessions = n_sessions;
	head->generation = 1;
	*ret_kept = kept;
	kept = MM_KEPT_NULL;
	return 0;
}

int mm_kept_head(int fd, uint32_t n_pools, uint32_t n_sessions, struct mm_book_head *ret_head)
{
	const struct mm_book_head *head = ret_head;
	struct stat st;
	ssize_t n;

	if (fstat(fd, &st) < 0)
		return -errno;
	n = pread(fd, ret_head, sizeof(*ret_head), 0);
	if (n != (ssize_t)sizeof(*ret_head) || head->magic != MM_BOOK_MAGIC ||
	    head->format != MM_BOOK_FORMAT || head->bytes != (uint64_t)st.st_size ||
	    head->n_pools != n_pools || head->n_sessions != n_sessions ||
	    (head->state != MM_BOOK_RUNNING && head->state != MM_BOOK_LEFT))
		return -EBADMSG;
	return head->parts.layout == mm_kept_layout() ? 0 : -ESTALE;
}

int mm_kept_open(int fd, uint32_t n_pools, uint32_t n_sessions, struct mm_kept *ret_kept)
{
	mm_cleanup(mm_kept_done) struct mm_kept kept = { .fd = fd };
	struct mm_book_head head;
	int r;

	if (mm_fault("kept.open"))
		return -ENOMEM;
	r = mm_kept_head(fd, n_pools, n_sessions, &head);
	if (r < 0)
		return r;
	kept.bytes = book_bytes(n_pools, n_sessions);
	if (head.bytes != kept.bytes)
		return -EBADMSG;
	r = book_map(&kept);
	if (r < 0)
		return r;
	kept.left = head.state == MM_BOOK_LEFT;
	kept.front->head.state = MM_BOOK_RUNNING;
	*ret_kept = kept;
	kept = MM_KEPT_NULL;
	return 0;
}

void mm_kept_done(struct mm_kept *kept)
{
	if (kept->front)
		munmap(kept->front, kept->bytes);
	mm_close_fd(&kept->fd);
	*kept = MM_KEPT_NULL;
}

void *mm_kept_journal(const struct mm_kept *kept, uint32_t pool)
{
	mm_assert(pool < kept->front->head.n_pools);
	return area_at(kept, book_parts(kept->front->head.n_pools).pools_at + pool * pool_bytes());
}

void *mm_kept_image(const struct mm_kept *kept, uint32_t pool, uint32_t half)
{
	unsigned char *journal = mm_kept_journal(kept, pool);

	mm_assert(half < MM_KEPT_IMAGES);
	return journal + MM_KEPT_JOURNAL_BYTES + half * MM_KEPT_IMAGE_BYTES;
}

struct mm_outbox_kept *mm_kept_outbox(const struct mm_kept *kept, uint32_t session)
{
	const struct mm_book_head *head = &kept->front->head;

	mm_assert(session < head->n_sessions);
	return (struct mm_outbox_kept *)(void *)area_at(
		kept, book_parts(head->n_pools).outboxes_at + session * outbox_bytes());
}

void mm_kept_release(void *area, size_t bytes)
{
	uintptr_t first = (uintptr_t)mm_round_up((uintptr_t)area, UNIT);
	uintptr_t end = ((uintptr_t)area + bytes) / UNIT * UNIT;

	if (first >= end)
		return;
	/* It fails only for memory that is not shared, as in tests; then nothing is given back. */
	if (madvise((void *)first, end - first, MADV_REMOVE) < 0)
		memset((void *)first, 0, end - first);
}
