/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/explain/sentences.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void mm_sentences_add(struct mm_sentences *text, const char *format, ...)
{
	va_list args;

	if (text->n == MM_SENTENCES_MAX)
		return;
	va_start(args, format);
	vsnprintf(text->sentence[text->n++], MM_SENTENCE_BYTES, format, args);
	va_end(args);
}

void mm_sentences_more(struct mm_sentences *text, const char *format, ...)
{
	size_t used;
	va_list args;
	char *last;

	if (!text->n)
		return;
	last = text->sentence[text->n - 1];
	used = strlen(last);
	va_start(args, format);
	vsnprintf(last + used, MM_SENTENCE_BYTES - used, format, args);
	va_end(args);
}

const char *mm_sentences_time(uint64_t ns, char to[MM_AMOUNT_BYTES])
{
	if (ns < MM_NS_PER_MS)
		snprintf(to, MM_AMOUNT_BYTES, "%" PRIu64 " us", ns / 1000);
	else if (ns < MM_NS_PER_S)
		snprintf(to, MM_AMOUNT_BYTES, "%" PRIu64 " ms", ns / MM_NS_PER_MS);
	else
		snprintf(to, MM_AMOUNT_BYTES, "%.1f s", (double)ns / (double)MM_NS_PER_S);
	return to;
}

const char *mm_sentences_count(uint64_t n, const char *noun, char to[MM_AMOUNT_BYTES])
{
	snprintf(to, MM_AMOUNT_BYTES, "%" PRIu64 " %s%s", n, noun, n == 1 ? "" : "s");
	return to;
}
