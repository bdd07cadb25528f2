/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/preflight.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libclient/support/cleanup.h"
#include "mmd/common/build.h"
#include "mmd/common/rights.h"
#include "mmd/core/image.h"
#include "mmd/fields/layout.h"
#include "mmd/shell/kept_layout.h"
#include "mmd/shell/shell.h"

#define EXPORT_MARK UINT64_C(0x32307472706d6d6d) /* "mmmprt02" */

struct export_pool {
	uint64_t pages, page_bytes, tag;
	uint64_t at, bytes; /* the image, in the export */
};

struct export_part {
	uint64_t at, bytes; /* in the export */
};

struct export_head {
	uint64_t mark, bytes;
	struct export_part schema; /* the layout of the book's structs (kept_layout.h) */
	struct export_part front;  /* a copy of struct mm_kept_front */
	uint64_t n_pools;
	struct export_pool pool[MM_DEVICES_MAX];
};

/* ---- export ---- */

struct export_map {
	void *base;
	size_t bytes;
};

static void export_unmap(struct export_map *map)
{
	if (map->base)
		munmap(map->base, map->bytes);
}

static size_t export_room(const struct mm_shell *shell)
{
	size_t room = sizeof(struct export_head) + MM_LAYOUT_BYTES + sizeof(struct mm_kept_front);

	for (uint32_t i = 0; i < shell->n_pools; i++)
		room += mm_core_image_room(shell->pool[i].core);
	return room;
}

static int export_write(const struct mm_shell *shell, struct export_head *head, size_t room)
{
	size_t at = sizeof(*head) + MM_LAYOUT_BYTES + sizeof(struct mm_kept_front);
	char *to = (char *)head;
	int r = 0;

	*head = (struct export_head){ .mark = EXPORT_MARK,
				      .bytes = room,
				      .n_pools = shell->n_pools };
	head->schema.at = sizeof(*head);
	head->schema.bytes = mm_kept_schema(to + head->schema.at);
	head->front.at = sizeof(*head) + MM_LAYOUT_BYTES;
	head->front.bytes = sizeof(struct mm_kept_front);
	memcpy(to + head->front.at, shell->kept.front, sizeof(struct mm_kept_front));
	for (uint32_t i = 0; i < shell->n_pools && r == 0; i++) {
		const struct mm_pool *pool = &shell->pool[i];
		size_t bytes = 0;

		r = mm_core_image_save(pool->core, to + at, room - at, &bytes);
		head->pool[i] = (struct export_pool){ .pages = pool->worker.device.pages,
						      .page_bytes = pool->worker.device.page_bytes,
						      .tag = i,
						      .at = at,
						      .bytes = bytes };
		at += (bytes + 7) / 8 * 8;
	}
	return r;
}

int mm_preflight_export(const struct mm_shell *shell)
{
	mm_cleanup(mm_close_fd) int fd = memfd_create("mm-export", MFD_CLOEXEC);
	mm_cleanup(export_unmap) struct export_map map = { .bytes = export_room(shell) };
	void *base;
	int r;

	if (fd < 0 || ftruncate(fd, (off_t)map.bytes) < 0)
		return -errno;
	base = mmap(NULL, map.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED)
		return -errno;
	map.base = base;
	r = export_write(shell, base, map.bytes);
	if (r < 0)
		return r;
	r = fd;
	fd = -1;
	return r;
}

/* ---- import ---- */

static void buffer_free(char **buffer)
{
	free(*buffer);
}

/* Saves the core, loads that, and saves it again: both are the same. */
static int core_repeat(const struct mm_core *core, const struct mm_core_opts *opts, char *why)
{
	const size_t room = mm_core_image_room(core);
	mm_cleanup(buffer_free) char *first = malloc(room);
	mm_cleanup(buffer_free) char *second = malloc(room);
	size_t bytes = 0, bytes_again = 0;
	struct mm_core *copy;
	int r;

	if (!first || !second) {
		snprintf(why, MM_TEXT_BYTES, "out of memory");
		return -ENOMEM;
	}
	r = mm_core_image_save(core, first, room, &bytes);
	if (r == 0)
		r = mm_core_image_load(opts, first, bytes, &copy, why, MM_TEXT_BYTES);
	if (r < 0)
		return r;
	r = mm_core_image_save(copy, second, room, &bytes_again);
	mm_core_destroy(copy);
	if (r == 0 && bytes == bytes_again && memcmp(first, second, bytes) == 0)
		return 0;
	snprintf(why, MM_TEXT_BYTES, "it does not read what it writes itself");
	return -EBADMSG;
}

