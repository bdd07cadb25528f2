/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/timing/profile.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"

#define SUFFIX     ".conf"
#define LINE_BYTES 254u
#define FILE_BYTES 65536u

/* The keys of a profile: the number in the file times the unit is the value in the struct. */
static const struct key {
	const char *name;
	size_t offset;
	enum { KEY_REAL, KEY_WHOLE, KEY_OPTIONAL } kind; /* whole: the field is a uint64_t */
	double unit, least, most;                        /* least, most: in the file's unit */
} profile_keys[] = {
#define REAL(name, field, unit, least, most)                                          \
	{                                                                             \
		name, offsetof(struct mm_profile, field), KEY_REAL, unit, least, most \
	}
#define WHOLE(name, field, unit, least, most)                                          \
	{                                                                              \
		name, offsetof(struct mm_profile, field), KEY_WHOLE, unit, least, most \
	}
/* A double that profile_derive() computes where neither the file nor an override states it. */
#define OPTIONAL(name, field, unit, least, most)                                          \
	{                                                                                 \
		name, offsetof(struct mm_profile, field), KEY_OPTIONAL, unit, least, most \
	}
	WHOLE("memory_mib", memory_bytes, 1 << 20, 16, 1 << 24),
	REAL("hbm_gbps", hbm_bps, 1e9, 1, 1e6),
	REAL("h2d_gbps", h2d_bps, 1e9, 0.01, 1e5),
	REAL("d2h_gbps", d2h_bps, 1e9, 0.01, 1e5),
	REAL("duplex_loss", duplex_loss, 1, 0, 0.9),
	REAL("f16_tflops", f16_flops, 1e12, 0.01, 1e6),
	REAL("mem_efficiency", mem_efficiency, 1, 0.01, 1),
	REAL("flop_efficiency", flop_efficiency, 1, 0.01, 1),
	WHOLE("kernel_us", kernel_ns, 1e3, 0, 1e6),
	WHOLE("copy_us", copy_ns, 1e3, 0, 1e6),
	WHOLE("launch_us", launch_ns, 1e3, 0, 1e6),
	WHOLE("create_us", create_ns, 1e3, 0, 1e6),
	WHOLE("map_us", map_ns, 1e3, 0, 1e6),
	WHOLE("set_access_us", set_access_ns, 1e3, 0, 1e6),
	WHOLE("unmap_us", unmap_ns, 1e3, 0, 1e6),
	WHOLE("release_us", release_ns, 1e3, 0, 1e6),
	WHOLE("import_us", import_ns, 1e3, 0, 1e6),
	WHOLE("export_us", export_ns, 1e3, 0, 1e6),
	OPTIONAL("link_slows_in", link_slows_in, 1e-3, 0, 1000),
	OPTIONAL("link_slows_out", link_slows_out, 1e-3, 0, 1000),
	OPTIONAL("rho", rho, 1e-3, 1, 1000),
#undef REAL
#undef WHOLE
#undef OPTIONAL
};

struct profile_reader {
	struct mm_profile profile;
	bool seen[MM_ARRAY_SIZE(profile_keys)];
	const char *path;
	unsigned int line; /* line in the file; 0: an override */
	char *err;
	size_t err_bytes;
};

static int MM_PRINTF(2, 3) profile_fail(const struct profile_reader *r, const char *format, ...)
{
	char text[384];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (r->line)
		snprintf(r->err, r->err_bytes, "%.100s:%u: %s", r->path, r->line, text);
	else
		snprintf(r->err, r->err_bytes, "profile %.100s: %s", r->path, text);
	return -EBADMSG;
}

static char *text_trim(char *text)
{
	size_t n;

	text += strspn(text, " \t");
	n = strlen(text);
	while (n && strchr(" \t\r\n", text[n - 1]))
		text[--n] = '\0';
	return text;
}

/* Decimal only: strtod() would take "nan", "inf" and hexadecimal too. */
static bool profile_parse_number(const char *text, double *ret)
{
	char *end;

	if (!*text || strspn(text, "0123456789.eE+-") != strlen(text))
		return false;
	*ret = strtod(text, &end);
	return !*end && isfinite(*ret);
}

