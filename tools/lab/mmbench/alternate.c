/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/mmbench/alternate.h"

#include <errno.h>

#include "libclient/base/base.h"

#define WILD_PART 4                  /* loops have one part in so many of a period */
#define ENDING_NS (10 * MM_NS_PER_S) /* then they are killed */

static struct mm_alternate_span *span_last(struct mm_alternate *a)
{
	return &a->span[a->spans - 1];
}

/* Where there is no room for more spans, the last one goes on. */
static void span_begin(struct mm_alternate *a, enum mm_alternate_kind kind)
{
	const uint64_t now_ns = mm_now_ns();

	if (a->spans)
		span_last(a)->to_ns = now_ns;
	a->span[a->spans++] = (struct mm_alternate_span){ .kind = kind, .from_ns = now_ns };
}

static int hostiles_start(struct mm_alternate *a)
{
	int r = 0;

	span_begin(a, MM_ALTERNATE_HOSTILES);
	for (uint32_t i = 0; !r && i < a->n; i++) {
		a->opts[i].seed += a->n; /* other acts than those before */
		r = mm_performer_start(&a->hostile[i], &a->opts[i]);
	}
	return r;
}

/* Takes what those have done that have ended. */
static void hostiles_count(struct mm_alternate *a, uint64_t from_ns)
{
	for (uint32_t i = 0; i < a->n; i++) {
		a->cpu_ns += a->hostile[i].cpu_ns;
		if (a->hostile[i].shared)
			mm_tally_add(a->tally, a->hostile[i].shared->tally);
		mm_performer_done(&a->hostile[i]);
	}
	a->wild_ns += mm_now_ns() - from_ns;
}

static bool hostiles_halt(struct mm_alternate *a)
{
	bool all = true;

	for (uint32_t i = 0; i < a->n; i++)
		all &= mm_performer_halt(&a->hostile[i]);
	return all;
}

int mm_alternate_begin(struct mm_alternate *a)
{
	mm_assert(a->n <= MM_ALTERNATE_HOSTILES_MAX);
	return hostiles_start(a);
}

int mm_alternate_poll(struct mm_alternate *a)
{
	const uint64_t loops_ns = a->period_ns / WILD_PART;
	const struct mm_alternate_span *last = span_last(a);
	const uint64_t age_ns = mm_now_ns() - last->from_ns;

	if (a->spans + 2 > MM_ALTERNATE_SPANS_MAX)
		return 0;
	switch (last->kind) {
	case MM_ALTERNATE_HOSTILES:
		if (age_ns >= a->period_ns - loops_ns)
			span_begin(a, MM_ALTERNATE_ENDING);
		return 0;
	case MM_ALTERNATE_ENDING:
		if (!hostiles_halt(a) && age_ns < ENDING_NS)
			return 0;
		for (uint32_t i = 0; i < a->n; i++)
			mm_performer_stop(&a->hostile[i], 0);
		hostiles_count(a, a->span[a->spans - 2].from_ns);
		span_begin(a, MM_ALTERNATE_LOOPS);
		return mm_busy_start(&a->busy, mm_alternate_share(a));
	case MM_ALTERNATE_LOOPS:
		break;
	}
	if (age_ns < loops_ns)
		return 0;
	mm_busy_stop(&a->busy);
	return hostiles_start(a);
}

void mm_alternate_end(struct mm_alternate *a, uint64_t patience_ns)
{
	const uint64_t now_ns = mm_now_ns(), deadline_ns = now_ns + patience_ns;
	uint64_t from_ns = now_ns;

	mm_busy_stop(&a->busy);
	if (!a->spans)
		return;
	span_last(a)->to_ns = now_ns;
	if (span_last(a)->kind == MM_ALTERNATE_HOSTILES)
		from_ns = span_last(a)->from_ns;
	else if (span_last(a)->kind == MM_ALTERNATE_ENDING)
		from_ns = a->span[a->spans - 2].from_ns;
	(void)hostiles_halt(a);
	for (uint32_t i = 0; i < a->n; i++) {
		const uint64_t at_ns = mm_now_ns();

		mm_performer_stop(&a->hostile[i], deadline_ns > at_ns ? deadline_ns - at_ns : 0);
	}
	hostiles_count(a, from_ns);
}

void mm_alternate_done(struct mm_alternate *a)
{
	mm_busy_stop(&a->busy);
	for (uint32_t i = 0; i < a->n; i++)
		mm_performer_done(&a->hostile[i]);
}

double mm_alternate_share(const struct mm_alternate *a)
{
	return a->wild_ns ? (double)a->cpu_ns / (double)a->wild_ns : 0;
}

size_t mm_alternate_gaps(const struct mm_alternate *a, enum mm_alternate_kind kind,
			 const struct mm_honest *honest, double *into, size_t max)
{
	size_t n = 0;

	for (size_t i = 0; i < a->spans; i++)
		if (a->span[i].kind == kind)
			n += mm_honest_gaps(honest, a->span[i].from_ns, a->span[i].to_ns, into + n,
					    max - n);
	return n;
}
