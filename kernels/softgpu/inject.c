/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/softgpu/inject.h"
#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"

#define RULES_MAX      16
#define NAME_MAX_BYTES 64

static struct rule {
	char entry[NAME_MAX_BYTES];
	uint64_t nth;
	CUresult result;
	uint64_t calls; /* atomic */
} rules[RULES_MAX];

static size_t n_rules; /* written once, before it is read */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool parse_rule(const char *text, struct rule *rule)
{
	unsigned int result;
	unsigned long long nth;
	char end;

	if (sscanf(text, "%63[A-Za-z0-9]:%llu:%u%c", rule->entry, &nth, &result, &end) != 3)
		return false;
	rule->nth = nth;
	rule->result = (CUresult)result;
	return result != 0;
}

static void rules_parse(void)
{
	const char *text = secure_getenv("MM_SOFTGPU_FAIL");
	mm_cleanup(mm_free_ptr) char *copy = NULL;
	char *save, *item;

	if (!text || !*text)
		return;
	copy = strdup(text);
	if (!copy)
		return;
	for (item = strtok_r(copy, ",", &save); item; item = strtok_r(NULL, ",", &save)) {
		if (n_rules == RULES_MAX || !parse_rule(item, &rules[n_rules]))
			fprintf(stderr,
				"libmm-softgpu: MM_SOFTGPU_FAIL: '%s' is ignored; give "
				"ENTRY:NTH:RESULT, at most %d of them\n",
				item, RULES_MAX);
		else
			n_rules++;
	}
}

/* Return: whether @entry is @symbol without its _vN: a rule for cuMemAlloc is for cuMemAlloc_v2. */
static bool rule_names_entry(const char *symbol, const char *entry)
{
	size_t n = strlen(entry);

	return strncmp(symbol, entry, n) == 0 && (!symbol[n] || strncmp(symbol + n, "_v", 2) == 0);
}

/* Tests preload a library that has it (tests/fault/below); without it the address is NULL. */
extern int mm_below_driver(const char *entry) __attribute__((weak));

CUresult sg_inject(const char *entry)
{
	int result = mm_below_driver ? mm_below_driver(entry) : 0;

	if (result)
		return (CUresult)result;
	pthread_once(&once, rules_parse);
	for (size_t i = 0; i < n_rules; i++) {
		struct rule *rule = &rules[i];

		if (!rule_names_entry(entry, rule->entry))
			continue;
		if (__atomic_add_fetch(&rule->calls, 1, __ATOMIC_RELAXED) == rule->nth ||
		    !rule->nth)
			return rule->result;
	}
	return CUDA_SUCCESS;
}
