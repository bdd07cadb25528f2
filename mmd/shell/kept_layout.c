/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/kept_layout.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libclient/support/cleanup.h"
#include "mmd/fields/layout.h"
#include "mmd/journal/journal.h"
#include "mmd/shell/described.h"

#define BOOK_BYTES_MAX (UINT64_C(1) << 48)

static const struct mm_fields *const book_roots[] = { &mm_kept_front_fields,
						      &mm_outbox_kept_fields };

size_t mm_kept_schema(void *to)
{
	size_t bytes = mm_layout_write(book_roots, MM_ARRAY_SIZE(book_roots), to, MM_LAYOUT_BYTES);

	mm_assert(bytes);
	return bytes;
}

uint64_t mm_kept_layout(void)
{
	/* Else it would not fit, or would be read differently. */
	static const uint64_t sizes[] = { MM_KEPT_JOURNAL_BYTES, MM_KEPT_IMAGE_BYTES,
					  MM_KEPT_IMAGES, MM_JOURNAL_RECORD_BYTES,
					  MM_EVENT_BYTES_MAX };
	static unsigned char schema[MM_LAYOUT_BYTES];
	static uint64_t number;

	if (!number)
		number = mm_layout_number(schema, mm_kept_schema(schema)) ^
			 mm_layout_number(sizes, sizeof(sizes));
	return number;
}

static int layout_fail(int error, const char *text, char *why, size_t why_bytes)
{
	snprintf(why, why_bytes, "its book: %s", text);
	return error;
}

static int schema_open(const void *schema, size_t bytes, struct mm_layout *ret, char *why,
		       size_t why_bytes)
{
	int r = mm_layout_open(ret, schema, bytes, book_roots, MM_ARRAY_SIZE(book_roots));

	return r < 0 ? layout_fail(r, ret->why, why, why_bytes) : 0;
}

static void front_free(struct mm_kept_front **front)
{
	free(*front);
}

int mm_kept_try(const void *schema, size_t schema_bytes, const void *front, size_t front_bytes,
		char *why, size_t why_bytes)
{
	const struct mm_layout_memory memory = { .base = front, .bytes = front_bytes };
	mm_cleanup(front_free) struct mm_kept_front *here = calloc(1, sizeof(*here));
	struct mm_layout layout;
	int r;

	if (!here)
		return layout_fail(-ENOMEM, "out of memory", why, why_bytes);
	r = schema_open(schema, schema_bytes, &layout, why, why_bytes);
	if (r < 0)
		return r;
	r = mm_layout_copy(&layout, &mm_kept_front_fields, &memory, 0, here);
	return r < 0 ? layout_fail(r, layout.why, why, why_bytes) : 0;
}

/* ---- a book of another build ---- */

struct old_book {
	int fd;
	struct mm_book_head head;
	const unsigned char *base;  /* NULL: not mapped */
	uint64_t data_at, data_end; /* the last part that is no hole */
	struct mm_layout layout;
};

static void old_unmap(struct old_book *old)
{
	if (old->base)
		munmap((void *)(uintptr_t)old->base, old->head.bytes);
}

/* Whether each part lies within the book. */
static bool old_parts_fit(const struct mm_book_head *head)
{
	const struct mm_book_parts *p = &head->parts;
	const uint64_t bytes = head->bytes;

	if (bytes > BOOK_BYTES_MAX || p->schema_at > bytes || p->schema_bytes > MM_LAYOUT_BYTES ||
	    p->front_bytes > bytes || p->pools_at > bytes || p->outboxes_at > bytes)
		return false;
	return p->schema_bytes <= bytes - p->schema_at && p->journal_bytes <= bytes &&
	       p->image_bytes <= bytes && p->pool_bytes <= bytes && p->outbox_bytes <= bytes &&
	       p->journal_bytes + MM_KEPT_IMAGES * p->image_bytes <= p->pool_bytes &&
	       p->pools_at + head->n_pools * p->pool_bytes <= bytes &&
	       p->outboxes_at + head->n_sessions * p->outbox_bytes <= bytes;
}

