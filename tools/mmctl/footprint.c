/* SPDX-License-Identifier: Apache-2.0 */
/*
 * footprint - what models take of device, host, fd tables and address space, at several page sizes
 *
 * Layouts are computed by the code that load uses, from shapes or from the headers of files; no
 * daemon is involved, and no weights are read. A page costs one fd that is passed to the tenant and
 * one that mmd keeps (Documentation/abi.md), and on the software GPU one mapping.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "libclient/support/size.h"
#include "libclient/model/measure.h"
#include "tools/mmctl/ctl.h"

#define MAPPINGS_MAX 65530 /* of a process: the default of vm.max_map_count */
#define REGIONS      4     /* mapped by any tenant: host store, its own, mmd's, gates */

struct footprint {
	const char *models; /* path of a file of shapes, or NULL */
	const uint64_t *page_bytes;
	size_t n_pages;
	uint64_t kv_bytes;
	json_t *result; /* array of models */
};

/* ---- computing ---- */

static void warning_add(json_t *warnings, const char *what, uint64_t have, uint64_t max)
{
	char text[160];

	if (have <= max)
		return;
	snprintf(text, sizeof(text), "%s: %" PRIu64 ", at most %" PRIu64 " can be", what, have,
		 max);
	json_array_append_new(warnings, json_string(text));
}

static json_t *page_size_json(const struct footprint *f, const struct mm_layout *layout,
			      uint64_t page_bytes)
{
	uint64_t pages = mm_measure_pages(layout, page_bytes);
	uint64_t kv_pages = mm_div_up(f->kv_bytes, page_bytes);
	json_t *o = json_object(), *warnings = json_array();

	mm_json_put_u64(o, "page_bytes", page_bytes);
	mm_json_put_u64(o, "device_bytes", pages * page_bytes);
	mm_json_put_u64(o, "waste_bytes", pages * page_bytes - layout->tensor_bytes);
	mm_json_put_u64(o, "pages", pages);
	mm_json_put_u64(o, "page_fds_passed", pages);
	mm_json_put_u64(o, "page_fds_held", pages);
	mm_json_put_u64(o, "mappings", pages + REGIONS);
	mm_json_put_u64(o, "kv_pages", kv_pages);
	mm_json_put_u64(o, "kv_device_bytes", kv_pages * page_bytes);
	mm_json_put_u64(o, "mappings_with_kv", pages + kv_pages + REGIONS);
	warning_add(warnings, "entries of the map table for the model", pages, MM_MAP_KV_BASE);
	warning_add(warnings, "entries of the map table for the KV arena", kv_pages,
		    MM_MAP_ENTRIES - MM_MAP_KV_BASE);
	warning_add(warnings, "mappings of the tenant on the software GPU",
		    pages + kv_pages + REGIONS, MAPPINGS_MAX);
	mm_json_put(o, "warnings", warnings);
	return o;
}

static void model_add(struct footprint *f, const char *name, const char *family,
		      const struct mm_layout *layout)
{
	json_t *o = json_object(), *sizes = json_array();
	uint64_t layer_bytes = 0;

	for (uint32_t g = 1; g < layout->dir.n_groups; g++)
		layer_bytes = MM_MAX(layer_bytes, layout->groups[g].bytes);
	mm_json_put_text(o, "name", name);
	mm_json_put(o, "family", family ? json_string(family) : json_null());
	mm_json_put_u64(o, "layers", layout->dir.n_groups - 1);
	mm_json_put_u64(o, "tensor_bytes", layout->tensor_bytes);
	mm_json_put_u64(o, "resident_bytes", layout->groups[0].bytes);
	mm_json_put_u64(o, "layer_bytes", layer_bytes);
	mm_json_put_u64(o, "host_store_bytes", layout->dir.store_bytes);
	for (size_t i = 0; i < f->n_pages; i++)
		json_array_append_new(sizes, page_size_json(f, layout, f->page_bytes[i]));
	mm_json_put(o, "page_sizes", sizes);
	json_array_append_new(f->result, o);
}

static int folder_add(struct footprint *f, const char *path)
{
	mm_cleanup(mm_layout_done) struct mm_layout layout = { 0 };
	struct mm_why why;

	if (mm_measure_folder(path, &layout, &why) < 0)
		return mmctl_error(MM_EXIT_FAILED, "%s: %s", path, why.text);
	model_add(f, path, NULL, &layout);
	return MM_EXIT_DONE;
}

static int shapes_add(struct footprint *f, const json_t *model, size_t i, uint32_t item_bytes)
{
	mm_cleanup(mm_layout_done) struct mm_layout layout = { 0 };
	const char *family = mm_json_has(model, "family") ? mm_json_text(model, "family") : NULL;
	struct mm_why why;

	if (mm_measure_shapes(model, item_bytes, &layout, &why) < 0)
		return mmctl_error(MM_EXIT_FAILED, "%s: model %zu: %s", f->models, i, why.text);
	model_add(f, mm_json_text(model, "name"), family, &layout);
	return MM_EXIT_DONE;
}

