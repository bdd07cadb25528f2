/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/config/config.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "libclient/support/driver.h"
#include "libclient/support/size.h"
#include "mmd/common/host.h"
#include "mmd/config/tune.h"

enum option_type { TYPE_TEXT, TYPE_SIZE, TYPE_NUMBER, TYPE_NAME, TYPE_ACCOUNTS, TYPE_KNOBS };

struct config_option {
	const char *name;
	const char *arg;
	const char *help;
	enum option_type type;
	size_t offset;
	size_t bytes;             /* TYPE_TEXT, TYPE_KNOBS: size of the field */
	uint64_t min, max;        /* TYPE_SIZE, TYPE_NUMBER */
	bool list;                /* the field is a struct mm_config_list of such values */
	const char *const *names; /* TYPE_NAME: the value is the index */
};

static const char *const policy_names[] = { "recompute", "elastic",       "remap", "swap",
					    "naive",     "naive-bounded", NULL };
static const char *const config_timeout_names[] = { "kill", "quarantine", NULL };
static const char *const huge_names[] = { "auto", "off", "2M", "1G", NULL };
static const char *const config_level_names[] = { "error", "warn", "info", "debug", NULL };
static const char *const slots_names[] = { "auto", "1", "2", NULL };
static const char *const change_names[] = { "partial", "full", NULL };
static const char *const passed_names[] = { "refuse", "discard", NULL };
static const char *const role_names[] = { "keeper", "core", "xfer", "load", "spool", "log", NULL };

#define AT(field)      .offset = offsetof(struct mm_config, field)
#define ROOM(field)    .bytes = sizeof(((struct mm_config *)NULL)->field)
#define SIZE_MAX_BYTES (UINT64_C(1) << 50)

