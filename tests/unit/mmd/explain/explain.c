/* SPDX-License-Identifier: Apache-2.0 */
/* Sentences and numbers of a decision: a case for each reason, state and mode. */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "libclient/support/json.h"
#include "mmd/explain/explain.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

/* OPT-30B with 12 of 48 layers of 1 GiB away, and 4 GiB of KV in 64 chunks. */
static struct mm_core_why why_base(void)
{
	return (struct mm_core_why){
		.tenant = 7,
		.model_ready = true,
		.layers = 48,
		.alpha = 12,
		.alpha_next = 12,
		.layer_bytes = GIB,
		.chunk_bytes = 64 * MIB,
		.kv_held = 64,
		.kv_used = 56,
		.kv_wanted = 96,
		.kv_share = 80,
		.decided = true,
		.role = MM_WHY_COMPUTES,
		.return_ns = 25 * MM_NS_PER_MS,
		.alpha_target = 12,
		.alpha_most = 46,
		.kv_most = 80,
		.kv_keep = UINT32_MAX,
		.valued = true,
		.clause_permille = 200,
		.has_less = true,
		.has_more = true,
		.less = { .alpha = 11, .known = true, .gain = 40000, .cost = 20000 },
		.chosen = { .alpha = 12,
			    .known = true,
			    .slow_permille = 40,
			    .gain = 46000,
			    .cost = 23000 },
		.more = { .alpha = 13,
			  .known = true,
			  .slow_permille = 71,
			  .gain = 50000,
			  .cost = 35000 },
	};
}

static struct mm_explain_row row_of(struct mm_core_why why)
{
	return (struct mm_explain_row){ .name = "OPT-30B", .why = why };
}

static bool says(const struct mm_sentences *text, const char *what)
{
	for (uint32_t i = 0; i < text->n; i++)
		if (strstr(text->sentence[i], what))
			return true;
	return false;
}

static void expect_sentence(const struct mm_sentences *text, const char *what)
{
	if (says(text, what))
		return;
	for (uint32_t i = 0; i < text->n; i++)
		print_error("  %s\n", text->sentence[i]);
	fail_msg("nothing says: %s", what);
}

/* Each sentence begins with a capital or a digit and ends with a full stop. */
static void expect_sentences(const struct mm_sentences *text)
{
	assert_in_range(text->n, 1, MM_SENTENCES_MAX);
	for (uint32_t i = 0; i < text->n; i++) {
		const char *s = text->sentence[i];

		assert_true((*s >= 'A' && *s <= 'Z') || (*s >= '0' && *s <= '9'));
		assert_int_equal(s[strlen(s) - 1], '.');
		assert_null(strstr(s, ".."));
		assert_null(strstr(s, "alpha"));
		assert_null(strstr(s, "kappa"));
	}
}

/* ---- tenants ---- */

static struct {
	enum mm_target_why why;
	const char *first, *second; /* what is said of the base with this reason */
} why_cases[] = {
	{ MM_WHY_STAYS, "Nobody lacks memory", "12 of its 48 layers are away" },
	{ MM_WHY_BY_HAND, "did not come in time, or a step broke off", "sets 12.0 GiB free" },
	{ MM_WHY_POLICY, "The policy in force", "It wants 2.0 GiB more" },
	{ MM_WHY_UNKNOWN, "was not measured yet", "of which 1.0 GiB is within its share" },
	{ MM_WHY_WORTH, "One more layer away would make its steps 2.9 % longer and cost 3.0 times",
	  "the 0.40 % of one model's output that it would gain: it is not worth it" },
	{ MM_WHY_CLAUSE, "may be 20.0 % longer at most", "that is not allowed" },
	{ MM_WHY_CAP, "These are all that may be away", "and costs 0.30 %" },
	{ MM_WHY_IDLE, "lends 12 layers to those that compute", "the way back takes 25 ms" },
	{ MM_WHY_OFF_TURN, "While it waits for its turn it lends 12 layers",
	  "way back takes 25 ms" },
	{ MM_WHY_NEXT, "Its turn is next", "12 layers stay away" },
	{ MM_WHY_HOLDER, "With 12 away its steps are 4.0 % longer", "it is not worth it" },
	{ MM_WHY_HYSTERESIS, "better by less than 1.5 %", "gains 0.60 % of one model's output" },
	{ MM_WHY_DWELL, "dwell-ms", "taken a moment ago" },
	{ MM_WHY_OWES, "Its account must give memory: it has more",
	  "is empty, in chunks of 64.0 MiB; its" },
	{ MM_WHY_MODEL_WAITS, "A model that loads", "every model lends" },
	{ MM_WHY_COLD, "can become cold instead", "gains 0.60 % of one model's output" },
};
static_assert(MM_ARRAY_SIZE(why_cases) == MM_WHYS, "a case for each reason");

