/* SPDX-License-Identifier: Apache-2.0 */
/* Acts on the channel to load: models that never come, files that are none, lists without end. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "libclient/base/random.h"
#include "libclient/ipc/sock.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "tools/lab/hostile/groups.h"
#include "tools/lab/hostile/oddfd.h"

#define ENTRIES 3000

/* Opens a model and waits for the channel. Return: the channel; negative errno. */
static int channel_open(struct mm_stage *stage, struct mm_raw *raw)
{
	const uint64_t deadline_ns = mm_deadline_ns(MM_RAW_WAIT_NS);
	int r = mm_act_open(stage, raw);

	if (r)
		return r;
	raw->acks = true;
	r = mm_raw_op(raw, MM_OP_MODEL_OPEN, 0, 0, 0, 0);
	while (!r && !raw->n_fds && !raw->ended && mm_now_ns() < deadline_ns) {
		struct mm_msg event;

		if (mm_raw_pop(raw, &event) && event.opcode == MM_EV_REPLY && event.result < 0)
			r = event.result;
		else
			mm_sock_wait(raw->sock, POLLIN, mm_deadline_ns(10 * MM_NS_PER_MS));
	}
	if (!r)
		r = raw->n_fds ? dup(raw->fd[0]) : -ETIMEDOUT;
	mm_raw_drop_fds(raw);
	if (r < 0)
		mm_act_fail(stage, "no channel: %s", strerror(-r));
	return r;
}

/* Sends, waiting for room. Return: 0; negative errno: load takes no more. */
static int channel_send(struct mm_stage *stage, int channel, const void *bytes, size_t n,
			const int *fd)
{
	int r;

	stage->operations++;
	while ((r = mm_sock_send(channel, bytes, n, fd, fd ? 1 : 0)) == -EAGAIN) {
		if (mm_sock_wait(channel, POLLOUT, mm_deadline_ns(MM_RAW_WAIT_NS)))
			return -ETIMEDOUT;
	}
	return r;
}

static int file_send(struct mm_stage *stage, int channel, enum mm_load_kind kind, const char *name,
		     const int *fd)
{
	struct mm_load_file file = { .magic = MM_ABI_MAGIC, .kind = kind };

	snprintf(file.name, sizeof(file.name), "%s", name);
	return channel_send(stage, channel, &file, sizeof(file), fd);
}

/* Waits for the answer: the model is refused, or another load may be tried. */
static enum mm_act_outcome load_outcome(struct mm_stage *stage, struct mm_raw *raw)
{
	struct mm_msg event;
	int r = mm_raw_await(raw, MM_EV_MODEL_READY, &event, 3 * MM_RAW_WAIT_NS);
	enum mm_act_outcome outcome = MM_ACT_REFUSED;

	if (r == -ECONNRESET)
		outcome = MM_ACT_ENDED;
	else if (r)
		outcome = mm_act_fail(stage, "the model: %s", strerror(-r));
	else if (event.result == 0)
		outcome = mm_act_fail(stage, "the model was taken");
	if (outcome == MM_ACT_REFUSED)
		mm_raw_bye(raw);
	return outcome;
}

/* Opens a model and sends nothing; then goes. */
static enum mm_act_outcome act_load_silent(struct mm_stage *stage)
{
	enum mm_act_outcome outcome;
	struct mm_raw raw;
	mm_cleanup(mm_close_fd) int channel = channel_open(stage, &raw);

	if (channel < 0)
		return mm_act_done(stage, &raw, MM_ACT_FAILED);
	outcome = mm_act_look(stage, &raw);
	mm_raw_bye(&raw);
	return mm_act_done(stage, &raw, outcome);
}

static enum mm_act_outcome act_load_closed(struct mm_stage *stage)
{
	struct mm_raw raw;
	int channel = channel_open(stage, &raw);

	if (channel < 0)
		return mm_act_done(stage, &raw, MM_ACT_FAILED);
	close(channel);
	return mm_act_done(stage, &raw, load_outcome(stage, &raw));
}

static enum mm_act_outcome act_load_random(struct mm_stage *stage)
{
	struct mm_raw raw;
	mm_cleanup(mm_close_fd) int channel = channel_open(stage, &raw);
	uint64_t words[128];