static const struct config_option config_options[] = {
	{ "dir", "DIR", "sockets and lock file", TYPE_TEXT, AT(dir), ROOM(dir) },
	{ "driver", "NAME", MM_DRIVER_CHOICES, TYPE_TEXT, AT(driver), ROOM(driver) },
	{ "device", "N|UUID,...", "the driver's ordinals of devices, or UUIDs (GPU-, MIG-)",
	  TYPE_NUMBER, AT(device), .max = 1023, .list = true },
	{ "pool", "SIZE,...", "memory to manage, of each device", TYPE_SIZE, AT(pool_bytes),
	  .min = 1, .list = true },
	{ "headroom", "SIZE,...", "manage all memory but this", TYPE_SIZE, AT(headroom_bytes),
	  .list = true },
	{ "page", "SIZE,...", "unit of movement; 0 = by device", TYPE_SIZE, AT(page_bytes),
	  .list = true },
	{ "policy", "NAME", "recompute, elastic, remap, swap, naive or naive-bounded", TYPE_NAME,
	  AT(policy), .names = policy_names },
	{ "account-max", "SIZE", "of an account that is not named; 0 = the pool", TYPE_SIZE,
	  AT(account_max_bytes) },
	{ "turn-quantum-max", "MS", "longest turn that an account's tenants may ask for",
	  TYPE_NUMBER, AT(turn_quantum_max_ms), .min = 1,
	  .max = MM_TURN_QUANTUM_LIMIT_NS / MM_NS_PER_MS },
	{ "turn-priority-max", "N", "highest priority that they may ask for", TYPE_NUMBER,
	  AT(turn_priority_max), .max = MM_TURN_PRIORITY_MAX },
	{ "on-timeout", "NAME", "kill or quarantine", TYPE_NAME, AT(on_timeout),
	  .names = config_timeout_names },
	{ "ask-timeout", "MS", "to give what an account must; then on-timeout", TYPE_NUMBER,
	  AT(ask_ms), .min = 1, .max = 86400000 },
	{ "stop-timeout", "MS", "more, for a process that is stopped or frozen", TYPE_NUMBER,
	  AT(stop_ms), .min = 1, .max = 86400000 },
	{ "kill-max", "N", "processes killed within --kill-window; then none", TYPE_NUMBER,
	  AT(kill_max), .min = 1, .max = MM_KILLS_MAX },
	{ "kill-window", "MS", "that --kill-max counts over", TYPE_NUMBER, AT(kill_window_ms),
	  .min = 1, .max = 86400000 },
	{ "idle-timeout", "MS", "to load a model or declare KV memory; 0 = no limit", TYPE_NUMBER,
	  AT(idle_ms), .max = 86400000 },
	{ "accounts", "JSON", "who may have how much; see mmd(8)", TYPE_ACCOUNTS, AT(accounts) },
	{ "host-store-max", "SIZE", "most host memory for weights; 0 = no limit", TYPE_SIZE,
	  AT(host_store_max_bytes) },
	{ "store-dir", "DIR", "on a disk: weights beyond --host-store-max go there", TYPE_TEXT,
	  AT(store_dir), ROOM(store_dir) },
	{ "stage", "SIZE", "host memory for layers on their way from there, of each device",
	  TYPE_SIZE, AT(stage_bytes) },
	{ "swap-max", "SIZE", "most host memory for suspended KV; 0 = none", TYPE_SIZE,
	  AT(swap_max_bytes) },
	{ "swap-account-max", "SIZE", "of it, one account's; 0 = all", TYPE_SIZE,
	  AT(swap_account_max_bytes) },
	{ "lend-max", "PERMILLE", "share of an idle model's layers that may be away", TYPE_NUMBER,
	  AT(lend_max_permille), .min = 1, .max = 1000 },
	{ "controller", "KEY=VALUE,...", "how the controller decides; see below", TYPE_KNOBS,
	  AT(controller), ROOM(controller) },
	{ "chunk", "SIZE", "unit of a streaming copy", TYPE_SIZE, AT(chunk_bytes), .min = 4096 },
	{ "numa-node", "N", "take memory for weights from this node, not the device's", TYPE_NUMBER,
	  AT(numa_node), .max = MM_HOST_NODES_MAX - 1 },
	{ "hugepages", "NAME", "auto, off, 2M or 1G", TYPE_NAME, AT(hugepages),
	  .names = huge_names },
	{ "plan-change", "NAME", "partial or full", TYPE_NAME, AT(full_drain),
	  .names = change_names },
	{ "slots", "N", "auto, 1 or 2", TYPE_NAME, AT(slots), .names = slots_names },
	{ "passed-fds", "NAME", "refuse (as the kernel can), or discard as on older kernels",
	  TYPE_NAME, AT(discard_fds), .names = passed_names },
	{ "log-level", "NAME", "error, warn, info or debug", TYPE_NAME, AT(log_level),
	  .names = config_level_names },
	{ "role", NULL, NULL, TYPE_NAME, AT(role), .names = role_names },
};

static int settings_fail(char *error, const char *fmt, ...) MM_PRINTF(2, 3);
static int settings_fail(char *error, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(error, MM_CONFIG_ERROR_BYTES, fmt, ap);
	va_end(ap);
	return -EINVAL;
}

const char *mm_policy_name(enum mm_policy policy)
{
	return policy < MM_POLICY_COUNT ? policy_names[policy] : "?";
}

const char *mm_hugepages_name(uint64_t hugepages)
{
	return hugepages <= MM_HUGE_1G ? huge_names[hugepages] : "?";
}

static int digits_parse(const char *text, uint64_t *ret_value, const char **ret_end)
{
	char *end;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	*ret_value = strtoull(text, &end, 10);
	*ret_end = end;
	return errno ? -ERANGE : 0;
}

static const struct config_option *option_find(const char *name, size_t name_bytes)
{
	for (size_t i = 0; i < MM_ARRAY_SIZE(config_options); i++) {
		if (strlen(config_options[i].name) == name_bytes &&
		    memcmp(config_options[i].name, name, name_bytes) == 0)
			return &config_options[i];
	}
	return NULL;
}

