/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/config/tune.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "libclient/base/base.h"

#define VALUE_BYTES 24

static const struct mm_knob *knob_find(const char *name, size_t bytes, uint32_t *ret_index)
{
	const struct mm_knob *k;

	for (uint32_t i = 0; (k = mm_knob_at(i)); i++) {
		if (strlen(k->name) == bytes && memcmp(k->name, name, bytes) == 0) {
			*ret_index = i;
			return k;
		}
	}
	return NULL;
}

/* Text for a sentence: as much as fits, without bytes that a terminal would obey. */
static const char *text_shown(const char *text, size_t bytes, char *ret)
{
	bytes = MM_MIN(bytes, (size_t)VALUE_BYTES - 1);
	for (size_t i = 0; i < bytes; i++)
		ret[i] = text[i] >= ' ' && text[i] <= '~' ? text[i] : '?';
	ret[bytes] = '\0';
	return ret;
}

static int tune_choice_parse(const struct mm_knob *k, const char *text, size_t bytes,
			     uint64_t *ret_value)
{
	for (uint64_t i = 0; k->names[i]; i++) {
		if (strlen(k->names[i]) == bytes && memcmp(k->names[i], text, bytes) == 0) {
			*ret_value = i + 1;
			return 0;
		}
	}
	return -EINVAL;
}

static int tune_number_parse(const char *text, size_t bytes, uint64_t *ret_value)
{
	uint64_t sum = 0;

	if (!bytes)
		return -EINVAL;
	for (size_t i = 0; i < bytes; i++) {
		if (text[i] < '0' || text[i] > '9')
			return -EINVAL;
		if (sum < UINT64_MAX / 10 - 10)
			sum = sum * 10 + (uint64_t)(text[i] - '0');
	}
	*ret_value = sum;
	return 0;
}

static int tune_value_parse(const struct mm_knob *k, const char *text, size_t bytes,
			    struct mm_core_opts *opts, char *error)
{
	char shown[VALUE_BYTES];
	uint64_t value;
	int r = k->names ? tune_choice_parse(k, text, bytes, &value)
			 : tune_number_parse(text, bytes, &value);

	text_shown(text, bytes, shown);
	if (r < 0)
		snprintf(error, MM_TUNE_ERROR_BYTES, "%s: '%s' is %s%s", k->name, shown,
			 k->names ? "none of: " : "no number", k->names ? k->arg : "");
	if (r == 0 && !k->names && (value < k->min || value > k->max)) {
		snprintf(error, MM_TUNE_ERROR_BYTES, "%s: %s is not within %llu to %llu", k->name,
			 shown, (unsigned long long)k->min, (unsigned long long)k->max);
		r = -EINVAL;
	}
	if (r == 0)
		mm_knob_set(k, value, opts);
	return r;
}

static int knob_unknown(const char *name, size_t bytes, const char *shown, char *error)
{
	struct mm_opt_near near = { .word = name, .bytes = bytes };
	const struct mm_knob *k;

	for (uint32_t i = 0; (k = mm_knob_at(i)); i++)
		mm_opt_near_offer(&near, k->name);
	snprintf(error, MM_TUNE_ERROR_BYTES, "'%s': no such knob%s%s%s", shown,
		 near.best ? "; did you mean " : "", near.best ? near.best : "",
		 near.best ? "?" : "");
	return -EINVAL;
}

static int tune_pair_parse(const char *pair, size_t bytes, struct mm_core_opts *opts,
			   uint64_t *seen, char *error)
{
	const char *equals = memchr(pair, '=', bytes);
	size_t name_bytes = equals ? (size_t)(equals - pair) : bytes;
	uint32_t index = 0;
	const struct mm_knob *k = knob_find(pair, name_bytes, &index);
	char name[VALUE_BYTES];
	uint64_t bit;

	static_assert(MM_KNOBS_MAX <= 64, "@seen has a bit for each");
	text_shown(pair, name_bytes, name);
	if (!k)
		return knob_unknown(pair, name_bytes, name, error);
	if (!equals) {
		snprintf(error, MM_TUNE_ERROR_BYTES, "%s: needs a value: %s=%s", name, k->name,
			 k->arg);
		return -EINVAL;
	}
	bit = UINT64_C(1) << index;
	if (*seen & bit) {
		snprintf(error, MM_TUNE_ERROR_BYTES, "%s: is there twice", name);
		return -EINVAL;
	}
	*seen |= bit;
	return tune_value_parse(k, equals + 1, bytes - name_bytes - 1, opts, error);
}

int mm_tune_parse(const char *text, struct mm_core_opts *opts, char *error)
{
	struct mm_core_opts to = *opts;
	uint64_t seen = 0;
	int r = 0;

	if (strnlen(text, MM_TUNE_TEXT_BYTES) == MM_TUNE_TEXT_BYTES) {
		snprintf(error, MM_TUNE_ERROR_BYTES, "longer than %d bytes",
			 MM_TUNE_TEXT_BYTES - 1);
		return -EINVAL;
	}
	while (r == 0) {
		size_t bytes = strcspn(text, ",");

		r = tune_pair_parse(text, bytes, &to, &seen, error);
		if (!text[bytes])
			break;
		text += bytes + 1;
	}
	if (r == 0)
		*opts = to;
	return r;
}

const struct mm_opt *mm_tune_opts(void)
{
	static struct mm_opt opts[MM_KNOBS_MAX + 1];
	static char presets[MM_KNOBS_MAX][VALUE_BYTES];
	const struct mm_knob *k;

	for (uint32_t i = 0; (k = mm_knob_at(i)); i++) {
		if (k->names)
			snprintf(presets[i], VALUE_BYTES, "%s", k->names[k->fallback - 1]);
		else
			snprintf(presets[i], VALUE_BYTES, "%" PRIu64, k->fallback);
		opts[i] = (struct mm_opt){
			.name = k->name,
			.value = k->arg,
			.help = k->help,
			.type = k->names ? MM_OPT_CHOICE : MM_OPT_NUMBER,
			.preset = presets[i],
			.min = k->min,
			.max = k->max,
			.live = !k->fixed,
		};
	}
	return opts;
}
