/* SPDX-License-Identifier: Apache-2.0 */
/* The device's part of an explanation: mode, turns, memory, bids, loans. */
#include <stdio.h>

#include "libclient/support/size.h"
#include "mmd/explain/explain.h"

#define NAMES_MOST 4
#define OLD_NS     MM_NS_PER_S

/* ---- the mode ---- */

static const char *mode_words(const struct mm_core_why_device *d)
{
	return d->beside ? "Models compute side by side" : "Models take turns";
}

const char *mm_explain_mode(const struct mm_core_why_device *d, char to[MM_SENTENCE_BYTES])
{
	char demand[MM_SIZE_TEXT_BYTES], supply[MM_SIZE_TEXT_BYTES];

	mm_size_print(d->demand_bytes, demand);
	mm_size_print(d->supply_bytes, supply);
	switch (d->mode_why) {
	case MM_WHY_MODE_POLICY:
		snprintf(to, MM_SENTENCE_BYTES,
			 "The policy lets models that take turns compute one at a time.");
		break;
	case MM_WHY_MODE_NOBODY:
		snprintf(to, MM_SENTENCE_BYTES,
			 "No model takes turns, so all compute side by side.");
		break;
	case MM_WHY_MODE_MEMORY:
		snprintf(
			to, MM_SENTENCE_BYTES,
			"No model takes turns, but what they want beside their weights, %s, is far "
			"more than the %s that there are with the layers that it pays to have "
			"away, so memory goes to one after the other.",
			demand, supply);
		break;
	case MM_WHY_MODE_SET:
		snprintf(to, MM_SENTENCE_BYTES, "%s, as the operator has set it (knob mode).",
			 mode_words(d));
		break;
	case MM_WHY_MODE_GOALS:
		snprintf(to, MM_SENTENCE_BYTES, "%s, because that misses fewer goals of accounts.",
			 mode_words(d));
		break;
	case MM_WHY_MODE_FITS:
		snprintf(
			to, MM_SENTENCE_BYTES,
			"%s: the memory that they want beside their weights, %s, is not more than "
			"%.0f %% of the %s that they have so, with the layers that it pays to have "
			"away.",
			mode_words(d), demand, d->from_permille / 10.0, supply);
		break;
	case MM_WHY_MODE_EXCEEDS:
		snprintf(
			to, MM_SENTENCE_BYTES,
			"%s: the memory that they want beside their weights, %s, is not less than "
			"%.0f %% of the %s that they would have side by side, with the layers that "
			"it would pay to have away.",
			mode_words(d), demand, d->below_permille / 10.0, supply);
		break;
	default:
		snprintf(to, MM_SENTENCE_BYTES,
			 "At most one of the models that take turns has work, so nobody waits.");
		break;
	}
	return to;
}

static void mode_explain(const struct mm_core_why_device *d, struct mm_sentences *text)
{
	char mode[MM_SENTENCE_BYTES], turn[MM_AMOUNT_BYTES], home[MM_AMOUNT_BYTES];

	mm_sentences_add(text, "%s", mm_explain_mode(d, mode));
	if (d->mode_changes)
		mm_sentences_add(text,
				 "What they want now speaks for the other way, which begins when "
				 "it has done so for a second.");
	if (!d->turn_ns || d->beside)
		return;
	mm_sentences_add(text, "A turn lasts %s while others wait",
			 mm_sentences_time(d->turn_ns, turn));
	if (d->turn_home_ns)
		mm_sentences_more(text, ": it takes %s until its model's memory is there",
				  mm_sentences_time(d->turn_home_ns, home));
	mm_sentences_more(text, ".");
}

/* ---- memory ---- */