static int option_set_text(const struct config_option *o, struct mm_config *c, const char *where,
			   const char *value, char *error)
{
	if (!*value)
		return settings_fail(error, "%s%s: empty; want %s", where, o->name, o->arg);
	if (strlen(value) >= o->bytes)
		return settings_fail(error, "%s%s: longer than %zu bytes; use a shorter one", where,
				     o->name, o->bytes - 1);
	if (o->offset == offsetof(struct mm_config, driver) && !mm_is_driver(value))
		return settings_fail(error, "%s%s: '%s' is none of: %s", where, o->name, value,
				     o->help);
	strcpy((char *)c + o->offset, value);
	return 0;
}

static int option_set_name(const struct config_option *o, struct mm_config *c, const char *where,
			   const char *value, char *error)
{
	for (uint64_t i = 0; o->names[i]; i++) {
		if (strcmp(value, o->names[i]) == 0) {
			memcpy((char *)c + o->offset, &i, sizeof(i));
			return 0;
		}
	}
	return settings_fail(error, "%s%s: '%s' is none of: %s", where, o->name, value, o->help);
}

static int option_parse_number(const struct config_option *o, const char *where, const char *value,
			       uint64_t *ret_number, char *error)
{
	uint64_t max = o->type == TYPE_SIZE ? SIZE_MAX_BYTES : o->max;
	const char *end = "";
	uint64_t number;
	int r = o->type == TYPE_SIZE ? mm_size_parse(value, &number)
				     : digits_parse(value, &number, &end);

	if (r == -EINVAL || *end)
		return settings_fail(error, "%s%s: '%s' is not a %s", where, o->name, value,
				     o->type == TYPE_SIZE ? "size; write 65536, 512M or 2G"
							  : "number");
	if (r < 0 || number < o->min || number > max)
		return settings_fail(error, "%s%s: '%s' is not within %" PRIu64 " to %" PRIu64,
				     where, o->name, value, o->min, max);
	*ret_number = number;
	return 0;
}

static int option_set_number(const struct config_option *o, struct mm_config *c, const char *where,
			     const char *value, char *error)
{
	uint64_t number;
	int r = option_parse_number(o, where, value, &number, error);

	if (r == 0)
		memcpy((char *)c + o->offset, &number, sizeof(number));
	return r;
}

static bool option_is_device(const struct config_option *o)
{
	return o->offset == offsetof(struct mm_config, device);
}

/* Whether @word is a UUID as nvidia-smi -L prints it (GPU-…, MIG-…), or the beginning of one. */
static bool word_is_uuid(const char *word)
{
	size_t n = strlen(word);

	return (strncmp(word, "GPU-", 4) == 0 || strncmp(word, "MIG-", 4) == 0) && n > 4 &&
	       n < MM_UUID_WORD_BYTES && strspn(word + 4, "0123456789abcdefABCDEF-") == n - 4;
}

/*
 * Parses values between commas. An empty word means "not set", if 0 is outside the option's range.
 */
static int option_set_list(const struct config_option *o, struct mm_config *c, const char *where,
			   const char *value, char *error)
{
	struct mm_config_list list = { 0 };
	const char *at = value;
	char word[MM_UUID_WORD_BYTES + 1];
	int r = 0;

	if (option_is_device(o))
		memset(c->device_uuid, 0, sizeof(c->device_uuid));

	while (r == 0) {
		size_t bytes = strcspn(at, ",");

		if (list.n == MM_DEVICES_MAX)
			return settings_fail(error, "%s%s: more than %d values", where, o->name,
					     MM_DEVICES_MAX);
		snprintf(word, sizeof(word), "%.*s", (int)MM_MIN(bytes, sizeof(word)), at);
		list.n++;
		if (option_is_device(o) && word_is_uuid(word)) {
			list.value[list.n - 1] = list.n - 1;
			strcpy(c->device_uuid[list.n - 1], word);
		} else if (bytes || !o->min || !strchr(value, ','))
			r = option_parse_number(o, where, word, &list.value[list.n - 1], error);
		if (!at[bytes])
			break;
		at += bytes + 1;
	}
	if (r == 0)
		memcpy((char *)c + o->offset, &list, sizeof(list));
	return r;
}