static void each_reason_has_its_sentence(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < MM_ARRAY_SIZE(why_cases); i++) {
		struct mm_explain_row row = row_of(why_base());
		struct mm_sentences text;

		assert_int_equal(why_cases[i].why, i);
		row.why.why = why_cases[i].why;
		mm_explain_tenant(&row, &text);
		expect_sentences(&text);
		expect_sentence(&text, why_cases[i].first);
		expect_sentence(&text, why_cases[i].second);
		for (uint32_t k = 0; k < MM_ARRAY_SIZE(why_cases); k++)
			if (k != i && strstr(why_cases[i].first, why_cases[k].first) == NULL &&
			    k != MM_WHY_HOLDER && k != MM_WHY_WORTH && k != MM_WHY_UNKNOWN)
				assert_false(says(&text, why_cases[k].first));
	}
}

static void what_by_hand(struct mm_core_why *why)
{
	why->why = MM_WHY_BY_HAND;
	why->by_hand = true;
}

static void what_policy_by_hand(struct mm_core_why *why)
{
	why->why = MM_WHY_POLICY;
	why->by_hand = true;
}

static void what_holds(struct mm_core_why *why)
{
	why->role = MM_WHY_HOLDS;
	why->why = MM_WHY_HOLDER;
}

static void what_waits(struct mm_core_why *why)
{
	why->role = MM_WHY_WAITS;
	why->why = MM_WHY_OFF_TURN;
	why->place = 2;
}

static void what_waits_first(struct mm_core_why *why)
{
	what_waits(why);
	why->place = 0;
}

static void what_no_work(struct mm_core_why *why)
{
	why->role = MM_WHY_NO_WORK;
	why->why = MM_WHY_IDLE;
	why->alpha_target = 3;
}

static void what_idle_lends_none(struct mm_core_why *why)
{
	what_no_work(why);
	why->alpha = why->alpha_next = why->alpha_target = 0;
}

static void what_undecided(struct mm_core_why *why)
{
	why->decided = false;
}

static void what_no_model(struct mm_core_why *why)
{
	why->layers = why->alpha = why->alpha_next = why->alpha_target = 0;
	why->why = MM_WHY_STAYS;
	why->valued = false;
}

static void what_no_kv(struct mm_core_why *why)
{
	why->chunk_bytes = 0;
	why->kv_held = why->kv_used = why->kv_wanted = 0;
}

static void what_holds_none(struct mm_core_why *why)
{
	why->kv_held = why->kv_used = 0;
}

static void what_changing(struct mm_core_why *why)
{
	why->changing = true;
	why->alpha_next = 20;
	why->alpha_target = 20;
}

static void what_takes_more(struct mm_core_why *why)
{
	why->alpha_target = 13;
}

static void what_within_share(struct mm_core_why *why)
{
	why->kv_share = 200;
}

static void what_beyond_share(struct mm_core_why *why)
{
	why->kv_share = 10;
}

static void what_hungry_of_late(struct mm_core_why *why)
{
	why->kv_wanted = 64;
	why->hungry_permille = 700;
}

static void what_lacks_nothing(struct mm_core_why *why)
{
	why->kv_wanted = 64;
}

static void what_is_late(struct mm_core_why *why)
{
	why->late_permille = 320;
}

