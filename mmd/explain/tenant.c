/* SPDX-License-Identifier: Apache-2.0 */
/* A tenant's part of an explanation: what it has, wants, offers, and why. */
#include <stdio.h>

#include "libclient/support/size.h"
#include "mmd/explain/explain.h"

#define PERCENT(millionths) ((double)(millionths) / 10000)
#define HYSTERESIS_PERCENT  1.5
#define LATE_COUNTS         100 /* permille of late requests from which they count */
#define TIMES_MOST          100 /* of a gain that a cost is said in */

typedef void why_fn(const struct mm_core_why *why, struct mm_sentences *text);

bool mm_explain_lacks(const struct mm_core_why *why)
{
	return why->decided && why->role != MM_WHY_NO_WORK &&
	       (why->kv_wanted > why->kv_held || why->hungry_permille >= 500);
}

/* ---- what it has and wants ---- */

static void role_explain(const struct mm_explain_row *row, struct mm_sentences *text)
{
	const struct mm_core_why *why = &row->why;

	switch (why->decided ? why->role : MM_WHY_ROLES) {
	case MM_WHY_COMPUTES:
		mm_sentences_add(text, "%s has work and computes", row->name);
		break;
	case MM_WHY_HOLDS:
		mm_sentences_add(text, "%s has the turn and computes", row->name);
		break;
	case MM_WHY_WAITS:
		mm_sentences_add(text, "%s waits for its turn", row->name);
		if (why->place)
			mm_sentences_more(text, ", after %u other%s", why->place,
					  why->place == 1 ? "" : "s");
		else
			mm_sentences_more(text, ", which is the next one");
		break;
	case MM_WHY_PAUSES:
		mm_sentences_add(text, "%s waits for memory, which another model has now",
				 row->name);
		break;
	case MM_WHY_NO_WORK:
		mm_sentences_add(text, "%s has no work", row->name);
		break;
	default:
		mm_sentences_add(text, "Nothing was decided about %s yet", row->name);
		break;
	}
}

static void layers_explain(const struct mm_core_why *why, struct mm_sentences *text)
{
	char size[MM_SIZE_TEXT_BYTES];

	if (!why->layers)
		mm_sentences_more(text, "; it has no model here.");
	else if (!why->alpha)
		mm_sentences_more(text, "; all of its %u layers are here.", why->layers);
	else
		mm_sentences_more(text, "; %u of its %u layers %s away, which sets %s free.",
				  why->alpha, why->layers, why->alpha == 1 ? "is" : "are",
				  mm_size_print(why->alpha * why->layer_bytes, size));
	if (why->changing && why->alpha_next != why->alpha)
		mm_sentences_add(text, "This is being changed to %u.", why->alpha_next);
}

static void kv_explain(const struct mm_core_why *why, struct mm_sentences *text)
{
	char held[MM_SIZE_TEXT_BYTES], other[MM_SIZE_TEXT_BYTES];

	if (!why->chunk_bytes) {
		mm_sentences_add(text, "It has declared no KV cache.");
		return;
	}
	if (!why->kv_held) {
		mm_sentences_add(text, "It holds no KV cache; its share is %s.",
				 mm_size_print(why->kv_share * why->chunk_bytes, other));
		return;
	}
	mm_sentences_add(text, "It holds %s of KV cache",
			 mm_size_print(why->kv_held * why->chunk_bytes, held));
	if (why->kv_used < why->kv_held)
		mm_sentences_more(
			text, ", of which %s is empty",
			mm_size_print((why->kv_held - why->kv_used) * why->chunk_bytes, other));
	mm_sentences_more(text, ", in chunks of %s", mm_size_print(why->chunk_bytes, other));
	mm_sentences_more(text, "; its share is %s.",
			  mm_size_print(why->kv_share * why->chunk_bytes, other));
}

