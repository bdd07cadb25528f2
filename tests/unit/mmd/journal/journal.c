/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A journal: written, read, replayed, damaged, and left by a process that was killed between any
 * two instructions.
 */
#undef NDEBUG
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "libclient/base/base.h"
#include "libclient/base/random.h"
#include "mmd/core/image.h"
#include "mmd/journal/journal.h"

#define MEMORY_BYTES (256u << 10)
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define STEPS_EACH 97
#else
#define STEPS_EACH 3
#endif

static const struct mm_core_opts opts = { .pages = 64, .page_bytes = 1 << 21 };
static void *memory; /* shared with children */

static int setup(void **state)
{
	(void)state;
	memory =
		mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(memory, MAP_FAILED);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	return munmap(memory, MEMORY_BYTES);
}

static struct mm_event request_of(uint32_t tenant, uint64_t now_ns, enum mm_op op, uint64_t arg)
{
	return (struct mm_event){ .kind = MM_EVENT_REQUEST,
				  .tenant = tenant,
				  .now_ns = now_ns,
				  .msg = { .opcode = (uint16_t)op, .arg = { arg } } };
}

/* ---- a core and its journal ---- */

struct kept {
	struct mm_journal journal;
	struct mm_core *core;
	uint64_t seq, performed, hash;
};

static uint64_t action_hash(uint64_t hash, const struct mm_action *a)
{
	hash = (hash ^ a->kind) * UINT64_C(0x100000001b3);
	hash = (hash ^ a->tenant) * UINT64_C(0x100000001b3);
	hash = (hash ^ a->msg.opcode) * UINT64_C(0x100000001b3);
	return (hash ^ a->msg.arg[0]) * UINT64_C(0x100000001b3);
}

static void event_happens(struct kept *k, const struct mm_event *event, uint32_t actions_most)
{
	const struct mm_journal_record record = { .seq = k->seq, .performed = k->performed };
	struct mm_event_result result;
	struct mm_action action;

	assert_int_equal(mm_journal_append(&k->journal, &record, event), 0);
	k->seq++;
	mm_core_event(k->core, event, &result);
	for (uint32_t i = 0; i < actions_most && mm_core_next(k->core, &action); i++) {
		k->performed++;
		k->hash = action_hash(k->hash, &action);
	}
}

static void much_happens(struct kept *k, uint32_t first, uint32_t end, uint32_t actions_most)
{
	for (uint32_t i = first; i < end; i++) {
		const uint64_t now = (i + 1) * 5 * MM_NS_PER_MS;
		struct mm_event e = { .kind = MM_EVENT_TICK, .now_ns = now };

		if (i == 0)
			e.kind = MM_EVENT_XFER_UP;
		else if (i % 7 == 1)
			e.kind = MM_EVENT_JOIN, e.join.account = i % 3;
		else if (i % 7 == 2)
			e = request_of(0, now, MM_OP_KV_WANT, i % 5);
		else if (i % 7 == 3)
			e.kind = MM_EVENT_DEAD, e.tenant = i % 4;
		event_happens(k, &e, i + 1 == end ? actions_most : UINT32_MAX);
	}
}

static uint64_t rest_hash(struct mm_core *core, uint64_t hash)
{
	struct mm_action action;

	while (mm_core_next(core, &action))
		hash = action_hash(hash, &action);
	return hash;
}

