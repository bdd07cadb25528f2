/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmctl/frame.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/support/clock.h"
#include "libclient/support/json.h"
#include "libclient/support/size.h"

#define WIDE_COLUMNS  120 /* from so many on, rows have more columns */
#define NAME_COLUMNS  14
#define ROWS_MAX      1024
#define LEAST_COLUMNS 20

/* A tenant's row, with what it is sorted by. */
struct frame_row {
	const json_t *t;
	uint64_t weights, kv, beyond, away;
	uint64_t made_free; /* bytes of the layers that are away */
	double step_ms, stall_percent, steps_per_s, streamed_per_s;
};

/* ---- lines ---- */

static void MM_PRINTF(4, 5) line_add(struct mmctl_frame *f, const struct mmctl_frame_opts *o,
				     enum mmctl_line kind, const char *format, ...)
{
	size_t most = MM_MIN(o->columns, (size_t)MMCTL_FRAME_COLUMNS);
	va_list ap;

	if (f->n == MMCTL_FRAME_LINES || (o->lines && f->n == o->lines))
		return;
	va_start(ap, format);
	vsnprintf(f->line[f->n], most + 1, format, ap);
	va_end(ap);
	f->kind[f->n++] = kind;
}

const char *mmctl_frame_name(const char *name, char *to, size_t columns)
{
	size_t n = 0;

	for (; *name; name++) {
		const unsigned char byte = (unsigned char)*name;
		const bool plain = byte >= ' ' && byte < 0x7f && byte != '\\';
		char piece[8];

		snprintf(piece, sizeof(piece), plain ? "%c" : "\\x%02x", byte);
		if (n + strlen(piece) > columns) {
			to[columns - 1] = '~';
			n = columns;
			break;
		}
		memset(to + n, ' ', columns - n);
		memcpy(to + n, piece, strlen(piece));
		n += strlen(piece);
	}
	if (!n)
		to[n++] = '?';
	to[n] = '\0';
	return to;
}

/* ---- pools ---- */

struct bar_part {
	char sign;
	uint64_t pages;
};

static uint64_t transit_pages(const json_t *pages)
{
	return mm_json_u64(pages, "dirty") + mm_json_u64(pages, "scrubbing") +
	       mm_json_u64(pages, "revoking") + mm_json_u64(pages, "not_created");
}

/* Draws @n parts of @all over @columns; each that is not empty has one column at least. */
static void bar_draw(const struct bar_part *part, size_t n, uint64_t all, size_t columns, char *to)
{
	uint64_t sum = 0;
	size_t at = 0;

	for (size_t i = 0; i < n; i++) {
		size_t end;

		sum += part[i].pages;
		end = all ? (size_t)(sum * columns / all) : 0;
		if (part[i].pages && end <= at)
			end = at + 1;
		for (; at < MM_MIN(end, columns); at++)
			to[at] = part[i].sign;
	}
	for (; at < columns; at++)
		to[at] = '.';
	to[columns] = '\0';
}

static void pool_add(const json_t *device, const struct mmctl_frame_opts *o, struct mmctl_frame *f)
{
	const json_t *pages = json_object_get(device, "pages");
	const json_t *facts = json_object_get(device, "device");
	const uint64_t all = mm_json_u64(device, "pool_pages"), kv = mm_json_u64(pages, "kv");
	const uint64_t page = mm_json_u64(device, "page_bytes");
	const uint64_t weights = mm_json_u64(pages, "param") + mm_json_u64(pages, "slot");
	const struct bar_part part[] = {
		{ '#', mm_json_u64(pages, "param") },
		{ '=', mm_json_u64(pages, "slot") },
		{ 'k', kv },
		{ 'm', mm_json_u64(pages, "mem") },
		{ '~', transit_pages(pages) },
		{ '!', mm_json_u64(pages, "quarantine") },
	};
	const bool down = strcmp(mm_json_text(device, "state"), "down") == 0;
	char bar[MMCTL_FRAME_COLUMNS + 1], size[5][MM_SIZE_TEXT_BYTES], head[16];
	size_t columns = MM_MIN(o->columns, (size_t)MMCTL_FRAME_COLUMNS), used;

	used = (size_t)snprintf(head, sizeof(head), "%3" PRIu64 " ", mm_json_u64(facts, "ordinal"));
	columns = columns > used + LEAST_COLUMNS ? columns - used - 2 : LEAST_COLUMNS;
	bar_draw(part, MM_ARRAY_SIZE(part), all, columns, bar);
	line_add(f, o, down ? MMCTL_LINE_WARN : MMCTL_LINE_PLAIN, "%s[%s]", head, bar);
	line_add(f, o, down ? MMCTL_LINE_WARN : MMCTL_LINE_PLAIN,
		 "    %s of %s: weights %s, KV %s, in transit %s, free %s", down ? "DOWN" : "pool",
		 mm_size_print(all * page, size[0]), mm_size_print(weights * page, size[1]),
		 mm_size_print(kv * page, size[2]),
		 mm_size_print(transit_pages(pages) * page, size[3]),
		 mm_size_print(mm_json_u64(pages, "free") * page, size[4]));
}

