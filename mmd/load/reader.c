/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/load/reader.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libclient/support/fault.h"
#include "mmd/common/uring.h"
#include "mmd/load/extent.h"

#define BUFFERS_BYTES (MM_READER_BLOCKS * MM_READER_BLOCK_BYTES)
#define ALIGN_BYTES   UINT64_C(4096) /* the strictest logical block size in use */

/* The state of reading one file. */
struct file_read {
	struct mm_reader *reader;
	const struct mm_file *file;
	const struct mm_placed *placed;
	size_t n_placed;
	size_t first; /* index in placed: all tensors before it end before the next block */
	char *store;
	bool direct;
	uint64_t next, end; /* range of the file that is still to be requested */
	uint64_t data_end;  /* end of the data extent that next is in */
	uint32_t in_flight;
	struct mm_why *why;
};

/* ---- ring ---- */

static bool ring_make(struct mm_reader *reader)
{
	struct iovec iov[MM_READER_BLOCKS];

	if (mm_fault("load.ring"))
		return false;
	if (io_uring_queue_init(MM_READER_BLOCKS, &reader->ring, IORING_SETUP_R_DISABLED) < 0)
		return false;
	for (size_t i = 0; i < MM_READER_BLOCKS; i++)
		iov[i] = (struct iovec){ reader->buffers + i * MM_READER_BLOCK_BYTES,
					 MM_READER_BLOCK_BYTES };
	/*
	 * RLIMIT_MEMLOCK may forbid pinning the buffers; the kernel then pins them for each read.
	 */
	reader->registered = io_uring_register_buffers(&reader->ring, iov, MM_READER_BLOCKS) == 0;
	if (mm_uring_restrict(reader->ring.ring_fd, false) == 0)
		return true;
	io_uring_queue_exit(&reader->ring);
	return false;
}

