/* SPDX-License-Identifier: Apache-2.0 */
/* A tenant's cold blocks in an explanation: how many may be live, and why so many. */
#include "libclient/support/size.h"
#include "mmd/explain/explain.h"

static const struct {
	const char *word, *sentence; /* NULL: the limit speaks for itself */
} reasons[MM_COOL_WHYS] = {
	[MM_COOL_NONE] = { "none", NULL },
	[MM_COOL_OFF] = { "off", "The policy in force, or the knob cold, gives nobody more cold "
				 "blocks than it has asked for at least." },
	[MM_COOL_BY_HAND] = { "by_hand", "The operator has set how many may be cold (mmctl plan "
					 "set); with --cold auto mmd decides again." },
	[MM_COOL_FLOOR] = { "floor", "That is what it has asked for at least." },
	[MM_COOL_UNKNOWN] = { "unknown", "How long its steps are, or how fast cold blocks come, "
					 "was not measured yet." },
	[MM_COOL_RESTS] = { "rests", "It does not compute now, and keeps the limit that it had." },
	[MM_COOL_ENOUGH] = { "enough", "It lacks no KV cache, and keeps the limit that it had." },
	[MM_COOL_WORTH] = { "worth", "Of further ones, the longer steps would cost more than the "
				     "KV cache is worth." },
	[MM_COOL_MOST] = { "most", "More cannot be cold by what it has declared, and by the "
				   "knob cold-max." },
	[MM_COOL_UNUSED] = { "unused", "It gets more when it has made use of these." },
	[MM_COOL_BLOCKED] = { "blocked", "It has requests and runs none, so no memory is taken for "
					 "more: a prompt may lack that of the window." },
	[MM_COOL_WAITED] = { "waited", "Its steps waited for the link longer than predicted, so "
				       "the limit was lowered." },
};

const char *mm_explain_cold_reason(const struct mm_core_why_cold *cold)
{
	return cold->gives ? "gives" : reasons[cold->why].word;
}

static void cold_window_explain(const struct mm_core_why_cold *cold, struct mm_sentences *text)
{
	char size[MM_SIZE_TEXT_BYTES], blocks[MM_AMOUNT_BYTES];

	if (!cold->entries) {
		mm_sentences_more(text, "; none is, since it has no window for them.");
		return;
	}
	mm_sentences_more(text, ", and its window of %s has room for %s.",
			  mm_size_print(cold->window_bytes, size),
			  mm_sentences_count(cold->entries, "block", blocks));
}

void mm_explain_cold(const struct mm_core_why_cold *cold, struct mm_sentences *text)
{
	char size[MM_SIZE_TEXT_BYTES], blocks[MM_AMOUNT_BYTES];

	if (!cold->most)
		return;
	if (cold->limit)
		mm_sentences_add(text,
				 "Of its KV cache %s may be cold, of %u that it has "
				 "declared: %s that is read from host memory in each step",
				 mm_sentences_count(cold->limit, "block", blocks), cold->most,
				 mm_size_print(cold->limit * cold->block_bytes, size));
	else
		mm_sentences_add(text,
				 "None of its KV cache may be cold, of %u blocks that it has "
				 "declared",
				 cold->most);
	cold_window_explain(cold, text);
	if (cold->live)
		mm_sentences_add(text, "%s %s so now",
				 mm_sentences_count(cold->live, "block", blocks),
				 cold->live == 1 ? "is" : "are");
	if (cold->live && cold->priced)
		mm_sentences_more(
			text,
			": what is read of them takes %.0f %% of a step's time, and makes "
			"steps %.1f %% longer",
			cold->load_permille / 10.0, cold->slow_permille / 10.0);
	if (cold->live)
		mm_sentences_more(text, ".");
	if (cold->streamed > cold->limit && cold->falls)
		mm_sentences_add(text, "Until it has had time to take the others back, %s may be.",
				 mm_sentences_count(cold->streamed, "block", blocks));
	else if (cold->streamed > cold->limit)
		mm_sentences_add(text, "Those that are cold already may stay so.");
	if (cold->gives && cold->entries)
		mm_sentences_add(text, "It is to give chunks of its window back, so none may be.");
	else if (cold->gives)
		mm_sentences_add(text, "It is to give KV cache back first.");
	else if (reasons[cold->why].sentence)
		mm_sentences_add(text, "%s", reasons[cold->why].sentence);
}
