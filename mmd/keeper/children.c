/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/keeper/children.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/wait.h>

#include "libclient/support/clock.h"
#include "mmd/keeper/instance.h"

#define BACKOFF_MAX_NS   (5 * MM_NS_PER_S)
#define BACKOFF_DOWN_NS  (10 * MM_NS_PER_S)
#define BACKOFF_QUICK_NS (250 * MM_NS_PER_MS)
/* An xfer that dies sooner after its start counts as a quick death. */
#define QUICK_NS (5 * MM_NS_PER_S)
/* After so many failures of one xfer in a row, none proven in between, its device is down. */
#define FAILURES_MAX 6

struct mm_keeper_xfer *mm_children_xfer(struct mm_keeper *k, const struct mm_kmsg *msg)
{
	mm_assert(msg->device < k->n_xfers);
	return &k->xfer[msg->device];
}

/* The device's number for the operator and the driver. */
static uint64_t xfer_ordinal(const struct mm_keeper *k, const struct mm_keeper_xfer *x)
{
	return mm_config_at(&k->config->device, (uint32_t)(x - k->xfer));
}

/*
 * An xfer that works a little and dies has not failed to start, but repeated quick deaths are
 * delayed as well.
 */
static uint64_t xfer_backoff_ns(const struct mm_keeper_xfer *x)
{
	if (x->down)
		return BACKOFF_DOWN_NS;
	return MM_MAX(mm_keeper_backoff_ns(x->failures, BACKOFF_MAX_NS),
		      mm_keeper_backoff_ns(x->quick, BACKOFF_QUICK_NS));
}

static void xfer_request(struct mm_keeper *k, const struct mm_kmsg *msg)
{
	struct mm_keeper_xfer *x = mm_children_xfer(k, msg);
	uint64_t wait_ns = xfer_backoff_ns(x);

	if (x->pid || x->start_at_ns != UINT64_MAX) {
		/* A core that did not see that its predecessor had asked asks again. */
		if (x->epoch == msg->id)
			return;
		mm_log(MM_LOG_ERROR, "xfer.start_refused",
		       "device=%" PRIu64 " epoch=%" PRIu64 " pid=%d", xfer_ordinal(k, x), msg->id,
		       (int)x->pid);
		return;
	}
	if (wait_ns)
		mm_log(MM_LOG_WARN, "xfer.backoff",
		       "device=%" PRIu64 " failures=%u short_lives=%u wait_ms=%" PRIu64,
		       xfer_ordinal(k, x), x->failures, x->quick, wait_ns / MM_NS_PER_MS);
	x->epoch = msg->id;
	x->start_at_ns = mm_now_ns() + wait_ns;
}

static struct mm_keeper_helper *helper_find(struct mm_keeper *k, enum mm_role role, uint64_t id)
{
	for (size_t i = 0; i < MM_KEEPER_HELPERS_MAX; i++) {
		struct mm_keeper_helper *h = &k->helpers[i];

		if (h->pid && h->role == role && h->id == id)
			return h;
	}
	return NULL;
}

static struct mm_keeper_helper *helper_new(struct mm_keeper *k, enum mm_role role, uint64_t id)
{
	for (size_t i = 0; i < MM_KEEPER_HELPERS_MAX; i++) {
		struct mm_keeper_helper *h = &k->helpers[i];

		if (!h->pid && !h->ended) {
			*h = (struct mm_keeper_helper){ .role = role, .id = id };
			return h;
		}
	}
	return NULL;
}

/* A core that is dead by now has no use for a helper; its successor asks for one itself. */
static void helper_request(struct mm_keeper *k, enum mm_role role, uint64_t id)
{
	struct mm_instance instance = { .role = role, .id = id, .build = k->upgrade.build };
	struct mm_keeper_helper *h;

	if (!mm_keeper_has_core(k) || helper_find(k, role, id))
		return;
	h = helper_new(k, role, id);
	if (h)
		snprintf(h->build, sizeof(h->build), "%s", k->upgrade.build);
	if (!h || !mm_instance_start(&k->core, &k->hold, k->config, &instance, &h->pid))
		mm_instance_gone(&k->core, &instance, W_EXITCODE(1, 0));
}