	if (channel < 0)
		return mm_act_done(stage, &raw, MM_ACT_FAILED);
	for (size_t i = 0; i < MM_ARRAY_SIZE(words); i++)
		words[i] = mm_random_next(&stage->random);
	words[0] = MM_ABI_MAGIC | (uint64_t)mm_random_below(&stage->random, 8) << 32;
	channel_send(stage, channel, words, 1 + mm_random_below(&stage->random, sizeof(words)),
		     NULL);
	return mm_act_done(stage, &raw, load_outcome(stage, &raw));
}

/* A model whose weights are a file that is odd. */
static enum mm_act_outcome act_load_file(struct mm_stage *stage)
{
	const enum mm_odd_fd kind = (enum mm_odd_fd)stage->act->number;
	mm_cleanup(mm_close_fd) int fd = mm_odd_fd_open(kind, stage->scratch);
	mm_cleanup(mm_close_fd) int channel = -1;
	enum mm_act_outcome outcome;
	struct mm_raw raw;
	int r;

	if (fd < 0)
		return mm_act_skip(stage, "there is no such file here");
	channel = channel_open(stage, &raw);
	if (channel < 0)
		return mm_act_done(stage, &raw, MM_ACT_FAILED);
	r = file_send(stage, channel, MM_LOAD_SAFETENSORS, "model.safetensors", &fd);
	if (!r)
		file_send(stage, channel, MM_LOAD_END, "", NULL);
	outcome = load_outcome(stage, &raw);
	mm_odd_fd_calm(kind, fd);
	return mm_act_done(stage, &raw, outcome);
}

/* Weights whose header says more than the file has, or what cannot be. */
static enum mm_act_outcome act_load_header(struct mm_stage *stage)
{
	static const char *const headers[] = {
		"{\"a\":{\"dtype\":\"F16\",\"shape\":[1,2],\"data_offsets\":[0,1099511627776]}}",
		("{\"a\":{\"dtype\":\"F16\",\"shape\":[4294967296,4294967296],"
		 "\"data_offsets\":[0,4]}}"),
		"{\"a\":{\"dtype\":\"F8_E9\",\"shape\":[2],\"data_offsets\":[0,4]}}",
		"{\"a\":{\"dtype\":\"F16\",\"shape\":[-1,-2],\"data_offsets\":[4,0]}}",
		"[]",
		"{",
	};
	const char *text = headers[mm_random_below(&stage->random, MM_ARRAY_SIZE(headers))];
	const uint64_t says = mm_random_below(&stage->random, 4) ? strlen(text) : UINT64_MAX - 8;
	mm_cleanup(mm_close_fd) int fd = memfd_create("weights", MFD_CLOEXEC);
	mm_cleanup(mm_close_fd) int channel = -1;
	struct mm_raw raw;

	if (fd < 0 || write(fd, &says, sizeof(says)) < 0 || write(fd, text, strlen(text)) < 0 ||
	    write(fd, "data", 4) < 0)
		return mm_act_skip(stage, "no memory for a file");
	channel = channel_open(stage, &raw);
	if (channel < 0)
		return mm_act_done(stage, &raw, MM_ACT_FAILED);
	if (!file_send(stage, channel, MM_LOAD_SAFETENSORS, "model.safetensors", &fd))
		file_send(stage, channel, MM_LOAD_END, "", NULL);
	return mm_act_done(stage, &raw, load_outcome(stage, &raw));
}

/* Rules of packing, more than any model has, none of which is of any use. */
static enum mm_act_outcome act_load_endless(struct mm_stage *stage)
{
	struct mm_load_pack pack = { .magic = MM_ABI_MAGIC, .kind = MM_LOAD_PACK, .n_members = 2 };
	struct mm_raw raw;
	mm_cleanup(mm_close_fd) int channel = channel_open(stage, &raw);
	int r = 0;

