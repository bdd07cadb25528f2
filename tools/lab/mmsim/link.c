/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/mmsim/link.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "libclient/base/base.h"
#include "tools/lab/mmsim/costs.h"
#include "tools/lab/mmsim/device.h"
#include "tools/lab/mmsim/xfer.h"

static void link_settle(struct ms_device *dev)
{
	struct ms_link *l = &dev->link;
	const uint64_t elapsed = dev->sim->now_ns - l->at_ns;

	for (uint32_t i = 0; i < MS_LANES; i++) {
		struct ms_lane *lane = &l->lane[i];

		lane->served += (double)elapsed * lane->rate;
		lane->busy_ns += lane->busy ? elapsed : 0;
	}
	l->at_ns = dev->sim->now_ns;
}

/* The flow of COPY jobs weighs more, as in mmd/xfer/link.h. */
static double flow_weight(uint32_t flow)
{
	return flow ? 1 : MS_COPIES_WEIGHT;
}

/* Bytes per ns of a lane that has the link for itself. */
static double lane_rate_alone(const struct ms_device *dev, enum ms_lane_id lane)
{
	return (lane == MS_LANE_OUT ? dev->profile.d2h_bps : dev->profile.h2d_bps) / 1e9;
}

static void lane_rate_set(struct ms_device *dev, enum ms_lane_id id, double loss)
{
	struct ms_link *l = &dev->link;
	struct ms_lane *lane = &l->lane[id];

	lane->rate = 0;
	if (!lane->busy)
		return;
	lane->rate = lane_rate_alone(dev, id) * (1 - loss) / lane->weights;
	for (uint32_t i = 0; i < l->n_flows; i++) {
		struct ms_flow *f = &lane->flows[i];

		if (!f->on)
			continue;
		f->stop_ns =
			l->at_ns + (uint64_t)ceil(fmax(f->stop - lane->served, 0) / lane->rate);
		l->next_ns = MM_MIN(l->next_ns, f->stop_ns);
	}
}

static void link_rates(struct ms_device *dev)
{
	struct ms_link *l = &dev->link;
	const bool in = l->lane[MS_LANE_IN].busy, out = l->lane[MS_LANE_OUT].busy;
	const double loss = in && out ? dev->profile.duplex_loss : 0;

	l->next_ns = UINT64_MAX;
	lane_rate_set(dev, MS_LANE_IN, loss);
	lane_rate_set(dev, MS_LANE_OUT, loss);
	ms_compute_slow(dev, in, out);
}

static struct ms_transfer *transfer_get(struct ms_link *l)
{
	struct ms_transfer *transfer = l->spare;

	if (transfer)
		l->spare = transfer->next;
	else
		transfer = malloc(sizeof(*transfer));
	mm_assert(transfer != NULL);
	*transfer = (struct ms_transfer){ 0 };
	return transfer;
}

/* Serves the transfer of a flow that is due first. */
static void flow_begin(struct ms_lane *lane, uint32_t flow)
{
	struct ms_flow *f = &lane->flows[flow];

	f->on = f->head;
	lane->busy += f->on != NULL;
	lane->weights += f->on ? flow_weight(flow) : 0;
	if (f->on)
		f->end = f->stop = lane->served + f->on->left / flow_weight(flow);
}

static void flow_pause(struct ms_lane *lane, uint32_t flow)
{
	lane->flows[flow].on = NULL;
	lane->busy--;
	lane->weights = lane->busy ? lane->weights - flow_weight(flow) : 0;
}

/* Lets no more of the transfer that is served be put on the device. */
static void flow_stop(struct ms_lane *lane, uint32_t flow)
{
	const double in_flight = (double)(MS_LINK_CHUNKS * MM_CHUNK_BYTES_DEFAULT);
	struct ms_flow *f = &lane->flows[flow];

	f->stop = fmin(f->stop, lane->served + in_flight / flow_weight(flow));
}

static void transfer_insert(struct ms_flow *f, struct ms_transfer *transfer)
{
	struct ms_transfer **at = &f->head;

	while (*at && (*at)->due <= transfer->due)
		at = &(*at)->next;
	transfer->next = *at;
	*at = transfer;
}