static int option_set_accounts(const struct config_option *o, struct mm_config *c,
			       const char *where, const char *value, char *error)
{
	char why[MM_ACCOUNT_ERROR_BYTES];

	(void)o;
	if (mm_accounts_parse_text(value, &c->accounts, why) < 0)
		return settings_fail(error, "%s%s", where, why);
	return 0;
}

/* Stores the text as it is; it is parsed here only to report errors early. */
static int option_set_knobs(const struct config_option *o, struct mm_config *c, const char *where,
			    const char *value, char *error)
{
	struct mm_core_opts opts = { 0 };
	char why[MM_TUNE_ERROR_BYTES];

	if (mm_tune_parse(value, &opts, why) < 0)
		return settings_fail(error, "%s%s: %s; mmd --help lists the knobs", where, o->name,
				     why);
	return option_set_text(o, c, where, value, error);
}

static int option_set(const struct config_option *o, struct mm_config *c, const char *where,
		      const char *value, char *error)
{
	switch (o->type) {
	case TYPE_TEXT:
		return option_set_text(o, c, where, value, error);
	case TYPE_NAME:
		return option_set_name(o, c, where, value, error);
	case TYPE_ACCOUNTS:
		return option_set_accounts(o, c, where, value, error);
	case TYPE_KNOBS:
		return option_set_knobs(o, c, where, value, error);
	case TYPE_SIZE:
	case TYPE_NUMBER:
		break;
	}
	return o->list ? option_set_list(o, c, where, value, error)
		       : option_set_number(o, c, where, value, error);
}

static int file_set_key(struct mm_config *c, const char *path, const char *key, const json_t *value,
			char *error)
{
	const struct config_option *o = option_find(key, strlen(key));
	char where[128], number[32], why[MM_ACCOUNT_ERROR_BYTES];

	snprintf(where, sizeof(where), "%.100s: ", path);
	if (!o || !o->help)
		return settings_fail(error, "%sunknown key '%.64s'; mmd --help lists the keys",
				     where, key);
	if (o->type == TYPE_ACCOUNTS)
		return mm_accounts_parse(value, &c->accounts, why) < 0
			       ? settings_fail(error, "%s%s", where, why)
			       : 0;
	if (json_is_string(value))
		return option_set(o, c, where, json_string_value(value), error);
	if (!json_is_integer(value) || o->type == TYPE_TEXT || o->type == TYPE_NAME ||
	    o->type == TYPE_KNOBS)
		return settings_fail(error, "%s%s: want a %s", where, key,
				     o->type == TYPE_SIZE ? "size, as a number or a string"
							  : "string");
	snprintf(number, sizeof(number), "%" JSON_INTEGER_FORMAT, json_integer_value(value));
	return option_set(o, c, where, number, error);
}

static struct mm_config_list *option_list(struct mm_config *c, const struct config_option *o)
{
	return (struct mm_config_list *)(void *)((char *)c + o->offset);
}

/* Stores the values of one device's section at @index of their lists. */
static int section_parse(struct mm_config *c, const char *path, uint32_t index,
			 const json_t *section, char *error)
{
	struct mm_config one = *c;
	const struct config_option *o;
	const char *key;
	json_t *value;
	int r;

	if (!json_is_object(section) || !json_object_get(section, "device"))
		return settings_fail(error,
				     "%.100s: devices: number %u is no object with a key 'device'",
				     path, index + 1);
	json_object_foreach((json_t *)(uintptr_t)section, key, value) {
		o = option_find(key, strlen(key));
		if (!o || !o->list)
			return settings_fail(
				error, "%.100s: devices: '%.64s' is nothing that a device has",
				path, key);
		option_list(&one, o)->n = 1;
		r = file_set_key(&one, path, key, value, error);
		if (r == 0 && option_list(&one, o)->n != 1)
			r = settings_fail(error, "%.100s: devices: %s: want one value", path, key);
		if (r < 0)
			return r;
		option_list(c, o)->value[index] = option_list(&one, o)->value[0];
		if (!option_is_device(o))
			continue;
		strcpy(c->device_uuid[index], one.device_uuid[0]);
		if (*one.device_uuid[0])
			option_list(c, o)->value[index] = index;
	}
	return 0;
}

