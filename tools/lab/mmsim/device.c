/* SPDX-License-Identifier: Apache-2.0 */
/* device - a device's computation, its link, and its driver, which times of a profile describe. */
#include "tools/lab/mmsim/device.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "libclient/base/base.h"
#include "tools/lab/mmsim/costs.h"
#include "tools/lab/mmsim/step.h"
#include "tools/lab/mmsim/xfer.h"

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

/*
 * Slows computation down while the link is busy, because that takes memory bandwidth. @in, @out:
 * parts of the link's time that go to either direction.
 */
static void compute_slow(struct ms_device *dev, double in, double out)
{
	const double slow = 1 / mm_cost_slowdown(&dev->profile, in, out);

	if (slow == dev->compute.slow)
		return;
	compute_settle(dev);
	dev->compute.slow = slow;
	compute_rates(dev);
}

/* ---- the link ---- */

static void link_settle(struct ms_device *dev)
{
	struct ms_link *l = &dev->link;
	const uint64_t elapsed = dev->sim->now_ns - l->at_ns;

	l->served += (double)elapsed * l->rate;
	l->busy_ns += l->busy ? elapsed : 0;
	l->at_ns = dev->sim->now_ns;
}

/* The flow of COPY jobs weighs more, as in mmd/xfer/link.h. */
static double flow_weight(uint32_t flow)
{
	return flow ? 1 : MS_COPIES_WEIGHT;
}

static double ns_per_byte(const struct ms_device *dev, const struct ms_transfer *transfer)
{
	return 1e9 / (transfer->to_host ? dev->profile.d2h_bps : dev->profile.h2d_bps);
}

static void link_rates(struct ms_device *dev)
{
	struct ms_link *l = &dev->link;
	double sum = 0, out = 0;

	l->busy = 0;
	for (uint32_t i = 0; i < l->n_flows; i++) {
		const struct ms_transfer *head = l->flows[i].head;

		if (!head)
			continue;
		sum += ns_per_byte(dev, head) * flow_weight(i);
		out += head->to_host ? ns_per_byte(dev, head) * flow_weight(i) : 0;
		l->busy++;
	}
	l->rate = l->busy ? 1 / sum : 0;
	l->next_ns = UINT64_MAX;
	for (uint32_t i = 0; l->busy && i < l->n_flows; i++) {
		struct ms_flow *f = &l->flows[i];

		if (!f->head)
			continue;
		f->end_ns = l->at_ns + (uint64_t)ceil(fmax(f->end - l->served, 0) / l->rate);
		l->next_ns = MM_MIN(l->next_ns, f->end_ns);
	}
	out = l->busy ? out / sum : 0;
	compute_slow(dev, l->busy ? 1 - out : 0, out);
}

static struct ms_transfer *transfer_get(struct ms_device *dev)
{
	struct ms_transfer *transfer = dev->spare;

	if (transfer)
		dev->spare = transfer->next;
	else
		transfer = malloc(sizeof(*transfer));
	mm_assert(transfer != NULL);
	*transfer = (struct ms_transfer){ 0 };
	return transfer;
}

struct ms_transfer *ms_link_start(struct ms_device *dev, uint32_t flow, double bytes, bool to_host)
{
	struct ms_transfer *transfer = transfer_get(dev);
	struct ms_flow *f = &dev->link.flows[flow];

	transfer->to_host = to_host;
	transfer->bytes = fmax(bytes, (double)dev->profile.copy_ns / ns_per_byte(dev, transfer));
	if (f->head) {
		f->tail = f->tail->next = transfer;
		return transfer;
	}
	link_settle(dev);
	f->head = f->tail = transfer;
	f->end = dev->link.served + transfer->bytes / flow_weight(flow);
	link_rates(dev);
	return transfer;
}

/*
 * Cancels a transfer, except for the chunks that are on the device already. All transfers in the
 * flow of a tenant's layers are cancelled with it.
 */
void ms_link_cancel(struct ms_device *dev, struct ms_transfer *transfer)
{
	struct ms_link *l = &dev->link;

	link_settle(dev);
	for (uint32_t i = 0; i < l->n_flows; i++) {
		struct ms_flow *f = &l->flows[i];
		double in_flight = (double)(MS_LINK_CHUNKS * MM_CHUNK_BYTES_DEFAULT);

		if (f->head == transfer)
			f->end = fmin(f->end, l->served + in_flight / flow_weight(i));
		else if (transfer->tenant && i == ms_flow_layers(transfer->tenant))
			transfer->bytes = 0;
	}
	link_rates(dev);
}

void ms_link_run(struct ms_device *dev)
{
	struct ms_link *l = &dev->link;
	struct ms_transfer *done = NULL, **last = &done;

	link_settle(dev);
	for (uint32_t i = 0; i < l->n_flows; i++) {
		struct ms_flow *f = &l->flows[i];

		if (!f->head || f->end_ns > dev->sim->now_ns)
			continue;
		*last = f->head;
		last = &f->head->next;
		f->head = f->head->next;
		*last = NULL;
		if (f->head)
			f->end = l->served + f->head->bytes / flow_weight(i);
	}
	link_rates(dev);
	while (done) {
		struct ms_transfer *transfer = done;

		done = transfer->next;
		ms_xfer_transfer_done(dev, transfer);
		transfer->next = dev->spare;
		dev->spare = transfer;
	}
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
	dev->link.at_ns = sim->now_ns;
	dev->link.next_ns = UINT64_MAX;
	dev->link.n_flows = 1 + 2 * sim->opts.sizes->tenants;
	dev->link.flows = calloc(dev->link.n_flows, sizeof(*dev->link.flows));
	dev->jobs.item_bytes = sizeof(struct mm_msg);
	dev->jobs_done.item_bytes = sizeof(struct mm_msg);
	dev->holder = calloc(dev->opts.pages, sizeof(*dev->holder));
	dev->holder_count = calloc(dev->opts.pages, sizeof(*dev->holder_count));
	if (!dev->link.flows || !dev->holder || !dev->holder_count)
		return -ENOMEM;
	return mm_core_create(&dev->opts, &dev->core);
}

void ms_device_done(struct ms_device *dev)
{
	for (uint32_t i = 0; dev->link.flows && i < dev->link.n_flows; i++)
		while (dev->link.flows[i].head) {
			struct ms_transfer *transfer = dev->link.flows[i].head;

			dev->link.flows[i].head = transfer->next;
			free(transfer);
		}
	while (dev->spare) {
		struct ms_transfer *transfer = dev->spare;

		dev->spare = transfer->next;
		free(transfer);
	}
	free(dev->link.flows);
	free(dev->holder);
	free(dev->holder_count);
	ms_fifo_done(&dev->jobs);
	ms_fifo_done(&dev->jobs_done);
	if (dev->core)
		mm_core_destroy(dev->core);
}
