/* SPDX-License-Identifier: Apache-2.0 */
/*
 * footprint - what models take of device, host, fd tables and address space, at several page sizes
 *
 * Concept: the layout is load's own code over shapes or headers; no daemon is asked, no weights are
 *          read. What follows from it per tenant (abi.md): a page is one fd that passes
 *          to the tenant and one that mmd keeps, and on the software GPU one mapping.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "libclient/support/size.h"
#include "libclient/model/measure.h"
#include "tools/mmctl/ctl.h"

#define PAGE_SIZES_MAX   8
#define MAPPINGS_MAX     65530 /* of a process: vm.max_map_count unless it was raised */
#define REGIONS          4     /* mapped by any tenant: host store, its own, mmd's, gates */
#define PAGE_BYTES_MIN   4096
#define PAGES_DEFAULT    "2M,16M,64M"
#define KV_DEFAULT_BYTES (UINT64_C(8) << 30)

struct footprint {
	const char *models; /* file of shapes, or NULL */
	uint64_t page_bytes[PAGE_SIZES_MAX];
	size_t n_pages;
	uint64_t kv_bytes;
	json_t *result; /* array of models */
};

/* ---- computing ---- */

static void set_u64(json_t *object, const char *key, uint64_t value)
{
	json_object_set_new(object, key, json_integer((json_int_t)value));
}

static void warn(json_t *warnings, const char *what, uint64_t have, uint64_t max)
{
	char text[160];

	if (have <= max)
		return;
	snprintf(text, sizeof(text), "%s: %" PRIu64 ", at most %" PRIu64 " can be", what, have,
		 max);
	json_array_append_new(warnings, json_string(text));
}

static json_t *at_page_size(const struct footprint *f, const struct mm_layout *layout,
			    uint64_t page_bytes)
{
	uint64_t pages = mm_measure_pages(layout, page_bytes);
	uint64_t kv_pages = mm_div_up(f->kv_bytes, page_bytes);
	json_t *o = json_object(), *warnings = json_array();

	set_u64(o, "page_bytes", page_bytes);
	set_u64(o, "device_bytes", pages * page_bytes);
	set_u64(o, "waste_bytes", pages * page_bytes - layout->tensor_bytes);
	set_u64(o, "pages", pages);
	set_u64(o, "page_fds_passed", pages);
	set_u64(o, "page_fds_held", pages);
	set_u64(o, "mappings", pages + REGIONS);
	set_u64(o, "kv_pages", kv_pages);
	set_u64(o, "kv_device_bytes", kv_pages * page_bytes);
	set_u64(o, "mappings_with_kv", pages + kv_pages + REGIONS);
	warn(warnings, "entries of the map table for the model", pages, MM_MAP_KV_BASE);
	warn(warnings, "entries of the map table for the KV arena", kv_pages,
	     MM_MAP_ENTRIES - MM_MAP_KV_BASE);
	warn(warnings, "mappings of the tenant on the software GPU", pages + kv_pages + REGIONS,
	     MAPPINGS_MAX);
	json_object_set_new(o, "warnings", warnings);
	return o;
}

static void add_model(struct footprint *f, const char *name, const char *family,
		      const struct mm_layout *layout)
{
	json_t *o = json_object(), *sizes = json_array();
	uint64_t layer_bytes = 0;

	for (uint32_t g = 1; g < layout->dir.n_groups; g++)
		layer_bytes = MM_MAX(layer_bytes, layout->groups[g].bytes);
	json_object_set_new(o, "name", json_string(name));
	json_object_set_new(o, "family", family ? json_string(family) : json_null());
	set_u64(o, "layers", layout->dir.n_groups - 1);
	set_u64(o, "tensor_bytes", layout->tensor_bytes);
	set_u64(o, "resident_bytes", layout->groups[0].bytes);
	set_u64(o, "layer_bytes", layer_bytes);
	set_u64(o, "host_store_bytes", layout->dir.store_bytes);
	for (size_t i = 0; i < f->n_pages; i++)
		json_array_append_new(sizes, at_page_size(f, layout, f->page_bytes[i]));
	json_object_set_new(o, "page_sizes", sizes);
	json_array_append_new(f->result, o);
}