/* ---- rows ---- */

static const json_t *tenant_before(const json_t *before, uint64_t id)
{
	const json_t *t;
	size_t i;

	json_array_foreach(json_object_get(before, "tenants"), i, t)
		if (mm_json_u64(t, "tenant") == id)
			return t;
	return NULL;
}

static double rate_of(const json_t *t, const json_t *was, const char *key, double seconds)
{
	const uint64_t now = mm_json_u64(t, key), then = mm_json_u64(was, key);

	return was && now > then && seconds > 0 ? (double)(now - then) / seconds : 0;
}

static uint64_t device_page_bytes(const json_t *status, const json_t *t)
{
	const json_t *device;
	size_t i;

	json_array_foreach(json_object_get(status, "devices"), i, device)
		if (mm_json_u64(json_object_get(device, "device"), "ordinal") ==
		    mm_json_u64(t, "device"))
			return mm_json_u64(device, "page_bytes");
	return 0;
}

static void row_fill(const json_t *now, const json_t *before, double seconds, const json_t *t,
		     struct frame_row *row)
{
	const json_t *was = tenant_before(before, mm_json_u64(t, "tenant"));
	const uint64_t page = device_page_bytes(now, t), chunks = mm_json_u64(t, "kv_chunks");
	const uint64_t share = mm_json_u64(t, "kv_chunks_share");

	*row = (struct frame_row){ .t = t };
	row->weights = (mm_json_u64(t, "pages_param") + mm_json_u64(t, "pages_slot")) * page;
	row->away = mm_json_u64(t, "alpha");
	row->made_free = mm_json_u64(t, "weights_device_bytes");
	row->made_free -= row->away ? MM_MIN(row->weights, row->made_free) : row->made_free;
	row->kv = mm_json_u64(t, "pages_kv") * page;
	row->beyond = chunks > share ? row->kv / chunks * (chunks - share) : 0;
	row->step_ms = (double)mm_json_u64(t, "step_last_ns") / 1e6;
	row->steps_per_s = rate_of(t, was, "steps", seconds);
	row->stall_percent = rate_of(t, was, "stall_total_ns", seconds) / 1e7;
	row->streamed_per_s = rate_of(t, was, "bytes_streamed", seconds);
}

static enum mmctl_sort rows_sort_by;

static int number_order(double a, double b)
{
	return (a < b) - (a > b);
}

static int row_order(const void *a, const void *b)
{
	const struct frame_row *x = a, *y = b;
	int r = 0;

	if (rows_sort_by == MMCTL_SORT_KV)
		r = number_order((double)x->kv, (double)y->kv);
	else if (rows_sort_by == MMCTL_SORT_AWAY)
		r = number_order((double)x->away, (double)y->away);
	else if (rows_sort_by == MMCTL_SORT_STEP)
		r = number_order(x->step_ms, y->step_ms);
	else if (rows_sort_by == MMCTL_SORT_STALL)
		r = number_order(x->stall_percent, y->stall_percent);
	else if (rows_sort_by == MMCTL_SORT_WEIGHTS)
		r = number_order((double)x->weights, (double)y->weights);
	if (!r)
		r = strcmp(mm_json_text(x->t, "name"), mm_json_text(y->t, "name"));
	return r ? r
		 : number_order((double)mm_json_u64(y->t, "tenant"),
				(double)mm_json_u64(x->t, "tenant"));
}

const char *mmctl_frame_state(const json_t *t)
{
	if (mm_json_u64(t, "kv_chunks_revoking"))
		return "revoked";
	if (mm_json_flag(t, "drains"))
		return "drains";
	if (mm_json_flag(t, "model_activates"))
		return "activates";
	if (mm_json_flag(t, "model_pinned"))
		return "pinned";
	if (mm_json_flag(t, "model_held"))
		return "held";
	if (mm_json_flag(json_object_get(t, "turns"), "waits"))
		return "waits";
	return mm_json_flag(t, "idle") ? "idle" : "works";
}

static void rows_head_add(const struct mmctl_frame_opts *o, struct mmctl_frame *f)
{
	const bool wide = o->columns >= WIDE_COLUMNS;

	line_add(f, o, MMCTL_LINE_HEAD, "%-*s %3s %9s %9s %9s %7s %7s %6s %-9s%s", NAME_COLUMNS,
		 "NAME", "DEV", "WEIGHTS", "KV", "BEYOND", "AWAY", "STEP ms", "STALL", "STATE",
		 wide ? " STEPS/s   STREAM/s RUN  WAIT      PID ACCOUNT" : "");
}

static void row_add(const struct frame_row *row, const struct mmctl_frame_opts *o,
		    struct mmctl_frame *f)
{
	char name[NAME_COLUMNS + 1], account[NAME_COLUMNS + 1], size[4][MM_SIZE_TEXT_BYTES];
	char away[24], more[96] = "";

