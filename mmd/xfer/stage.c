/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/xfer/stage.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>

#include "libclient/base/base.h"
#include "libclient/support/fault.h"
#include "mmd/common/host.h"
#include "mmd/common/log.h"
#include "mmd/common/proto.h"
#include "mmd/xfer/store.h"

#define AGAIN_MAX 64 /* short reads and interrupts of one buffer before its read has failed */

static_assert(MM_STAGE_BUFFERS_MAX == MM_XREADS_MAX, "as many buffers as reads");

uint64_t mm_xstage_buffer_bytes(uint64_t chunk_bytes)
{
	return MM_STAGE_BUFFER_BYTES(chunk_bytes);
}

static void stage_register(struct mm_xstage *stage)
{
	CUresult result = mm_fault("xfer.stage_register")
				  ? CUDA_ERROR_OUT_OF_MEMORY
				  : stage->dev->gpu.cuMemHostRegister(stage->base, stage->bytes,
								      CU_MEMHOSTREGISTER_PORTABLE);

	stage->registered = mm_xdev_optional(stage->dev, "cuMemHostRegister", result) == 0;
	if (!stage->registered)
		mm_log(MM_LOG_WARN, "xfer.stage_unregistered", "bytes=%" PRIu64 " copies=slow",
		       stage->bytes);
}

static int stage_start_reads(struct mm_xstage *stage, uint64_t buffer_bytes)
{
	struct iovec iov[MM_XREADS_MAX];
	int r;

	TAILQ_INIT(&stage->free);
	for (uint32_t i = 0; i < stage->n; i++) {
		stage->buf[i].base = stage->base + i * buffer_bytes;
		iov[i] = (struct iovec){ stage->buf[i].base, buffer_bytes };
		TAILQ_INSERT_TAIL(&stage->free, &stage->buf[i], entry);
	}
	r = mm_xreads_init(&stage->reads, iov, stage->n);
	if (r < 0)
		return r;
	mm_log(MM_LOG_INFO, "xfer.stage",
	       "buffers=%u bytes=%" PRIu64 " reads=%s registered_buffers=%d registered_files=%d",
	       stage->n, stage->bytes, stage->reads.way == MM_XREADS_RING ? "io_uring" : "pread",
	       stage->reads.fixed_buffers, stage->reads.fixed_files);
	return 0;
}

