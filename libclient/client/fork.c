/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps a client from being used in children of the process that opened it. */
#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>

#include "libclient/client/internal.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/lock.h"

MM_LOCK_KIND(forks_lock);

/*
 * A client belongs to the process that opened it. Calls in a child are recognised by a page that
 * the kernel zeroes in every child, also in one made by a raw clone(). A handler of fork() closes
 * the child's copies of the client's fds at once: otherwise a child that never execs would keep the
 * connection, and all memory that it holds, after the parent's death.
 */
static struct {
	struct forks_lock lock;
	pthread_once_t once;
	struct mm_client *first MM_GUARDED_BY(forks_lock);
} forks = { .lock = MM_LOCK_INIT, .once = PTHREAD_ONCE_INIT };

static void fork_before(void) MM_ACQUIRE(forks_lock)
{
	forks_lock_take(&forks.lock);
}

static void fork_after(void) MM_RELEASE(forks_lock)
{
	forks_lock_give(&forks.lock);
}

static void fork_in_child(void) MM_RELEASE(forks_lock)
{
	for (struct mm_client *c = forks.first; c; c = c->fork_next)
		mm_fork_close_fds(c);
	forks.first = NULL;
	forks_lock_give(&forks.lock);
}

static void fork_handlers_install(void)
{
	pthread_atfork(fork_before, fork_after, fork_in_child);
}

int mm_fork_watch(struct mm_client *client)
{
	void *mark = mmap(NULL, MM_ABI_PAGE_BYTES, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (mark == MAP_FAILED)
		return -errno;
	if (madvise(mark, MM_ABI_PAGE_BYTES, MADV_WIPEONFORK) < 0) {
		int r = -errno;

		munmap(mark, MM_ABI_PAGE_BYTES);
		return r;
	}
	client->fork_mark = mark;
	*client->fork_mark = true;
	pthread_once(&forks.once, fork_handlers_install);
	forks_lock_take(&forks.lock);
	client->fork_next = forks.first;
	forks.first = client;
	forks_lock_give(&forks.lock);
	return 0;
}

void mm_fork_unwatch(struct mm_client *client)
{
	if (!client->fork_mark)
		return;
	forks_lock_take(&forks.lock);
	for (struct mm_client **at = &forks.first; *at; at = &(*at)->fork_next) {
		if (*at == client) {
			*at = client->fork_next;
			break;
		}
	}
	forks_lock_give(&forks.lock);
	munmap(client->fork_mark, MM_ABI_PAGE_BYTES);
}

bool mm_fork_is_child(const struct mm_client *client)
{
	return !*client->fork_mark;
}

void mm_fork_close_fds(struct mm_client *client)
{
	mm_close_fd(&client->sock);
	mm_close_fd(&client->event_fd);
	mm_close_fd(&client->wake_fd);
	mm_close_fd(&client->mark_fd);
	mm_close_fd(&client->load_fd);
	mm_close_fd(&client->store_fd);
	mm_close_fd(&client->group_fd);
}
