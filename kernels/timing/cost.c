/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/timing/cost.h"

#include "libclient/base/base.h"

/* Arguments of launches come from tenants: the limit keeps times far from overflow. */
#define LONGEST_NS 1e15 /* eleven days */

static uint64_t whole_ns(double seconds, uint64_t least_ns)
{
	const double ns = MM_MIN(seconds * 1e9, LONGEST_NS);

	return ns > (double)least_ns ? (uint64_t)(ns + 0.5) : least_ns;
}

uint64_t mm_cost_ns(const struct mm_profile *p, const struct mm_cost *c)
{
	const double memory = c->bytes / (p->hbm_bps * p->mem_efficiency);
	const double arithmetic = c->flops / (p->f16_flops * p->flop_efficiency);

	return whole_ns(MM_MAX(memory, arithmetic), p->kernel_ns);
}

uint64_t mm_cost_copy_ns(const struct mm_profile *p, enum mm_link link, uint64_t length_bytes,
			 int both)
{
	const double rate = link == MM_LINK_H2D ? p->h2d_bps : p->d2h_bps;

	return whole_ns((double)length_bytes / (rate * (both ? 1 - p->duplex_loss : 1)),
			p->copy_ns);
}

uint64_t mm_cost_device_copy_ns(const struct mm_profile *p, uint64_t length_bytes)
{
	return whole_ns(2.0 * (double)length_bytes / (p->hbm_bps * p->mem_efficiency), p->copy_ns);
}

uint64_t mm_cost_fill_ns(const struct mm_profile *p, uint64_t length_bytes)
{
	return whole_ns((double)length_bytes / (p->hbm_bps * p->mem_efficiency), p->kernel_ns);
}