int mm_reader_init(struct mm_reader *reader)
{
	void *buffers;

	*reader = (struct mm_reader){ 0 };
	if (mm_fault("load.buffers"))
		return -ENOMEM;
	buffers = mmap(NULL, BUFFERS_BYTES, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (buffers == MAP_FAILED)
		return -errno;
	reader->buffers = buffers;
	reader->has_ring = ring_make(reader);
	if (!reader->has_ring)
		reader->flags |= MM_LOAD_F_PREAD;
	return 0;
}

void mm_reader_done(struct mm_reader *reader)
{
	if (reader->has_ring)
		io_uring_queue_exit(&reader->ring);
	if (reader->buffers)
		munmap(reader->buffers, BUFFERS_BYTES);
	*reader = (struct mm_reader){ 0 };
}

/* ---- one block ---- */

static char *block_buffer(const struct mm_reader *reader, size_t i)
{
	return reader->buffers + i * MM_READER_BLOCK_BYTES;
}

/* Reads the rest of a block through the page cache; its result decides on errors. */
static int block_finish_by_pread(struct file_read *w, size_t i, uint64_t done)
{
	const struct mm_block *block = &w->reader->block[i];

	if (mm_fault("load.read"))
		return mm_refuse(w->why, -EIO, "%s: reading byte %" PRIu64 ": %s", w->file->name,
				 block->offset + done, strerror(EIO));
	while (done < block->bytes) {
		ssize_t n = pread(w->file->fd, block_buffer(w->reader, i) + done,
				  block->bytes - done, (off_t)(block->offset + done));

		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (n < 0)
			return mm_refuse(w->why, -EIO, "%s: reading byte %" PRIu64 ": %s",
					 w->file->name, block->offset + done, strerror(errno));
		if (n == 0)
			return mm_refuse(w->why, -EIO,
					 "%s: ends at byte %" PRIu64 " of %" PRIu64
					 ": truncated while it was read",
					 w->file->name, block->offset + done, w->file->stamp.bytes);
		done += (uint64_t)n;
	}
	return 0;
}

/* Copies the parts of tensors in the block to their places in the store. */
static void block_scatter(struct file_read *w, size_t i)
{
	const struct mm_block *block = &w->reader->block[i];
	uint64_t end = block->offset + block->bytes;

	for (size_t p = w->first; p < w->n_placed && w->placed[p].file_offset < end; p++) {
		const struct mm_placed *placed = &w->placed[p];
		uint64_t from = MM_MAX(placed->file_offset, block->offset);
		uint64_t to = MM_MIN(placed->file_offset + placed->bytes, end);

		if (from < to)
			mm_placed_copy(placed, from - placed->file_offset, to - from,
				       block_buffer(w->reader, i) + (from - block->offset),
				       w->store);
	}
}

static void block_done(struct file_read *w, size_t i)
{
	struct mm_reader *reader = w->reader;

	block_scatter(w, i);
	reader->bytes_done += reader->block[i].bytes;
	if (reader->progress)
		reader->progress(reader->arg);
}

/* Goes on at the next data; the bytes of the hole count as done. False: no data are left. */
static bool file_skip_hole(struct file_read *w)
{
	struct mm_extent data = { .start = w->end, .end = w->end };
	bool found = mm_extent_next(w->file->fd, w->next, w->end, &data);

	w->reader->bytes_done += data.start - w->next;
	w->next = data.start;
	w->data_end = data.end;
	return found;
}

/* Takes the next block of the file into buffer @i; false at the end. */
static bool block_next(struct file_read *w, size_t i)
{
	if (w->next >= w->end || (w->next >= w->data_end && !file_skip_hole(w)))
		return false;
	w->reader->block[i] =
		(struct mm_block){ .offset = w->next,
				   .bytes = MM_MIN(MM_READER_BLOCK_BYTES, w->data_end - w->next) };
	w->next += w->reader->block[i].bytes;
	return true;
}

/* ---- a file by pread ---- */

static int file_fill_by_pread(struct file_read *w)
{
	while (block_next(w, 0)) {
		int r = block_finish_by_pread(w, 0, 0);

		if (r < 0)
			return r;
		block_done(w, 0);
	}
	return 0;
}

/* ---- a file by io_uring ---- */

static void block_submit_read(struct file_read *w, size_t i)
{
	struct mm_reader *reader = w->reader;
	struct io_uring_sqe *sqe = io_uring_get_sqe(&reader->ring);
	int fd = w->direct ? w->file->direct_fd : w->file->fd;
	/* O_DIRECT takes whole sectors only; a read past the end of the file is short. */
	unsigned int bytes =
		(unsigned int)(w->direct ? MM_READER_BLOCK_BYTES : reader->block[i].bytes);

	mm_assert(sqe != NULL); /* the ring has as many entries as buffers */
	if (reader->registered)
		io_uring_prep_read_fixed(sqe, fd, block_buffer(reader, i), bytes,
					 reader->block[i].offset, (int)i);
	else
		io_uring_prep_read(sqe, fd, block_buffer(reader, i), bytes,
				   reader->block[i].offset);
	io_uring_sqe_set_data64(sqe, i);
	w->in_flight++;
}

/* O_DIRECT may be refused at open, or only by the read; pread then finishes the block. */
static void direct_note_refusal(struct file_read *w, int result)
{
	if (w->direct && (result == -EINVAL || result == -EOPNOTSUPP)) {
		w->direct = false;
		w->reader->flags |= MM_LOAD_F_BUFFERED;
	}
}

static int block_on_read(struct file_read *w, size_t i, int result)
{
	uint64_t done = result > 0 ? MM_MIN((uint64_t)result, w->reader->block[i].bytes) : 0;
	int r;

	direct_note_refusal(w, result);
	r = block_finish_by_pread(w, i, done);
	if (r < 0)
		return r;
	block_done(w, i);
	if (block_next(w, i))
		block_submit_read(w, i);
	return 0;
}

/* Blocks complete in any order; the window of placed tensors follows the oldest one. */
static void window_advance(struct file_read *w)
{
	uint64_t oldest = w->next;

	for (size_t i = 0; i < MM_READER_BLOCKS; i++)
		if (w->reader->block[i].bytes > 0)
			oldest = MM_MIN(oldest, w->reader->block[i].offset);
	while (w->first < w->n_placed &&
	       w->placed[w->first].file_offset + w->placed[w->first].bytes <= oldest)
		w->first++;
}

/* After a failure: the kernel writes to the buffers until the last read is over. */
static void reads_await(struct file_read *w)
{
	struct io_uring_cqe *cqe;

	while (w->in_flight > 0) {
		int r = io_uring_wait_cqe(&w->reader->ring, &cqe);

		if (r < 0 && r != -EINTR)
			break;
		if (r < 0)
			continue;
		io_uring_cqe_seen(&w->reader->ring, cqe);
		w->in_flight--;
	}
}

static int file_fill_by_ring(struct file_read *w)
{
	struct io_uring *ring = &w->reader->ring;
	int r = 0;

	for (size_t i = 0; i < MM_READER_BLOCKS; i++)
		if (block_next(w, i))
			block_submit_read(w, i);
	while (r == 0 && w->in_flight > 0) {
		struct io_uring_cqe *cqe;
		uint64_t i;
		int result;

		r = io_uring_submit_and_wait(ring, 1);
		if (r == -EINTR || r > 0)
			r = 0;
		if (r < 0)
			return mm_refuse(w->why, -EIO, "io_uring: %s", strerror(-r));
		if (io_uring_peek_cqe(ring, &cqe) < 0)
			continue;
		i = io_uring_cqe_get_data64(cqe);
		result = cqe->res;
		io_uring_cqe_seen(ring, cqe);
		w->in_flight--;
		r = block_on_read(w, i, result);
		window_advance(w);
	}
	if (r < 0)
		reads_await(w);
	return r;
}

/* ---- a file ---- */

/* Skips the header, which was read before; the first block begins where O_DIRECT can begin. */
static uint64_t file_first_byte(const struct mm_placed *placed)
{
	return placed[0].file_offset / ALIGN_BYTES * ALIGN_BYTES;
}

uint64_t mm_reader_bytes(const struct mm_file *file, const struct mm_placed *placed,
			 size_t n_placed)
{
	return n_placed == 0 ? 0 : file->stamp.bytes - file_first_byte(placed);
}

int mm_reader_fill(struct mm_reader *reader, const struct mm_file *file,
		   const struct mm_placed *placed, size_t n_placed, void *store, struct mm_why *why)
{
	struct file_read w = { .reader = reader,
			       .file = file,
			       .placed = placed,
			       .n_placed = n_placed,
			       .store = store,
			       .direct = file->direct_fd >= 0,
			       .end = file->stamp.bytes,
			       .why = why };

	if (n_placed == 0)
		return 0;
	if (!w.direct || !reader->has_ring)
		reader->flags |= MM_LOAD_F_BUFFERED;
	memset(reader->block, 0, sizeof(reader->block));
	w.next = file_first_byte(placed);
	return reader->has_ring ? file_fill_by_ring(&w) : file_fill_by_pread(&w);
}