/* Whether a part lies within the export. */
static bool part_fits(const struct export_head *head, uint64_t at, uint64_t bytes)
{
	return at <= head->bytes && bytes <= head->bytes - at;
}

static int book_try(const struct export_head *head, char *why)
{
	const char *from = (const char *)head;

	if (!part_fits(head, head->schema.at, head->schema.bytes) ||
	    !part_fits(head, head->front.at, head->front.bytes)) {
		snprintf(why, MM_TEXT_BYTES, "the export is cut off");
		return -EBADMSG;
	}
	return mm_kept_try(from + head->schema.at, head->schema.bytes, from + head->front.at,
			   head->front.bytes, why, MM_TEXT_BYTES);
}

static int pool_try(const struct export_head *head, uint32_t i, char *why)
{
	const struct export_pool *pool = &head->pool[i];
	const struct mm_core_opts opts = { .pages = (uint32_t)pool->pages,
					   .page_bytes = pool->page_bytes,
					   .tag = (uint8_t)pool->tag,
					   .tenants_max = MM_DEVICE_TENANTS_MAX };
	struct mm_core *core;
	int r;

	if (pool->pages > MM_POOL_PAGES_MAX || pool->tag >= MM_DEVICES_MAX) {
		snprintf(why, MM_TEXT_BYTES, "damaged: a device");
		return -EBADMSG;
	}
	if (!part_fits(head, pool->at, pool->bytes)) {
		snprintf(why, MM_TEXT_BYTES, "the export is cut off");
		return -EBADMSG;
	}
	r = mm_core_image_load(&opts, (const char *)head + pool->at, pool->bytes, &core, why,
			       MM_TEXT_BYTES);
	if (r < 0)
		return r;
	r = core_repeat(core, &opts, why);
	mm_core_destroy(core);
	return r;
}

int mm_preflight_try(const void *export, size_t bytes, char *why)
{
	const struct export_head *head = export;
	int r;

	if (bytes < sizeof(*head) || head->mark != EXPORT_MARK || head->bytes != bytes ||
	    head->n_pools > MM_DEVICES_MAX) {
		snprintf(why, MM_TEXT_BYTES, "the export is of another format");
		return -EPROTO;
	}
	r = book_try(head, why);
	for (uint32_t i = 0; i < head->n_pools && r == 0; i++)
		r = pool_try(head, i, why);
	return r;
}

static int export_try(int fd, char *why)
{
	mm_cleanup(export_unmap) struct export_map map = { 0 };
	static const struct mm_filter filter = { .threads = false };
	struct stat st;
	void *base;
	int r;

	if (fstat(fd, &st) < 0 || st.st_size <= 0) {
		snprintf(why, MM_TEXT_BYTES, "there is no export");
		return -EBADMSG;
	}
	base = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (base == MAP_FAILED)
		return -errno;
	map = (struct export_map){ base, (size_t)st.st_size };
	/* From here on it computes, and says what came of it. */
	r = mm_rights_close(&filter);
	return r < 0 ? r : mm_preflight_try(base, (size_t)st.st_size, why);
}

int mm_preflight_main(int fd, int (*keeper)(int fd, char *why, size_t why_bytes))
{
	const struct mm_rights_user user = { .uid = MM_UID_LOAD };
	struct mm_rights rights;
	char why[MM_TEXT_BYTES] = "";
	int r = mm_rights_leave_root(&user, &rights);

	if (r == 0)
		r = keeper(fd + 2, why, sizeof(why));
	if (r == 0)
		r = export_try(fd, why);
	if (r < 0 && !*why)
		snprintf(why, sizeof(why), "%s", strerror(-r));
	if (r == 0)
		snprintf(why, sizeof(why), "%s\nmmd %s can go on", mm_build_name(), MM_VERSION);
	if (write(fd + 1, why, strlen(why)) < 0)
		return 1;
	return r < 0 ? 1 : 0;
}