static void what_is_late_to_a_policy(struct mm_core_why *why)
{
	what_is_late(why);
	why->why = MM_WHY_POLICY;
}

static void what_is_hardly_late(struct mm_core_why *why)
{
	why->late_permille = 100;
}

static void what_gives_back(struct mm_core_why *why)
{
	why->kv_keep = 48;
}

static void what_more_unknown(struct mm_core_why *why)
{
	why->why = MM_WHY_WORTH;
	why->more.known = false;
}

static void what_gains_nothing(struct mm_core_why *why)
{
	why->why = MM_WHY_WORTH;
	why->more.gain = why->chosen.gain;
}

static void what_costs_much(struct mm_core_why *why)
{
	why->why = MM_WHY_WORTH;
	why->more.slow_permille = 4200;
	why->more.cost = why->chosen.cost + 250 * 4000;
}

static void what_costs_more_slowly(struct mm_core_why *why)
{
	why->why = MM_WHY_CLAUSE;
	why->more.cost = why->chosen.cost + 1000;
	why->clause_permille = 50;
}

static void what_costs_link(struct mm_core_why *why)
{
	why->why = MM_WHY_WORTH;
	why->more.slow_permille = why->chosen.slow_permille;
}

static void what_cannot_move(struct mm_core_why *why)
{
	why->why = MM_WHY_BY_HAND;
	why->alpha = why->alpha_next = why->alpha_target = 0;
}

static void what_none_away(struct mm_core_why *why)
{
	why->why = MM_WHY_WORTH;
	why->alpha = why->alpha_next = why->alpha_target = 0;
	why->has_less = false;
}

static void what_link_unknown(struct mm_core_why *why)
{
	why->why = MM_WHY_IDLE;
	why->return_ns = 0;
}

static const struct {
	void (*change)(struct mm_core_why *why);
	const char *says, *not ;
} state_cases[] = {
	{ what_by_hand, "The operator has set how many", "cannot be moved" },
	{ what_policy_by_hand, "The operator has set how many", "The policy in force" },
	{ what_holds, "OPT-30B has the turn", "has work" },
	{ what_waits, "OPT-30B waits for its turn, after 2 others", "comes first" },
	{ what_waits_first, "which is the next one", "after" },
	{ what_no_work, "9 layers are to return.", "It wants" },
	{ what_idle_lends_none, "Nobody lacks memory", "It lends" },
	{ what_undecided, "Nothing was decided about OPT-30B yet", "worth" },
	{ what_no_model, "it has no model here", "layers" },
	{ what_no_kv, "It has declared no KV cache", "share" },
	{ what_holds_none, "It holds no KV cache; its share is 5.0 GiB", "empty" },
	{ what_changing, "This is being changed to 20", "may be taken" },
	{ what_takes_more, "1 more layer may be taken when memory is short", "to return." },
	{ what_within_share, "all within its share", "beyond its share." },
	{ what_beyond_share, "all beyond its share", "comes first" },
	{ what_hungry_of_late, "It has lacked KV cache in 70 % of the last time", "It wants" },
	{ what_lacks_nothing, "It lacks no KV cache", "It wants" },
	{ what_is_late, "Of its last requests 32 % missed a goal", "dwell-ms" },
	{ what_is_late_to_a_policy, "The policy in force", "missed a goal" },
	{ what_is_hardly_late, "It wants 2.0 GiB more", "missed a goal" },
	{ what_gives_back, "It is to give 1.0 GiB of its KV cache back", "is free" },
	{ what_more_unknown, "was not measured yet", "not worth" },
	{ what_gains_nothing, "nobody who computes would get more done", "not worth" },
	{ what_costs_much,
	  "5.0 times as long and cost more than 100 times what it would gain, 0.40 %",
	  "% longer and" },
	{ what_costs_more_slowly, "gain 0.40 % of one model's output and cost 0.10 %: that is not",
	  "times" },
	{ what_costs_link, "One more layer away would keep the link busy and cost 3.0 times",
	  "0.0 %" },
	{ what_cannot_move, "Its layers cannot be moved now", "broke off" },
	{ what_none_away, "One layer away would make its steps 2.9 % longer", "The last of them" },
	{ what_link_unknown, "the way back takes an unknown time", "25 ms" },
};