static void pool_explain(const struct mm_core_why_device *d, struct mm_sentences *text)
{
	char size[MM_SIZE_TEXT_BYTES], page[MM_SIZE_TEXT_BYTES];

	mm_sentences_add(text, "Of %s, in pages of %s, ", mm_size_print(d->pool_bytes, size),
			 mm_size_print(d->page_bytes, page));
	mm_sentences_more(text, "%s is free", mm_size_print(d->free_bytes, size));
	if (d->coming_bytes)
		mm_sentences_more(text, " and %s on its way", mm_size_print(d->coming_bytes, size));
	mm_sentences_more(text, ".");
	if (d->big_bytes)
		mm_sentences_add(
			text,
			"A model that loads, or a plan of the operator, needs %s, which come "
			"before everything else.",
			mm_size_print(d->big_bytes, size));
}

/* Adds the names of those that @is_meant, the first few of them. */
static void names_add(const struct mm_explain *e, bool (*is_meant)(const struct mm_core_why *why),
		      struct mm_sentences *text)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < e->n; i++) {
		if (!is_meant(&e->row[i].why))
			continue;
		if (n++ < NAMES_MOST)
			mm_sentences_more(text, "%s%s", n > 1 ? ", " : "", e->row[i].name);
	}
	if (n > NAMES_MOST)
		mm_sentences_more(text, " and %u more", n - NAMES_MOST);
}

static bool lends_layers(const struct mm_core_why *why)
{
	return why->alpha != 0;
}

static bool lacks_and_computes(const struct mm_core_why *why)
{
	return mm_explain_lacks(why) && why->role != MM_WHY_WAITS;
}

static void bids_explain(const struct mm_explain *e, struct mm_sentences *text)
{
	const struct mm_core_why_device *d = &e->device;
	uint32_t lack = 0, compute = 0;

	for (uint32_t i = 0; i < e->n; i++) {
		lack += mm_explain_lacks(&e->row[i].why);
		compute += lacks_and_computes(&e->row[i].why);
	}
	if (!lack) {
		mm_sentences_add(text, "No model with work lacks KV cache.");
		return;
	}
	mm_sentences_add(text, "%u of %u models with work %s KV cache: ", lack,
			 MM_MAX(d->working, lack), lack == 1 ? "lacks" : "lack");
	names_add(e, mm_explain_lacks, text);
	mm_sentences_more(text, ".");
	if (!compute)
		mm_sentences_add(text, "%s at %s turn%s.", lack == 1 ? "It gets it" : "They get it",
				 lack == 1 ? "its" : "their", lack == 1 ? "" : "s");
	if (!d->has_bid || !compute)
		return;
	if (d->bid_met)
		mm_sentences_add(text, "Those of them that compute get all that they want.");
	else if (d->bid > 0)
		mm_sentences_add(text, "One GiB more would gain %s %.2f %% of one model's output.",
				 compute < lack ? "those of them that compute"
				 : lack == 1    ? "it"
						: "them",
				 (double)d->bid / 10000);
	else
		mm_sentences_add(text, "More of it would gain them nothing: their steps would be "
				       "longer by as much as there are more requests in them.");
}

static void loans_explain(const struct mm_explain *e, struct mm_sentences *text)
{
	char size[MM_SIZE_TEXT_BYTES];
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < e->n; i++)
		bytes += e->row[i].why.alpha * e->row[i].why.layer_bytes;
	if (!bytes) {
		mm_sentences_add(text, "No model has layers away.");
		return;
	}
	mm_sentences_add(text, "Layers that are away set %s free: those of ",
			 mm_size_print(bytes, size));
	names_add(e, lends_layers, text);
	mm_sentences_more(text, ".");
}

void mm_explain_device(const struct mm_explain *e, struct mm_sentences *ret_text)
{
	const struct mm_core_why_device *d = &e->device;
	char age[MM_AMOUNT_BYTES];

	ret_text->n = 0;
	if (!d->decided) {
		mm_sentences_add(ret_text, "Nothing was decided yet.");
		return;
	}
	mode_explain(d, ret_text);
	pool_explain(d, ret_text);
	bids_explain(e, ret_text);
	loans_explain(e, ret_text);
	if (d->age_ns >= OLD_NS)
		mm_sentences_add(ret_text, "This was decided %s ago; nothing has happened since.",
				 mm_sentences_time(d->age_ns, age));
}
