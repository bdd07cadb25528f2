/* SPDX-License-Identifier: Apache-2.0 */
/* Tenants that end at bad moments, in the world of tests/sim, which checks every step of it. */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/sim/world.h"

static struct world world;
static struct world *w = &world;

static int setup(void **state)
{
	const struct mm_core_opts opts = { .pages = 8,
					   .page_bytes = 4096,
					   .policy = MM_POLICY_REMAP };

	(void)state;
	w_init(w, &opts, 1);
	w_xfer_up(w);
	w_run(w);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	w_done(w);
	return 0;
}

/* It waits for xfer to detach it, and for nothing else: no deadline of it is ever due. */
static void test_end_without_pages_while_xfer_is_away(void **state)
{
	struct w_proc *p = w_join(w, 0, MM_FEAT_KNOWN);

	(void)state;
	assert_non_null(p);
	w_xfer_kill(w, false);
	w_disconnect(w, p);
	for (int i = 0; i < 4; i++) {
		w_tick(w, 60 * MM_NS_PER_S);
		assert_true(mm_core_deadline(w->core) > w->now_ns);
	}
	assert_true(p->used);
	w_xfer_up(w);
	w_run(w);
	assert_false(p->used);
	assert_true(p->alive); /* who holds no page is not killed for it */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_end_without_pages_while_xfer_is_away, setup,
						teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
