/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/workload/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/number.h"
#include "libclient/base/random.h"

enum trace_column { COL_ARRIVAL, COL_PROMPT, COL_OUTPUT, COL_TENANT, COL_COUNT };

static const char *const column_names[COL_COUNT] = {
	[COL_ARRIVAL] = "arrival_s",
	[COL_PROMPT] = "prompt_tokens",
	[COL_OUTPUT] = "output_tokens",
	[COL_TENANT] = "tenant",
};

struct trace_reader {
	const char *path;
	unsigned long line;
	bool lengths_only; /* the column arrival_s may be missing */
	int at[COL_COUNT]; /* field index of each column; -1: the file lacks it */
	int fields;
	double last_s;
	char *errbuf;
	size_t errbuf_bytes;
};

MM_PRINTF(2, 3) static int trace_refuse(struct trace_reader *r, const char *format, ...)
{
	char what[160];
	va_list args;

	va_start(args, format);
	vsnprintf(what, sizeof(what), format, args);
	va_end(args);
	snprintf(r->errbuf, r->errbuf_bytes, "%s:%lu: %s", r->path, r->line, what);
	return -EBADMSG;
}

static int row_push(struct mm_trace *trace, const struct mm_trace_row *row)
{
	if (trace->n == trace->room) {
		size_t room = trace->room ? 2 * trace->room : 256;
		struct mm_trace_row *rows = reallocarray(trace->rows, room, sizeof(*rows));

		if (!rows)
			return -ENOMEM;
		trace->rows = rows;
		trace->room = room;
	}
	trace->rows[trace->n++] = *row;
	return 0;
}

static int read_header(struct trace_reader *r, char *text)
{
	for (int c = 0; c < COL_COUNT; c++)
		r->at[c] = -1;
	for (char *field; (field = strsep(&text, ",")); r->fields++) {
		int c = 0;

		while (c < COL_COUNT && strcmp(field, column_names[c]))
			c++;
		if (c == COL_COUNT)
			return trace_refuse(
				r,
				"unknown column '%.40s'; known: arrival_s, prompt_tokens, "
				"output_tokens, tenant",
				field);
		if (r->at[c] >= 0)
			return trace_refuse(r, "column '%s' twice", field);
		r->at[c] = r->fields;
	}
	for (int c = r->lengths_only ? COL_PROMPT : COL_ARRIVAL; c < COL_TENANT; c++) {
		if (r->at[c] < 0)
			return trace_refuse(r, "no column '%s' in the header line",
					    column_names[c]);
	}
	return 0;
}

static int parse_seconds(struct trace_reader *r, const char *text, double *ret_s)
{
	char *end;
	double s = strtod(text, &end);

	if (end == text || *end)
		return trace_refuse(r, "arrival_s '%.40s' is not a number", text);
	if (!isfinite(s) || s < 0)
		return trace_refuse(r, "arrival_s '%.40s' is not a time from 0 up", text);
	if (s < r->last_s)
		return trace_refuse(
			r, "arrival_s %g is before the row above (%g): rows must be sorted", s,
			r->last_s);
	*ret_s = r->last_s = s;
	return 0;
}

static int count_parse(struct trace_reader *r, enum trace_column column, const char *text,
		       uint64_t least, uint64_t most, uint32_t *ret_count)
{
	uint64_t value;

	if (mm_number_parse(text, &value))
		return trace_refuse(r, "%s '%.40s' is not a whole number", column_names[column],
				    text);
	if (value < least || value > most)
		return trace_refuse(r, "%s %" PRIu64 " is not in %" PRIu64 "..%" PRIu64,
				    column_names[column], value, least, most);
	*ret_count = (uint32_t)value;
	return 0;
}

static int read_row(struct trace_reader *r, char *text, uint32_t tenants,
		    struct mm_trace_row *ret_row)
{
	const char *field[COL_COUNT] = { 0 };
	struct mm_trace_row row = { 0 };
	int n = 0, err = 0;

