/* SPDX-License-Identifier: Apache-2.0 */
/* Acts with file descriptors that mmd never takes: what they are, and when they are passed. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "tools/lab/hostile/groups.h"
#include "tools/lab/hostile/oddfd.h"

enum moment { BEFORE_HELLO, WITH_HELLO, BEHIND_WELCOME };

/* Passes @fd at a moment of a connection's life. */
static enum mm_act_outcome odd_pass(struct mm_stage *stage, int fd, enum moment when)
{
	const int many[] = { fd, fd, fd, fd, fd, fd, fd, fd };
	enum mm_act_outcome outcome;
	struct mm_hello hello;
	struct mm_raw raw;
	int r;

	mm_raw_hello(&hello, "hostile", MM_FEAT_REASON);
	r = when == BEHIND_WELCOME ? mm_act_open(stage, &raw) : mm_raw_connect(&raw, stage->socket);
	if (r)
		return mm_act_done(stage, &raw, MM_ACT_FAILED);
	if (when == WITH_HELLO)
		r = mm_raw_send_fds(&raw, &hello, sizeof(hello), &fd, 1);
	else
		r = mm_raw_send_fds(&raw, "!", 1, many, MM_ARRAY_SIZE(many));
	if (r == -EPERM) /* the kernel has refused it, and nothing was sent */
		return mm_act_done(stage, &raw, MM_ACT_REFUSED);
	if (when == BEHIND_WELCOME)
		outcome = mm_act_look(stage, &raw);
	else
		outcome = mm_raw_welcome(&raw) < 0 ? MM_ACT_ENDED : MM_ACT_FAILED;
	return mm_act_done(stage, &raw, outcome);
}

static enum mm_act_outcome act_odd_fd(struct mm_stage *stage)
{
	const enum mm_odd_fd kind = (enum mm_odd_fd)(stage->act->number & 0xff);
	mm_cleanup(mm_close_fd) int fd = mm_odd_fd_open(kind, stage->scratch);
	enum mm_act_outcome outcome;

	if (fd < 0)
		return mm_act_skip(stage, "there is no such file here");
	outcome = odd_pass(stage, fd, (enum moment)(stage->act->number >> 8));
	mm_odd_fd_calm(kind, fd);
	return outcome;
}

#define NO           (MM_ACT_REFUSED | MM_ACT_ENDED)
#define AT(when, fd) .run = act_odd_fd, .number = (uint64_t)(when) << 8 | (fd), .expected = NO

const struct mm_act mm_acts_fds[] = {
	{ .name = "fd-pipe", .text = "passes a pipe", AT(BEHIND_WELCOME, MM_ODD_PIPE) },
	{ .name = "fd-directory",
	  .text = "passes a directory",
	  AT(BEHIND_WELCOME, MM_ODD_DIRECTORY) },
	{ .name = "fd-lingering",
	  .text = "passes a socket whose close sleeps",
	  AT(BEHIND_WELCOME, MM_ODD_LINGER) },
	{ .name = "fd-memory", .text = "passes a memfd", AT(BEHIND_WELCOME, MM_ODD_MEMORY) },
	{ .name = "fd-process", .text = "passes a pidfd", AT(BEHIND_WELCOME, MM_ODD_PROCESS) },
	{ .name = "fd-epoll", .text = "passes an epoll", AT(BEHIND_WELCOME, MM_ODD_EPOLL) },
	{ .name = "fd-socket",
	  .text = "passes a socket that holds itself",
	  AT(BEHIND_WELCOME, MM_ODD_CYCLE) },
	{ .name = "fd-fuse",
	  .text = "passes a file whose server does not answer",
	  AT(BEHIND_WELCOME, MM_ODD_FUSE),
	  .ours = true },
	{ .name = "fd-before-hello",
	  .text = "passes a lingering socket before it says hello",
	  AT(BEFORE_HELLO, MM_ODD_LINGER) },
	{ .name = "fd-with-hello",
	  .text = "passes a lingering socket with its hello",
	  AT(WITH_HELLO, MM_ODD_LINGER) },
	{ .name = "fd-pipe-first",
	  .text = "passes a pipe before it says hello",
	  AT(BEFORE_HELLO, MM_ODD_PIPE) },
	{ .name = "fd-memory-hello",
	  .text = "passes a memfd with its hello",
	  AT(WITH_HELLO, MM_ODD_MEMORY) },
	{ 0 },
};
