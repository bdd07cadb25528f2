/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/mmsim/explain.h"

#include <errno.h>
#include <stdio.h>

#include "libclient/support/json.h"
#include "mmd/explain/explain.h"
#include "tools/common/explained.h"

uint64_t ms_explain_due(const struct ms_sim *sim)
{
	const struct ms_explain *e = sim->opts.explain;

	if (!e || !sim->started || sim->explained == e->n)
		return UINT64_MAX;
	return sim->start_ns + (uint64_t)(e->at_s[sim->explained] * (double)MM_NS_PER_S);
}

static json_t *device_explain(const struct ms_device *dev)
{
	struct mm_explain_row row[MS_TENANTS_MAX];
	struct mm_explain e = { .row = row };

	mm_core_why_device(dev->core, &e.device);
	for (uint32_t i = 0; i < dev->sim->n_tenants; i++) {
		const struct ms_tenant *t = &dev->sim->tenants[i];

		row[e.n].name = t->name;
		if (t->dev == dev && mm_core_why(dev->core, t->id, &row[e.n].why))
			e.n++;
	}
	return mm_explain_json(&e, NULL, true);
}

int ms_explain_now(struct ms_sim *sim)
{
	const struct ms_explain *e = sim->opts.explain;
	json_t *moment = json_object(), *devices = json_array();

	for (uint32_t i = 0; i < sim->n_devices; i++)
		json_array_append_new(devices, device_explain(&sim->devices[i]));
	mm_json_put_text(moment, "policy", sim->opts.policy->name);
	mm_json_put_u64(moment, "window", sim->opts.c->window);
	mm_json_put_real(moment, "at_s", e->at_s[sim->explained++]);
	mm_json_put(moment, "devices", devices);
	return json_array_append_new(e->list, moment) ? -ENOMEM : 0;
}

void ms_explain_print(const json_t *moment)
{
	const json_t *device, *tenant, *devices = json_object_get(moment, "devices");
	size_t i, k;

	printf("%s, window %llu, at %.3f s:\n", mm_json_text(moment, "policy"),
	       (unsigned long long)mm_json_u64(moment, "window"), mm_json_real(moment, "at_s"));
	json_array_foreach(devices, i, device) {
		mm_explained_print(device);
		json_array_foreach(json_object_get(device, "tenants"), k, tenant) {
			putchar('\n');
			mm_explained_print(tenant);
		}
		putchar('\n');
	}
}
