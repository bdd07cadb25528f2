/* SPDX-License-Identifier: Apache-2.0 */
/* Acts before the welcome: hellos that are wrong, short, long, in pieces, twice, or none. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "libclient/base/random.h"
#include "libclient/support/clock.h"
#include "tools/lab/hostile/groups.h"

#define SILENT      40
#define SILENT_STAY 24 /* of one user: MM_HELLOS_UID_MAX */

/* Sends @n bytes as a hello. */
static enum mm_act_outcome hello_try(struct mm_stage *stage, const void *bytes, size_t n)
{
	struct mm_raw raw;
	int r = mm_raw_connect(&raw, stage->socket);

	if (r)
		return mm_act_done(stage, &raw, mm_act_fail(stage, "connect: %s", strerror(-r)));
	r = mm_raw_send(&raw, bytes, n);
	if (!r)
		r = mm_raw_welcome(&raw);
	if (r == -ETIMEDOUT)
		return mm_act_done(stage, &raw, mm_act_fail(stage, "no answer to a hello"));
	if (r == 0)
		return mm_act_done(stage, &raw, mm_act_fail(stage, "it was welcomed"));
	memcpy(stage->text, raw.welcome.reason, sizeof(stage->text) - 1);
	return mm_act_done(stage, &raw, r == -ECONNRESET ? MM_ACT_ENDED : MM_ACT_REFUSED);
}

/* A hello of so many bytes, right as far as it goes. */
static enum mm_act_outcome act_hello_size(struct mm_stage *stage)
{
	union {
		struct mm_hello hello;
		unsigned char bytes[2 * MM_GREETING_BYTES_MAX];
	} out;

	memset(&out, 0, sizeof(out));
	mm_raw_hello(&out.hello, "hostile", 0);
	return hello_try(stage, out.bytes, stage->act->number);
}

/* One byte of the hello is another one; those of names and of features that are only offered do. */
static enum mm_act_outcome act_hello_field(struct mm_stage *stage)
{
	static const struct {
		uint8_t at, bytes;
	} field[] = { { 0, 4 },
		      { 4, 2 },
		      { 6, 2 },
		      { offsetof(struct mm_hello, device_uuid), 16 },
		      { offsetof(struct mm_hello, reserved), 56 } };
	const size_t f = mm_random_below(&stage->random, MM_ARRAY_SIZE(field));
	struct mm_hello hello;
	unsigned char *bytes = (unsigned char *)&hello;

	mm_raw_hello(&hello, "hostile", 0);
	bytes[field[f].at + mm_random_below(&stage->random, field[f].bytes)] ^=
		(unsigned char)(1 + mm_random_below(&stage->random, 255));
	return hello_try(stage, &hello, sizeof(hello));
}

static enum mm_act_outcome act_hello_required(struct mm_stage *stage)
{
	struct mm_hello hello;

	mm_raw_hello(&hello, "hostile", 0);
	hello.features_required = UINT64_C(1) << 60;
	return hello_try(stage, &hello, sizeof(hello));
}

static enum mm_act_outcome act_hello_name(struct mm_stage *stage)
{
	static const char *const names[] = { "", "two words", "\x1b[2J", "quote\"", "\x80\x81" };
	struct mm_hello hello;

	mm_raw_hello(&hello, names[mm_random_below(&stage->random, MM_ARRAY_SIZE(names))], 0);
	if (mm_random_below(&stage->random, 4) == 0)
		memset(hello.name, 'x', sizeof(hello.name));
	return hello_try(stage, &hello, sizeof(hello));
}

static enum mm_act_outcome act_hello_random(struct mm_stage *stage)
{
	uint64_t words[MM_GREETING_BYTES_MAX / 8];

	for (size_t i = 0; i < MM_ARRAY_SIZE(words); i++)
		words[i] = mm_random_next(&stage->random);
	return hello_try(stage, words, 1 + mm_random_below(&stage->random, sizeof(words)));
}

/* A hello in two messages. */
static enum mm_act_outcome act_hello_pieces(struct mm_stage *stage)
{
	struct mm_hello hello;
	struct mm_raw raw;
	int r = mm_raw_connect(&raw, stage->socket);

	mm_raw_hello(&hello, "hostile", 0);
	if (!r)
		r = mm_raw_send(&raw, &hello, sizeof(hello) / 2);
	if (!r) /* mmd may have closed already: then this fails, and the welcome says why */
		mm_raw_send(&raw, (const char *)&hello + sizeof(hello) / 2, sizeof(hello) / 2);
	if (!r)
		r = mm_raw_welcome(&raw);
	if (r == 0 || r == -ETIMEDOUT)
		return mm_act_done(stage, &raw, mm_act_fail(stage, "half a hello was taken"));
	return mm_act_done(stage, &raw, r == -ECONNRESET ? MM_ACT_ENDED : MM_ACT_REFUSED);
}