/* Parses "devices": a key that a section lacks has the value of the whole file. */
static int sections_parse(struct mm_config *c, const char *path, const json_t *devices, char *error)
{
	size_t n = json_array_size(devices);
	int r = 0;

	if (n == 0 || n > MM_DEVICES_MAX)
		return settings_fail(error, "%.100s: devices: want a list of 1 to %d objects", path,
				     MM_DEVICES_MAX);
	for (size_t i = 0; i < MM_ARRAY_SIZE(config_options); i++) {
		struct mm_config_list *list = option_list(c, &config_options[i]);

		if (!config_options[i].list)
			continue;
		if (list->n > 1)
			return settings_fail(error,
					     "%.100s: %s: a list; with 'devices' say it there",
					     path, config_options[i].name);
		for (uint32_t k = 1; k < n; k++)
			list->value[k] = list->value[0];
		list->n = (uint32_t)n;
	}
	for (uint32_t i = 0; r == 0 && i < n; i++)
		r = section_parse(c, path, i, json_array_get(devices, i), error);
	return r;
}

static void settings_json_done(json_t **json)
{
	json_decref(*json);
}

static int file_parse(struct mm_config *c, const char *path, char *error)
{
	json_error_t e;
	mm_cleanup(settings_json_done) json_t *root =
		json_load_file(path, JSON_REJECT_DUPLICATES, &e);
	const char *key;
	json_t *value;
	int r;

	if (!root && e.line < 0) /* the file could not be read at all; e.text names it */
		return settings_fail(error, "--config: %s", e.text);
	if (!root)
		return settings_fail(error, "%.100s: line %d: %s", path, e.line, e.text);
	if (!json_is_object(root))
		return settings_fail(error, "%.100s: want one JSON object", path);
	json_object_foreach(root, key, value) {
		if (strcmp(key, "devices") == 0)
			continue;
		r = file_set_key(c, path, key, value, error);
		if (r < 0)
			return r;
	}
	value = json_object_get(root, "devices");
	return value ? sections_parse(c, path, value, error) : 0;
}

/* Takes `--name=value` or `--name value`; *i is then the last word used. */
static int flag_split(int argc, char **argv, int *i, const char **ret_name, size_t *ret_name_bytes,
		      const char **ret_value, char *error)
{
	const char *word = argv[*i], *equals;

	if (strncmp(word, "--", 2) != 0 || !word[2])
		return settings_fail(error, "%s: unexpected argument; mmd --help lists the flags",
				     word);
	equals = strchr(word, '=');
	*ret_name = word + 2;
	*ret_name_bytes = equals ? (size_t)(equals - word - 2) : strlen(word + 2);
	*ret_value = equals ? equals + 1 : *i + 1 < argc ? argv[*i + 1] : NULL;
	*i += !equals;
	return 0;
}

static bool flag_is(const char *name, size_t name_bytes, const char *want)
{
	return strlen(want) == name_bytes && memcmp(name, want, name_bytes) == 0;
}

