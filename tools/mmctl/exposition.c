/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmctl/exposition.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "libclient/base/base.h"
#include "tools/mmctl/metrics_table.h"

#define NANO         UINT64_C(1000000000)
#define BOUNDS_MAX   64
#define LABELS_BYTES 1024 /* room for all labels of a sample, escaped */

/* ---- which format ---- */

/* Reads "0.75" as 750; what is no such number is 0, and 1000 is the most. */
static uint32_t quality_parse(const char *text)
{
	uint32_t value = 0, unit = 1000;

	if (*text != '0' && *text != '1')
		return 0;
	value = (uint32_t)(*text++ - '0') * unit;
	if (*text == '.')
		for (text++; unit > 1 && isdigit((unsigned char)*text); text++)
			value += (uint32_t)(*text - '0') * (unit /= 10);
	return MM_MIN(value, 1000);
}

/* Returns the quality of an element of the header, "type/subtype; a=b; q=0.5". */
static uint32_t range_quality(char *range)
{
	char *save = NULL;
	uint32_t quality = 1000;

	for (char *part = strtok_r(range, ";", &save); part; part = strtok_r(NULL, ";", &save)) {
		part += strspn(part, " \t");
		if ((*part == 'q' || *part == 'Q') && part[1] == '=')
			quality = quality_parse(part + 2);
	}
	return quality;
}

static bool range_is(const char *range, const char *type)
{
	const size_t n = strlen(type);

	return strncasecmp(range, type, n) == 0 && (!range[n] || strchr("; \t", range[n]));
}

bool mmctl_exposition_is_open(const char *accept)
{
	uint32_t open = 0, plain = 0, quality;
	char *copy = accept ? strdup(accept) : NULL, *save = NULL;

	for (char *range = copy ? strtok_r(copy, ",", &save) : NULL; range;
	     range = strtok_r(NULL, ",", &save)) {
		range += strspn(range, " \t");
		const bool is_open = range_is(range, "application/openmetrics-text");

		if (!is_open && !range_is(range, "text/plain") && !range_is(range, "text/*"))
			continue;
		quality = range_quality(range);
		if (is_open)
			open = MM_MAX(open, quality);
		else
			plain = MM_MAX(plain, quality);
	}
	free(copy);
	return open && open >= plain;
}

/* ---- texts ---- */

struct labels {
	char text[LABELS_BYTES];
	size_t n;
};

static void labels_put(struct labels *l, const char *text, size_t n)
{
	if (n >= sizeof(l->text) - l->n)
		return;
	memcpy(l->text + l->n, text, n);
	l->n += n;
	l->text[l->n] = '\0';
}

/* Adds name="value". Room for the whole of it is looked for first, so that none is cut. */
static void labels_add(struct labels *l, const char *name, const char *value)
{
	const size_t before = l->n;

	if (2 * strlen(value) + strlen(name) + 8 > sizeof(l->text) - l->n)
		value = "";
	if (before)
		labels_put(l, ",", 1);
	labels_put(l, name, strlen(name));
	labels_put(l, "=\"", 2);
	for (; *value; value++) {
		if (*value == '\n')
			labels_put(l, "\\n", 2);
		else if (*value == '"' || *value == '\\')
			labels_put(l, (const char[]){ '\\', *value }, 2);
		else
			labels_put(l, value, 1);
	}
	labels_put(l, "\"", 1);
}

/* Returns what is shown of a tenant's name. */
static const char *tenant_shown(struct mmctl_names *names, const char *account, const char *tenant)
{
	uint32_t of_account = 0;

	if (strlen(account) >= MMCTL_NAME_BYTES || strlen(tenant) >= MMCTL_NAME_BYTES)
		return "other";
	for (uint32_t i = 0; i < names->n; i++) {
		if (strcmp(names->name[i].account, account) != 0)
			continue;
		if (strcmp(names->name[i].tenant, tenant) == 0)
			return tenant;
		of_account++;
	}
	if (of_account == MMCTL_NAMES_EACH || names->n == MMCTL_NAMES_MAX)
		return "other";
	strcpy(names->name[names->n].account, account);
	strcpy(names->name[names->n++].tenant, tenant);
	return tenant;
}

/* ---- samples ---- */

struct exposition {
	FILE *to;
	bool open;
	struct mmctl_names *names;
	uint64_t bound_ns[BOUNDS_MAX];
	uint32_t bounds;
};

static void label_member_add(struct exposition *e, struct labels *l, const json_t *object,
			     const char *name)
{
	const json_t *member = json_object_get(object, name);
	const char *text = json_string_value(member);
	char number[24];

	if (!text) {
		snprintf(number, sizeof(number), "%" PRId64, (int64_t)json_integer_value(member));
		text = number;
	} else if (strcmp(name, "tenant") == 0) {
		text = tenant_shown(e->names, mm_json_text(object, "account"), text);
	}
	labels_add(l, name, text);
}

static void labels_make(struct exposition *e, const struct mmctl_metric *m, const json_t *object,
			struct labels *ret_labels)
{
	*ret_labels = (struct labels){ .n = 0 };
	for (size_t i = 0; mmctl_metric_labels[m->scope][i]; i++)
		label_member_add(e, ret_labels, object, mmctl_metric_labels[m->scope][i]);
	for (size_t i = 0; m->extra[i]; i++)
		label_member_add(e, ret_labels, object, m->extra[i]);
}