static void each_state_has_its_sentence(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < MM_ARRAY_SIZE(state_cases); i++) {
		struct mm_explain_row row = row_of(why_base());
		struct mm_sentences text;

		state_cases[i].change(&row.why);
		mm_explain_tenant(&row, &text);
		expect_sentences(&text);
		expect_sentence(&text, state_cases[i].says);
		if (says(&text, state_cases[i].not ))
			fail_msg("said: %s, with: %s", state_cases[i].not, state_cases[i].says);
	}
}

/* ---- cold blocks ---- */

/* 80 of 200 blocks of 48 MiB may be cold, through a window of 256 MiB. */
static struct mm_core_why_cold cold_base(void)
{
	return (struct mm_core_why_cold){
		.most = 200,
		.floor = 16,
		.limit = 80,
		.streamed = 80,
		.entries = 90,
		.block_bytes = 48 * MIB,
		.window_bytes = 256 * MIB,
	};
}

static const struct {
	enum mm_cool_why why;
	const char *word, *says;
} cold_cases[] = {
	{ MM_COOL_NONE, "none", "has room for 90 blocks." },
	{ MM_COOL_OFF, "off", "The policy in force, or the knob cold, gives nobody more" },
	{ MM_COOL_BY_HAND, "by_hand", "with --cold auto mmd decides again" },
	{ MM_COOL_FLOOR, "floor", "what it has asked for at least" },
	{ MM_COOL_UNKNOWN, "unknown", "how fast cold blocks come, was not measured yet" },
	{ MM_COOL_RESTS, "rests", "It does not compute now" },
	{ MM_COOL_ENOUGH, "enough", "It lacks no KV cache, and keeps the limit" },
	{ MM_COOL_WORTH, "worth", "would cost more than the KV cache is worth" },
	{ MM_COOL_MOST, "most", "More cannot be cold by what it has declared, and" },
	{ MM_COOL_WAITED, "waited", "waited for the link longer than predicted" },
	{ MM_COOL_UNUSED, "unused", "more when it has made use of these" },
	{ MM_COOL_BLOCKED, "blocked", "It has requests and runs none" },
};
static_assert(MM_ARRAY_SIZE(cold_cases) == MM_COOL_WHYS, "a case for each");

static struct mm_sentences cold_text(struct mm_core_why_cold cold)
{
	struct mm_sentences text = { 0 };

	mm_explain_cold(&cold, &text);
	if (text.n)
		expect_sentences(&text);
	return text;
}

static void each_limit_of_cold_blocks_has_its_sentence(void **state)
{
	struct mm_core_why_cold cold = cold_base();
	struct mm_sentences text;

	(void)state;
	for (uint32_t i = 0; i < MM_ARRAY_SIZE(cold_cases); i++) {
		assert_int_equal(cold_cases[i].why, i);
		cold.why = cold_cases[i].why;
		text = cold_text(cold);
		expect_sentence(&text, cold_cases[i].says);
		expect_sentence(&text, "Of its KV cache 80 blocks may be cold, of 200 that it has "
				       "declared: 3.8 GiB");
		assert_string_equal(mm_explain_cold_reason(&cold), cold_cases[i].word);
		assert_false(says(&text, "to take the others back"));
		for (uint32_t k = 1; k < MM_ARRAY_SIZE(cold_cases); k++)
			assert_true(k == i || !says(&text, cold_cases[k].says));
	}
}

