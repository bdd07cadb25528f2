/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/load/content.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "libclient/model/sha256.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/fault.h"
#include "mmd/load/extent.h"

#define BLOCK_BYTES (UINT64_C(1) << 20)
#define SEALS       (F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW)

enum mm_file_proof mm_content_proof(int fd, uint32_t links)
{
	/* A file of tmpfs answers too, but has a path, and stamps like other files. */
	int seals = links ? -1 : fcntl(fd, F_GET_SEALS);

	if (seals < 0)
		return MM_FILE_STAMPED;
	return (seals & SEALS) == SEALS ? MM_FILE_SEALED : MM_FILE_PRIVATE;
}

static int extent_hash(const struct mm_file *file, const struct mm_extent *data, uint8_t *block,
		       struct mm_sha256 *sha, struct mm_why *why)
{
	mm_sha256_update(sha, data, sizeof(*data));
	for (uint64_t at = data->start; at < data->end;) {
		ssize_t n = mm_fault("load.content")
				    ? -1
				    : pread(file->fd, block, MM_MIN(BLOCK_BYTES, data->end - at),
					    (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return mm_refuse(why, -errno, "%s: read: %s", file->name, strerror(errno));
		if (n == 0)
			return mm_refuse(why, -ESTALE, "%s: was changed while it was read",
					 file->name);
		mm_sha256_update(sha, block, (size_t)n);
		at += (uint64_t)n;
	}
	return 0;
}

static int content_hash(const struct mm_file *file, uint8_t ret_digest[32], uint64_t *read_bytes,
			struct mm_why *why)
{
	mm_cleanup(mm_free_ptr) uint8_t *block = malloc(BLOCK_BYTES);
	struct mm_extent data = { 0 };
	struct mm_sha256 sha;
	int r = 0;

	if (!block)
		return mm_refuse(why, -ENOMEM, "%s: no memory to read it", file->name);
	mm_sha256_init(&sha);
	while (r == 0 && mm_extent_next(file->fd, data.end, file->stamp.bytes, &data)) {
		r = extent_hash(file, &data, block, &sha, why);
		*read_bytes += data.end - data.start;
	}
	mm_sha256_final(&sha, ret_digest);
	return r;
}

int mm_content_read(const struct mm_file *file, struct mm_content *ret_content,
		    uint64_t *read_bytes, struct mm_why *why)
{
	struct mm_content content = { .device = UINT64_MAX,
				      .proof = file->proof,
				      .bytes = file->stamp.bytes };
	int r = 0;

	if (file->proof == MM_FILE_SEALED)
		r = content_hash(file, content.digest, read_bytes, why);
	else if (getrandom(content.digest, sizeof(content.digest), 0) !=
		 (ssize_t)sizeof(content.digest))
		r = mm_refuse(why, -EIO, "%s: no random number", file->name);
	if (r == 0)
		*ret_content = content;
	return r;
}