	for (char *part; (part = strsep(&text, ",")); n++) {
		if (n < r->fields)
			field[n] = part;
	}
	if (n != r->fields)
		return trace_refuse(r, "%d fields, the header has %d", n, r->fields);
	if (r->at[COL_ARRIVAL] >= 0)
		err = parse_seconds(r, field[r->at[COL_ARRIVAL]], &row.arrival_s);
	if (!err)
		err = count_parse(r, COL_PROMPT, field[r->at[COL_PROMPT]], 1, MM_TRACE_TOKENS_MAX,
				  &row.prompt_tokens);
	if (!err)
		err = count_parse(r, COL_OUTPUT, field[r->at[COL_OUTPUT]], 1, MM_TRACE_TOKENS_MAX,
				  &row.output_tokens);
	if (!err && r->at[COL_TENANT] >= 0)
		err = count_parse(r, COL_TENANT, field[r->at[COL_TENANT]], 0, tenants - 1,
				  &row.tenant);
	if (!err)
		*ret_row = row;
	return err;
}

static int read_rows(struct trace_reader *r, FILE *file, uint32_t tenants, struct mm_trace *trace)
{
	mm_cleanup(mm_free_ptr) char *text = NULL;
	size_t room = 0;
	ssize_t len;

	while ((len = getline(&text, &room, file)) > 0) {
		struct mm_trace_row row;
		int err;

		r->line++;
		text[strcspn(text, "\r\n")] = '\0';
		if (strlen(text) + 2 < (size_t)len)
			return trace_refuse(r, "a NUL byte: this is not a text file");
		err = r->line == 1 ? read_header(r, text) : read_row(r, text, tenants, &row);
		if (!err && r->line > 1)
			err = row_push(trace, &row);
		if (err)
			return err;
		if (trace->n > MM_TRACE_ROWS_MAX)
			return trace_refuse(r, "more than %d rows", MM_TRACE_ROWS_MAX);
	}
	if (ferror(file))
		return trace_refuse(r, "read error");
	if (!trace->n)
		return trace_refuse(r, "no rows");
	return 0;
}

static int by_arrival(const void *a, const void *b)
{
	const struct mm_trace_row *x = a, *y = b;

	if (x->arrival_s != y->arrival_s)
		return x->arrival_s < y->arrival_s ? -1 : 1;
	return (x->tenant > y->tenant) - (x->tenant < y->tenant);
}

/* Gives each tenant a window of the rows: AAAA BBBB CCCC, each counted from second 0. */
static void give_windows(struct mm_trace *trace, uint32_t tenants)
{
	double begin_s = 0;

	for (size_t i = 0; i < trace->n; i++) {
		uint32_t tenant = (uint32_t)(i * tenants / trace->n);

		if (i == 0 || tenant != trace->rows[i - 1].tenant)
			begin_s = trace->rows[i].arrival_s;
		trace->rows[i].tenant = tenant;
		trace->rows[i].arrival_s -= begin_s;
	}
}

static uint32_t scale_tokens(uint32_t tokens, double scale)
{
	double scaled = round(tokens * scale);

	return (uint32_t)MM_MIN(MM_MAX(scaled, 1.0), (double)MM_TRACE_TOKENS_MAX);
}

static void trace_reshape(struct mm_trace *trace, const struct mm_trace_shape *shape)
{
	size_t kept = 0;

	for (size_t i = 0; i < trace->n; i++) {
		struct mm_trace_row row = trace->rows[i];

		row.arrival_s /= shape->speed;
		row.prompt_tokens = scale_tokens(row.prompt_tokens, shape->token_scale);
		row.output_tokens = scale_tokens(row.output_tokens, shape->token_scale);
		if (shape->duration_s <= 0 || row.arrival_s < shape->duration_s)
			trace->rows[kept++] = row;
	}
	trace->n = kept;
	if (trace->n)
		qsort(trace->rows, trace->n, sizeof(*trace->rows), by_arrival);
}

static int trace_read_file(struct trace_reader *r, uint32_t tenants, struct mm_trace *ret_trace)
{
	mm_cleanup(mm_trace_done) struct mm_trace trace = { 0 };
	mm_cleanup(mm_close_file) FILE *file = fopen(r->path, "re");
	int err;

	if (!file) {
		err = -errno;
		snprintf(r->errbuf, r->errbuf_bytes, "%s: cannot open: %m", r->path);
		return err;
	}
	err = read_rows(r, file, tenants, &trace);
	if (err == -ENOMEM)
		snprintf(r->errbuf, r->errbuf_bytes, "%s: out of memory", r->path);
	if (err)
		return err;
	*ret_trace = trace;
	trace = (struct mm_trace){ 0 };
	return 0;
}

