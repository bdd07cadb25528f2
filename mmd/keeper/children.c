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

static uint64_t backoff_growing_ns(unsigned int times, uint64_t max_ns)
{
	if (times < 2)
		return 0;
	return MM_MIN(MM_KEEPER_BACKOFF_NS << MM_MIN(times - 2, 10u), max_ns);
}

/*
 * An xfer that works a little and dies has not failed to start, but repeated quick deaths are
 * delayed as well.
 */
static uint64_t xfer_backoff_ns(const struct mm_keeper_xfer *x)
{
	if (x->down)
		return BACKOFF_DOWN_NS;
	return MM_MAX(backoff_growing_ns(x->failures, BACKOFF_MAX_NS),
		      backoff_growing_ns(x->quick, BACKOFF_QUICK_NS));
}

static void xfer_request(struct mm_keeper *k, const struct mm_kmsg *msg)
{
	struct mm_keeper_xfer *x = mm_children_xfer(k, msg);
	uint64_t wait_ns = xfer_backoff_ns(x);

	if (x->pid || x->start_at_ns != UINT64_MAX) {
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

static void helper_request(struct mm_keeper *k, enum mm_role role, uint64_t id)
{
	struct mm_instance instance = { .role = role, .id = id };

	for (size_t i = 0; i < MM_KEEPER_HELPERS_MAX; i++) {
		if (!k->helpers[i].pid) {
			k->helpers[i].role = role;
			k->helpers[i].id = id;
			if (!mm_instance_start(&k->core, k->config, &instance, &k->helpers[i].pid))
				break;
			return;
		}
	}
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
	else if (msg->role == MM_ROLE_XFER && msg->id == mm_children_xfer(k, msg)->epoch)
		mm_keeper_child_kill(mm_children_xfer(k, msg)->pid);
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
		mm_instance_send(&k->core, &msg, NULL, 0);
		return;
	}
	snprintf(text, sizeof(text), "device %" PRIu64 ": %s", xfer_ordinal(k, x), why);
	mm_keeper_fail(k, text);
}

static void xfer_gone(struct mm_keeper *k, struct mm_keeper_xfer *x, int status)
{
	char why[120];

	x->pid = 0;
	if (!x->proven && !x->down)
		x->failures++;
	x->quick = mm_now_ns() - x->started_ns < QUICK_NS ? x->quick + 1 : 0;
	if (!k->stopping)
		mm_log(MM_LOG_WARN, "xfer.died", "device=%" PRIu64 " epoch=%" PRIu64 " status=%#x",
		       xfer_ordinal(k, x), x->epoch, (unsigned int)status);
	snprintf(why, sizeof(why),
		 "xfer failed %u times in a row (last wait status %#x); see its messages above",
		 x->failures, (unsigned int)status);
	if (x->failures >= FAILURES_MAX && !x->down && !k->stopping)
		mm_children_xfer_down(k, x, why);
	mm_instance_gone(&k->core,
			 &(struct mm_instance){ MM_ROLE_XFER, (uint32_t)(x - k->xfer), x->epoch },
			 status);
}

/*
 * An xfer that cannot be started (no fds, no processes left) counts as failed, as if it had died,
 * so that retries end.
 */
void mm_children_start_due(struct mm_keeper *k)
{
	for (uint32_t i = 0; i < k->n_xfers; i++) {
		struct mm_keeper_xfer *x = &k->xfer[i];

		if (x->start_at_ns > mm_now_ns())
			continue;
		x->start_at_ns = UINT64_MAX;
		x->started_ns = mm_now_ns();
		x->proven = false;
		if (!mm_instance_start(&k->core, k->config,
				       &(struct mm_instance){ MM_ROLE_XFER, i, x->epoch }, &x->pid))
			xfer_gone(k, x, W_EXITCODE(1, 0));
	}
}

uint64_t mm_children_start_at_ns(const struct mm_keeper *k)
{
	uint64_t at = UINT64_MAX;

	for (uint32_t i = 0; i < k->n_xfers; i++)
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

static void helper_reaped(struct mm_keeper *k, pid_t pid, int status)
{
	for (size_t i = 0; i < MM_KEEPER_HELPERS_MAX; i++) {
		if (k->helpers[i].pid == pid) {
			k->helpers[i].pid = 0;
			mm_instance_gone(&k->core,
					 &(struct mm_instance){ .role = k->helpers[i].role,
								.id = k->helpers[i].id },
					 status);
		}
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
