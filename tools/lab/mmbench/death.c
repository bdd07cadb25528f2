/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/mmbench/death.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "libclient/ipc/sock.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "libclient/support/json.h"
#include "tools/lab/common/series.h"
#include "tools/lab/hostile/raw.h"
#include "tools/lab/mmbench/arena.h"
#include "tools/lab/mmbench/bare_scrub.h"

#define PATIENCE_NS (60 * MM_NS_PER_S)

struct death {
	const struct mm_death_opts *opts;
	struct mm_arena arena;
	struct mm_bare_scrub scrub;
	struct mm_series grant_ms, bare_ms;
};

static int death_fail(struct death *b, int error, const char *what)
{
	snprintf(b->arena.err, sizeof(b->arena.err), "%s: %s", what, strerror(-error));
	return error;
}

/*
 * A tenant, in a process of its own: mmd may kill who has pages and no connection any more. It
 * reports with a byte that it is connected, takes all pages when it gets one, and reports again.
 */
struct heir {
	pid_t pid; /* 0: none */
	int sock;
};

_Noreturn static void heir_live(const struct death *b, int sock)
{
	struct mm_raw *raw = calloc(1, sizeof(*raw));
	char byte = 1;

	if (!raw || mm_raw_open(raw, b->arena.mmd.socket, "tenant", 0) ||
	    write(sock, &byte, 1) != 1 || read(sock, &byte, 1) != 1 ||
	    mm_raw_take_pages(raw, (uint32_t)b->opts->pages, PATIENCE_NS) ||
	    write(sock, &byte, 1) != 1)
		_exit(1);
	for (;;)
		pause();
}

static void heir_end(struct heir *h)
{
	if (h->pid > 0) {
		kill(h->pid, SIGKILL);
		waitpid(h->pid, NULL, 0);
	}
	h->pid = 0;
	mm_close_fd(&h->sock);
}

static bool heir_await(const struct heir *h)
{
	char byte;

	return read(h->sock, &byte, 1) == 1;
}

static bool heir_go(const struct heir *h)
{
	const char byte = 1;

	return write(h->sock, &byte, 1) == 1;
}

/* Return: 0, once it is connected; negative errno. */
static int heir_start(struct death *b, struct heir *ret)
{
	int pair[2], r = mm_sock_pair(pair);

	*ret = (struct heir){ .sock = -1 };
	if (r)
		return death_fail(b, r, "a pair of sockets");
	ret->pid = fork();
	if (ret->pid == 0) {
		close(pair[0]);
		heir_live(b, pair[1]);
	}
	ret->sock = pair[0];
	close(pair[1]);
	if (ret->pid < 0)
		return death_fail(b, -errno, "fork");
	return heir_await(ret) ? 0 : death_fail(b, -EIO, "a tenant cannot connect");
}

/* One death. Return: 0; negative errno. */
static int death_once(struct death *b)
{
	mm_cleanup(heir_end) struct heir victim = { .sock = -1 };
	mm_cleanup(heir_end) struct heir heir = { .sock = -1 };
	uint64_t began_ns, left = 0;
	int r = heir_start(b, &victim);

	if (!r && !(heir_go(&victim) && heir_await(&victim)))
		r = death_fail(b, -EIO, "the tenant that is to die does not get its pages");
	if (!r)
		r = heir_start(b, &heir);
	if (r)
		return r;
	began_ns = mm_now_ns();
	kill(victim.pid, SIGKILL);
	if (!heir_go(&heir) || !heir_await(&heir))
		return death_fail(b, -EIO, "nobody gets the pages of the tenant that died");
	mm_series_add(&b->grant_ms, (double)(mm_now_ns() - began_ns) / 1e6);
	heir_end(&victim);
	heir_end(&heir);
	return mm_arena_drain(&b->arena, PATIENCE_NS, &left);
}

static int death_run(struct death *b)
{
	const struct mm_arena_opts opts = { .keep_dir = b->opts->keep_dir,
					    .pool_bytes = b->opts->pages * b->opts->page_bytes,
					    .page_bytes = b->opts->page_bytes,
					    .seed = 1 };
	double ms = 0;
	int r = mm_arena_open(&b->arena, &opts);

	if (!r) {
		r = mm_bare_scrub_init(&b->scrub, b->opts->pages, b->opts->page_bytes);
		if (r)
			snprintf(b->arena.err, sizeof(b->arena.err), "%s", b->scrub.err);
	}
	/* The first ones touch memory that was never used. */
	if (!r)
		r = mm_bare_scrub_run(&b->scrub, &ms);
	for (uint32_t i = 0; !r && i < b->opts->deaths; i++) {
		r = death_once(b);
		if (!r)
			r = mm_bare_scrub_run(&b->scrub, &ms);
		if (!r)
			mm_series_add(&b->bare_ms, ms);
	}
	return r;
}

static int death_report(const struct death *b)
{
	const double p50 = mm_series_percentile(&b->grant_ms, 50);
	const double p99 = mm_series_percentile(&b->grant_ms, 99);
	const double bare = mm_series_percentile(&b->bare_ms, 50);
	const double ratio = bare > 0 ? p50 / bare : 0;
	mm_cleanup(mm_json_done) json_t *json = NULL;

	if (!b->opts->json) {
		printf("%" PRIu64 " pages of %" PRIu64 " bytes, %u deaths\n", b->opts->pages,
		       b->opts->page_bytes, b->grant_ms.n);
		printf("another tenant has them all after %.1f ms (P50), %.1f ms (P99)\n", p50,
		       p99);
		printf("a bare fill of as many takes %.1f ms (P50): ratio %.2f\n", bare, ratio);
		return 0;
	}
	json = json_pack("{s:i, s:I, s:I, s:I, s:f, s:f, s:f, s:f}", "schema", 1, "pages",
			 (json_int_t)b->opts->pages, "page_bytes", (json_int_t)b->opts->page_bytes,
			 "deaths", (json_int_t)b->grant_ms.n, "granted_p50_ms", p50,
			 "granted_p99_ms", p99, "bare_p50_ms", bare, "ratio", ratio);
	return json ? mm_json_print(json, JSON_COMPACT) : -ENOMEM;
}

int mm_bench_death(const struct mm_death_opts *opts)
{
	struct death b = { .opts = opts };
	int r = death_run(&b);

	if (r)
		fprintf(stderr, "mmbench: death: %s\n", b.arena.err);
	else
		r = death_report(&b);
	mm_arena_close(&b.arena);
	mm_gpu_close(&b.scrub.gpu);
	mm_series_done(&b.grant_ms);
	mm_series_done(&b.bare_ms);
	return r ? 1 : 0;
}

#define AT(field) MM_OPT_AT(struct mm_death_opts, field)

const struct mm_opt mm_death_options[] = {
	{ "pages", "N", "pages of the pool, which the tenant holds", MM_OPT_NUMBER, AT(pages),
	  .preset = "1000", .min = 1, .max = MM_RAW_FDS_MAX },
	{ "page", "SIZE", "size of a page", MM_OPT_SIZE, AT(page_bytes), .preset = "64K",
	  .min = 4096, .max = UINT64_C(16) << 20 },
	{ "deaths", "N", "times that a tenant dies", MM_OPT_NUMBER, AT(deaths), .preset = "20",
	  .min = 1, .max = 100000 },
	{ "keep", "DIR", "leave logs in DIR", MM_OPT_TEXT, AT(keep_dir) },
	{ "json", NULL, "print one JSON object instead of sentences", MM_OPT_FLAG, AT(json) },
	{ 0 },
};