/* Whole numbers only, so that no digit is lost; seconds keep their nanoseconds. */
static void value_write(FILE *to, enum mmctl_metric_scale scale, uint64_t value)
{
	if (scale == MMCTL_NANO)
		fprintf(to, "%" PRIu64 ".%09" PRIu64, value / NANO, value % NANO);
	else if (scale == MMCTL_PERMILLE)
		fprintf(to, "%" PRIu64 ".%03" PRIu64, value / 1000, value % 1000);
	else
		fprintf(to, "%" PRIu64, value);
}

static void sample_write(const struct exposition *e, const struct mmctl_metric *m,
			 const char *suffix, const struct labels *l, enum mmctl_metric_scale scale,
			 uint64_t value)
{
	fprintf(e->to, "%s%s", m->name, suffix);
	if (l->n)
		fprintf(e->to, "{%s}", l->text);
	fputc(' ', e->to);
	value_write(e->to, scale, value);
	fputc('\n', e->to);
}

/* Writes a bound as OpenMetrics wants it: the shortest number, with a point. */
static void bound_print(uint64_t ns, char *text, size_t bytes)
{
	size_t n;

	snprintf(text, bytes, "%" PRIu64 ".%09" PRIu64, ns / NANO, ns % NANO);
	for (n = strlen(text); n > 2 && text[n - 1] == '0' && text[n - 2] != '.'; n--)
		text[n - 1] = '\0';
}

static void histogram_write(const struct exposition *e, const struct mmctl_metric *m,
			    const struct labels *l, const json_t *times)
{
	const json_t *counts = json_object_get(times, "counts");
	uint64_t sum = 0;
	char bound[40];

	if (json_array_size(counts) != e->bounds + 1)
		return;
	for (uint32_t i = 0; i <= e->bounds; i++) {
		struct labels all = *l;

		sum += (uint64_t)json_integer_value(json_array_get(counts, i));
		if (i < e->bounds)
			bound_print(e->bound_ns[i], bound, sizeof(bound));
		labels_add(&all, "le", i < e->bounds ? bound : "+Inf");
		sample_write(e, m, "_bucket", &all, MMCTL_ONES, sum);
	}
	sample_write(e, m, "_sum", l, MMCTL_NANO, mm_json_u64(times, "sum_ns"));
	sample_write(e, m, "_count", l, MMCTL_ONES, sum);
}

static void object_write(struct exposition *e, const struct mmctl_metric *m, const json_t *object)
{
	const json_t *member = json_object_get(object, m->key);
	const char *suffix = m->type == MMCTL_COUNTER ? "_total" : "";
	struct labels l;
	const char *key;
	json_t *value;

	labels_make(e, m, object, &l);
	if (m->type == MMCTL_HISTOGRAM) {
		histogram_write(e, m, &l, member);
	} else if (m->spread) {
		json_object_foreach((json_t *)(uintptr_t)member, key, value) {
			struct labels all = l;

			labels_add(&all, m->spread, key);
			sample_write(e, m, suffix, &all, m->scale,
				     (uint64_t)json_integer_value(value));
		}
	} else if (json_is_integer(member)) {
		sample_write(e, m, suffix, &l, m->scale, (uint64_t)json_integer_value(member));
	}
}

/* Only in OpenMetrics the name of a counter lacks its suffix here, and units are said. */
static void head_write(const struct exposition *e, const struct mmctl_metric *m)
{
	const char *suffix = m->type == MMCTL_COUNTER && !e->open ? "_total" : "";

	fprintf(e->to, "# HELP %s%s %s%s.\n", m->name, suffix, m->help,
		m->claim ? ", as the tenant claims" : "");
	fprintf(e->to, "# TYPE %s%s %s\n", m->name, suffix, mmctl_metric_types[m->type]);
	if (e->open && m->unit)
		fprintf(e->to, "# UNIT %s %s\n", m->name, m->unit);
}

static void family_write(struct exposition *e, const struct mmctl_metric *m, const json_t *own,
			 const json_t *answer)
{
	static const char *const keys[MMCTL_SCOPES] = {
		[MMCTL_SCOPE_NODE] = "node",
		[MMCTL_SCOPE_DEVICE] = "devices",
		[MMCTL_SCOPE_ACCOUNT] = "accounts",
		[MMCTL_SCOPE_TENANT] = "tenants",
	};
	const json_t *all = keys[m->scope] ? json_object_get(answer, keys[m->scope]) : own, *one;
	size_t i;

	if (!all)
		return;
	head_write(e, m);
	if (json_is_object(all))
		object_write(e, m, all);
	json_array_foreach(all, i, one)
		object_write(e, m, one);
}

void mmctl_exposition_write(FILE *to, bool open, const json_t *own, const json_t *answer,
			    struct mmctl_names *names)
{
	struct exposition e = { .to = to, .open = open, .names = names };
	const json_t *bounds = json_object_get(answer, "bounds_ns"), *bound;
	size_t i;

	json_array_foreach(bounds, i, bound)
		if (i < BOUNDS_MAX)
			e.bound_ns[e.bounds++] = (uint64_t)json_integer_value(bound);
	for (i = 0; i < mmctl_metrics_n; i++)
		family_write(&e, &mmctl_metrics[i], own, answer);
	if (open)
		fputs("# EOF\n", to);
}
