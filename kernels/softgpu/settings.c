/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "kernels/softgpu/entry.h"
#include "kernels/softgpu/settings.h"
#include "kernels/softgpu/timed.h"
#include "libclient/base/base.h"
#include "libclient/support/number.h"
#include "libclient/support/size.h"

#define DEFAULT_MEMORY (UINT64_C(1) << 30)
#define UUID_DIGITS    32
#define DEFAULT_NAME   "mmd software GPU"

CUresult sg_error(CUresult result, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fputs("libmm-softgpu: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	return result;
}

static CUresult setting_size(const char *variable, uint64_t *ret_bytes)
{
	const char *text = secure_getenv(variable);
	uint64_t bytes;

	if (!text || !*text)
		return CUDA_SUCCESS;
	if (mm_size_parse(text, &bytes) < 0 || !bytes || bytes > INT64_MAX)
		return sg_error(CUDA_ERROR_INVALID_VALUE,
				"%s=%s: not a size; give bytes, or a number with K, M, G or T",
				variable, text);
	*ret_bytes = bytes;
	return CUDA_SUCCESS;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Dashes are ignored, wherever they are. */
static CUresult setting_uuid(struct sg_settings *w)
{
	const char *text = secure_getenv("MM_SOFTGPU_UUID");
	unsigned int n = 0;

	if (!text || !*text)
		return CUDA_SUCCESS;
	for (const char *p = text; *p; p++) {
		int digit = hex_digit(*p);

		if (*p == '-')
			continue;
		if (digit < 0 || n == UUID_DIGITS)
			n = UUID_DIGITS + 1;
		if (n > UUID_DIGITS)
			break;
		w->uuid.bytes[n / 2] = (char)(w->uuid.bytes[n / 2] << 4 | digit);
		n++;
	}
	if (n != UUID_DIGITS)
		return sg_error(CUDA_ERROR_INVALID_VALUE,
				"MM_SOFTGPU_UUID=%s: not a UUID; give 32 hexadecimal digits", text);
	w->has_uuid = true;
	return CUDA_SUCCESS;
}

static CUresult setting_number(const char *variable, const char *text, unsigned int min,
			       unsigned int max, unsigned int *ret_number, const char **ret_end)
{
	uint64_t number;

	if (mm_number_begin(text, &number, ret_end) || number < min || number > max)
		return sg_error(CUDA_ERROR_INVALID_VALUE, "%s=%s: give numbers from %u to %u",
				variable, secure_getenv(variable), min, max);
	*ret_number = (unsigned int)number;
	return CUDA_SUCCESS;
}

/* Chooses all devices, or some of them in another order, as CUDA_VISIBLE_DEVICES does. */
static CUresult setting_devices(struct sg_settings *w)
{
	const char *count = secure_getenv("MM_SOFTGPU_DEVICES"), *end = "";
	const char *visible = secure_getenv("MM_SOFTGPU_VISIBLE");
	const char *mig = secure_getenv("MM_SOFTGPU_MIG");
	unsigned int there = 1, n;

	if (count && *count)
		SG_TRY(setting_number("MM_SOFTGPU_DEVICES", count, 1, SG_DEVICES_MAX, &there,
				      &end));
	if (!*end && mig && *mig)
		SG_TRY(setting_number("MM_SOFTGPU_MIG", mig, 0, SG_MIG_MAX, &w->instances, &end));
	w->there = there;
	for (n = 0; n < there; n++)
		w->device[n] = n;
	if (!*end && visible && *visible) {
		n = 0;
		end = visible;
		do
			SG_TRY(setting_number("MM_SOFTGPU_VISIBLE", end + (n > 0), 0, there - 1,
					      &w->device[n], &end));
		while (++n < there && *end == ',');
	}
	if (*end)
		return sg_error(
			CUDA_ERROR_INVALID_VALUE,
			"MM_SOFTGPU_DEVICES, MM_SOFTGPU_MIG, MM_SOFTGPU_VISIBLE: '%s' is not "
			"understood; give a number, and numbers with commas between",
			end);
	for (unsigned int i = 0; i < n; i++)
		for (unsigned int k = 0; k < i; k++)
			if (w->device[i] == w->device[k])
				return sg_error(CUDA_ERROR_INVALID_VALUE,
						"MM_SOFTGPU_VISIBLE=%s: %u is there twice", visible,
						w->device[i]);
	w->n_devices = n;
	return CUDA_SUCCESS;
}

CUresult sg_settings_read(struct sg_settings *w)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	CUresult res;

	res = setting_size("MM_SOFTGPU_MEMORY", &w->memory_bytes);
	if (!res)
		res = setting_size("MM_SOFTGPU_GRANULARITY", &w->granularity_bytes);
	if (!res)
		res = setting_uuid(w);
	if (!res)
		res = setting_devices(w);
	if (!res)
		res = sg_timed_settings(&w->timing, &w->has_dilation);
	if (res)
		return res;
	if (w->granularity_bytes &&
	    (w->granularity_bytes < page || (w->granularity_bytes & (w->granularity_bytes - 1))))
		return sg_error(CUDA_ERROR_INVALID_VALUE,
				"MM_SOFTGPU_GRANULARITY: give a power of two of at least %llu",
				(unsigned long long)page);
	w->name = secure_getenv("MM_SOFTGPU_NAME");
	return CUDA_SUCCESS;
}

uint64_t sg_settings_memory(const struct sg_settings *w)
{
	return w->timing.on ? w->timing.profile.memory_bytes : DEFAULT_MEMORY;
}

const char *sg_settings_name(const struct sg_settings *w)
{
	return w->name && *w->name ? w->name : DEFAULT_NAME;
}
