/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/knobs.h"

#include <string.h>

#include "libclient/base/base.h"

#define AT(field)                                       \
	.offset = offsetof(struct mm_core_opts, field), \
	.bytes = sizeof(((struct mm_core_opts *)NULL)->field)
#define MS       .arg = "MS", .unit = MM_NS_PER_MS, .min = 1, .max = 3600000
#define PERMILLE .arg = "PERMILLE", .unit = 1, .min = 1, .max = 1000
#define SWITCH   .arg = "on|off", .names = switch_names

static const char *const switch_names[] = { "on", "off", NULL };
static const char *const sharing_names[] = { "auto", "beside", "turns", NULL };

static const struct mm_knob knob_table[] = {
	{ .name = "reversion",
	  AT(reversion),
	  SWITCH,
	  .fallback = MM_SWITCH_ON,
	  .help = "layers go back when the memory is left over" },
	{ .name = "turn-cost",
	  AT(turn_cost_permille),
	  PERMILLE,
	  .fallback = MM_TURN_COST_PERMILLE,
	  .help = "share of a turn that may pass until its holder's layers are home; 1000: "
		  "turns are not "
		  "longer for it" },
	{ .name = "idle-ms",
	  AT(idle_ns),
	  MS,
	  .fallback = MM_IDLE_NS / MM_NS_PER_MS,
	  .help = "time without a step and without work after which a model is idle" },
	{ .name = "dwell-ms",
	  AT(dwell_ns),
	  MS,
	  .fallback = MM_DWELL_NS / MM_NS_PER_MS,
	  .help = "least time between taking and giving back" },
	{ .name = "change-ms",
	  AT(change_ns),
	  .arg = "MS",
	  .unit = MM_NS_PER_MS,
	  .min = 1,
	  .max = 1000, /* a tenant's thread waits for as long */
	  .fallback = MM_CHANGE_NS / MM_NS_PER_MS,
	  .help = "time between two changes of a tenant's plan, on average; 16 may come at once" },
	{ .name = "reclaim-ms",
	  AT(reclaim_ns),
	  MS,
	  .fallback = MM_RECLAIM_NS / MM_NS_PER_MS,
	  .help = "time that a tenant has to give chunks back" },
	{ .name = "link-slows",
	  AT(link_slows_permille),
	  PERMILLE,
	  .fallback = MM_LINK_SLOWS_PERMILLE,
	  .help = "by which kernels are longer while the link is busy, on this device" },
	{ .name = "rho",
	  AT(rho_permille),
	  PERMILLE,
	  .fallback = MM_RHO_PERMILLE,
	  .help = "part of one model's stalls that others do not make use of; 1000: all is lost" },
	{ .name = "cold",
	  AT(cold),
	  SWITCH,
	  .fallback = MM_SWITCH_OFF,
	  .help = "tenants that declared cold blocks may have as many as pay, beyond those that "
		  "they have anyway" },
	{ .name = "cold-max",
	  AT(cold_max_permille),
	  .arg = "PERMILLE",
	  .unit = 1,
	  .min = 1,
	  .max = 1000000,
	  .fallback = MM_COLD_MAX_PERMILLE,
	  .help = "the most cold KV of a tenant, of its share" },
	{ .name = "time-scale",
	  AT(time_scale),
	  .arg = "K",
	  .unit = 1,
	  .min = 1,
	  .max = 10000,
	  .fallback = 1,
	  .fixed = true,
	  .help = "all of the controller's times, times K: for dilated runs" },
	{ .name = "mode",
	  AT(sharing),
	  .arg = "auto|beside|turns",
	  .names = sharing_names,
	  .fallback = MM_SHARING_AUTO,
	  .help = "tenants that joined the turns compute side by side (beside), one at a time "
		  "(turns), or as mmd decides (auto; as turns until it can)" },
};

static_assert(MM_ARRAY_SIZE(knob_table) <= MM_KNOBS_MAX,
	      "each knob has an index below MM_KNOBS_MAX");

const struct mm_knob *mm_knob_at(uint32_t index)
{
	return index < MM_ARRAY_SIZE(knob_table) ? &knob_table[index] : NULL;
}

static uint64_t knob_field_get(const struct mm_knob *k, const struct mm_core_opts *opts)
{
	const char *at = (const char *)opts + k->offset;
	uint64_t wide;
	uint32_t narrow;

	if (k->bytes == sizeof(wide)) {
		memcpy(&wide, at, sizeof(wide));
		return wide;
	}
	memcpy(&narrow, at, sizeof(narrow));
	return narrow;
}

uint64_t mm_knob_value(const struct mm_knob *knob, const struct mm_core_opts *opts)
{
	return knob->names ? knob_field_get(knob, opts) : knob_field_get(knob, opts) / knob->unit;
}

const char *mm_knob_choice(const struct mm_knob *knob, const struct mm_core_opts *opts)
{
	uint64_t value = knob_field_get(knob, opts);

	for (uint64_t i = 0; knob->names && knob->names[i]; i++)
		if (value == i + 1)
			return knob->names[i];
	return NULL;
}

void mm_knob_set(const struct mm_knob *knob, uint64_t value, struct mm_core_opts *opts)
{
	uint64_t wide = knob->names ? value : value * knob->unit;
	uint32_t narrow = (uint32_t)wide;

	if (knob->bytes == sizeof(wide))
		memcpy((char *)opts + knob->offset, &wide, sizeof(wide));
	else
		memcpy((char *)opts + knob->offset, &narrow, sizeof(narrow));
}

void mm_knobs_set_defaults(struct mm_core_opts *opts)
{
	for (size_t i = 0; i < MM_ARRAY_SIZE(knob_table); i++)
		if (!knob_field_get(&knob_table[i], opts))
			mm_knob_set(&knob_table[i], knob_table[i].fallback, opts);
}