static void windows_and_limits_that_fall_are_said(void **state)
{
	struct mm_core_why_cold cold = cold_base();
	struct mm_sentences text;

	(void)state;
	cold.why = MM_COOL_FLOOR;
	cold.limit = 1;
	text = cold_text(cold);
	expect_sentence(&text, "Of its KV cache 1 block may be cold");
	expect_sentence(&text, "its window of 256.0 MiB has room for 90 blocks.");
	expect_sentence(&text, "Those that are cold already may stay so.");
	cold.falls = true;
	text = cold_text(cold);
	expect_sentence(&text, "time to take the others back, 80 blocks may be.");
	assert_false(says(&text, "may stay so"));
	cold.limit = 0;
	cold.gives = true;
	text = cold_text(cold);
	expect_sentence(&text, "None of its KV cache may be cold, of 200 blocks that it has");
	expect_sentence(&text, "It is to give chunks of its window back, so none may be.");
	assert_false(says(&text, "asked for at least"));
	assert_string_equal(mm_explain_cold_reason(&cold), "gives");
	cold.entries = 0;
	text = cold_text(cold);
	expect_sentence(&text, "It is to give KV cache back first.");
	assert_false(says(&text, "its window"));
	cold = cold_base();
	cold.live = 1;
	text = cold_text(cold);
	expect_sentence(&text, "1 block is so now.");
	cold.live = 40;
	cold.priced = true;
	cold.load_permille = 612;
	cold.slow_permille = 7;
	text = cold_text(cold);
	expect_sentence(&text, "40 blocks are so now: what is read of them takes 61 % of a step's "
			       "time, and makes steps 0.7 % longer.");
	cold = cold_base();
	cold.entries = 0;
	text = cold_text(cold);
	expect_sentence(&text, "none is, since it has no window");
	/* A tenant's other sentences stay as they are without a declaration. */
	assert_int_equal(cold_text((struct mm_core_why_cold){ 0 }).n, 0);
}

static void cold_blocks_are_among_all_else(void **state)
{
	struct mm_explain_row row = row_of(why_base());
	mm_cleanup(mm_json_done) json_t *json = NULL;
	struct mm_explain e = { .n = 1, .row = &row };
	struct mm_sentences text;
	const json_t *cold;

	(void)state;
	row.why.why = MM_WHY_WORTH;
	row.why.cold = cold_base();
	row.why.cold.why = MM_COOL_BY_HAND;
	mm_explain_tenant(&row, &text);
	expect_sentences(&text);
	expect_sentence(&text, "Of its KV cache 80 blocks may be cold");
	expect_sentence(&text, "it is not worth it");
	json = mm_explain_json(&e, NULL, false);
	cold = json_object_get(
		json_object_get(json_array_get(json_object_get(json, "tenants"), 0), "has"),
		"cold");
	assert_int_equal(mm_json_u64(cold, "limit"), 80);
	assert_int_equal(mm_json_u64(cold, "window_bytes"), 256 * MIB);
	assert_string_equal(mm_json_text(cold, "limit_why"), "by_hand");
	mm_json_done(&json);
	row.why.cold = (struct mm_core_why_cold){ 0 };
	json = mm_explain_json(&e, NULL, false);
	cold = json_object_get(
		json_object_get(json_array_get(json_object_get(json, "tenants"), 0), "has"),
		"cold");
	assert_true(json_is_null(cold));
}

/* ---- devices ---- */

static struct mm_core_why_device device_base(void)
{
	return (struct mm_core_why_device){
		.decided = true,
		.policy = MM_POLICY_REMAP,
		.page_bytes = 16 * MIB,
		.pool_bytes = 80 * GIB,
		.free_bytes = 2 * GIB,
		.demand_bytes = 120 * GIB,
		.supply_bytes = 100 * GIB,
		.from_permille = 1100,
		.below_permille = 900,
		.working = 2,
		.turn_ns = 1200 * MM_NS_PER_MS,
		.turn_home_ns = 60 * MM_NS_PER_MS,
		.has_bid = true,
		.bid = 5400,
	};
}

