/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/engine/inbox.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"

int mm_inbox_init(struct mm_inbox *inbox, uint32_t jobs_max)
{
	*inbox = (struct mm_inbox){
		.jobs_max = jobs_max, .room = 1, .to_engine_fd = -1, .to_server_fd = -1
	};
	while (inbox->room < jobs_max)
		inbox->room *= 2;
	inbox->ring = calloc(inbox->room, sizeof(*inbox->ring));
	inbox->to_engine_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (inbox->to_engine_fd < 0)
		return -errno;
	inbox->to_server_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (inbox->to_server_fd < 0)
		return -errno;
	return inbox->ring ? 0 : -ENOMEM;
}

void mm_inbox_done(struct mm_inbox *inbox)
{
	if (!inbox->ring)
		return;
	mm_close_fd(&inbox->to_engine_fd);
	mm_close_fd(&inbox->to_server_fd);
	free(inbox->ring);
	*inbox = (struct mm_inbox){ .to_engine_fd = -1, .to_server_fd = -1 };
}

void mm_inbox_wake(int fd)
{
	const uint64_t one = 1;

	/* It fails only if the counter is at its end: then the other side is awake already. */
	(void)!write(fd, &one, sizeof(one));
}

void mm_inbox_clear(int fd)
{
	uint64_t count;

	(void)!read(fd, &count, sizeof(count));
}

void mm_inbox_push(struct mm_inbox *inbox, struct mm_job *job)
{
	const uint32_t tail = inbox->tail;

	mm_assert(tail - __atomic_load_n(&inbox->head, __ATOMIC_ACQUIRE) < inbox->room);
	inbox->ring[tail & (inbox->room - 1)] = job;
	__atomic_store_n(&inbox->tail, tail + 1, __ATOMIC_RELEASE);
	mm_inbox_wake(inbox->to_engine_fd);
}

struct mm_job *mm_inbox_pop(struct mm_inbox *inbox)
{
	const uint32_t head = inbox->head;
	struct mm_job *job;

	if (head == __atomic_load_n(&inbox->tail, __ATOMIC_ACQUIRE))
		return NULL;
	job = inbox->ring[head & (inbox->room - 1)];
	__atomic_store_n(&inbox->head, head + 1, __ATOMIC_RELEASE);
	return job;
}

void mm_inbox_cancel(struct mm_inbox *inbox, struct mm_job *job)
{
	__atomic_store_n(&job->cancelled, 1, __ATOMIC_RELAXED);
	__atomic_add_fetch(&inbox->cancels, 1, __ATOMIC_RELEASE);
	mm_inbox_wake(inbox->to_engine_fd);
}