static void transfer_remove(struct ms_flow *f, struct ms_transfer *transfer)
{
	struct ms_transfer **at = &f->head;

	while (*at != transfer)
		at = &(*at)->next;
	*at = transfer->next;
	transfer->next = NULL;
}

struct ms_transfer *ms_link_start(struct ms_device *dev, uint32_t flow, double bytes, bool to_host,
				  uint64_t due)
{
	const enum ms_lane_id id = to_host ? MS_LANE_OUT : MS_LANE_IN;
	struct ms_lane *lane = &dev->link.lane[id];
	struct ms_flow *f = &lane->flows[flow];
	struct ms_transfer *transfer = transfer_get(&dev->link);

	transfer->to_host = to_host;
	transfer->due = due;
	transfer->left = fmax(bytes, (double)dev->profile.copy_ns * lane_rate_alone(dev, id));
	transfer_insert(f, transfer);
	if (f->on && f->on->due <= due)
		return transfer;
	link_settle(dev);
	if (f->on)
		flow_stop(lane, flow);
	else
		flow_begin(lane, flow);
	link_rates(dev);
	return transfer;
}

static void transfer_end(struct ms_device *dev, struct ms_transfer *transfer)
{
	ms_xfer_transfer_done(dev, transfer);
	transfer->next = dev->link.spare;
	dev->link.spare = transfer;
}

void ms_link_cancel(struct ms_device *dev, struct ms_transfer *transfer)
{
	const uint32_t flow = ms_flow_layers(transfer->tenant);
	struct ms_lane *lane = &dev->link.lane[transfer->to_host ? MS_LANE_OUT : MS_LANE_IN];
	struct ms_flow *f = &lane->flows[flow];

	if (f->on != transfer) {
		transfer_remove(f, transfer);
		transfer_end(dev, transfer);
		return;
	}
	link_settle(dev);
	flow_stop(lane, flow);
	f->end = f->stop;
	link_rates(dev);
}

/* Takes a transfer that has ended out of its flow, or one that another goes before. */
static void flow_run(struct ms_lane *lane, uint32_t flow, struct ms_transfer **ret_done)
{
	struct ms_flow *f = &lane->flows[flow];
	struct ms_transfer *on = f->on;

	on->left = (f->end - f->stop) * flow_weight(flow);
	flow_pause(lane, flow);
	if (f->stop >= f->end) {
		transfer_remove(f, on);
		*ret_done = on;
	}
	flow_begin(lane, flow);
}

void ms_link_run(struct ms_device *dev)
{
	struct ms_link *l = &dev->link;
	struct ms_transfer *done = NULL, **last = &done;

	link_settle(dev);
	for (uint32_t i = 0; i < MS_LANES * l->n_flows; i++) {
		struct ms_lane *lane = &l->lane[i / l->n_flows];
		const uint32_t flow = i % l->n_flows;

		if (!lane->flows[flow].on || lane->flows[flow].stop_ns > dev->sim->now_ns)
			continue;
		flow_run(lane, flow, last);
		if (*last)
			last = &(*last)->next;
	}
	link_rates(dev);
	while (done) {
		struct ms_transfer *transfer = done;

		done = transfer->next;
		transfer_end(dev, transfer);
	}
}

/* ---- life ---- */

int ms_link_init(struct ms_link *link, uint64_t now_ns, uint32_t tenants)
{
	*link = (struct ms_link){ .at_ns = now_ns, .next_ns = UINT64_MAX };
	link->n_flows = ms_flows(tenants);
	for (uint32_t i = 0; i < MS_LANES; i++) {
		link->lane[i].flows = calloc(link->n_flows, sizeof(*link->lane[i].flows));
		if (!link->lane[i].flows)
			return -ENOMEM;
	}
	return 0;
}

static void transfers_free(struct ms_transfer *first)
{
	while (first) {
		struct ms_transfer *transfer = first;

		first = transfer->next;
		free(transfer);
	}
}

void ms_link_done(struct ms_link *link)
{
	for (uint32_t i = 0; i < MS_LANES; i++) {
		for (uint32_t f = 0; link->lane[i].flows && f < link->n_flows; f++)
			transfers_free(link->lane[i].flows[f].head);
		free(link->lane[i].flows);
	}
	transfers_free(link->spare);
	*link = (struct ms_link){ 0 };
}