/* The file is read in the first pass, the other flags in the second, so flags beat the file. */
static int flags_parse(int argc, char **argv, struct mm_config *c, bool file_pass, char *error)
{
	const struct config_option *o;
	const char *name = NULL, *value = NULL;
	size_t name_bytes = 0;
	int r;

	for (int i = 1; i < argc; i++) {
		bool is_file;

		if (strcmp(argv[i], "-h") == 0)
			return MM_CONFIG_HELP;
		r = flag_split(argc, argv, &i, &name, &name_bytes, &value, error);
		if (r < 0)
			return r;
		if (flag_is(name, name_bytes, "help"))
			return MM_CONFIG_HELP;
		if (flag_is(name, name_bytes, "version"))
			return MM_CONFIG_VERSION;
		is_file = flag_is(name, name_bytes, "config");
		o = option_find(name, name_bytes);
		if (!o && !is_file)
			return settings_fail(error,
					     "--%.*s: unknown flag; mmd --help lists the flags",
					     (int)MM_MIN(name_bytes, (size_t)64), name);
		if (!value)
			return settings_fail(error, "--%.*s: needs a value", (int)name_bytes, name);
		if (is_file != file_pass)
			continue;
		r = is_file ? file_parse(c, value, error) : option_set(o, c, "--", value, error);
		if (r < 0)
			return r;
	}
	return MM_CONFIG_RUN;
}

static int config_defaults(struct mm_config *c, char *error)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");

	*c = (struct mm_config){
		.driver = "cuda",
		.device.n = 1,
		.headroom_bytes = { { MM_HEADROOM_BY_DEVICE }, 1 },
		.policy = MM_POLICY_REMAP,
		.numa_node = MM_NUMA_BY_DEVICE,
		.idle_ms = MM_IDLE_MS,
		.log_level = MM_LOG_INFO,
	};
	if (geteuid() == 0)
		strcpy(c->dir, "/run/mmd");
	else if (runtime && strlen(runtime) + sizeof("/mmd") <= sizeof(c->dir))
		snprintf(c->dir, sizeof(c->dir), "%s/mmd", runtime);
	else if (runtime)
		return settings_fail(error, "XDG_RUNTIME_DIR: longer than a socket's path may be");
	return 0;
}

static int uuids_check(const struct mm_config *c, char *error)
{
	for (uint32_t i = 0; i < c->device.n; i++) {
		if (!*c->device_uuid[i] != !*c->device_uuid[0])
			return settings_fail(
				error, "--device: some by ordinal, some by UUID; want one kind");
		for (uint32_t k = 0; *c->device_uuid[i] && k < i; k++) {
			if (strcasecmp(c->device_uuid[k], c->device_uuid[i]) == 0)
				return settings_fail(error, "--device: %s is there twice",
						     c->device_uuid[i]);
		}
	}
	return 0;
}

static int devices_check(struct mm_config *c, char *error)
{
	if (uuids_check(c, error) < 0)
		return -EINVAL;
	for (size_t i = 0; i < MM_ARRAY_SIZE(config_options); i++) {
		uint32_t n = config_options[i].list ? option_list(c, &config_options[i])->n : 0;

		if (n > 1 && n != c->device.n)
			return settings_fail(
				error, "--%s: %u values for %u devices; want one, or one each",
				config_options[i].name, n, c->device.n);
	}
	for (uint32_t i = 0; i < c->device.n; i++) {
		for (uint32_t k = 0; k < i; k++) {
			if (c->device.value[k] == c->device.value[i])
				return settings_fail(error, "--device: %" PRIu64 " is there twice",
						     c->device.value[i]);
		}
		if (mm_config_at(&c->pool_bytes, i) &&
		    mm_accounts_check(&c->accounts, mm_config_at(&c->pool_bytes, i), error))
			return -EINVAL;
		if (mm_config_at(&c->page_bytes, i) % MM_ABI_PAGE_BYTES)
			return settings_fail(error, "--page: not a multiple of %d",
					     MM_ABI_PAGE_BYTES);
	}
	if (c->policy == MM_POLICY_SWAP && !c->swap_max_bytes)
		return settings_fail(error, "--policy swap: --swap-max must say how much");
	return MM_CONFIG_RUN;
}

static uint64_t config_chunk_bytes(const struct mm_config *c)
{
	return c->chunk_bytes ? c->chunk_bytes : MM_CHUNK_BYTES_DEFAULT;
}

uint64_t mm_config_stage_bytes(const struct mm_config *config)
{
	if (!*config->store_dir)
		return 0;
	return config->stage_bytes ? config->stage_bytes
				   : MM_STAGE_BUFFERS_DEFAULT *
					     MM_STAGE_BUFFER_BYTES(config_chunk_bytes(config));
}

