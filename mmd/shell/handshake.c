/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/handshake.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "libclient/ipc/sock.h"
#include "libclient/protocol/xplan.h"
#include "mmd/common/pidfd.h"
#include "mmd/shell/check.h"
#include "mmd/shell/session_kept.h"
#include "mmd/shell/session_out.h"
#include "mmd/shell/shell.h"

#define NO_ROOM "mmd is out of memory or file descriptors; try again later"

int mm_handshake_peer(struct mm_session *s)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	if (getsockopt(s->fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
		return -errno;
	s->pid = cred.pid;
	s->uid = cred.uid;
	s->gid = cred.gid;
	if (cred.pid == 0)
		return -EPERM;
	return mm_pidfd_of_peer(s->fd, &s->pidfd);
}

/* Fills in the facts of the session's pool; without a pool only what is the same for all pools. */
static void welcome_fill(const struct mm_session *s, struct mm_welcome *w)
{
	const struct mm_device *any = &s->shell->pool[0].worker.device;

	*w = (struct mm_welcome){
		.magic = MM_ABI_MAGIC,
		.abi_major = MM_ABI_MAJOR,
		.abi_minor = MM_ABI_MINOR,
		.size_bytes = sizeof(*w),
		.n_devices = s->shell->n_pools,
	};
	snprintf(w->driver, sizeof(w->driver), "%s", mm_driver_name(any->driver_kind));
	snprintf(w->policy, sizeof(w->policy), "%s",
		 mm_policy_name((enum mm_policy)s->shell->config->policy));
	if (!s->pool)
		return;
	w->page_bytes = s->pool->worker.device.page_bytes;
	w->pool_pages = s->pool->worker.device.pages;
	memcpy(w->device_uuid, s->pool->worker.device.uuid, sizeof(w->device_uuid));
}

static int hello_refuse_at(enum mm_log_level level, struct mm_session *s, int result,
			   const char *reason)
{
	struct mm_welcome w;

	welcome_fill(s, &w);
	w.result = result;
	snprintf(w.reason, sizeof(w.reason), "%s", reason);
	mm_session_log(s, level, "tenant.refused", "pid=%d uid=%u result=%d reason=\"%s\"",
		       (int)s->pid, s->uid, result, reason);
	mm_sock_send(s->fd, &w, sizeof(w), NULL, 0);
	return result;
}

static int hello_refuse(struct mm_session *s, int result, const char *reason)
{
	return hello_refuse_at(MM_LOG_WARN, s, result, reason);
}

#ifdef MM_REGIONS_FIRST /* a build of tests/e2e/test_upgrade makes them as the first version did */
#define GATE_REGION_BYTES MM_GATE_REGION_BYTES_MIN
#define PLAN_REGION_BYTES MM_XPLAN_REGION_BYTES_MIN
#else
#define GATE_REGION_BYTES sizeof(struct mm_gate_region)
#define PLAN_REGION_BYTES sizeof(struct mm_xplan_region)
#endif

static int regions_create(struct mm_session *s)
{
	const struct {
		struct mm_region *region;
		size_t bytes;
		enum mm_region_kind kind;
		const char *name;
	} wanted[] = {
		{ &s->tenant_region, sizeof(struct mm_tenant_region), MM_REGION_SHARED,
		  "mm-tenant" },
		{ &s->mmd_region, sizeof(struct mm_mmd_region), MM_REGION_READONLY, "mm-mmd" },
		{ &s->gate_region, GATE_REGION_BYTES, MM_REGION_SHARED, "mm-gate" },
		{ &s->plan_region, PLAN_REGION_BYTES, MM_REGION_READONLY, "mm-plan" },
		{ &s->cursor_region, sizeof(struct mm_xcursor_region), MM_REGION_SHARED,
		  "mm-cursor" },
	};

	for (size_t i = 0; i < MM_ARRAY_SIZE(wanted); i++) {
		int r = mm_region_create(wanted[i].bytes, wanted[i].kind, wanted[i].name,
					 wanted[i].region);

		if (r < 0)
			return r;
	}
	return 0;
}

int mm_handshake_welcome(struct mm_session *s)
{
	int fds[] = { s->tenant_region.fd, s->mmd_region.fd, s->gate_region.fd };
	struct mm_welcome w;
	int r;

	welcome_fill(s, &w);
	w.tenant_id = s->tenant;
	w.features = s->features;
	memcpy(w.session, s->token, sizeof(w.session));
	r = mm_sock_send(s->fd, &w, sizeof(w), fds, MM_ARRAY_SIZE(fds));
	/* Our mappings stay valid; these two fds would only count against our limit. */
	mm_close_fd(&s->tenant_region.fd);
	mm_close_fd(&s->mmd_region.fd);
	if (r == 0)
		mm_kept_publish(&s->kept->welcomed, 1u);
	return r;
}

/* The features that mmd answers to a tenant that offers all that there are. */
static uint64_t features_answered(const struct mm_session *s)
{
	const struct mm_xfacts *facts = &s->pool->worker.device.facts;
	const uint64_t cold = facts->attributes & MM_XFACT_COLD ? MM_FEAT_COLD : 0;

	return MM_FEAT_REMAP | MM_FEAT_RECLAIM | MM_FEAT_PARTIAL | MM_FEAT_REASON | MM_FEAT_RESUME |
	       MM_FEAT_DEMAND | MM_FEAT_MEM | MM_FEAT_HOLD | MM_FEAT_GROUP | MM_FEAT_KEY |
	       MM_FEAT_UNLOAD | MM_FEAT_LEAVE | cold | mm_core_features(s->pool->core);
}

static int session_join(struct mm_session *s, const struct mm_hello *hello)
{
	const struct mm_event event = {
		.kind = MM_EVENT_JOIN,
		.now_ns = mm_now_ns(),
		.join = { .account = s->account,
			  .features = (hello->features | hello->features_required) &
				      features_answered(s) },
	};
	const struct mm_event_source source = mm_session_source(s);
	char account[MM_ACCOUNT_NAME_BYTES];
	struct mm_event_result result;

	s->features = event.join.features;
	memcpy(s->name, hello->name, sizeof(s->name));
	mm_session_note(s);
	mm_session_init_rings(s, false);
	/* It leaves no actions, which would not find the session yet. */
	mm_pool_event(s->pool, &event, &source, &result);
	if (result.r != 0)
		return -EUSERS;
	s->tenant = result.tenant;
	mm_session_set_state(s, MM_SESSION_OPEN);
	s->idle_by_ns = mm_quota_is_ours(s) || !s->shell->config->idle_ms
				? UINT64_MAX
				: mm_now_ns() + s->shell->config->idle_ms * MM_NS_PER_MS;
	mm_worker_tenant(s->pool, s->tenant);
	mm_session_log(s, MM_LOG_INFO, "tenant.joined",
		       "tenant=%u name=%s pid=%d uid=%u account=%s device=%" PRIu64, s->tenant,
		       s->name, (int)s->pid, s->uid, mm_quota_name(s->shell, s->account, account),
		       s->pool->ordinal);
	return 0;
}

static size_t uuid_text(char *text, size_t bytes, const uint8_t *uuid)
{
	size_t at = 0;

	for (size_t i = 0; i < 16 && at + 2 < bytes; i++)
		at += (size_t)snprintf(text + at, bytes - at, "%02x", uuid[i]);
	return at;
}

/*
 * Refuses a hello whose device mmd does not have. libclient names no device at first to find out
 * which driver to use: among several devices that is refused, but not worth a warning.
 */
static int hello_refuse_device(struct mm_session *s, const struct mm_hello *hello)
{
	static const uint8_t any[sizeof(hello->device_uuid)];
	bool names_none = memcmp(hello->device_uuid, any, sizeof(any)) == 0;
	char reason[MM_REASON_BYTES];
	size_t at;

	if (names_none) {
		at = (size_t)snprintf(reason, sizeof(reason),
				      "this mmd has %u devices, say which:", s->shell->n_pools);
	} else {
		at = (size_t)snprintf(reason, sizeof(reason), "device ");
		at += uuid_text(reason + at, sizeof(reason) - at, hello->device_uuid);
		at += (size_t)snprintf(reason + at, sizeof(reason) - at,
				       " is not one that this mmd has:");
	}
	for (uint32_t i = 0; i < s->shell->n_pools && at + 1 < sizeof(reason); i++) {
		reason[at++] = ' ';
		at += uuid_text(reason + at, sizeof(reason) - at,
				s->shell->pool[i].worker.device.uuid);
	}
	return hello_refuse_at(names_none ? MM_LOG_DEBUG : MM_LOG_WARN, s, -ENODEV, reason);
}

/* Return: 0; negative errno: the hello was refused. */
static int hello_check_required(struct mm_session *s, const struct mm_hello *hello)
{
	uint64_t missing = hello->features_required & ~features_answered(s);
	char reason[MM_REASON_BYTES];

	if (!missing)
		return 0;
	snprintf(reason, sizeof(reason),
		 "required features %#" PRIx64 " are not in use: this mmd runs with --policy %s",
		 missing, mm_policy_name((enum mm_policy)s->shell->config->policy));
	return hello_refuse(s, -ENOTSUP, reason);
}

/* Return: 0; negative errno: the hello was refused. */
static int session_account_check(struct mm_session *s)
{
	char reason[MM_REASON_BYTES];
	const char *why;
	int r = mm_quota_resolve(s, &why);

	if (r < 0)
		return hello_refuse(s, r, why);
	return mm_quota_may_connect(s, reason) ? 0 : hello_refuse(s, -EDQUOT, reason);
}

/*
 * The first message is what the tenant takes for the answer to its hello: if not the welcome, then
 * a refusal, which needs no descriptors, and nothing after it.
 */
static void welcome_failed(struct mm_session *s, int error)
{
	hello_refuse(s, error, NO_ROOM);
	(void)shutdown(s->fd, SHUT_WR);
}

/* Takes the hello, which was only read so far, out of the queue. */
static int hello_drop(const struct mm_session *s)
{
	unsigned char bytes[MM_GREETING_BYTES_MAX];
	size_t len;

	return mm_session_recv(s, bytes, sizeof(bytes), &len);
}

static int session_welcome(struct mm_session *s, const struct mm_hello *hello)
{
	int r;

	s->pool = mm_pool_by_uuid(s->shell, hello->device_uuid);
	if (!s->pool)
		return hello_refuse_device(s, hello);
	if (s->pool->down)
		return hello_refuse(s, -ENODEV,
				    "the device is down: its xfer keeps failing; see mmd's log");
	if (mm_leave_is_on(s->shell))
		return hello_refuse(s, -ESHUTDOWN, "mmd is shutting down");
	r = hello_check_required(s, hello);
	if (r == 0)
		r = session_account_check(s);
	if (r < 0)
		return r;
	r = regions_create(s);
	if (r == 0 && getrandom(s->token, sizeof(s->token), 0) != sizeof(s->token))
		r = -EIO;
	if (r == 0)
		r = mm_session_hold(s);
	if (r < 0)
		return hello_refuse(s, r, NO_ROOM);
	r = session_join(s, hello);
	if (r < 0)
		return hello_refuse(
			s, r, "as many tenants or accounts as this mmd can have are connected");
	r = hello_drop(s) ? -ECONNRESET : mm_handshake_welcome(s);
	if (r < 0)
		welcome_failed(s, r);
	return r;
}

int mm_handshake_resume(struct mm_session *s)
{
	unsigned char byte[2];
	size_t len = 0;
	int r = mm_sock_peek(s->fd, byte, sizeof(byte), &len);

	/* A doorbell is one byte. */
	if ((r == 0 || r == -EMSGSIZE) && len > 1)
		(void)hello_drop(s);
	return mm_handshake_welcome(s);
}

int mm_handshake(struct mm_session *s)
{
	unsigned char bytes[MM_GREETING_BYTES_MAX];
	char reason[MM_REASON_BYTES];
	struct mm_hello hello;
	size_t len;
	int r = mm_sock_peek(s->fd, bytes, sizeof(bytes), &len);

	if (r == -EAGAIN)
		return r;
	if (r == -EPERM)
		return hello_refuse(s, r,
				    "hello: it carries file descriptors, which mmd never takes");
	if (r == -EMSGSIZE)
		return hello_refuse(s, -EPROTO, "hello: too long: not an mmd client");
	if (r < 0)
		return r;
	if (s->pid == 0)
		return hello_refuse(s, -EPERM,
				    "your process cannot be seen from mmd's pid namespace; "
				    "run mmd in yours or above "
				    "(containers: hostPID: true or --pid=host for mmd)");
	r = mm_hello_check(bytes, len, &hello, reason);
	if (r < 0)
		return hello_refuse(s, r, reason);
	return session_welcome(s, &hello);
}