void mm_children_on_start(struct mm_keeper *k, const struct mm_kmsg *msg)
{
	if (k->stopping)
		return;
	if (msg->role == MM_ROLE_XFER)
		xfer_request(k, msg);
	else if (msg->role == MM_ROLE_LOAD || msg->role == MM_ROLE_SPOOL)
		helper_request(k, (enum mm_role)msg->role, msg->id);
}

void mm_children_on_kill(struct mm_keeper *k, const struct mm_kmsg *msg)
{
	struct mm_keeper_helper *helper = helper_find(k, (enum mm_role)msg->role, msg->id);

	if (helper)
		mm_keeper_child_kill(helper->pid);
	else if (msg->role == MM_ROLE_XFER && msg->id == mm_children_xfer(k, msg)->epoch) {
		mm_children_xfer(k, msg)->excused |= (msg->flags & MM_K_F_EXCUSED) != 0;
		mm_keeper_child_kill(mm_children_xfer(k, msg)->pid);
	}
}

void mm_children_kill(struct mm_keeper *k)
{
	for (uint32_t i = 0; i < k->n_xfers; i++) {
		mm_keeper_child_kill(k->xfer[i].pid);
		k->xfer[i].start_at_ns = UINT64_MAX;
	}
	for (size_t i = 0; i < MM_KEEPER_HELPERS_MAX; i++)
		mm_keeper_child_kill(k->helpers[i].pid);
	k->end_at_ns = mm_now_ns() + MM_KEEPER_STOP_NS;
}

void mm_children_xfer_down(struct mm_keeper *k, struct mm_keeper_xfer *x, const char *why)
{
	struct mm_kmsg msg = { .op = MM_K_DOWN,
			       .role = MM_ROLE_XFER,
			       .device = (uint32_t)(x - k->xfer),
			       .id = x->epoch };
	char text[160];
	bool any = false;

	x->down = true;
	for (uint32_t i = 0; i < k->n_xfers; i++)
		any |= !k->xfer[i].down;
	if (k->ready && any) {
		if (mm_keeper_has_core(k))
			mm_instance_send(&k->core, &msg, NULL, 0);
		return;
	}
	snprintf(text, sizeof(text), "device %" PRIu64 ": %s", xfer_ordinal(k, x), why);
	mm_keeper_fail(k, text);
}

static void xfer_gone(struct mm_keeper *k, struct mm_keeper_xfer *x, int status)
{
	const struct mm_instance instance = { .role = MM_ROLE_XFER,
					      .device = (uint32_t)(x - k->xfer),
					      .id = x->epoch };
	char why[120];

	x->pid = 0;
	x->status = status;
	mm_instance_release(&k->hold, &instance);
	if (!x->proven && !x->down && !x->excused)
		x->failures++;
	if (!x->excused)
		x->quick = mm_now_ns() - x->started_ns < QUICK_NS ? x->quick + 1 : 0;
	if (!k->stopping)
		mm_log(MM_LOG_WARN, "xfer.died", "device=%" PRIu64 " epoch=%" PRIu64 " status=%#x",
		       xfer_ordinal(k, x), x->epoch, (unsigned int)status);
	snprintf(why, sizeof(why),
		 "xfer failed %u times in a row (last wait status %#x); see its messages above",
		 x->failures, (unsigned int)status);
	if (x->failures >= FAILURES_MAX && !x->down && !k->stopping)
		mm_children_xfer_down(k, x, why);
	if (mm_keeper_has_core(k))
		mm_instance_gone(&k->core, &instance, status);
}

/*
 * An xfer that cannot be started (no fds, no processes left) counts as failed, as if it had died,
 * so that retries end.
 */
void mm_children_start_due(struct mm_keeper *k)
{
	for (uint32_t i = 0; i < k->n_xfers && mm_keeper_has_core(k); i++) {
		struct mm_keeper_xfer *x = &k->xfer[i];

		if (x->start_at_ns > mm_now_ns())
			continue;
		x->start_at_ns = UINT64_MAX;
		x->started_ns = mm_now_ns();
		x->proven = x->excused = false;
		snprintf(x->build, sizeof(x->build), "%s", k->upgrade.build);
		if (!mm_instance_start(&k->core, &k->hold, k->config,
				       &(struct mm_instance){ MM_ROLE_XFER, i, x->epoch, x->build },
				       &x->pid))
			xfer_gone(k, x, W_EXITCODE(1, 0));
	}
}

