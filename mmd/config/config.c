/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/config/config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "mmd/common/host.h"
#include "mmd/config/reload.h"
#include "mmd/config/table.h"

static int settings_fail(char *error, const char *fmt, ...) MM_PRINTF(2, 3);
static int settings_fail(char *error, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(error, MM_OPT_ERROR_BYTES, fmt, ap);
	va_end(ap);
	return -EINVAL;
}

/* ---- checks of several options ---- */

/* Sets the directory if no option did. */
static int dir_fill(struct mm_config *c, char *error)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");

	if (*c->dir)
		return 0;
	if (geteuid() == 0)
		strcpy(c->dir, "/run/mmd");
	else if (!runtime)
		return settings_fail(
			error,
			"--dir: XDG_RUNTIME_DIR is not set; name a directory for the sockets");
	else if (strlen(runtime) + sizeof("/mmd") > sizeof(c->dir))
		return settings_fail(error, "XDG_RUNTIME_DIR: longer than a socket's path may be");
	else
		snprintf(c->dir, sizeof(c->dir), "%s/mmd", runtime);
	return 0;
}

static int uuids_check(const struct mm_config *c, char *error)
{
	for (uint32_t i = 0; i < c->device.n; i++) {
		if (!*c->device_uuid[i] != !*c->device_uuid[0])
			return settings_fail(
				error, "--device: some by ordinal, some by UUID; give one kind");
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
	for (const struct mm_opt *o = mm_config_options; o->name; o++) {
		uint32_t n = mm_config_is_list(o) ? mm_config_list(c, o)->n : 0;

		if (n > 1 && n != c->device.n)
			return settings_fail(
				error, "--%s: %u values for %u devices; give one, or one each",
				o->name, n, c->device.n);
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
		return settings_fail(error, "--policy swap: --swap-max is missing");
	return 0;
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
		return 0;
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
	return 0;
}

int mm_config_check(struct mm_config *c, char *error)
{
	if (dir_fill(c, error) < 0)
		return -EINVAL;
	if (c->numa_node != MM_NUMA_BY_DEVICE && !mm_host_node_usable((int)c->numa_node))
		return settings_fail(error, "--numa-node: this host has no memory on node %" PRIu64,
				     c->numa_node);
	if (*c->audit && *c->audit != '/' && strcmp(c->audit, "off") != 0 &&
	    strcmp(c->audit, "stderr") != 0)
		return settings_fail(
			error, "--audit: '%.200s' is neither off nor stderr nor an absolute path",
			c->audit);
	return devices_check(c, error) < 0 ? -EINVAL : stage_check(c, error);
}

void mm_config_one(const struct mm_config *config, uint32_t device, struct mm_config *ret_config)
{
	*ret_config = *config;
	for (const struct mm_opt *o = mm_config_options; o->name; o++) {
		struct mm_config_list *list = mm_config_list(ret_config, o);

		if (mm_config_is_list(o) && list->n > 1)
			*list = (struct mm_config_list){ { list->value[device] }, 1 };
	}
	memset(ret_config->device_uuid, 0, sizeof(ret_config->device_uuid));
	strcpy(ret_config->device_uuid[0], config->device_uuid[device]);
}

/* ---- options of another role ---- */

static bool number_is_set(const struct mm_opt *o, uint64_t value)
{
	return value >= o->min && (!o->max || value <= o->max);
}

static char *list_format(const struct mm_config *c, const struct mm_opt *o)
{
	const struct mm_config_list *list = (const void *)((const char *)c + o->at);
	char *flag = NULL, *text = NULL;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);

	if (!out)
		return NULL;
	fprintf(out, "--%s=", o->name);
	for (uint32_t i = 0; i < list->n; i++) {
		if (i)
			fputc(',', out);
		if (mm_config_is_device(o) && *c->device_uuid[i])
			fputs(c->device_uuid[i], out);
		else if (o->choices && list->value[i] == o->choices[0].value)
			fputs(o->choices[0].name, out);
		else if (number_is_set(o, list->value[i]))
			fprintf(out, "%" PRIu64, list->value[i]);
	}
	if (fclose(out) == 0)
		flag = text;
	else
		free(text);
	return flag;
}

static char *accounts_format(const struct mm_opt *o, const struct mm_accounts *accounts)
{
	char *text = mm_accounts_format(accounts), *flag = NULL;

	if (text && asprintf(&flag, "--%s=%s", o->name, text) < 0)
		flag = NULL;
	free(text);
	return flag;
}

static char *flag_format(const struct mm_config *c, const struct mm_opt *o, uint64_t role)
{
	const char *field = (const char *)c + o->at;
	char *flag = NULL;
	uint64_t value;
	int n;

	if (mm_config_is_text(o)) {
		n = asprintf(&flag, "--%s=%s", o->name, field);
		return n < 0 ? NULL : flag;
	}
	if (mm_config_is_accounts(o))
		return accounts_format(o, &c->accounts);
	if (mm_config_is_list(o))
		return list_format(c, o);
	memcpy(&value, field, sizeof(value));
	if (o->at == offsetof(struct mm_config, role))
		value = role;
	if (o->type == MM_OPT_CHOICE)
		n = asprintf(&flag, "--%s=%s", o->name, mm_opt_choice_name(o->choices, value));
	else
		n = asprintf(&flag, "--%s=%" PRIu64, o->name, value);
	return n < 0 ? NULL : flag;
}

/* A number that stands for "not set" is outside its own range; it is not passed on. */
static bool option_is_unset(const struct mm_config *c, const struct mm_opt *o)
{
	const char *field = (const char *)c + o->at;
	uint64_t value;

	if (o->early || o->type == MM_OPT_FLAG)
		return true;
	if (mm_config_is_text(o))
		return !*field;
	if (mm_config_is_accounts(o))
		return !c->accounts.n;
	memcpy(&value, field, sizeof(value));
	if (mm_config_is_list(o)) {
		const struct mm_config_list *list = (const void *)field;

		return list->n == 0 || (list->n == 1 && value < o->min);
	}
	return o->type != MM_OPT_CHOICE && !number_is_set(o, value);
}

char *mm_config_value(const struct mm_config *config, const struct mm_opt *opt)
{
	char *flag = option_is_unset(config, opt) ? NULL : flag_format(config, opt, 0);
	char *value = flag ? strdup(strchr(flag, '=') + 1) : NULL;

	if (!flag && option_is_unset(config, opt))
		return strdup("");
	free(flag);
	return value;
}

int mm_config_args(const struct mm_config *config, enum mm_role role, char **ret_argv)
{
	size_t n = 0;

	memset(ret_argv, 0, sizeof(char *) * MM_CONFIG_ARGS_MAX);
	ret_argv[n++] = strdup("mmd");
	for (const struct mm_opt *o = mm_config_options; o->name; o++) {
		if (!option_is_unset(config, o))
			ret_argv[n++] = flag_format(config, o, role);
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
