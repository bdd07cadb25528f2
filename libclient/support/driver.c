/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/support/driver.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

const struct mm_opt_choice mm_driver_choices[] = {
	{ "software", 0, "the software GPU, which needs no hardware" },
	{ "cuda", 1, "NVIDIA's driver" },
	{ NULL, 0, NULL },
};

static int driver_refuse(const char *word, const char *before, char *why)
{
	struct mm_opt_near near = { .word = word, .bytes = strlen(word) };

	for (const struct mm_opt_choice *c = mm_driver_choices; c->name; c++)
		mm_opt_near_offer(&near, c->name);
	snprintf(why, MM_OPT_ERROR_BYTES, "%s'%.64s' is none of: " MM_DRIVER_CHOICES "%s%s%s",
		 before, word, near.best ? "; did you mean " : "", near.best ? near.best : "",
		 near.best ? "?" : "");
	return -EINVAL;
}

int mm_driver_check(const char *word, char *why)
{
	return mm_is_driver(word) ? 0 : driver_refuse(word, "", why);
}

int mm_driver_parse(const struct mm_opt *opt, char *text, void *into, char *why)
{
	if (mm_driver_check(text, why))
		return -EINVAL;
	memcpy((char *)into + opt->at, &text, sizeof(text));
	return 0;
}

int mm_driver_check_environment(char *why)
{
	const char *word = secure_getenv("MM_DRIVER");

	return !word || !*word || mm_is_driver(word) ? 0 : driver_refuse(word, "MM_DRIVER: ", why);
}