static int stage_check(const struct mm_config *c, char *error)
{
	uint64_t each = MM_STAGE_BUFFER_BYTES(config_chunk_bytes(c));
	uint64_t least = MM_STAGE_BUFFERS_MIN * each, most = MM_STAGE_BUFFERS_MAX * each;
	uint64_t stage = mm_config_stage_bytes(c);

	if (c->stage_bytes && !stage)
		return settings_fail(error,
				     "--stage: nothing comes from a disk without --store-dir");
	if (!stage)
		return MM_CONFIG_RUN;
	if (*c->store_dir != '/')
		return settings_fail(error, "--store-dir: '%.200s' is not an absolute path",
				     c->store_dir);
	if (each > INT32_MAX)
		return settings_fail(
			error, "--chunk: more than 2 GiB cannot be read from --store-dir at once");
	if (stage > most)
		return settings_fail(error,
				     "--stage: %" PRIu64 " bytes are more than %d chunks, %" PRIu64
				     ", which is all that is used; use less, or a larger --chunk",
				     stage, MM_STAGE_BUFFERS_MAX, most);
	if (stage < least)
		return settings_fail(error,
				     "--stage: %" PRIu64 " bytes are less than two chunks, %" PRIu64
				     "; use more, or a smaller --chunk",
				     stage, least);
	if (c->host_store_max_bytes && stage > c->host_store_max_bytes / c->device.n)
		return settings_fail(error,
				     "--stage: %" PRIu64
				     " bytes for each of %u devices are more than "
				     "--host-store-max, %" PRIu64,
				     stage, c->device.n, c->host_store_max_bytes);
	return MM_CONFIG_RUN;
}

int mm_config_from_args(int argc, char **argv, struct mm_config *ret_config, char *error)
{
	struct mm_config c;
	int r = config_defaults(&c, error);

	for (int pass = 0; pass < 2 && r == MM_CONFIG_RUN; pass++)
		r = flags_parse(argc, argv, &c, pass == 0, error);
	if (r != MM_CONFIG_RUN)
		return r;
	if (!*c.dir)
		return settings_fail(error,
				     "--dir: XDG_RUNTIME_DIR is not set; say where the sockets go");
	if (c.numa_node != MM_NUMA_BY_DEVICE && !mm_host_node_usable((int)c.numa_node))
		return settings_fail(error, "--numa-node: this host has no memory on node %" PRIu64,
				     c.numa_node);
	r = devices_check(&c, error);
	if (r == MM_CONFIG_RUN)
		r = stage_check(&c, error);
	if (r == MM_CONFIG_RUN)
		*ret_config = c;
	return r;
}

void mm_config_one(const struct mm_config *config, uint32_t device, struct mm_config *ret_config)
{
	*ret_config = *config;
	for (size_t i = 0; i < MM_ARRAY_SIZE(config_options); i++) {
		struct mm_config_list *list = option_list(ret_config, &config_options[i]);

		if (config_options[i].list && list->n > 1)
			*list = (struct mm_config_list){ { list->value[device] }, 1 };
	}
	memset(ret_config->device_uuid, 0, sizeof(ret_config->device_uuid));
	strcpy(ret_config->device_uuid[0], config->device_uuid[device]);
}

static char *list_format(const struct mm_config *c, const struct config_option *o)
{
	const struct mm_config_list *list = (const void *)((const char *)c + o->offset);
	char *flag = NULL, *text = NULL;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);

	if (!out)
		return NULL;
	fprintf(out, "--%s=", o->name);
	for (uint32_t i = 0; i < list->n; i++) {
		if (i)
			fputc(',', out);
		if (option_is_device(o) && *c->device_uuid[i])
			fputs(c->device_uuid[i], out);
		else if (list->value[i] >= o->min)
			fprintf(out, "%" PRIu64, list->value[i]);
	}
	if (fclose(out) == 0)
		flag = text;
	else
		free(text);
	return flag;
}

