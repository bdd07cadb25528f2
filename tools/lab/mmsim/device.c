/* SPDX-License-Identifier: Apache-2.0 */
/* device - a device's computation and its driver, which times of a profile describe. */
#include "tools/lab/mmsim/device.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "libclient/base/base.h"
#include "tools/lab/mmsim/link.h"
#include "tools/lab/mmsim/step.h"

/* ---- computation: a fluid ---- */

static double tenant_weight(const struct ms_tenant *t)
{
	return (double)MM_MAX(t->step.cost.layer, 1);
}

static void compute_settle(struct ms_device *dev)
{
	struct ms_compute *c = &dev->compute;
	const uint64_t now = dev->sim->now_ns;
	const double elapsed = (double)(now - c->at_ns);

	if (c->n)
		c->busy_ns += now - c->at_ns;
	c->at_ns = now;
	for (uint32_t i = 0; i < c->n; i++)
		c->on[i]->step.left_ns -= elapsed * c->on[i]->step.rate;
}

/* Sets rates so that each tenant advances one layer in the time of all tenants' layers together. */
static void compute_rates(struct ms_device *dev)
{
	struct ms_compute *c = &dev->compute;
	double sum = 0;

	c->next_ns = UINT64_MAX;
	for (uint32_t i = 0; i < c->n; i++)
		sum += tenant_weight(c->on[i]);
	for (uint32_t i = 0; i < c->n; i++) {
		struct ms_step *s = &c->on[i]->step;

		s->rate = tenant_weight(c->on[i]) / sum * c->slow;
		s->end_ns = c->at_ns + (uint64_t)ceil(fmax(s->left_ns, 0) / s->rate);
		c->next_ns = MM_MIN(c->next_ns, s->end_ns);
	}
}

void ms_compute_start(struct ms_tenant *t, double work_ns)
{
	struct ms_compute *c = &t->dev->compute;

	compute_settle(t->dev);
	mm_assert(c->n < MS_TENANTS_MAX);
	t->step.left_ns = work_ns;
	c->on[c->n++] = t;
	compute_rates(t->dev);
}

void ms_compute_run(struct ms_device *dev)
{
	struct ms_tenant *done[MS_TENANTS_MAX];
	struct ms_compute *c = &dev->compute;
	uint32_t n = 0, kept = 0;

	compute_settle(dev);
	for (uint32_t i = 0; i < c->n; i++) {
		if (c->on[i]->step.end_ns <= dev->sim->now_ns)
			done[n++] = c->on[i];
		else
			c->on[kept++] = c->on[i];
	}
	c->n = kept;
	compute_rates(dev);
	for (uint32_t i = 0; i < n; i++)
		ms_step_part_done(done[i]);
}

void ms_compute_slow(struct ms_device *dev, bool in, bool out)
{
	const double slow = 1 / mm_cost_slowdown(&dev->profile, in, out);

	if (slow == dev->compute.slow)
		return;
	compute_settle(dev);
	dev->compute.slow = slow;
	compute_rates(dev);
}

/* ---- the driver: one call at a time, over all processes ---- */

uint64_t ms_driver_call(struct ms_device *dev, uint64_t ns)
{
	dev->driver_free_ns = MM_MAX(dev->driver_free_ns, dev->sim->now_ns) + ns;
	return dev->driver_free_ns;
}

/* ---- life ---- */

int ms_device_init(struct ms_device *dev, struct ms_sim *sim, uint32_t index)
{
	dev->sim = sim;
	dev->index = index;
	dev->deadline_ns = UINT64_MAX;
	dev->compute =
		(struct ms_compute){ .slow = 1, .at_ns = sim->now_ns, .next_ns = UINT64_MAX };
	dev->jobs.item_bytes = sizeof(struct mm_msg);
	dev->jobs_done.item_bytes = sizeof(struct mm_msg);
	dev->holder = calloc(dev->opts.pages, sizeof(*dev->holder));
	dev->holder_count = calloc(dev->opts.pages, sizeof(*dev->holder_count));
	if (ms_link_init(&dev->link, sim->now_ns, sim->opts.sizes->tenants) || !dev->holder ||
	    !dev->holder_count)
		return -ENOMEM;
	return mm_core_create(&dev->opts, &dev->core);
}

void ms_device_done(struct ms_device *dev)
{
	ms_link_done(&dev->link);
	free(dev->holder);
	free(dev->holder_count);
	ms_fifo_done(&dev->jobs);
	ms_fifo_done(&dev->jobs_done);
	if (dev->core)
		mm_core_destroy(dev->core);
}