static int add_folder(struct footprint *f, const char *path)
{
	mm_cleanup(mm_layout_done) struct mm_layout layout = { 0 };
	struct mm_why why;

	if (mm_measure_folder(path, &layout, &why) < 0)
		return mm_complain(MM_EXIT_FAILED, "%s: %s", path, why.text);
	add_model(f, path, NULL, &layout);
	return MM_EXIT_DONE;
}

static int add_shapes(struct footprint *f, const json_t *model, size_t i, uint32_t item_bytes)
{
	mm_cleanup(mm_layout_done) struct mm_layout layout = { 0 };
	const char *family = json_string_value(json_object_get(model, "family"));
	struct mm_why why;

	if (mm_measure_shapes(model, item_bytes, &layout, &why) < 0)
		return mm_complain(MM_EXIT_FAILED, "%s: model %zu: %s", f->models, i, why.text);
	add_model(f, json_string_value(json_object_get(model, "name")), family, &layout);
	return MM_EXIT_DONE;
}

static int add_file(struct footprint *f)
{
	json_error_t where;
	mm_cleanup(mm_json_done) json_t *root =
		json_load_file(f->models, JSON_REJECT_DUPLICATES, &where);
	const json_t *models = json_object_get(root, "models"), *model;
	const json_t *item = json_object_get(root, "dtype_bytes");
	json_int_t item_bytes = item ? json_integer_value(item) : 2;
	size_t i;

	if (!root && where.line < 0) /* it could not be read at all; the text names it */
		return mm_complain(MM_EXIT_FAILED, "--models: %s", where.text);
	if (!root)
		return mm_complain(MM_EXIT_FAILED, "%s: line %d: %s", f->models, where.line,
				   where.text);
	if (!json_is_array(models) || !json_array_size(models))
		return mm_complain(MM_EXIT_FAILED, "%s: no array of models", f->models);
	if (item_bytes != 2 && item_bytes != 4)
		return mm_complain(MM_EXIT_FAILED, "%s: dtype_bytes must be 2 or 4", f->models);
	json_array_foreach(models, i, model) {
		int r = add_shapes(f, model, i, (uint32_t)item_bytes);

		if (r != MM_EXIT_DONE)
			return r;
	}
	return MM_EXIT_DONE;
}

/* ---- printing ---- */

static void print_size(const json_t *model, const json_t *size, bool first)
{
	uint64_t device = mm_u64(size, "device_bytes"), waste = mm_u64(size, "waste_bytes");
	char page[MM_SIZE_TEXT_BYTES], text[4][MM_SIZE_TEXT_BYTES];

	printf("%-14s %-6s %9s %9s | %7s %9s %9s %6.2f%% %6" PRIu64 " %6" PRIu64 " %8" PRIu64
	       " | %6" PRIu64 " %8" PRIu64 "\n",
	       first ? mm_text(model, "name") : "", first ? mm_text(model, "family") : "",
	       first ? mm_size_print(mm_u64(model, "tensor_bytes"), text[0]) : "",
	       first ? mm_size_print(mm_u64(model, "host_store_bytes"), text[1]) : "",
	       mm_size_print(mm_u64(size, "page_bytes"), page), mm_size_print(device, text[2]),
	       mm_size_print(waste, text[3]), 100.0 * (double)waste / (double)device,
	       mm_u64(size, "page_fds_passed"), mm_u64(size, "page_fds_held"),
	       mm_u64(size, "mappings"), mm_u64(size, "kv_pages"),
	       mm_u64(size, "mappings_with_kv"));
}