static void bid_explain(const struct mm_core_why *why, struct mm_sentences *text)
{
	uint64_t want = (uint64_t)why->kv_wanted + why->queued, entitled = 0, more;
	char size[MM_SIZE_TEXT_BYTES];

	if (!why->decided || !why->chunk_bytes || why->role == MM_WHY_NO_WORK)
		return;
	if (want <= why->kv_held) {
		if (mm_explain_lacks(why))
			mm_sentences_add(text, "It has lacked KV cache in %u %% of the last time.",
					 why->hungry_permille / 10);
		else
			mm_sentences_add(text, "It lacks no KV cache.");
		return;
	}
	more = want - why->kv_held;
	if (why->role == MM_WHY_WAITS || why->role == MM_WHY_PAUSES) {
		mm_sentences_add(text, "It wants %s more, which it can get at its turn.",
				 mm_size_print(more * why->chunk_bytes, size));
		return;
	}
	if (why->kv_share > why->kv_held)
		entitled = MM_MIN(more, (uint64_t)(why->kv_share - why->kv_held));
	mm_sentences_add(text, "It wants %s more, ", mm_size_print(more * why->chunk_bytes, size));
	if (entitled == more)
		mm_sentences_more(text, "all within its share, which comes before what others want "
					"beyond theirs.");
	else if (entitled)
		mm_sentences_more(text, "of which %s is within its share and comes first.",
				  mm_size_print(entitled * why->chunk_bytes, size));
	else
		mm_sentences_more(text, "all beyond its share.");
}

static void late_explain(const struct mm_core_why *why, struct mm_sentences *text)
{
	if (why->late_permille > LATE_COUNTS && why->why != MM_WHY_POLICY)
		mm_sentences_add(
			text,
			"Of its last requests %u %% missed a goal, for which what it lacks "
			"and loses counts more.",
			why->late_permille / 10);
}

/* ---- why its layers are where they are ---- */

static void unknown_explain(const struct mm_core_why *why, struct mm_sentences *text)
{
	(void)why;
	mm_sentences_add(text, "What more layers away would cost was not measured yet: it has run "
			       "too few steps, or has streamed no layer.");
}

/* Prints by how much steps are longer: "3.1 % longer", or "4.0 times as long" from twice on. */
static const char *slow_print(uint64_t permille, char to[MM_AMOUNT_BYTES])
{
	if (permille < 1000)
		snprintf(to, MM_AMOUNT_BYTES, "%.1f %% longer", (double)permille / 10);
	else
		snprintf(to, MM_AMOUNT_BYTES, "%.1f times as long", (double)permille / 1000 + 1);
	return to;
}

/* Prints how a cost compares with the gain, which is more than 0. */
static void balance_explain(int64_t gain, int64_t cost, const char *then, struct mm_sentences *text)
{
	if (cost < gain)
		mm_sentences_more(text,
				  ", gain %.2f %% of one model's output and cost %.2f %%: %s.",
				  PERCENT(gain), PERCENT(MM_MAX(cost, 0)), then);
	else if (cost / gain < TIMES_MOST)
		mm_sentences_more(text,
				  " and cost %.1f times the %.2f %% of one model's output that it "
				  "would gain: %s.",
				  (double)cost / (double)gain, PERCENT(gain), then);
	else
		mm_sentences_more(text,
				  " and cost more than %d times what it would gain, %.2f %% of one "
				  "model's output: %s.",
				  TIMES_MOST, PERCENT(gain), then);
}

/* Compares the last of the layers that are to be away with one less. */
static void chosen_explain(const struct mm_core_why *why, struct mm_sentences *text)
{
	int64_t gain = why->chosen.gain - why->less.gain;
	int64_t cost = why->chosen.cost - why->less.cost;
	char slow[MM_AMOUNT_BYTES];

	if (!why->valued || !why->has_less || !why->chosen.known || !why->less.known)
		return;
	mm_sentences_add(text, "With %u away its steps are %s.", why->alpha_target,
			 slow_print(why->chosen.slow_permille, slow));
	mm_sentences_add(text,
			 "The last of them gains %.2f %% of one model's output, by KV cache for "
			 "those that lack it, and costs %.2f %%, by longer steps and by its "
			 "transfers.",
			 PERCENT(gain), PERCENT(MM_MAX(cost, 0)));
}

/* Compares one more layer away with the target; @then follows from it. */
static void more_explain(const struct mm_core_why *why, const char *then, struct mm_sentences *text)
{
	int64_t gain = why->more.gain - why->chosen.gain, cost = why->more.cost - why->chosen.cost;
	const char *one = why->alpha_target ? "One more layer away" : "One layer away";
	uint64_t now = (uint64_t)why->chosen.slow_permille + 1000;
	uint64_t then_is = MM_MAX((uint64_t)why->more.slow_permille + 1000, now), slow;
	char longer[MM_AMOUNT_BYTES];

	if (!why->valued || !why->has_more)
		return;
	if (!why->more.known || !why->chosen.known) {
		unknown_explain(why, text);
		return;
	}
	if (gain <= 0) {
		mm_sentences_add(text,
				 "%s would gain nothing: nobody who computes would get more "
				 "done with more KV cache.",
				 one);
		return;
	}
	slow = then_is * 1000 / now - 1000;
	if (slow)
		mm_sentences_add(text, "%s would make its steps %s", one, slow_print(slow, longer));
	else
		mm_sentences_add(text, "%s would keep the link busy", one);
	balance_explain(gain, cost, then, text);
}

