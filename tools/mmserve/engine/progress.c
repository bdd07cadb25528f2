/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/engine/progress.h"

#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "libclient/base/base.h"

#define EVERY_MS   200
#define LINE_BYTES 256
#define CLEAR      "\r\033[K"

static uint64_t word_get(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_RELAXED);
}

static void word_put(uint64_t *word, uint64_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELAXED);
}

static double since_s(uint64_t ns)
{
	return (double)(mm_now_ns() - ns) / (double)MM_NS_PER_S;
}

static void progress_line_make(const struct mm_progress *p, char *line, size_t bytes)
{
	const uint64_t since_ns = __atomic_load_n(&p->serving_since_ns, __ATOMIC_ACQUIRE);
	const uint64_t tokens = word_get(&p->tokens);
	double s;

	if (!since_ns) {
		snprintf(line, bytes, "loading %s: %.0f s", p->subject, since_s(p->started_ns));
		return;
	}
	s = since_s(since_ns);
	snprintf(line, bytes,
		 "serving: %" PRIu64 " of %" PRIu64 " requests done, %" PRIu64 " running, %" PRIu64
		 " waiting; %" PRIu64 " tokens, %.1f tokens/s; %.0f s",
		 word_get(&p->done), word_get(&p->requests), word_get(&p->running),
		 word_get(&p->waiting), tokens, s > 0 ? (double)tokens / s : 0, s);
}

/*
 * Writes only if the terminal accepts output: if it is stopped, the engine must not wait for it, as
 * other tenants need pages back.
 */
static void progress_text_write(const struct mm_progress *p, const char *text)
{
	struct pollfd terminal = { .fd = p->fd, .events = POLLOUT };

	if (poll(&terminal, 1, 0) == 1)
		(void)!write(p->fd, text, strlen(text));
}

/* Cuts the line to the terminal's width, as a longer one could not be cleared. */
static void progress_line_write(const struct mm_progress *p)
{
	struct winsize size = { 0 };
	char line[LINE_BYTES], text[LINE_BYTES + sizeof(CLEAR)];
	int columns;

	progress_line_make(p, line, sizeof(line));
	columns = ioctl(p->fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1 : 79;
	snprintf(text, sizeof(text), CLEAR "%.*s", columns, line);
	progress_text_write(p, text);
}

static void *progress_thread(void *arg)
{
	const struct mm_progress *p = arg;
	struct pollfd stop = { .fd = p->stop_fd, .events = POLLIN };

	while (poll(&stop, 1, EVERY_MS) == 0)
		progress_line_write(p);
	return NULL;
}

/* The thread blocks all signals, which the caller handles between two steps. */
static int progress_thread_start(struct mm_progress *p)
{
	sigset_t all, old;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&p->thread, NULL, progress_thread, p);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return r;
}

void mm_progress_start(struct mm_progress *p, int fd, const char *subject)
{
	if (!isatty(fd))
		return;
	p->fd = fd;
	p->subject = subject;
	p->started_ns = mm_now_ns();
	p->stop_fd = eventfd(0, EFD_CLOEXEC);
	if (p->stop_fd < 0)
		return;
	progress_line_write(p); /* at once, without waiting for the thread */
	p->on = progress_thread_start(p) == 0;
	if (!p->on)
		mm_close_fd(&p->stop_fd);
}

void mm_progress_serve(struct mm_progress *p, uint64_t requests)
{
	word_put(&p->requests, requests);
	__atomic_store_n(&p->serving_since_ns, mm_now_ns(), __ATOMIC_RELEASE);
	/*
	 * Both threads may write at the same time: each write is a whole line that replaces
	 * another.
	 */
	if (p->on)
		progress_line_write(p);
}

void mm_progress_set(struct mm_progress *p, uint64_t done, uint64_t running, uint64_t waiting,
		     uint64_t tokens)
{
	word_put(&p->done, done);
	word_put(&p->running, running);
	word_put(&p->waiting, waiting);
	word_put(&p->tokens, tokens);
}

void mm_progress_stop(struct mm_progress *p)
{
	const uint64_t one = 1;

	if (!p->on)
		return;
	p->on = false;
	(void)!write(p->stop_fd, &one, sizeof(one));
	pthread_join(p->thread, NULL);
	mm_close_fd(&p->stop_fd);
	progress_text_write(p, CLEAR);
}
