/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/common/explained.h"

#include <stdio.h>
#include <string.h>

#define COLUMNS_MAX 94
#define INDENT_ALL  2
#define INDENT_REST 4

static void sentence_print(const char *text)
{
	size_t column = INDENT_ALL;

	printf("%*s", INDENT_ALL, "");
	for (size_t n; *text; text += n) {
		n = strcspn(text, " ");
		if (column > INDENT_REST && column + n > COLUMNS_MAX) {
			printf("\n%*s", INDENT_REST, "");
			column = INDENT_REST;
		}
		printf("%.*s", (int)n, text);
		column += n + 1;
		n += strspn(text + n, " ");
		if (text[n] && column + strcspn(text + n, " ") <= COLUMNS_MAX)
			putchar(' ');
	}
	putchar('\n');
}

void mm_explained_print(const json_t *of)
{
	const json_t *sentence;
	size_t i;

	json_array_foreach(json_object_get(of, "sentences"), i, sentence)
		if (json_is_string(sentence))
			sentence_print(json_string_value(sentence));
}