static const char *back_print(const struct mm_core_why *why, char to[MM_AMOUNT_BYTES])
{
	return why->return_ns ? mm_sentences_time(why->return_ns, to) : "an unknown time";
}

static void stays_explain(const struct mm_core_why *why, struct mm_sentences *text)
{
	if (why->layers)
		mm_sentences_add(text, "Nobody lacks memory that its layers would set free.");
}

static void by_hand_explain(const struct mm_core_why *why, struct mm_sentences *text)
{
	if (why->held)
		mm_sentences_add(text, "Its engine holds all layers at home (mm_model_hold()), "
				       "until it lets go.");
	else if (why->pinned)
		mm_sentences_add(text, "The operator has pinned all of its layers at home (mmctl "
				       "pin), until mmctl unpin.");
	else if (why->activates)
		mm_sentences_add(text, "The operator has all of its layers come home (mmctl "
				       "activate); then mmd decides again.");
	else if (why->by_hand)
		mm_sentences_add(text,
				 "The operator has set how many of its layers are away (mmctl "
				 "plan set); with --layers auto mmd decides again.");
	else if (why->alpha)
		mm_sentences_add(text, "Its layers stay as they are for a moment: pages for those "
				       "that return did not come in time, or a step broke off.");
	else
		mm_sentences_add(text, "Its layers cannot be moved now.");
}

static void policy_explain(const struct mm_core_why *why, struct mm_sentences *text)
{
	if (why->by_hand || why->held || why->pinned || why->activates)
		by_hand_explain(why, text);
	else
		mm_sentences_add(text, "The policy in force does not compare what layers cost and "
				       "gain.");
}

static void worth_explain(const struct mm_core_why *why, struct mm_sentences *text)
{
	chosen_explain(why, text);
	more_explain(why, "it is not worth it", text);
}

static void clause_explain(const struct mm_core_why *why, struct mm_sentences *text)
{
	chosen_explain(why, text);
	mm_sentences_add(text,
			 "Its steps may be %.1f %% longer at most: so much, its KV cache beyond "
			 "its share makes up for, and it does not pay for others.",
			 why->clause_permille / 10.0);
	more_explain(why, "that is not allowed", text);
}

static void cap_explain(const struct mm_core_why *why, struct mm_sentences *text)
{
	chosen_explain(why, text);
	mm_sentences_add(text, "These are all that may be away.");
}

static void idle_explain(const struct mm_core_why *why, struct mm_sentences *text)
{
	char back[MM_AMOUNT_BYTES], layers[MM_AMOUNT_BYTES];

	if (!why->alpha_target) {
		mm_sentences_add(text, "Nobody lacks memory that its layers would set free.");
		return;
	}
	mm_sentences_add(
		text,
		"It lends %s to those that compute, because it is idle; the way back takes "
		"%s when it has work again.",
		mm_sentences_count(why->alpha_target, "layer", layers), back_print(why, back));
}

static void off_turn_explain(const struct mm_core_why *why, struct mm_sentences *text)
{
	char back[MM_AMOUNT_BYTES], layers[MM_AMOUNT_BYTES];

	if (why->alpha_target)
		mm_sentences_add(
			text,
			"While it waits for its turn it lends %s to the model whose turn it "
			"is; the way back takes %s.",
			mm_sentences_count(why->alpha_target, "layer", layers),
			back_print(why, back));
	else
		mm_sentences_add(text, "The model whose turn it is has room without its layers.");
}

static void next_explain(const struct mm_core_why *why, struct mm_sentences *text)
{
	char layers[MM_AMOUNT_BYTES];

	mm_sentences_add(text,
			 "Its turn is next, so layers return into room that nobody else needs");
	if (why->alpha_target)
		mm_sentences_more(text, ", as far as there is any: %s stay away",
				  mm_sentences_count(why->alpha_target, "layer", layers));
	mm_sentences_more(text, ".");
}

static void hysteresis_explain(const struct mm_core_why *why, struct mm_sentences *text)
{
	chosen_explain(why, text);
	mm_sentences_add(
		text,
		"Another number would be better by less than %.1f %%, which does not pay for "
		"a change.",
		HYSTERESIS_PERCENT);
}