	snprintf(away, sizeof(away), "%" PRIu64 "/%" PRIu64, row->away,
		 mm_json_u64(row->t, "layers"));
	if (o->columns >= WIDE_COLUMNS)
		snprintf(more, sizeof(more), "%8.1f %10s %3" PRIu64 " %5" PRIu64 " %8" PRIu64 " %s",
			 row->steps_per_s, mm_size_print((uint64_t)row->streamed_per_s, size[3]),
			 mm_json_u64(row->t, "running"), mm_json_u64(row->t, "waiting"),
			 mm_json_u64(row->t, "pid"),
			 mmctl_frame_name(mm_json_text(row->t, "account"), account, NAME_COLUMNS));
	line_add(f, o, MMCTL_LINE_PLAIN, "%-*s %3" PRIu64 " %9s %9s %9s %7s %7.2f %5.1f%% %-9s%s",
		 NAME_COLUMNS, mmctl_frame_name(mm_json_text(row->t, "name"), name, NAME_COLUMNS),
		 mm_json_u64(row->t, "device"), mm_size_print(row->weights, size[0]),
		 mm_size_print(row->kv, size[1]), mm_size_print(row->beyond, size[2]), away,
		 row->step_ms, row->stall_percent, mmctl_frame_state(row->t), more);
}

/* ---- whether mmd helps ---- */

/*
 * Layers that are away make room for KV that there would not be. Of the running requests as many
 * live in it, on the average, as it is of all KV.
 */
static void help_add(const struct frame_row *row, size_t n, const struct mmctl_frame_opts *o,
		     struct mmctl_frame *f)
{
	char size[MM_SIZE_TEXT_BYTES];
	uint64_t made_free = 0, away = 0, kv = 0, running = 0;
	double stall = 0;
	size_t works = 0;

	for (size_t i = 0; i < n; i++) {
		made_free += row[i].made_free;
		away += row[i].away;
		kv += row[i].kv;
		running += mm_json_u64(row[i].t, "running");
		stall += row[i].steps_per_s > 0 ? row[i].stall_percent : 0;
		works += row[i].steps_per_s > 0;
	}
	made_free = MM_MIN(made_free, kv);
	if (!made_free)
		line_add(f, o, MMCTL_LINE_PLAIN, "help: no layer is away for KV now");
	else
		line_add(f, o, MMCTL_LINE_PLAIN,
			 "help: %" PRIu64 " layers away are %s of KV: %.0f of %" PRIu64
			 " requests run in it; stall %.1f %%",
			 away, mm_size_print(made_free, size),
			 (double)running * (double)made_free / (double)kv, running,
			 works ? stall / (double)works : 0);
}

/* ---- the frame ---- */

static bool name_passes(const json_t *t, const char *filter)
{
	return !*filter || strstr(mm_json_text(t, "name"), filter);
}

static void title_add(const json_t *now, const struct mmctl_frame_opts *o, size_t shown,
		      struct mmctl_frame *f)
{
	static const char *const names[MMCTL_SORTS] = { "KV",   "name",  "away",
							"step", "stall", "weights" };
	char filter[MMCTL_FILTER_BYTES + 16] = "", word[MMCTL_FILTER_BYTES];
	char version[NAME_COLUMNS + 1], policy[NAME_COLUMNS + 1];

	if (*o->filter)
		snprintf(filter, sizeof(filter), ", /%s",
			 mmctl_frame_name(o->filter, word, sizeof(word) - 1));
	line_add(f, o, MMCTL_LINE_TITLE,
		 "mmd %s, policy %s, up %" PRIu64 " s: %zu of %zu tenants by %s%s",
		 mmctl_frame_name(mm_json_text(now, "version"), version, NAME_COLUMNS),
		 mmctl_frame_name(mm_json_text(now, "policy"), policy, NAME_COLUMNS),
		 mm_json_u64(now, "uptime_ns") / MM_NS_PER_S, shown,
		 json_array_size(json_object_get(now, "tenants")), names[o->sort], filter);
}

void mmctl_frame_make(const json_t *now, const json_t *before, double seconds,
		      const struct mmctl_frame_opts *o, struct mmctl_frame *f)
{
	static struct frame_row row[ROWS_MAX];
	const json_t *item;
	size_t i, n = 0;

	f->n = 0;
	json_array_foreach(json_object_get(now, "tenants"), i, item)
		if (n < ROWS_MAX && name_passes(item, o->filter))
			row_fill(now, before, seconds, item, &row[n++]);
	rows_sort_by = o->sort;
	qsort(row, n, sizeof(row[0]), row_order);
	title_add(now, o, n, f);
	json_array_foreach(json_object_get(now, "devices"), i, item)
		pool_add(item, o, f);
	line_add(f, o, MMCTL_LINE_PLAIN,
		 "    # weights  = slots  k KV  m other  ~ in transit  ! quarantined  . free");
	help_add(row, n, o, f);
	line_add(f, o, MMCTL_LINE_PLAIN, "%s", "");
	rows_head_add(o, f);
	for (i = MM_MIN(o->first, n ? n - 1 : 0); i < n; i++)
		row_add(&row[i], o, f);
}