	if (channel < 0)
		return mm_act_done(stage, &raw, MM_ACT_FAILED);
	for (int i = 0; !r && i < ENTRIES; i++) {
		snprintf(pack.name, sizeof(pack.name), "pack%d", i);
		snprintf(pack.member[0], sizeof(pack.member[0]), "a%d", i);
		snprintf(pack.member[1], sizeof(pack.member[1]), "b%d", i);
		r = channel_send(stage, channel, &pack, sizeof(pack), NULL);
	}
	if (!r)
		file_send(stage, channel, MM_LOAD_END, "", NULL);
	return mm_act_done(stage, &raw, load_outcome(stage, &raw));
}

/* Opens a second model while the first one loads. */
static enum mm_act_outcome act_load_twice(struct mm_stage *stage)
{
	struct mm_raw raw;
	mm_cleanup(mm_close_fd) int channel = channel_open(stage, &raw);
	enum mm_act_outcome outcome = MM_ACT_ENDED;
	struct mm_msg event;
	int r;

	if (channel < 0)
		return mm_act_done(stage, &raw, MM_ACT_FAILED);
	r = mm_raw_op(&raw, MM_OP_MODEL_OPEN, 0, 0, 0, 0);
	while (!r) {
		r = mm_raw_await(&raw, MM_EV_REPLY, &event, MM_RAW_WAIT_NS);
		if (!r && event.arg[0] == MM_OP_MODEL_OPEN && event.result < 0) {
			outcome = MM_ACT_REFUSED;
			break;
		}
	}
	if (r == -ETIMEDOUT)
		outcome = mm_act_fail(stage, "no answer to a second model");
	if (outcome == MM_ACT_REFUSED)
		mm_raw_bye(&raw);
	return mm_act_done(stage, &raw, outcome);
}

#define NO (MM_ACT_REFUSED | MM_ACT_ENDED)

const struct mm_act mm_acts_loads[] = {
	{ .name = "load-silent",
	  .text = "opens a model and never sends it",
	  .run = act_load_silent,
	  .expected = MM_ACT_IGNORED,
	  .slow = true },
	{ .name = "load-closed",
	  .text = "closes the channel to load",
	  .run = act_load_closed,
	  .expected = NO,
	  .slow = true },
	{ .name = "load-random",
	  .text = "sends random bytes to load",
	  .run = act_load_random,
	  .expected = NO,
	  .slow = true },
	{ .name = "load-pipe",
	  .text = "a pipe for weights",
	  .run = act_load_file,
	  .number = MM_ODD_PIPE,
	  .expected = NO,
	  .slow = true },
	{ .name = "load-directory",
	  .text = "a folder for weights",
	  .run = act_load_file,
	  .number = MM_ODD_DIRECTORY,
	  .expected = NO,
	  .slow = true },
	{ .name = "load-socket",
	  .text = "a lingering socket for weights",
	  .run = act_load_file,
	  .number = MM_ODD_LINGER,
	  .expected = NO,
	  .slow = true },
	{ .name = "load-shrinking",
	  .text = "weights that were cut off",
	  .run = act_load_file,
	  .number = MM_ODD_SHRINKING,
	  .expected = NO,
	  .slow = true },
	{ .name = "load-memory",
	  .text = "weights that are all zero",
	  .run = act_load_file,
	  .number = MM_ODD_MEMORY,
	  .expected = NO,
	  .slow = true },
	{ .name = "load-process",
	  .text = "a pidfd for weights",
	  .run = act_load_file,
	  .number = MM_ODD_PROCESS,
	  .expected = NO,
	  .slow = true },
	{ .name = "load-fuse",
	  .text = "weights whose server does not answer",
	  .run = act_load_file,
	  .number = MM_ODD_FUSE,
	  .expected = NO,
	  .slow = true,
	  .ours = true },
	{ .name = "load-header",
	  .text = "weights whose header lies",
	  .run = act_load_header,
	  .expected = NO,
	  .slow = true },
	{ .name = "load-endless",
	  .text = "rules of packing without end",
	  .run = act_load_endless,
	  .expected = NO,
	  .slow = true },
	{ .name = "load-twice",
	  .text = "a second model while the first one loads",
	  .run = act_load_twice,
	  .expected = NO,
	  .slow = true },
	{ 0 },
};