/* Wherever the actions end, a successor has the same core, and the same actions left. */
static void test_replay(void **state)
{
	static uint8_t image[1 << 20], second[1 << 20];

	(void)state;
	for (uint32_t most = 0; most < 12; most++) {
		struct kept k = { 0 };
		struct mm_journal_replay replay = { 0 };
		struct mm_core *copy;
		size_t bytes, bytes_after;

		assert_int_equal(mm_core_create(&opts, &k.core), 0);
		assert_int_equal(mm_core_create(&opts, &copy), 0);
		mm_journal_create(memory, MEMORY_BYTES, &k.journal);
		much_happens(&k, 0, 1 + most * 9, most);
		assert_int_equal(mm_journal_open(memory, MEMORY_BYTES, &k.journal), 0);
		replay.performed = k.performed;
		assert_int_equal(mm_journal_replay(&k.journal, copy, &replay), 0);
		assert_int_equal(replay.seq, k.seq);
		assert_true(replay.any);
		assert_int_equal(rest_hash(copy, k.hash), rest_hash(k.core, k.hash));
		assert_int_equal(mm_core_image_save(copy, image, sizeof(image), &bytes), 0);
		assert_int_equal(mm_core_image_save(k.core, second, sizeof(second), &bytes_after),
				 0);
		assert_int_equal(bytes, bytes_after);
		assert_memory_equal(image, second, bytes);
		mm_core_destroy(copy);
		mm_core_destroy(k.core);
	}
}

/* Records that the image has already are passed over; those that do not continue it are refused. */
static void test_records_and_images(void **state)
{
	struct mm_journal_replay replay = { .seq = 10 };
	struct kept k = { 0 };
	struct mm_core *copy;

	(void)state;
	assert_int_equal(mm_core_create(&opts, &k.core), 0);
	mm_journal_create(memory, MEMORY_BYTES, &k.journal);
	much_happens(&k, 0, 10, UINT32_MAX);
	replay.taken = replay.performed = k.performed;
	assert_int_equal(mm_journal_replay(&k.journal, k.core, &replay), 0);
	assert_false(replay.any);
	assert_int_equal(mm_core_create(&opts, &copy), 0);
	replay = (struct mm_journal_replay){ .performed = k.performed + 1 };
	assert_int_equal(mm_journal_replay(&k.journal, copy, &replay), -EBADMSG);
	mm_core_destroy(copy);
	mm_journal_empty(&k.journal);
	k.seq++; /* one is missing */
	much_happens(&k, 10, 11, UINT32_MAX);
	replay = (struct mm_journal_replay){ .seq = 10, .performed = k.performed };
	assert_int_equal(mm_journal_replay(&k.journal, k.core, &replay), -EBADMSG);
	mm_core_destroy(k.core);
}

/* An event that is left out never happens. */
static void test_skipped(void **state)
{
	struct mm_journal_replay replay = { 0 };
	struct mm_core_stats stats;
	struct kept k = { 0 };
	struct mm_core *copy;

	(void)state;
	assert_int_equal(mm_core_create(&opts, &k.core), 0);
	assert_int_equal(mm_core_create(&opts, &copy), 0);
	mm_journal_create(memory, MEMORY_BYTES, &k.journal);
	much_happens(&k, 0, 2, 0); /* the second one is a JOIN */
	replay.performed = k.performed;
	assert_false(mm_journal_skip(&k.journal, 2));
	assert_true(mm_journal_skip(&k.journal, 1));
	assert_int_equal(mm_journal_open(memory, MEMORY_BYTES, &k.journal), 0);
	assert_int_equal(mm_journal_replay(&k.journal, copy, &replay), 0);
	assert_int_equal(replay.kind, MM_EVENT_XFER_UP);
	mm_core_stats(copy, &stats);
	assert_int_equal(stats.tenants, 0);
	mm_core_destroy(copy);
	mm_core_destroy(k.core);
}

/* ---- damage ---- */

static void test_full(void **state)
{
	const struct mm_event event = { .kind = MM_EVENT_TICK };
	struct mm_journal_record record = { 0 };
	struct mm_journal journal;
	int r;

	(void)state;
	mm_journal_create(memory, MM_JOURNAL_BYTES_MIN, &journal);
	while ((r = mm_journal_append(&journal, &record, &event)) == 0)
		record.seq++;
	assert_int_equal(r, MM_E_FULL);
	assert_true(mm_journal_used(&journal) <= MM_JOURNAL_BYTES_MIN);
	assert_int_equal(mm_journal_open(memory, MM_JOURNAL_BYTES_MIN, &journal), 0);
	mm_journal_empty(&journal);
	assert_int_equal(mm_journal_append(&journal, &record, &event), 0);
}