static void dwell_explain(const struct mm_core_why *why, struct mm_sentences *text)
{
	chosen_explain(why, text);
	mm_sentences_add(text,
			 "Fewer would do, but layers were taken a moment ago, and stay away at "
			 "least for the time of the knob dwell-ms.");
}

static void owes_explain(const struct mm_core_why *why, struct mm_sentences *text)
{
	(void)why;
	mm_sentences_add(text, "Its account must give memory: it has more than its max, or more "
			       "than its min while another account lacks its own.");
}

static void model_waits_explain(const struct mm_core_why *why, struct mm_sentences *text)
{
	chosen_explain(why, text);
	mm_sentences_add(text,
			 "A model that loads, or a plan of the operator, lacks memory; for it "
			 "every model lends, as far as its steps allow.");
}

static void cold_first_explain(const struct mm_core_why *why, struct mm_sentences *text)
{
	chosen_explain(why, text);
	mm_sentences_add(text, "No more are taken: blocks of those that lack KV cache can become "
			       "cold instead, which needs less of the link.");
}

static why_fn *const why_table[MM_WHYS] = {
	[MM_WHY_STAYS] = stays_explain,
	[MM_WHY_BY_HAND] = by_hand_explain,
	[MM_WHY_POLICY] = policy_explain,
	[MM_WHY_UNKNOWN] = unknown_explain,
	[MM_WHY_WORTH] = worth_explain,
	[MM_WHY_CLAUSE] = clause_explain,
	[MM_WHY_CAP] = cap_explain,
	[MM_WHY_IDLE] = idle_explain,
	[MM_WHY_OFF_TURN] = off_turn_explain,
	[MM_WHY_NEXT] = next_explain,
	[MM_WHY_HOLDER] = worth_explain,
	[MM_WHY_HYSTERESIS] = hysteresis_explain,
	[MM_WHY_DWELL] = dwell_explain,
	[MM_WHY_OWES] = owes_explain,
	[MM_WHY_MODEL_WAITS] = model_waits_explain,
	[MM_WHY_COLD] = cold_first_explain,
};

/* ---- what follows ---- */

static void target_explain(const struct mm_core_why *why, struct mm_sentences *text)
{
	uint32_t now = why->alpha_next, to = why->alpha_target;
	char layers[MM_AMOUNT_BYTES], size[MM_SIZE_TEXT_BYTES];

	if (why->layers && to < now)
		mm_sentences_add(text, "%s %s to return.",
				 mm_sentences_count(now - to, "layer", layers),
				 now - to == 1 ? "is" : "are");
	if (why->layers && to > now)
		mm_sentences_add(text, "%s may be taken when memory is short.",
				 mm_sentences_count(to - now, "more layer", layers));
	if (why->kv_keep < why->kv_held)
		mm_sentences_add(
			text, "It is to give %s of its KV cache back.",
			mm_size_print((why->kv_held - why->kv_keep) * why->chunk_bytes, size));
	if (why->chunk_bytes && why->role != MM_WHY_NO_WORK && why->role != MM_WHY_WAITS &&
	    why->role != MM_WHY_PAUSES && why->kv_most < why->kv_wanted)
		mm_sentences_add(text, "It may have %s of KV cache as things are.",
				 mm_size_print(why->kv_most * why->chunk_bytes, size));
}

static void steer_explain(const struct mm_core_why *why, struct mm_sentences *text)
{
	char size[MM_SIZE_TEXT_BYTES];

	if (why->drains)
		mm_sentences_add(text, "The operator drains it (mmctl drain): it is granted "
				       "nothing more, and is to leave.");
	if (why->revoking)
		mm_sentences_add(text,
				 "It is to give %s of its KV cache now: revoked by the operator "
				 "(mmctl revoke).",
				 mm_size_print(why->revoking * why->chunk_bytes, size));
}

void mm_explain_tenant(const struct mm_explain_row *row, struct mm_sentences *ret_text)
{
	ret_text->n = 0;
	role_explain(row, ret_text);
	layers_explain(&row->why, ret_text);
	kv_explain(&row->why, ret_text);
	bid_explain(&row->why, ret_text);
	mm_explain_cold(&row->why.cold, ret_text);
	steer_explain(&row->why, ret_text);
	if (!row->why.decided)
		return;
	late_explain(&row->why, ret_text);
	why_table[row->why.why](&row->why, ret_text);
	target_explain(&row->why, ret_text);
}
