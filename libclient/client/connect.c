/* SPDX-License-Identifier: Apache-2.0 */
/* Connects to mmd: finds the socket, does the handshake and maps the three shared regions. */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "libclient/client/internal.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "libclient/ipc/reach.h"
#include "libclient/ipc/sock.h"

#define PATH_BYTES      108
#define POOL_PAGES_MAX  (UINT32_C(1) << 24)
#define PAGE_BYTES_MAX  (UINT64_C(1) << 36)
#define FDS_OF_WELCOME  3
#define AGAIN_NS        (10 * MM_NS_PER_MS) /* before another attempt; doubled each time */
#define AGAIN_MAX_NS    (MM_NS_PER_S / 2)
#define SOCKET_FALLBACK "/run/mmd/tenant.sock"

struct failure {
	char *text;
	size_t bytes;
};

static int MM_PRINTF(3, 4) connect_fail(const struct failure *f, int error, const char *format, ...)
{
	va_list args;

	if (f->text && f->bytes) {
		va_start(args, format);
		vsnprintf(f->text, f->bytes, format, args);
		va_end(args);
	}
	return error;
}

/* ---- the socket ---- */

static int connect_path(const char *path, uint64_t timeout_ns, int *ret_fd, const struct failure *f)
{
	int r = mm_sock_connect(path, timeout_ns, ret_fd);
	char why[PATH_BYTES + 256];

	if (!r)
		return 0;
	if (r == -EAGAIN)
		return connect_fail(f, -ETIMEDOUT, "mmd does not answer at %s: too many wait there",
				    path);
	mm_reach_explain(path, -r, why, sizeof(why));
	return connect_fail(f, r, "cannot connect to mmd: %s", why);
}

static int connect_default(const char *path, uint64_t timeout_ns, int *ret_fd,
			   const struct failure *f)
{
	const char *runtime = secure_getenv("XDG_RUNTIME_DIR");
	char own[PATH_BYTES];
	int r;

	if (!path)
		path = secure_getenv(MM_SOCKET_ENV);
	if (path && *path)
		return connect_path(path, timeout_ns, ret_fd, f);
	if (runtime && *runtime &&
	    (size_t)snprintf(own, sizeof(own), "%s/mmd/tenant.sock", runtime) < sizeof(own)) {
		r = connect_path(own, timeout_ns, ret_fd, f);
		if (r != -ENOENT && r != -ECONNREFUSED)
			return r;
	}
	return connect_path(SOCKET_FALLBACK, timeout_ns, ret_fd, f);
}

/* ---- the handshake ---- */

static void hello_fill(const struct mm_client *c, struct mm_hello *hello,
		       const struct mm_client_opts *opts)
{
	const char *name = opts->name ? opts->name : program_invocation_short_name;

	*hello = (struct mm_hello){
		.magic = MM_ABI_MAGIC,
		.abi_major = MM_ABI_MAJOR,
		.size_bytes = sizeof(*hello),
		.features = MM_FEAT_RECLAIM | MM_FEAT_REASON | MM_FEAT_KV_FIXED | MM_FEAT_KV_SWAP |
			    MM_FEAT_RESUME | MM_FEAT_DEMAND | MM_FEAT_MEM | MM_FEAT_HOLD |
			    MM_FEAT_GROUP | MM_FEAT_KEY | MM_FEAT_UNLOAD | MM_FEAT_LEAVE |
			    (opts->flags & MM_CLIENT_NO_REMAP
				     ? 0
				     : MM_FEAT_REMAP | MM_FEAT_PARTIAL | MM_FEAT_COLD),
	};
	memcpy(hello->device_uuid, c->device_uuid, sizeof(hello->device_uuid));
	snprintf(hello->name, sizeof(hello->name), "%s", *name ? name : "tenant");
	mm_sanitize(hello->name, sizeof(hello->name));
	/* The name is one word in log lines of mmd and in arguments of mmctl. */
	for (char *p = hello->name; *p; p++)
		if (strchr(" '\"\\", *p))
			*p = '_';
}

static void welcome_close_fds(int *fds, size_t n_fds)
{
	for (size_t i = 0; i < n_fds; i++)
		mm_close_fd(&fds[i]);
}

static bool name_is_valid(const char *name)
{
	size_t n = strnlen(name, MM_NAME_BYTES);

	for (size_t i = 0; i < n; i++)
		if (name[i] <= ' ' || name[i] > '~')
			return false;
	return n && n < MM_NAME_BYTES;
}

static int welcome_refuse(struct mm_welcome *w, const struct failure *f)
{
	mm_sanitize(w->reason, sizeof(w->reason));
	if (w->result < -4095 || !name_is_valid(w->driver))
		return connect_fail(f, -EPROTO, "mmd's answer is malformed");
	return connect_fail(f, w->result, "mmd refused: %s",
			    *w->reason ? w->reason : strerror(-w->result));
}

