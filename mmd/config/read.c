/* SPDX-License-Identifier: Apache-2.0 */
/* read - the command line and the files together, and where each value comes from */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mmd/config/table.h"

static const char default_words[] = "--config=" MM_CONFIG_FILE_DEFAULT;

/*
 * Finds the next option that is a word of the command line, and steps over its value; a value that
 * begins with two dashes is never a word of its own. NULL: there is none left.
 */
static const struct mm_opt *word_next(int argc, char **argv, int *at)
{
	while (*at < argc) {
		const char *word = argv[(*at)++];
		const struct mm_opt *o;

		if (strcmp(word, "--") == 0)
			return NULL;
		if (strncmp(word, "--", 2) != 0)
			continue;
		o = mm_opt_find(mm_config_options, word + 2, strcspn(word + 2, "="));
		if (o)
			return o;
	}
	return NULL;
}

static bool line_has(int argc, char **argv, const char *name)
{
	const struct mm_opt *o;
	int at = 1;

	while ((o = word_next(argc, argv, &at))) {
		if (strcmp(o->name, name) == 0)
			return true;
	}
	return false;
}

static bool default_exists(void)
{
	struct stat st;

	return stat(MM_CONFIG_FILE_DEFAULT, &st) == 0 ||
	       stat(MM_CONFIG_FILE_DEFAULT ".d", &st) == 0;
}

static void origins_mark(int argc, char **argv, struct mm_config *c)
{
	const struct mm_opt *o;
	int at = 1;

	while ((o = word_next(argc, argv, &at))) {
		mm_config_origin(c, o)->kind = MM_ORIGIN_LINE;
		for (uint32_t i = 0; mm_config_is_accounts(o) && i < c->accounts.n; i++)
			c->sources.account[i].kind = MM_ORIGIN_LINE;
	}
}

/*
 * Puts in front of a sentence about an option where in the files that has its value, if it comes
 * from there. The sentence begins with the option's name, with or without dashes.
 */
static void error_put_place(struct mm_config *c, char *error)
{
	const bool dashes = strncmp(error, "--", 2) == 0;
	const char *rest = error + (dashes ? 2 : 0);
	const struct mm_opt *o = mm_opt_find(mm_config_options, rest, strcspn(rest, ": "));
	const struct mm_origin *origin = o ? mm_config_origin(c, o) : NULL;
	char whole[MM_CONFIG_ERROR_BYTES];

	if (!origin || origin->kind != MM_ORIGIN_FILE)
		return;
	snprintf(whole, sizeof(whole), "%.180s:%u: %.300s", c->sources.path[origin->file],
		 origin->line, rest);
	strcpy(error, whole);
}

int mm_config_read(int argc, char **argv, struct mm_config *config, char *error)
{
	const bool given = line_has(argc, argv, "config");
	char file[sizeof(default_words)], **words = argv;
	struct mm_opt_line line;
	int r;

	*error = '\0';
	memcpy(file, default_words, sizeof(file));
	if (!given && geteuid() == 0 && !line_has(argc, argv, "role") && default_exists()) {
		words = calloc((size_t)argc + 2, sizeof(*words));
		if (!words) {
			snprintf(error, MM_CONFIG_ERROR_BYTES, "no memory is left");
			return -EINVAL;
		}
		words[0] = argv[0];
		words[1] = file;
		memcpy(words + 2, argv + 1, sizeof(*words) * (size_t)(argc - 1));
	}
	r = mm_opt_parse(&mm_config_program, words == argv ? argc : argc + 1, words, config, &line,
			 error);
	if (words != argv)
		free(words);
	if (r != MM_OPT_RUN)
		return r;
	origins_mark(argc, argv, config);
	r = mm_config_check(config, error);
	if (r < 0)
		error_put_place(config, error);
	return r;
}