static const struct {
	enum mm_why_mode why;
	bool beside;
	const char *says;
} mode_cases[] = {
	{ MM_WHY_MODE_POLICY, false, "The policy lets models that take turns compute one at a" },
	{ MM_WHY_MODE_NOBODY, true, "No model takes turns" },
	{ MM_WHY_MODE_MEMORY, true, "120.0 GiB, is far more than the 100.0 GiB" },
	{ MM_WHY_MODE_SET, false, "Models take turns, as the operator has set it (knob mode)" },
	{ MM_WHY_MODE_ALONE, true, "At most one of the models that take turns has work" },
	{ MM_WHY_MODE_GOALS, true, "side by side, because that misses fewer goals of accounts" },
	{ MM_WHY_MODE_FITS, true,
	  "side by side: the memory that they want beside their weights, 120.0 GiB, is not "
	  "more than 110 %" },
	{ MM_WHY_MODE_EXCEEDS, false,
	  "Models take turns: the memory that they want beside their weights, 120.0 GiB, is not "
	  "less than 90 % of" },
};
static_assert(MM_ARRAY_SIZE(mode_cases) == MM_WHY_MODES, "a case for each");

static void each_mode_has_its_sentence(void **state)
{
	struct mm_explain_row row = row_of(why_base());

	(void)state;
	for (uint32_t i = 0; i < MM_ARRAY_SIZE(mode_cases); i++) {
		struct mm_explain e = { .device = device_base(), .n = 1, .row = &row };
		struct mm_sentences text;

		assert_int_equal(mode_cases[i].why, i);
		e.device.mode_why = mode_cases[i].why;
		e.device.beside = mode_cases[i].beside;
		mm_explain_device(&e, &text);
		expect_sentences(&text);
		expect_sentence(&text, mode_cases[i].says);
		expect_sentence(&text, "Of 80.0 GiB, in pages of 16.0 MiB, 2.0 GiB is free.");
		assert_int_equal(says(&text, "A turn lasts 1.2 s"), !mode_cases[i].beside);
	}
}

static void a_device_names_who_lends_and_who_lacks(void **state)
{
	struct mm_explain_row row[7];
	struct mm_explain e = { .device = device_base(), .n = 2, .row = row };
	static const char *const names[] = { "A", "B", "C", "D", "E", "F", "G" };
	struct mm_sentences text;

	(void)state;
	for (uint32_t i = 0; i < 7; i++) {
		row[i] = row_of(why_base());
		row[i].name = names[i];
	}
	what_no_work(&row[0].why);
	row[1].why.alpha = 0;
	mm_explain_device(&e, &text);
	expect_sentence(&text, "1 of 2 models with work lacks KV cache: B.");
	expect_sentence(&text, "One GiB more would gain it 0.54 % of one model's output.");
	expect_sentence(&text, "Layers that are away set 12.0 GiB free: those of A.");
	e.device.bid = -1;
	e.device.big_bytes = 3 * GIB;
	e.device.age_ns = 7 * MM_NS_PER_S;
	e.device.mode_changes = true;
	mm_explain_device(&e, &text);
	expect_sentence(&text, "More of it would gain them nothing");
	expect_sentence(&text, "A model that loads, or a plan of the operator, needs 3.0 GiB");
	expect_sentence(&text, "This was decided 7.0 s ago");
	expect_sentence(&text, "speaks for the other way");
	e.device.bid_met = true;
	row[1].why.kv_wanted = row[1].why.kv_held;
	mm_explain_device(&e, &text);
	expect_sentence(&text, "No model with work lacks KV cache.");
	e.n = 7;
	mm_explain_device(&e, &text);
	expect_sentence(&text, "Those of them that compute get all that they want.");
	expect_sentence(&text, "5 of 5 models with work lack KV cache: C, D, E, F and 1 more.");
	e.device.bid_met = false;
	e.device.bid = 5400;
	what_waits(&row[4].why);
	mm_explain_device(&e, &text);
	expect_sentence(&text, "would gain those of them that compute 0.54 % of one model's");
	e.n = 1;
	row[0] = row_of(why_base());
	what_waits(&row[0].why);
	mm_explain_device(&e, &text);
	expect_sentence(&text, "It gets it at its turn.");
	assert_false(says(&text, "One GiB more"));
	e.n = 7;
	for (uint32_t i = 0; i < 7; i++)
		row[i].why.alpha = 0;
	mm_explain_device(&e, &text);
	expect_sentence(&text, "No model has layers away.");
	e.device.decided = false;
	mm_explain_device(&e, &text);
	assert_int_equal(text.n, 1);
	expect_sentence(&text, "Nothing was decided yet.");
}

