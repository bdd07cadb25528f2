/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the table of a plan's change into a document, between its two marks. With --check it exits
 * with 1 if the document does not have the table.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "mmd/core/plan/change.h"

#define BEGIN "<!-- core-change-rows: begin -->\n"
#define END   "<!-- core-change-rows: end -->\n"

static void close_stream(FILE **f)
{
	if (*f)
		fclose(*f);
}

static void conditions_print(FILE *to, const struct mm_change_row *r)
{
	const char *and = "";

	for (uint32_t i = 0; i < MM_CHANGE_FACTS; i++) {
		uint32_t fact = 1u << i;

		if (!((r->with | r->without) & fact))
			continue;
		fprintf(to, "%s%s", and,
			r->with & fact ? mm_change_fact_names[i] : mm_change_unfact_names[i]);
		and = ", ";
	}
}

static void rows_print(FILE *to)
{
	enum mm_change_state last = MM_CHANGE_STATES + 1;
	uint32_t n;
	const struct mm_change_row *rows = mm_change_rows(&n);

	fputs("| state | event | if | then | what is done |\n|---|---|---|---|---|\n", to);
	for (const struct mm_change_row *r = rows; r < rows + n; r++) {
		fprintf(to, "| %s | %s | ", r->state == last ? "" : mm_change_state_names[r->state],
			mm_change_event_names[r->event]);
		conditions_print(to, r);
		fprintf(to, " | %s | %s |\n",
			r->next == r->state || r->next == MM_CHANGE_STATES
				? "the same"
				: mm_change_state_names[r->next],
			mm_change_effect_names[r->effect]);
		last = r->state;
	}
}

/* Returns @text with the part between the marks replaced; NULL: it has no marks. */
static char *table_insert(const char *text)
{
	const char *begin = strstr(text, BEGIN), *end = begin ? strstr(begin, END) : NULL;
	char *woven = NULL;
	size_t size;
	FILE *to;

	if (!end)
		return NULL;
	to = open_memstream(&woven, &size);
	mm_assert(to);
	fwrite(text, 1, (size_t)(begin - text) + strlen(BEGIN), to);
	rows_print(to);
	fputs(end, to);
	/* The buffer of the stream may move until the stream is closed. */
	mm_assert(!fclose(to));
	return woven;
}

static char *read_all(const char *path)
{
	mm_cleanup(close_stream) FILE *from = fopen(path, "re");
	char *text = NULL;
	size_t size = 0;

	if (!from || getdelim(&text, &size, '\0', from) < 0) {
		free(text);
		return NULL;
	}
	return text;
}

static int write_all(const char *path, const char *text)
{
	mm_cleanup(close_stream) FILE *to = fopen(path, "we");

	return to && fputs(text, to) >= 0 && !fflush(to) ? 0 : 1;
}

int main(int argc, char **argv)
{
	bool check = argc == 3 && !strcmp(argv[1], "--check");
	const char *path = argv[argc - 1];
	mm_cleanup(mm_free_ptr) char *text = NULL;
	mm_cleanup(mm_free_ptr) char *woven = NULL;

	if (argc != 2 && !check) {
		fputs("usage: core-change-rows [--check] DOCUMENT\n", stderr);
		return 2;
	}
	text = read_all(path);
	woven = text ? table_insert(text) : NULL;
	if (!woven) {
		fprintf(stderr, "%s: cannot be read, or does not have the marks\n", path);
		return 1;
	}
	if (!check)
		return write_all(path, woven);
	if (!strcmp(text, woven))
		return 0;
	fprintf(stderr, "%s: its table is not the one in change_rows.c; run core-change-rows\n",
		path);
	return 1;
}