static void print_warnings(const json_t *model)
{
	const json_t *size, *warning;
	char page[MM_SIZE_TEXT_BYTES];
	size_t i, k;

	json_array_foreach(json_object_get(model, "page_sizes"), i, size)
		json_array_foreach(json_object_get(size, "warnings"), k, warning)
			printf("warning: %s, pages of %s: %s\n", mm_text(model, "name"),
			       mm_size_print(mm_u64(size, "page_bytes"), page),
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

/* ---- arguments ---- */

static int parse_pages(struct footprint *f, const char *list)
{
	char text[160], *save = NULL;

	if (snprintf(text, sizeof(text), "%s", list) >= (int)sizeof(text))
		return mm_complain(MM_EXIT_USAGE, "--page: too long");
	f->n_pages = 0;
	for (char *word = strtok_r(text, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
		uint64_t bytes;

		if (f->n_pages == PAGE_SIZES_MAX)
			return mm_complain(MM_EXIT_USAGE, "--page: more than %d sizes",
					   PAGE_SIZES_MAX);
		if (mm_size_parse(word, &bytes) < 0 || bytes < PAGE_BYTES_MIN ||
		    bytes > UINT32_MAX || bytes % PAGE_BYTES_MIN)
			return mm_complain(MM_EXIT_USAGE,
					   "--page: %s is not a size of 4096 bytes to 4 GiB in "
					   "multiples of 4096",
					   word);
		f->page_bytes[f->n_pages++] = bytes;
	}
	return f->n_pages ? MM_EXIT_DONE : mm_complain(MM_EXIT_USAGE, "--page: no size");
}

static int parse_kv(struct footprint *f, const char *text)
{
	if (mm_size_parse(text, &f->kv_bytes) < 0 || f->kv_bytes > UINT64_C(1) << 50)
		return mm_complain(MM_EXIT_USAGE, "--kv: %s is not a size", text);
	return MM_EXIT_DONE;
}

/* Takes the flags out; what is left are folders. */
static int parse(struct footprint *f, int argc, char **argv, int *ret_folders)
{
	int folders = 0, r = parse_pages(f, PAGES_DEFAULT);

	for (int i = 0; r == MM_EXIT_DONE && i < argc; i++) {
		const char *flag = argv[i];

		if (flag[0] != '-') {
			argv[folders++] = argv[i];
			continue;
		}
		if (strcmp(flag, "--models") != 0 && strcmp(flag, "--page") != 0 &&
		    strcmp(flag, "--kv") != 0)
			return mm_unexpected("footprint", flag);
		if (++i == argc)
			return mm_complain(MM_EXIT_USAGE, "%s: needs a value", flag);
		if (strcmp(flag, "--models") == 0)
			f->models = argv[i];
		else
			r = strcmp(flag, "--kv") == 0 ? parse_kv(f, argv[i])
						      : parse_pages(f, argv[i]);
	}
	*ret_folders = folders;
	if (r == MM_EXIT_DONE && !f->models && !folders)
		return mm_complain(MM_EXIT_USAGE, "footprint: needs --models FILE, or folders");
	return r;
}

static int report(const struct mm_ctl *ctl, struct footprint *f)
{
	mm_cleanup(mm_json_done) json_t *answer = NULL;

	if (!ctl->json) {
		print_table(f);
		return MM_EXIT_DONE;
	}
	answer = json_pack("{s:i,s:I,s:O}", "schema", 1, "kv_bytes", (json_int_t)f->kv_bytes,
			   "models", f->result);
	return mm_print_json(answer);
}

int mm_footprint_run(const struct mm_ctl *ctl, int argc, char **argv)
{
	mm_cleanup(mm_json_done) json_t *result = json_array();
	struct footprint f = { .kv_bytes = KV_DEFAULT_BYTES, .result = result };
	int folders = 0, r = parse(&f, argc, argv, &folders);

	if (r == MM_EXIT_DONE && f.models)
		r = add_file(&f);
	for (int i = 0; r == MM_EXIT_DONE && i < folders; i++)
		r = add_folder(&f, argv[i]);
	return r == MM_EXIT_DONE ? report(ctl, &f) : r;
}