static int models_file_add(struct footprint *f)
{
	mm_cleanup(mm_json_done) json_t *root = NULL;
	const json_t *models, *model, *item;
	char err[PATH_MAX + JSON_ERROR_TEXT_LENGTH + 64];
	struct mm_json_reader reader = { f->models, err, sizeof(err), 0 };
	json_int_t item_bytes;
	size_t i;

	if (mm_json_read_file(&reader, &root))
		return mmctl_error(MM_EXIT_FAILED, "%s%s",
				   reader.error == -EBADMSG ? "" : "--models: ", err);
	models = json_object_get(root, "models");
	item = json_object_get(root, "dtype_bytes");
	item_bytes = item ? json_integer_value(item) : 2;
	if (!json_is_array(models) || !json_array_size(models))
		return mmctl_error(MM_EXIT_FAILED, "%s: no array of models", f->models);
	if (item_bytes != 2 && item_bytes != 4)
		return mmctl_error(MM_EXIT_FAILED, "%s: dtype_bytes must be 2 or 4", f->models);
	json_array_foreach(models, i, model) {
		int r = shapes_add(f, model, i, (uint32_t)item_bytes);

		if (r != MM_EXIT_DONE)
			return r;
	}
	return MM_EXIT_DONE;
}

/* ---- printing ---- */

static void print_size(const json_t *model, const json_t *size, bool first)
{
	uint64_t device = mm_json_u64(size, "device_bytes"),
		 waste = mm_json_u64(size, "waste_bytes");
	char page[MM_SIZE_TEXT_BYTES], text[4][MM_SIZE_TEXT_BYTES];

	printf("%-14s %-6s %9s %9s | %7s %9s %9s %6.2f%% %6" PRIu64 " %6" PRIu64 " %8" PRIu64
	       " | %6" PRIu64 " %8" PRIu64 "\n",
	       first ? mm_json_text(model, "name") : "", first ? mm_json_text(model, "family") : "",
	       first ? mm_size_print(mm_json_u64(model, "tensor_bytes"), text[0]) : "",
	       first ? mm_size_print(mm_json_u64(model, "host_store_bytes"), text[1]) : "",
	       mm_size_print(mm_json_u64(size, "page_bytes"), page), mm_size_print(device, text[2]),
	       mm_size_print(waste, text[3]), 100.0 * (double)waste / (double)device,
	       mm_json_u64(size, "page_fds_passed"), mm_json_u64(size, "page_fds_held"),
	       mm_json_u64(size, "mappings"), mm_json_u64(size, "kv_pages"),
	       mm_json_u64(size, "mappings_with_kv"));
}

static void print_warnings(const json_t *model)
{
	const json_t *size, *warning;
	char page[MM_SIZE_TEXT_BYTES];
	size_t i, k;

	json_array_foreach(json_object_get(model, "page_sizes"), i, size)
		json_array_foreach(json_object_get(size, "warnings"), k, warning)
			printf("warning: %s, pages of %s: %s\n", mm_json_text(model, "name"),
			       mm_size_print(mm_json_u64(size, "page_bytes"), page),
			       json_string_value(warning));
}

static void print_table(const struct footprint *f)
{
	const json_t *model, *size;
	char kv[MM_SIZE_TEXT_BYTES];
	size_t i, k;

	printf("%-14s %-6s %9s %9s | %7s %9s %9s %7s %6s %6s %8s | KV %s\n", "", "", "", "", "", "",
	       "", "", "FDS", "FDS", "", mm_size_print(f->kv_bytes, kv));
	printf("%-14s %-6s %9s %9s | %7s %9s %9s %7s %6s %6s %8s | %6s %8s\n", "MODEL", "FAMILY",
	       "TENSORS", "HOST", "PAGE", "DEVICE", "WASTE", "", "PASSED", "HELD", "MAPPINGS",
	       "PAGES", "MAPPINGS");
	json_array_foreach(f->result, i, model)
		json_array_foreach(json_object_get(model, "page_sizes"), k, size)
			print_size(model, size, k == 0);
	json_array_foreach(f->result, i, model)
		print_warnings(model);
}

static int footprint_print(const struct mmctl *ctl, struct footprint *f)
{
	mm_cleanup(mm_json_done) json_t *answer = NULL;

	if (!ctl->json) {
		print_table(f);
		return MM_EXIT_DONE;
	}
	answer = json_pack("{s:i,s:I,s:O}", "schema", 1, "kv_bytes", (json_int_t)f->kv_bytes,
			   "models", f->result);
	return mmctl_print_json(answer);
}

int mmctl_footprint_run(const struct mmctl *ctl, int argc, char **argv)
{
	const struct mmctl_options *o = ctl->options;
	mm_cleanup(mm_json_done) json_t *result = json_array();
	struct footprint f = { .models = o->models,
			       .page_bytes = o->page_bytes,
			       .n_pages = o->n_pages,
			       .kv_bytes = o->kv_bytes,
			       .result = result };
	int r = MM_EXIT_DONE;

	if (!f.models && !argc)
		return mm_opt_refuse(&mmctl_program, MMCTL_FOOTPRINT,
				     "needs --models FILE, or folders");
	if (f.models)
		r = models_file_add(&f);
	for (int i = 0; r == MM_EXIT_DONE && i < argc; i++)
		r = folder_add(&f, argv[i]);
	return r == MM_EXIT_DONE ? footprint_print(ctl, &f) : r;
}