static int key_set(struct profile_reader *r, const char *name, const char *text)
{
	const struct key *k = profile_keys;
	double number;
	char *field;

	while (k < profile_keys + MM_ARRAY_SIZE(profile_keys) && strcmp(k->name, name))
		k++;
	if (k == profile_keys + MM_ARRAY_SIZE(profile_keys))
		return profile_fail(r, "'%.64s' is not a key of a profile", name);
	if (r->line && r->seen[k - profile_keys])
		return profile_fail(r, "%s is given twice", name);
	if (!profile_parse_number(text, &number))
		return profile_fail(r, "%s: '%.64s' is not a number", name, text);
	if (number < k->least || number > k->most)
		return profile_fail(r, "%s: %.64s is not between %.15g and %.15g", name, text,
				    k->least, k->most);
	number *= k->unit;
	field = (char *)&r->profile + k->offset;
	if (k->kind == KEY_WHOLE)
		*(uint64_t *)(void *)field = (uint64_t)(number + 0.5);
	else
		*(double *)(void *)field = number;
	r->seen[k - profile_keys] = true;
	return 0;
}

/* Takes "key = value", which it changes in place. */
static int line_assign(struct profile_reader *r, char *text)
{
	char *equals = strchr(text, '=');

	if (!equals)
		return profile_fail(r, "'%.64s' is not key = value", text);
	*equals = '\0';
	return key_set(r, text_trim(text), text_trim(equals + 1));
}

/*
 * @line ends at a zero byte that the caller wrote; with @length_bytes zero bytes of the file are
 * found.
 */
static int profile_read_line(struct profile_reader *r, char *line, size_t length_bytes)
{
	char *text;

	if (length_bytes > LINE_BYTES)
		return profile_fail(r, "the line is longer than %u bytes", LINE_BYTES);
	if (strlen(line) != length_bytes)
		return profile_fail(r, "there is a zero byte in the line");
	line[strcspn(line, "#")] = '\0';
	text = text_trim(line);
	return *text ? line_assign(r, text) : 0;
}

/* @text has room for one byte behind its end. */
static int profile_read_lines(struct profile_reader *r, char *text, size_t length_bytes)
{
	char *const end = text + length_bytes;
	int error = 0;

	while (text < end && !error) {
		char *stop = memchr(text, '\n', (size_t)(end - text));

		stop = stop ? stop : end;
		*stop = '\0';
		r->line++;
		error = profile_read_line(r, text, (size_t)(stop - text));
		text = stop + 1;
	}
	return error;
}

static int profile_read_file(struct profile_reader *r)
{
	mm_cleanup(mm_close_file) FILE *file = fopen(r->path, "re");
	char text[FILE_BYTES + 1];
	size_t n;

	if (!file) {
		const int error = errno;

		snprintf(r->err, r->err_bytes, "%.300s: %s", r->path, strerror(error));
		return -error;
	}
	n = fread(text, 1, sizeof(text), file);
	if (ferror(file)) {
		snprintf(r->err, r->err_bytes, "%.300s: cannot be read", r->path);
		return -EIO;
	}
	if (n > FILE_BYTES) {
		snprintf(r->err, r->err_bytes, "%.300s: longer than %u bytes", r->path, FILE_BYTES);
		return -EBADMSG;
	}
	if (profile_read_lines(r, text, n))
		return -EBADMSG;
	r->line = 0;
	for (size_t i = 0; i < MM_ARRAY_SIZE(profile_keys); i++)
		if (!r->seen[i] && profile_keys[i].kind != KEY_OPTIONAL)
			return profile_fail(r, "%s is missing", profile_keys[i].name);
	return 0;
}

/* Returns the folder of the object that contains this code; "" if unknown. */
static void profile_own_folder(char folder[PATH_MAX])
{
	mm_cleanup(mm_free_ptr) char *real = NULL;
	Dl_info info;
	char *slash;

	folder[0] = '\0';
	/* The main program's name is its argv[0] here, which need not be a path. */
	if (dladdr((void *)profile_own_folder, &info) && info.dli_fname &&
	    strchr(info.dli_fname, '/'))
		real = realpath(info.dli_fname, NULL);
	if (!real)
		real = realpath("/proc/self/exe", NULL);
	slash = real ? strrchr(real, '/') : NULL;
	if (!slash)
		return;
	*slash = '\0';
	snprintf(folder, PATH_MAX, "%s", real);
}

/*
 * Programs and libraries are one folder below the prefix, or two where libraries have one per kind.
 */
static bool profile_find_folder(char folder[PATH_MAX])
{
	static const char *const places[] = { "/../share/mmd/profiles",
					      "/../../share/mmd/profiles" };
	char own[PATH_MAX];

	profile_own_folder(own);
	for (size_t i = 0; *own && i < MM_ARRAY_SIZE(places); i++) {
		const int n = snprintf(folder, PATH_MAX, "%s%s", own, places[i]);

		if (n < PATH_MAX && access(folder, R_OK) == 0)
			return true;
	}
	return false;
}