/* ---- JSON, and what does not fit ---- */

static void json_has_the_numbers(void **state)
{
	struct mm_explain_row row[2] = { row_of(why_base()), row_of(why_base()) };
	struct mm_explain e = { .device = device_base(), .n = 2, .row = row };
	const json_t *tenants, *tenant, *target;
	json_t *json;

	(void)state;
	row[1].name = "other";
	row[1].why.why = MM_WHY_CLAUSE;
	row[1].why.kv_keep = 10;
	row[1].why.points = 1;
	row[1].why.point[0] = row[1].why.more;
	json = mm_explain_json(&e, NULL, false);
	tenants = json_object_get(json, "tenants");
	assert_int_equal(json_array_size(tenants), 2);
	assert_null(json_object_get(json_array_get(tenants, 1), "considered"));
	assert_string_equal(mm_json_text(json, "mode"), "turns");
	assert_int_equal(mm_json_u64(json, "demand_bytes"), 120 * GIB);
	json_decref(json);
	json = mm_explain_json(&e, &row[1], true);
	tenants = json_object_get(json, "tenants");
	assert_int_equal(json_array_size(tenants), 1);
	tenant = json_array_get(tenants, 0);
	target = json_object_get(tenant, "target");
	assert_string_equal(mm_json_text(tenant, "name"), "other");
	assert_string_equal(mm_json_text(target, "why"), "clause");
	assert_int_equal(mm_json_u64(target, "kv_chunks_keep"), 10);
	assert_true(mm_json_real(json_object_get(target, "one_more"), "gain_permille") == 50);
	assert_int_equal(json_array_size(json_object_get(tenant, "considered")), 1);
	assert_int_equal(mm_json_u64(json_object_get(tenant, "bid"), "chunks"), 32);
	assert_int_equal(mm_json_u64(json_object_get(tenant, "bid"), "chunks_entitled"), 16);
	assert_int_equal(mm_json_u64(json_object_get(tenant, "offer"), "chunks_empty"), 8);
	assert_true(json_array_size(json_object_get(tenant, "sentences")) >= 4);
	json_decref(json);
}

/* A tenant chooses its name: it cannot write beyond a sentence, nor make JSON that is none. */
static void a_name_does_no_harm(void **state)
{
	char name[2 * MM_SENTENCE_BYTES];
	struct mm_explain_row row = row_of(why_base());
	struct mm_explain e = { .device = device_base(), .n = 1, .row = &row };
	struct mm_sentences text;
	json_t *json;

	(void)state;
	memset(name, 0xff, sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	row.name = name;
	mm_explain_tenant(&row, &text);
	for (uint32_t i = 0; i < text.n; i++)
		assert_true(strlen(text.sentence[i]) < MM_SENTENCE_BYTES);
	json = mm_explain_json(&e, NULL, false);
	assert_int_equal(json_array_size(json_object_get(json, "tenants")), 1);
	json_decref(json);
	text.n = 0;
	for (uint32_t i = 0; i < 2 * MM_SENTENCES_MAX; i++)
		mm_sentences_add(&text, "%u.", i);
	assert_int_equal(text.n, MM_SENTENCES_MAX);
	text.n = 0;
	mm_sentences_more(&text, "lost");
	assert_int_equal(text.n, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_reason_has_its_sentence),
		cmocka_unit_test(each_state_has_its_sentence),
		cmocka_unit_test(each_limit_of_cold_blocks_has_its_sentence),
		cmocka_unit_test(windows_and_limits_that_fall_are_said),
		cmocka_unit_test(cold_blocks_are_among_all_else),
		cmocka_unit_test(each_mode_has_its_sentence),
		cmocka_unit_test(a_device_names_who_lends_and_who_lacks),
		cmocka_unit_test(json_has_the_numbers),
		cmocka_unit_test(a_name_does_no_harm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