/* A hello behind the welcome: nothing but doorbells belongs there. */
static enum mm_act_outcome act_hello_twice(struct mm_stage *stage)
{
	enum mm_act_outcome outcome;
	struct mm_hello hello;
	struct mm_raw raw;

	if (mm_act_open(stage, &raw))
		return mm_act_done(stage, &raw, MM_ACT_FAILED);
	mm_raw_hello(&hello, "hostile", 0);
	mm_raw_send(&raw, &hello, sizeof(hello));
	outcome = mm_act_look(stage, &raw);
	return mm_act_done(stage, &raw, outcome);
}

/* Says hello and goes before it is answered, or does not say it and goes. */
static enum mm_act_outcome act_hello_gone(struct mm_stage *stage)
{
	struct mm_hello hello;

	for (int i = 0; i < 8; i++) {
		struct mm_raw raw;
		int r = mm_raw_connect(&raw, stage->socket);

		mm_raw_hello(&hello, "hostile", 0);
		if (r)
			return mm_act_done(stage, &raw, mm_act_fail(stage, "%s", strerror(-r)));
		if (stage->act->number)
			mm_raw_send(&raw, &hello, sizeof(hello));
		mm_act_done(stage, &raw, MM_ACT_IGNORED);
	}
	return MM_ACT_IGNORED;
}

/* Return: how many of the connections mmd has ended. */
static size_t silent_ended(struct mm_raw *raw, size_t n)
{
	size_t ended = 0;
	char byte;

	for (size_t i = 0; i < n; i++)
		ended += recv(raw[i].sock, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0;
	return ended;
}

/* Connections without a word, more than one user may have: old ones are closed for new ones. */
static enum mm_act_outcome act_silent(struct mm_stage *stage)
{
	const uint64_t deadline_ns = mm_deadline_ns(MM_RAW_WAIT_NS);
	const struct timespec nap = mm_timespec(MM_NS_PER_MS);
	struct mm_raw raw[SILENT];
	enum mm_act_outcome outcome;
	size_t n = 0;

	while (n < SILENT && !mm_raw_connect(&raw[n], stage->socket))
		n++;
	outcome = n == SILENT ? MM_ACT_ENDED : mm_act_fail(stage, "connect");
	while (outcome == MM_ACT_ENDED && silent_ended(raw, n) < SILENT - SILENT_STAY) {
		if (mm_now_ns() > deadline_ns)
			outcome = mm_act_fail(stage, "more than %d silent connections stay",
					      SILENT_STAY);
		nanosleep(&nap, NULL);
	}
	for (size_t i = 0; i < n; i++)
		mm_act_done(stage, &raw[i], outcome);
	return outcome;
}

#define NO (MM_ACT_REFUSED | MM_ACT_ENDED)

const struct mm_act mm_acts_hellos[] = {
	{ .name = "hello-empty",
	  .text = "a hello of one byte",
	  .run = act_hello_size,
	  .number = 1,
	  .expected = NO },
	{ .name = "hello-half",
	  .text = "half a hello",
	  .run = act_hello_size,
	  .number = MM_HELLO_BYTES_MIN / 2,
	  .expected = NO },
	{ .name = "hello-long",
	  .text = "a hello with bytes behind its size",
	  .run = act_hello_size,
	  .number = 1000,
	  .expected = NO },
	{ .name = "hello-endless",
	  .text = "a hello of more bytes than any has",
	  .run = act_hello_size,
	  .number = 2 * MM_GREETING_BYTES_MAX,
	  .expected = NO },
	{ .name = "hello-pieces",
	  .text = "a hello in two messages",
	  .run = act_hello_pieces,
	  .expected = NO },
	{ .name = "hello-field",
	  .text = "a hello with one wrong field",
	  .run = act_hello_field,
	  .expected = NO },
	{ .name = "hello-required",
	  .text = "requires what nobody knows",
	  .run = act_hello_required,
	  .expected = NO },
	{ .name = "hello-name",
	  .text = "a name that would spoil the log",
	  .run = act_hello_name,
	  .expected = NO },
	{ .name = "hello-random",
	  .text = "random bytes for a hello",
	  .run = act_hello_random,
	  .expected = NO },
	{ .name = "hello-twice",
	  .text = "a second hello, behind the welcome",
	  .run = act_hello_twice,
	  .expected = MM_ACT_ENDED,
	  .reason = "only doorbells" },
	{ .name = "hello-gone",
	  .text = "goes before it is welcomed",
	  .run = act_hello_gone,
	  .number = 1,
	  .expected = MM_ACT_IGNORED },
	{ .name = "connect-gone",
	  .text = "connects and goes without a word",
	  .run = act_hello_gone,
	  .expected = MM_ACT_IGNORED },
	{ .name = "hello-never",
	  .text = "40 connections that never say hello",
	  .run = act_silent,
	  .expected = MM_ACT_ENDED },
	{ 0 },
};
