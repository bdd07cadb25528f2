/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/mkmodel/rows.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/args/args.h"
#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "tools/lab/mkmodel/config.h"
#include "tools/lab/mkmodel/narrow.h"

#define THREADS_MAX 64
#define JOB_BYTES   (UINT64_C(4) << 20) /* about the size of a write, which has at least one row */

struct row_place { /* position of a row in the file */
	size_t tensor;
	uint32_t row;
};

struct rows_work {
	const struct mk_source *source;
	const struct mk_tensor *tensors;
	size_t n;
	int fd;
	uint64_t base, widest; /* widest row, in elements */
	pthread_mutex_t lock;
	struct row_place next;   /* guarded by the lock, as all fields below */
	struct row_place failed; /* first row in file order that failed */
	int error;
};

struct rows_job {
	const struct mk_tensor *tensor;
	struct row_place at;
	uint32_t rows;
};

static uint64_t row_bytes(const struct mk_tensor *t)
{
	return (uint64_t)t->columns * mm_dtype_bytes(t->dtype);
}

static uint32_t rows_of_job(const struct mk_tensor *t)
{
	return (uint32_t)MM_MIN(MM_MAX(JOB_BYTES / MM_MAX(row_bytes(t), 1), 1), t->rows);
}

/* Takes the next rows. Return: false: there are none left, or a row has failed. */
static bool job_take(struct rows_work *w, struct rows_job *ret)
{
	bool some;

	pthread_mutex_lock(&w->lock);
	some = !w->error && w->next.tensor < w->n;
	if (some) {
		const struct mk_tensor *t = &w->tensors[w->next.tensor];

		*ret = (struct rows_job){ t, w->next,
					  MM_MIN(rows_of_job(t), t->rows - w->next.row) };
		w->next.row += ret->rows;
		if (w->next.row == t->rows)
			w->next = (struct row_place){ w->next.tensor + 1, 0 };
	}
	pthread_mutex_unlock(&w->lock);
	return some;
}

/*
 * Notes a failure. Jobs that were taken before the first failure are completed, so the failure that
 * is first in file order is always found.
 */
static void work_fail(struct rows_work *w, struct row_place at, int error)
{
	pthread_mutex_lock(&w->lock);
	if (!w->error || at.tensor < w->failed.tensor ||
	    (at.tensor == w->failed.tensor && at.row < w->failed.row)) {
		w->failed = at;
		w->error = error;
	}
	pthread_mutex_unlock(&w->lock);
}

static int row_narrow(const struct mk_tensor *t, const float *row, char *out)
{
	uint16_t *half = (uint16_t *)(void *)out;

	if (t->dtype == MM_DTYPE_F32) {
		for (uint32_t i = 0; i < t->columns; i++)
			if (!isfinite(row[i]))
				return -ERANGE;
		memcpy(out, row, t->columns * sizeof(*row));
		return 0;
	}
	for (uint32_t i = 0; i < t->columns; i++)
		if (mk_narrow(row[i], t->dtype, &half[i]))
			return -ERANGE;
	return 0;
}

static int write_all(int fd, const char *bytes, uint64_t length, uint64_t offset)
{
	while (length) {
		const ssize_t n = pwrite(fd, bytes, length, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EIO;
		bytes += n;
		offset += (uint64_t)n;
		length -= (uint64_t)n;
	}
	return 0;
}

static void job_run(struct rows_work *w, const struct rows_job *job, float *row, char *out)
{
	const struct mk_tensor *t = job->tensor;
	const uint64_t each = row_bytes(t);
	int r;

	for (uint32_t i = 0; i < job->rows; i++) {
		const struct row_place at = { job->at.tensor, job->at.row + i };

		w->source->row(w->source->context, t->weight, t->layer, at.row, row);
		r = row_narrow(t, row, out + i * each);
		if (r) {
			work_fail(w, at, r);
			return;
		}
	}
	r = write_all(w->fd, out, job->rows * each, w->base + t->offset + job->at.row * each);
	if (r)
		work_fail(w, job->at, r);
}

static void *work_thread(void *user)
{
	struct rows_work *w = user;
	mm_cleanup(mm_free_ptr) float *row = calloc(w->widest, sizeof(*row));
	mm_cleanup(mm_free_ptr) char *out = malloc(MM_MAX(JOB_BYTES, w->widest * sizeof(*row)));
	struct rows_job job;

	if (!row || !out) {
		work_fail(w, (struct row_place){ 0 }, -ENOMEM);
		return NULL;
	}
	while (job_take(w, &job))
		job_run(w, &job, row, out);
	return NULL;
}

static uint64_t count_jobs(const struct rows_work *w)
{
	uint64_t jobs = 0;

	for (size_t i = 0; i < w->n; i++)
		jobs += (w->tensors[i].rows - 1) / rows_of_job(&w->tensors[i]) + 1;
	return jobs;
}

static size_t thread_count(uint64_t jobs)
{
	cpu_set_t set;
	const int cores = sched_getaffinity(0, sizeof(set), &set) ? 1 : CPU_COUNT(&set);

	return (size_t)MM_MIN(MM_MIN((uint64_t)MM_MAX(cores, 1), jobs), THREADS_MAX);
}

/* Runs all jobs. The calling thread works, too, and does everything if no thread can be created. */
static void run_all(struct rows_work *w)
{
	const size_t n = thread_count(count_jobs(w));
	pthread_t thread[THREADS_MAX];
	size_t started = 0;

	while (started + 1 < n && !pthread_create(&thread[started], NULL, work_thread, w))
		started++;
	work_thread(w);
	while (started)
		pthread_join(thread[--started], NULL);
}

int mk_rows_write(const struct mk_source *source, const struct mk_tensor *tensors, size_t n, int fd,
		  uint64_t base, char *err)
{
	struct rows_work w = { .source = source,
			       .tensors = tensors,
			       .n = n,
			       .fd = fd,
			       .base = base,
			       .lock = PTHREAD_MUTEX_INITIALIZER };

	err[0] = '\0';
	for (size_t i = 0; i < n; i++)
		w.widest = MM_MAX(w.widest, tensors[i].columns);
	run_all(&w);
	if (w.error == -ERANGE)
		snprintf(err, MK_ERROR_BYTES,
			 "%s, row %u: a value is not finite or does not fit %s",
			 tensors[w.failed.tensor].name, w.failed.row,
			 mk_dtype_name(tensors[w.failed.tensor].dtype, false));
	if (w.error == -ENOMEM)
		snprintf(err, MK_ERROR_BYTES, "out of memory");
	return w.error;
}