/* Appends the names of the existing profiles. */
static void profile_list(const char *folder, char *text, size_t bytes)
{
	struct dirent **found = NULL;
	const int n = scandir(folder, &found, NULL, alphasort);

	for (int i = 0; i < n; i++) {
		const size_t used = strlen(text), length = strlen(found[i]->d_name);

		if (length > strlen(SUFFIX) &&
		    !strcmp(found[i]->d_name + length - strlen(SUFFIX), SUFFIX))
			snprintf(text + used, bytes - used, " %.*s", (int)(length - strlen(SUFFIX)),
				 found[i]->d_name);
		free(found[i]);
	}
	free(found);
}

/* Return: 0, and the path of the named profile; -ENOENT. */
static int profile_locate(const char *name, char path[PATH_MAX], char *err, size_t err_bytes)
{
	char folder[PATH_MAX];

	if (strchr(name, '/')) {
		snprintf(path, PATH_MAX, "%s", name);
		return 0;
	}
	if (!profile_find_folder(folder)) {
		snprintf(
			err, err_bytes,
			"there is no share/mmd/profiles beside this program; give the profile as a "
			"path that contains a '/'");
		return -ENOENT;
	}
	if (*name && snprintf(path, PATH_MAX, "%s/%s" SUFFIX, folder, name) < PATH_MAX &&
	    access(path, F_OK) == 0)
		return 0;
	snprintf(err, err_bytes, "there is no device profile '%.64s'; there are:", name);
	profile_list(folder, err, err_bytes);
	return -ENOENT;
}

/* Takes "key=value,key=value", which it changes in place; the last value of a key counts. */
static int profile_override(struct profile_reader *r, char *list)
{
	char *rest = NULL;

	r->line = 0;
	for (char *one = strtok_r(list, ",", &rest); one; one = strtok_r(NULL, ",", &rest))
		if (line_assign(r, one))
			return -EBADMSG;
	return 0;
}

static bool key_is_stated(const struct profile_reader *r, size_t offset)
{
	for (size_t i = 0; i < MM_ARRAY_SIZE(profile_keys); i++)
		if (profile_keys[i].offset == offset)
			return r->seen[i];
	return false;
}

/*
 * Computes what is not stated. A copy over the link reads or writes each byte in the device's
 * memory, which takes bandwidth from kernels.
 */
static void profile_derive(struct profile_reader *r)
{
	struct mm_profile *p = &r->profile;

	if (!key_is_stated(r, offsetof(struct mm_profile, link_slows_in)))
		p->link_slows_in = p->h2d_bps / p->hbm_bps;
	if (!key_is_stated(r, offsetof(struct mm_profile, link_slows_out)))
		p->link_slows_out = p->d2h_bps / p->hbm_bps;
	if (!key_is_stated(r, offsetof(struct mm_profile, rho)))
		p->rho = MM_PROFILE_RHO;
}

static void profile_set_name(struct mm_profile *p, const char *path)
{
	const char *slash = strrchr(path, '/');
	size_t n;

	path = slash ? slash + 1 : path;
	n = strlen(path);
	if (n > strlen(SUFFIX) && !strcmp(path + n - strlen(SUFFIX), SUFFIX))
		n -= strlen(SUFFIX);
	snprintf(p->name, sizeof(p->name), "%.*s", (int)MM_MIN(n, sizeof(p->name) - 1), path);
}

int mm_profile_load(const char *spec, struct mm_profile *ret, char *err, size_t err_bytes)
{
	mm_cleanup(mm_free_ptr) char *name = strdup(spec);
	struct profile_reader r = { .err = err, .err_bytes = err_bytes };
	char path[PATH_MAX], *overrides;
	int error;

	if (!name) {
		snprintf(err, err_bytes, "out of memory");
		return -ENOMEM;
	}
	overrides = strchr(name, ',');
	if (overrides)
		*overrides++ = '\0';
	error = profile_locate(name, path, err, err_bytes);
	if (error)
		return error;
	r.path = path;
	error = profile_read_file(&r);
	if (!error && overrides)
		error = profile_override(&r, overrides);
	if (error)
		return error;
	profile_derive(&r);
	profile_set_name(&r.profile, path);
	*ret = r.profile;
	return 0;
}

void mm_profile_share(struct mm_profile *p, double part)
{
	p->memory_bytes = (uint64_t)((double)p->memory_bytes * part);
	p->hbm_bps *= part;
	p->h2d_bps *= part;
	p->d2h_bps *= part;
	p->f16_flops *= part;
}