static char *accounts_format(const struct config_option *o, const struct mm_accounts *accounts)
{
	char *text = mm_accounts_format(accounts), *flag = NULL;

	if (text && asprintf(&flag, "--%s=%s", o->name, text) < 0)
		flag = NULL;
	free(text);
	return flag;
}

static char *flag_format(const struct mm_config *c, const struct config_option *o, uint64_t role)
{
	const char *field = (const char *)c + o->offset;
	char *flag = NULL;
	uint64_t value;
	int n;

	if (o->type == TYPE_TEXT || o->type == TYPE_KNOBS) {
		n = asprintf(&flag, "--%s=%s", o->name, field);
		return n < 0 ? NULL : flag;
	}
	if (o->type == TYPE_ACCOUNTS)
		return accounts_format(o, &c->accounts);
	if (o->list)
		return list_format(c, o);
	memcpy(&value, field, sizeof(value));
	if (o->offset == offsetof(struct mm_config, role))
		value = role;
	if (o->type == TYPE_NAME)
		n = asprintf(&flag, "--%s=%s", o->name, o->names[value]);
	else
		n = asprintf(&flag, "--%s=%" PRIu64, o->name, value);
	return n < 0 ? NULL : flag;
}

/* A number that stands for "not set" is outside its own range; it is not passed on. */
static bool option_is_unset(const struct mm_config *c, const struct config_option *o)
{
	uint64_t value;

	if (o->type == TYPE_TEXT || o->type == TYPE_KNOBS)
		return !*((const char *)c + o->offset);
	if (o->type == TYPE_ACCOUNTS)
		return !c->accounts.n;
	memcpy(&value, (const char *)c + o->offset, sizeof(value));
	if (o->list) {
		const struct mm_config_list *list = (const void *)((const char *)c + o->offset);

		return list->n == 0 || (list->n == 1 && value < o->min);
	}
	return value < o->min || (o->type == TYPE_NUMBER && value > o->max);
}

int mm_config_args(const struct mm_config *config, enum mm_role role, char **ret_argv)
{
	static_assert(MM_ARRAY_SIZE(config_options) + 2 <= MM_CONFIG_ARGS_MAX,
		      "room for all flags");
	size_t n = 0;

	memset(ret_argv, 0, sizeof(char *) * MM_CONFIG_ARGS_MAX);
	ret_argv[n++] = strdup("mmd");
	for (size_t i = 0; i < MM_ARRAY_SIZE(config_options); i++) {
		if (!option_is_unset(config, &config_options[i]))
			ret_argv[n++] = flag_format(config, &config_options[i], role);
	}
	for (size_t i = 0; i < n; i++) {
		if (!ret_argv[i]) {
			for (size_t k = 0; k < n; k++)
				free(ret_argv[k]);
			return -ENOMEM;
		}
	}
	return 0;
}

void mm_config_args_free(char **argv)
{
	for (size_t i = 0; i < MM_CONFIG_ARGS_MAX; i++)
		free(argv[i]);
}

static void knobs_help(FILE *out)
{
	const struct mm_knob *k;
	char left[40], fallback[24];

	fprintf(out, "\nKnobs of --controller:\n");
	for (uint32_t i = 0; (k = mm_knob_at(i)); i++) {
		snprintf(left, sizeof(left), "%s=%s", k->name, k->arg);
		snprintf(fallback, sizeof(fallback), "%" PRIu64, k->fallback);
		fprintf(out, "  %-24s %s (%s)\n", left, k->help,
			k->names ? k->names[k->fallback - 1] : fallback);
	}
}

void mm_config_help(FILE *out)
{
	char left[40];

	for (size_t i = 0; i < MM_ARRAY_SIZE(config_options); i++) {
		if (!config_options[i].help)
			continue;
		snprintf(left, sizeof(left), "--%s %s", config_options[i].name,
			 config_options[i].arg);
		fprintf(out, "  %-24s %s\n", left, config_options[i].help);
	}
	knobs_help(out);
}