int mm_trace_read(const char *path, const struct mm_trace_shape *shape, struct mm_trace *ret_trace,
		  char *errbuf, size_t errbuf_bytes)
{
	struct trace_reader r = { .path = path, .errbuf = errbuf, .errbuf_bytes = errbuf_bytes };
	struct mm_trace trace;
	int err = trace_read_file(&r, shape->tenants, &trace);

	if (err)
		return err;
	if (r.at[COL_TENANT] < 0)
		give_windows(&trace, shape->tenants);
	trace_reshape(&trace, shape);
	*ret_trace = trace;
	return 0;
}

int mm_trace_read_rows(const char *path, bool lengths_only, struct mm_trace *ret_trace,
		       char *errbuf, size_t errbuf_bytes)
{
	struct trace_reader r = { .path = path,
				  .lengths_only = lengths_only,
				  .errbuf = errbuf,
				  .errbuf_bytes = errbuf_bytes };

	return trace_read_file(&r, MM_TRACE_TENANTS_MAX, ret_trace);
}

static uint32_t random_between(uint64_t *state, uint32_t least, uint32_t most)
{
	return least + (uint32_t)mm_random_below(state, (uint64_t)most - least + 1);
}

#define BURST_EVERY_S  4.0
#define BURST_LENGTH_S 1.0

static int add_burst(struct mm_trace *trace, uint64_t *state, uint32_t tenant, double begin_s)
{
	uint32_t n = random_between(state, 20, 28);

	for (uint32_t i = 0; i < n; i++) {
		struct mm_trace_row row = {
			.arrival_s =
				begin_s + BURST_LENGTH_S * random_between(state, 0, 999) / 1000.0,
			.prompt_tokens = random_between(state, 16, 96),
			.output_tokens = random_between(state, 48, 144),
			.tenant = tenant,
		};
		int r = row_push(trace, &row);

		if (r)
			return r;
	}
	return 0;
}

int mm_trace_synthesize(const struct mm_trace_shape *shape, struct mm_trace *ret_trace)
{
	mm_cleanup(mm_trace_done) struct mm_trace trace = { 0 };
	uint64_t state = shape->seed;
	uint32_t burst = 0;

	for (double s = 0; s < shape->duration_s; s += BURST_EVERY_S, burst++) {
		int r = add_burst(&trace, &state, burst % shape->tenants, s);

		if (!r && burst % 3 == 2)
			r = add_burst(&trace, &state, (burst + 1) % shape->tenants, s + 0.5);
		if (r)
			return r;
	}
	trace_reshape(&trace, shape);
	*ret_trace = trace;
	trace = (struct mm_trace){ 0 };
	return 0;
}

size_t mm_trace_rows(const struct mm_trace *trace, uint32_t tenant)
{
	size_t n = 0;

	for (size_t i = 0; i < trace->n; i++)
		n += trace->rows[i].tenant == tenant;
	return n;
}

int mm_trace_write(const struct mm_trace *trace, uint32_t tenant, const char *path)
{
	FILE *file = fopen(path, "we");
	int rows = 0, err = 0;

	if (!file)
		return -errno;
	fprintf(file, "arrival_s,prompt_tokens,output_tokens\n");
	for (size_t i = 0; i < trace->n; i++) {
		const struct mm_trace_row *row = &trace->rows[i];

		if (row->tenant != tenant)
			continue;
		fprintf(file, "%.6f,%u,%u\n", row->arrival_s, row->prompt_tokens,
			row->output_tokens);
		rows++;
	}
	if (ferror(file))
		err = -EIO;
	if (fclose(file) && !err)
		err = -errno;
	return err ? err : rows;
}

void mm_trace_done(struct mm_trace *trace)
{
	free(trace->rows);
	*trace = (struct mm_trace){ 0 };
}