uint64_t mm_children_start_at_ns(const struct mm_keeper *k)
{
	uint64_t at = UINT64_MAX;

	for (uint32_t i = 0; i < k->n_xfers && mm_keeper_has_core(k); i++)
		at = MM_MIN(at, k->xfer[i].start_at_ns);
	return at;
}

static bool xfer_reaped(struct mm_keeper *k, pid_t pid, int status)
{
	for (uint32_t i = 0; i < k->n_xfers; i++) {
		if (k->xfer[i].pid == pid) {
			xfer_gone(k, &k->xfer[i], status);
			return true;
		}
	}
	return false;
}

static void helper_gone(struct mm_keeper *k, struct mm_keeper_helper *h, int status)
{
	const struct mm_instance instance = { .role = h->role, .id = h->id };

	h->pid = 0;
	h->status = status;
	h->ended = !mm_keeper_has_core(k);
	mm_instance_release(&k->hold, &instance);
	if (!h->ended)
		mm_instance_gone(&k->core, &instance, status);
}

static void helper_reaped(struct mm_keeper *k, pid_t pid, int status)
{
	for (size_t i = 0; i < MM_KEEPER_HELPERS_MAX; i++) {
		if (k->helpers[i].pid == pid)
			helper_gone(k, &k->helpers[i], status);
	}
}

void mm_children_reaped(struct mm_keeper *k, pid_t pid, int status)
{
	if (!xfer_reaped(k, pid, status))
		helper_reaped(k, pid, status);
}

bool mm_children_all_reaped(const struct mm_keeper *k)
{
	for (size_t i = 0; i < MM_KEEPER_HELPERS_MAX; i++) {
		if (k->helpers[i].pid)
			return false;
	}
	for (uint32_t i = 0; i < k->n_xfers; i++) {
		if (k->xfer[i].pid)
			return false;
	}
	return true;
}

/* ---- for a successor of core ---- */

void mm_children_kill_loads(struct mm_keeper *k)
{
	for (size_t i = 0; i < MM_KEEPER_HELPERS_MAX; i++) {
		if (k->helpers[i].role == MM_ROLE_LOAD)
			mm_keeper_child_kill(k->helpers[i].pid);
	}
}

bool mm_children_loads_ended(const struct mm_keeper *k)
{
	for (size_t i = 0; i < MM_KEEPER_HELPERS_MAX; i++) {
		if (k->helpers[i].role == MM_ROLE_LOAD && k->helpers[i].pid)
			return false;
	}
	return true;
}

static void xfer_report(struct mm_keeper *k, uint32_t device)
{
	const struct mm_keeper_xfer *x = &k->xfer[device];
	struct mm_kmsg msg = { .op = MM_K_CHILD,
			       .role = MM_ROLE_XFER,
			       .device = device,
			       .id = x->epoch,
			       .pid = x->pid,
			       .flags = x->down ? MM_K_F_DOWN : 0 };

	if (!x->epoch)
		return;
	snprintf(msg.text, sizeof(msg.text), "%s", x->build);
	if (!x->pid && x->start_at_ns == UINT64_MAX) {
		msg.flags |= MM_K_F_ENDED;
		msg.result = x->status;
	}
	mm_instance_send(&k->core, &msg, NULL, 0);
}

static void helper_report(struct mm_keeper *k, const struct mm_keeper_helper *h)
{
	struct mm_kmsg msg = { .op = MM_K_CHILD,
			       .role = h->role,
			       .id = h->id,
			       .pid = h->pid,
			       .flags = h->ended ? MM_K_F_ENDED : 0,
			       .result = h->status };

	snprintf(msg.text, sizeof(msg.text), "%s", h->build);
	if (h->pid || h->ended)
		mm_instance_send(&k->core, &msg, NULL, 0);
}

void mm_children_report(struct mm_keeper *k)
{
	for (uint32_t i = 0; i < k->n_xfers; i++)
		xfer_report(k, i);
	for (size_t i = 0; i < MM_KEEPER_HELPERS_MAX; i++)
		helper_report(k, &k->helpers[i]);
}

void mm_children_forget_ended(struct mm_keeper *k)
{
	for (size_t i = 0; i < MM_KEEPER_HELPERS_MAX; i++)
		k->helpers[i].ended = false;
}