/* A name or a feature that this library does not know is no reason to refuse mmd. */
static int welcome_check(struct mm_welcome *w, size_t len, size_t n_fds, const struct failure *f)
{
	if (len < offsetof(struct mm_welcome, size_bytes) || w->magic != MM_ABI_MAGIC)
		return connect_fail(f, -EPROTO, "what answers there is not mmd");
	if (w->abi_major != MM_ABI_MAJOR)
		return connect_fail(
			f, -EPROTO,
			"mmd speaks ABI version %u, this library %u; install matching versions",
			w->abi_major, MM_ABI_MAJOR);
	if (len < MM_WELCOME_BYTES_MIN || len != w->size_bytes)
		return connect_fail(f, -EPROTO, "mmd's answer is %zu bytes long, and says %u", len,
				    w->size_bytes);
	if (w->result < 0)
		return welcome_refuse(w, f);
	if (w->result > 0 || n_fds != FDS_OF_WELCOME || !name_is_valid(w->policy) ||
	    !name_is_valid(w->driver) || !w->page_bytes || w->page_bytes > PAGE_BYTES_MAX ||
	    w->page_bytes % MM_ABI_PAGE_BYTES || !w->pool_pages || w->pool_pages > POOL_PAGES_MAX)
		return connect_fail(f, -EPROTO, "mmd's answer is malformed");
	return 0;
}

union answer { /* a later version of mmd may send more than we know */
	struct mm_welcome known;
	unsigned char bytes[MM_GREETING_BYTES_MAX];
};

/* Return: 0; -ECONNRESET the connection ended without an answer; other negative errno. */
static int hello_send(struct mm_client *c, const struct mm_hello *hello, uint64_t deadline_ns,
		      union answer *ret_answer, size_t *ret_len, int *fds, size_t *ret_n_fds)
{
	int r = mm_sock_send(c->sock, hello, sizeof(*hello), NULL, 0);

	/* An mmd that refuses unread may have said why. */
	if (!r || r == -ECONNRESET)
		r = mm_sock_wait(c->sock, POLLIN, deadline_ns);
	if (!r)
		r = mm_sock_recv(c->sock, ret_answer, sizeof(*ret_answer), fds, FDS_OF_WELCOME,
				 ret_n_fds, ret_len);
	return r;
}

/* An mmd whose core starts anew ends connections that were not welcomed: they come again. */
static int shake_hands(struct mm_client *c, const struct mm_client_opts *opts, int *fds,
		       const struct failure *f)
{
	uint64_t deadline_ns = mm_deadline_ns(c->timeout_ns), pause_ns = AGAIN_NS;
	union answer answer = { 0 };
	struct mm_hello hello;
	size_t n_fds = 0, len = 0;
	int r;

	hello_fill(c, &hello, opts);
	while (true) {
		const struct timespec pause = mm_timespec(pause_ns);
		const uint64_t now_ns = mm_now_ns();

		mm_close_fd(&c->sock);
		r = connect_default(opts->socket_path,
				    deadline_ns > now_ns ? deadline_ns - now_ns : 0, &c->sock, f);
		if (r)
			return r;
		r = hello_send(c, &hello, deadline_ns, &answer, &len, fds, &n_fds);
		if (r != -ECONNRESET || mm_now_ns() + pause_ns >= deadline_ns)
			break;
		nanosleep(&pause, NULL);
		pause_ns = MM_MIN(2 * pause_ns, AGAIN_MAX_NS);
	}
	if (r)
		return connect_fail(f, r, "mmd did not answer: %s", strerror(-r));
	c->welcome = answer.known;
	c->welcome.features &= hello.features;
	r = welcome_check(&c->welcome, len, n_fds, f);
	if (r)
		welcome_close_fds(fds, n_fds);
	return r;
}

/* ---- the three regions ---- */

/*
 * Maps a region and takes @fd over. A child of fork() does not inherit the mapping: what it wrote
 * there would count as the parent's.
 */
static int region_open(int *fd, size_t least_bytes, size_t most_bytes, bool writable,
		       struct mm_region *ret_region)
{
	int r = mm_region_open_between(*fd, least_bytes, most_bytes, writable, ret_region);

	*fd = -1;
	if (!r)
		madvise(ret_region->base, ret_region->size_bytes, MADV_DONTFORK);
	return r;
}

static int regions_open(struct mm_client *c, int *fds, const struct failure *f)
{
	int r = region_open(&fds[0], MM_TENANT_REGION_BYTES_MIN, sizeof(struct mm_tenant_region),
			    true, &c->tenant_region);

	if (!r)
		r = region_open(&fds[1], MM_MMD_REGION_BYTES_MIN, sizeof(struct mm_mmd_region),
				false, &c->mmd_region);
	if (!r)
		r = region_open(&fds[2], MM_GATE_REGION_BYTES_MIN, sizeof(struct mm_gate_region),
				true, &c->gate_region);
	welcome_close_fds(fds, FDS_OF_WELCOME);
	if (r)
		return connect_fail(f, r, "cannot map what mmd shares: %s", strerror(-r));
	c->tenant = c->tenant_region.base;
	c->mmd = c->mmd_region.base;
	c->gates = c->gate_region.base;
	/* An mmd that promises more than its region holds is not to cost the engine a fault. */
	if (c->gate_region.size_bytes < sizeof(struct mm_gate_region))
		c->welcome.features &= ~MM_FEAT_COLD;
	mm_ring_init(&c->sq, c->tenant->sq, MM_SQ_SLOTS, &c->tenant->sq_tail, &c->mmd->sq_head);
	mm_ring_init(&c->cq, (mm_msg_slot *)(uintptr_t)c->mmd->cq, MM_CQ_SLOTS, &c->tenant->cq_head,
		     &c->mmd->cq_tail);
	return 0;
}

int mm_connect(struct mm_client *client, const struct mm_client_opts *opts, char *errbuf,
	       size_t errbuf_bytes)
{
	const struct failure f = { errbuf, errbuf_bytes };
	int fds[FDS_OF_WELCOME] = { -1, -1, -1 };
	int r = shake_hands(client, opts, fds, &f);

	if (!r)
		r = regions_open(client, fds, &f);
	return r;
}