static int old_open(struct old_book *old, uint32_t n_pools, uint32_t n_sessions, char *why,
		    size_t why_bytes)
{
	int r = mm_kept_head(old->fd, n_pools, n_sessions, &old->head);
	const struct mm_book_parts *p = &old->head.parts;
	void *base;

	if (r < 0 && r != -ESTALE)
		return layout_fail(r, "there is none", why, why_bytes);
	if (old->head.state != MM_BOOK_LEFT)
		return layout_fail(-EBADMSG, "its core did not give way", why, why_bytes);
	if (!old_parts_fit(&old->head))
		return layout_fail(-EBADMSG, "damaged: its head", why, why_bytes);
	base = mmap(NULL, old->head.bytes, PROT_READ, MAP_SHARED, old->fd, 0);
	if (base == MAP_FAILED)
		return layout_fail(-errno, strerror(errno), why, why_bytes);
	old->base = base;
	r = schema_open(old->base + p->schema_at, p->schema_bytes, &old->layout, why, why_bytes);
	if (r == 0 && (mm_layout_bytes(&old->layout, &mm_kept_front_fields) > p->front_bytes ||
		       mm_layout_bytes(&old->layout, &mm_outbox_kept_fields) > p->outbox_bytes))
		return layout_fail(-EBADMSG, "damaged: its parts", why, why_bytes);
	return r;
}

/* Where the next bytes are that were ever written; holes are not read, which would fill them. */
static uint64_t old_next(void *context, uint64_t at)
{
	struct old_book *old = context;
	off_t end;

	if (at < old->data_at || at >= old->data_end) {
		off_t data = lseek(old->fd, (off_t)at, SEEK_DATA);

		end = data < 0 ? -1 : lseek(old->fd, data, SEEK_HOLE);
		if (end < 0)
			return data < 0 && errno == ENXIO ? old->head.bytes : at;
		old->data_at = (uint64_t)data;
		old->data_end = (uint64_t)end;
	}
	return MM_MAX(at, old->data_at);
}

/* ---- copying ---- */

static int image_copy(const struct old_book *old, const struct mm_kept *kept, uint32_t pool)
{
	const struct mm_book_parts *p = &old->head.parts;
	const struct mm_pool_kept *k = &kept->front->pool[pool];
	const uint32_t half = k->image_valid - 1;
	struct mm_journal journal;
	uint64_t bytes;

	if (!k->image_valid)
		return 0;
	bytes = k->image[half].bytes;
	if (bytes > p->image_bytes || bytes > MM_KEPT_IMAGE_BYTES)
		return -E2BIG;
	memcpy(mm_kept_image(kept, pool, half),
	       old->base + p->pools_at + pool * p->pool_bytes + p->journal_bytes +
		       half * p->image_bytes,
	       bytes);
	mm_journal_create(mm_kept_journal(kept, pool), MM_KEPT_JOURNAL_BYTES, &journal);
	return 0;
}

static int parts_copy(struct old_book *old, const struct mm_kept *kept)
{
	const struct mm_book_parts *p = &old->head.parts;
	const struct mm_layout_memory memory = {
		.base = old->base, .bytes = old->head.bytes, .next = old_next, .context = old
	};
	int r = mm_layout_copy(&old->layout, &mm_kept_front_fields, &memory, 0, kept->front);

	for (uint32_t i = 0; i < old->head.n_sessions && r == 0; i++) {
		uint64_t at = p->outboxes_at + i * p->outbox_bytes;

		if (old_next(old, at) < at + p->outbox_bytes)
			r = mm_layout_copy(&old->layout, &mm_outbox_kept_fields, &memory, at,
					   mm_kept_outbox(kept, i));
	}
	for (uint32_t i = 0; i < old->head.n_pools && r == 0; i++)
		r = image_copy(old, kept, i);
	return r;
}

int mm_kept_convert(int fd, uint32_t n_pools, uint32_t n_sessions, struct mm_kept *ret_kept,
		    char *why, size_t why_bytes)
{
	mm_cleanup(mm_kept_done) struct mm_kept kept = MM_KEPT_NULL;
	mm_cleanup(old_unmap) struct old_book old = { .fd = fd };
	int r = old_open(&old, n_pools, n_sessions, why, why_bytes);

	if (r < 0)
		return r;
	r = mm_kept_create(n_pools, n_sessions, &kept);
	if (r < 0)
		return layout_fail(r, strerror(-r), why, why_bytes);
	r = parts_copy(&old, &kept);
	if (r < 0)
		return layout_fail(r, *old.layout.why ? old.layout.why : "an image is too large",
				   why, why_bytes);
	kept.left = true;
	*ret_kept = kept;
	kept = MM_KEPT_NULL;
	return 0;
}