/* Each byte that changes in a record is seen, but for the mark of events that are left out. */
static void test_damaged(void **state)
{
	struct kept k = { 0 };
	struct mm_journal journal;
	uint8_t *bytes = memory;
	size_t used, skips = 0;

	(void)state;
	assert_int_equal(mm_core_create(&opts, &k.core), 0);
	mm_journal_create(memory, MEMORY_BYTES, &k.journal);
	much_happens(&k, 0, 12, UINT32_MAX);
	mm_core_destroy(k.core);
	used = 64 + mm_journal_used(&k.journal);
	for (size_t i = 0; i < used; i++) {
		for (uint32_t bit = 0; bit < 8; bit++) {
			bytes[i] ^= (uint8_t)(1u << bit);
			if (i >= 16 && i < 64)
				assert_int_equal(mm_journal_open(memory, MEMORY_BYTES, &journal),
						 0);
			else
				skips += mm_journal_open(memory, MEMORY_BYTES, &journal) == 0;
			bytes[i] ^= (uint8_t)(1u << bit);
		}
	}
	/* A length of bytes in use that ends at another record is a journal, too: it lost some. */
	assert_true(skips >= 12 && skips < 20);
	assert_int_equal(mm_journal_open(memory, 64, &journal), -EBADMSG);
}

/* ---- processes that are killed ---- */

static void child_appends(struct mm_journal *journal, uint64_t seq)
{
	const struct mm_event event = request_of(7, 8, MM_OP_KV_WANT, 9);
	const struct mm_journal_record record = { .seq = seq };

	raise(SIGSTOP);
	mm_journal_append(journal, &record, &event);
	raise(SIGSTOP);
	_exit(0);
}

/* Kills a child after @steps instructions from its stop on. Returns whether it had done all. */
static bool child_steps(pid_t child, uint32_t steps)
{
	int status;
	bool done = false;

	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
	for (uint32_t i = 0; i < steps && !done; i++) {
		assert_int_equal(ptrace(PTRACE_SINGLESTEP, child, NULL, NULL), 0);
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_true(WIFSTOPPED(status));
		done = WSTOPSIG(status) == SIGSTOP;
	}
	kill(child, SIGKILL);
	assert_int_equal(waitpid(child, &status, 0), child);
	return done;
}

static void test_killed_anywhere(void **state)
{
	uint64_t whole = 0, without = 0;
	bool done = false;

	(void)state;
	for (uint32_t steps = 1; !done; steps += STEPS_EACH) {
		struct mm_event event = { .kind = MM_EVENT_TICK };
		struct mm_journal_record record = { .seq = 5 };
		struct mm_journal journal;
		uint64_t before;
		pid_t child;

		mm_journal_create(memory, MEMORY_BYTES, &journal);
		assert_int_equal(mm_journal_append(&journal, &record, &event), 0);
		before = mm_journal_used(&journal);
		child = fork();
		if (!child) {
			if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
				_exit(1);
			child_appends(&journal, 6);
		}
		assert_true(child > 0);
		done = child_steps(child, steps);
		assert_int_equal(mm_journal_open(memory, MEMORY_BYTES, &journal), 0);
		whole += mm_journal_used(&journal) != before;
		without += mm_journal_used(&journal) == before;
		assert_true(!done || whole);
		/* A successor goes on behind what is there. */
		record.seq = mm_journal_used(&journal) == before ? 6 : 7;
		assert_int_equal(mm_journal_append(&journal, &record, &event), 0);
		assert_int_equal(mm_journal_open(memory, MEMORY_BYTES, &journal), 0);
	}
	assert_true(whole && without);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_replay),  cmocka_unit_test(test_records_and_images),
		cmocka_unit_test(test_skipped), cmocka_unit_test(test_full),
		cmocka_unit_test(test_damaged), cmocka_unit_test(test_killed_anywhere),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