int mm_xstage_init(struct mm_xstage *stage, struct mm_xdev *dev, uint64_t bytes,
		   uint64_t chunk_bytes, int numa_node)
{
	uint64_t buffer_bytes = mm_xstage_buffer_bytes(chunk_bytes);
	void *base;
	int r;

	stage->dev = dev;
	stage->chunk_bytes = chunk_bytes;
	if (!bytes)
		return 0;
	stage->n = (uint32_t)MM_MIN(bytes / buffer_bytes, (uint64_t)MM_XREADS_MAX);
	if (stage->n < MM_STAGE_BUFFERS_MIN || buffer_bytes > INT32_MAX)
		return -EINVAL;
	stage->bytes = stage->n * buffer_bytes;
	if (mm_fault("xfer.stage"))
		return -ENOMEM;
	base = mmap(NULL, stage->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (base == MAP_FAILED)
		return -errno;
	stage->base = base;
	mm_host_prefer(base, stage->bytes, numa_node);
	if (madvise(base, stage->bytes, MADV_POPULATE_WRITE) < 0)
		r = -errno;
	else
		r = stage_start_reads(stage, buffer_bytes);
	if (r < 0) {
		munmap(base, stage->bytes);
		*stage = (struct mm_xstage){ 0 };
		return r;
	}
	stage_register(stage);
	return 0;
}

void mm_xstage_done(struct mm_xstage *stage)
{
	if (!stage->base)
		return;
	mm_xreads_done(&stage->reads);
	if (stage->registered)
		(void)mm_xdev_result(stage->dev, "cuMemHostUnregister",
				     stage->dev->gpu.cuMemHostUnregister(stage->base));
	munmap(stage->base, stage->bytes);
	*stage = (struct mm_xstage){ 0 };
}

/* ---- reading ---- */

static void buf_read_start(struct mm_xstage *stage, struct mm_xbuf *buf)
{
	uint64_t end = mm_round_up(buf->skew + buf->bytes, MM_XSTAGE_ALIGN);

	mm_xreads_start(&stage->reads, (uint32_t)(buf - stage->buf), &buf->store->disk,
			buf->base + buf->done, (uint32_t)(end - buf->done), buf->from + buf->done);
}

void mm_xstage_read(struct mm_xstage *stage, struct mm_xbufs *list, struct mm_xstore *store,
		    uint64_t offset, uint64_t bytes, uint64_t at)
{
	struct mm_xbuf *buf = TAILQ_FIRST(&stage->free);
	uint64_t skew = offset % MM_XSTAGE_ALIGN;

	mm_assert(buf && bytes > 0 && bytes <= stage->chunk_bytes);
	TAILQ_REMOVE(&stage->free, buf, entry);
	*buf = (struct mm_xbuf){ .state = MM_XBUF_READING,
				 .base = buf->base,
				 .store = store,
				 .from = offset - skew,
				 .skew = skew,
				 .bytes = bytes,
				 .at = at,
				 .wanted = true };
	TAILQ_INSERT_TAIL(list, buf, entry);
	stage->reading++;
	buf_read_start(stage, buf);
}

int mm_xbuf_on_read(struct mm_xbuf *buf, int result)
{
	uint64_t done;

	if (result == -EINTR || result == -EAGAIN || result == -EINVAL)
		return ++buf->again > AGAIN_MAX ? -EIO : result == -EINVAL ? -EINVAL : -EAGAIN;
	if (result < 0)
		return result;
	done = buf->done + (uint64_t)result;
	if (done >= buf->skew + buf->bytes)
		return 0;
	/* O_DIRECT reads on from the start of a block only; the bytes behind it are read again. */
	buf->done = done / MM_XSTAGE_ALIGN * MM_XSTAGE_ALIGN;
	return result == 0 || ++buf->again > AGAIN_MAX ? -EIO : -EAGAIN;
}

/* Some file systems accept O_DIRECT in open() and refuse it in read(): goes on without it. */
static int store_read_through_cache(struct mm_xstore *store)
{
	int flags = fcntl(store->disk.fd, F_GETFL);

	if (flags < 0 || fcntl(store->disk.fd, F_SETFL, flags & ~O_DIRECT) < 0)
		return -EINVAL;
	if (flags & O_DIRECT)
		mm_log(MM_LOG_WARN, "xfer.stage_buffered", "store=%" PRIu64, store->id);
	return -EAGAIN;
}

static void buf_on_read(struct mm_xstage *stage, struct mm_xbuf *buf, int result)
{
	int r;

	if (mm_fault("xfer.stage_read"))
		result = -EIO;
	else if (result > (int)MM_XSTAGE_ALIGN && mm_fault("xfer.stage_short"))
		result = (int)MM_XSTAGE_ALIGN;
	r = mm_xbuf_on_read(buf, result);
	if (r == -EINVAL)
		r = store_read_through_cache(buf->store);
	if (r == -EAGAIN && buf->wanted) {
		buf_read_start(stage, buf);
		return;
	}
	stage->reading--;
	if (!buf->wanted) {
		mm_xstage_release(stage, buf);
		return;
	}
	if (r < 0)
		mm_log(MM_LOG_ERROR, "xfer.stage_read",
		       "store=%" PRIu64 " offset=%" PRIu64 " bytes=%" PRIu64 " error=\"%s\"",
		       buf->store->id, buf->from + buf->skew, buf->bytes, strerror(-r));
	buf->result = r;
	buf->state = MM_XBUF_READY;
}

bool mm_xstage_run(struct mm_xstage *stage)
{
	bool any = false;
	uint32_t number;
	int result;

	if (stage->reading == 0)
		return false;
	mm_xreads_submit(&stage->reads);
	while (mm_xreads_next(&stage->reads, &number, &result) == 0) {
		buf_on_read(stage, &stage->buf[number], result);
		any = true;
	}
	if (any)
		mm_xreads_submit(&stage->reads);
	return any;
}

/* ---- buffers of a transfer ---- */

bool mm_xstage_ready(const struct mm_xbufs *list)
{
	const struct mm_xbuf *first = TAILQ_FIRST(list);

	return first && first->state == MM_XBUF_READY;
}

struct mm_xbuf *mm_xstage_take(struct mm_xbufs *list)
{
	struct mm_xbuf *buf = TAILQ_FIRST(list);

	mm_assert(buf && buf->state == MM_XBUF_READY);
	TAILQ_REMOVE(list, buf, entry);
	buf->state = MM_XBUF_HELD;
	return buf;
}

void mm_xstage_release(struct mm_xstage *stage, struct mm_xbuf *buf)
{
	buf->state = MM_XBUF_FREE;
	buf->store = NULL;
	TAILQ_INSERT_TAIL(&stage->free, buf, entry);
}

void mm_xstage_drop(struct mm_xstage *stage, struct mm_xbufs *list)
{
	struct mm_xbuf *buf;

	while ((buf = TAILQ_FIRST(list))) {
		TAILQ_REMOVE(list, buf, entry);
		buf->wanted = false;
		if (buf->state == MM_XBUF_READY)
			mm_xstage_release(stage, buf);
	}
}

bool mm_xstage_reads(const struct mm_xstage *stage, const struct mm_xstore *store)
{
	for (uint32_t i = 0; i < stage->n; i++)
		if (stage->buf[i].state == MM_XBUF_READING && stage->buf[i].store == store)
			return true;
	return false;
}
