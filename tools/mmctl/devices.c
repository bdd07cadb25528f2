/* SPDX-License-Identifier: Apache-2.0 */
/*
 * devices - the GPUs and MIG instances of this machine, and who manages them
 *
 * No daemon is needed: devices are listed by NVML, or by CUDA where there is no NVML. If an mmd
 * runs, its status says which driver it uses and which devices it manages. A device that another
 * mmd manages is recognised by the lock of its xfer.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/driver/nvml.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/driver.h"
#include "libclient/support/size.h"
#include "tools/mmctl/ctl.h"

#define DEVICES_MAX 128
#define HEX_BYTES   33

struct devices {
	struct mm_gpu_api gpu;
	struct mm_nvml nvml;
	json_t *status; /* answer of a running mmd; NULL: none runs */
	struct mm_nvml_facts list[DEVICES_MAX];
	int ordinal[DEVICES_MAX]; /* of each in CUDA; -1: CUDA does not show it to this process */
	int n;
};

static void devices_done(struct devices *d)
{
	mm_nvml_close(&d->nvml);
	mm_gpu_close(&d->gpu);
	json_decref(d->status);
}

static void uuid_hex(const char *uuid, char *ret_hex)
{
	size_t n = 0;

	for (uuid += strlen("GPU-"); *uuid && n < HEX_BYTES - 1; uuid++) {
		if (*uuid != '-')
			ret_hex[n++] = (char)(*uuid >= 'A' && *uuid <= 'F' ? *uuid | 0x20 : *uuid);
	}
	ret_hex[n] = '\0';
}

/* ---- finding devices ---- */

/* Lists the devices that CUDA shows: for where NVML shows none. */
static int devices_list_by_cuda(struct devices *d, int count)
{
	int n = 0;

	for (int i = 0; i < MM_MIN(count, DEVICES_MAX); i++) {
		struct mm_nvml_facts *f = &d->list[n];
		CUdevice device;
		CUuuid uuid;
		size_t bytes = 0, at;

		*f = (struct mm_nvml_facts){ .gpu = i, .instance = -1 };
		if (d->gpu.cuDeviceGet(&device, i) || d->gpu.cuDeviceGetUuid(&uuid, device))
			continue;
		at = (size_t)snprintf(f->uuid, sizeof(f->uuid), "GPU");
		for (size_t k = 0; k < sizeof(uuid.bytes); k++)
			at += (size_t)snprintf(f->uuid + at, sizeof(f->uuid) - at, "%s%02x",
					       k == 0 || (k >= 4 && k <= 10 && k % 2 == 0) ? "-"
											   : "",
					       (unsigned char)uuid.bytes[k]);
		(void)d->gpu.cuDeviceGetName(f->name, (int)sizeof(f->name), device);
		(void)d->gpu.cuDeviceTotalMem(&bytes, device);
		f->total_bytes = bytes;
		n++;
	}
	return n;
}

static void devices_number_by_cuda(struct devices *d, int count)
{
	for (int i = 0; i < count; i++) {
		CUdevice device;
		CUuuid uuid;

		if (d->gpu.cuDeviceGet(&device, i) || d->gpu.cuDeviceGetUuid(&uuid, device))
			continue;
		for (int k = 0; k < d->n; k++)
			if (mm_nvml_uuid_is(d->list[k].uuid, &uuid))
				d->ordinal[k] = i;
	}
}

const char *mmctl_driver(const json_t *status)
{
	const json_t *first = json_array_get(json_object_get(status, "devices"), 0);
	const char *kind = mm_json_text(json_object_get(first, "device"), "driver");

	if (getenv("MM_DRIVER"))
		return NULL;
	return strcmp(kind, "software") == 0 ? "software" : "cuda";
}

static int devices_find(struct devices *d)
{
	char err[512] = "", nvml_err[160] = "";
	int count = 0;

	if (getenv("MM_DRIVER") && *getenv("MM_DRIVER") && !mm_is_driver(getenv("MM_DRIVER")))
		return mmctl_error(MM_EXIT_USAGE, "MM_DRIVER: '%s' is none of: %s",
				   getenv("MM_DRIVER"), MM_DRIVER_CHOICES);
	if (mm_gpu_open(mmctl_driver(d->status), &d->gpu, err, sizeof(err)) < 0)
		return mmctl_error(MM_EXIT_FAILED, "%s", err);
	for (int i = 0; i < DEVICES_MAX; i++)
		d->ordinal[i] = -1;
	if (mm_gpu_init(&d->gpu, err, sizeof(err)) == 0 && d->gpu.cuDeviceGetCount(&count))
		count = 0;
	if (mm_nvml_open(&d->gpu, &d->nvml, nvml_err, sizeof(nvml_err)) == 0)
		d->n = mm_nvml_list(&d->nvml, d->list, DEVICES_MAX);
	if (d->n <= 0)
		d->n = devices_list_by_cuda(d, count);
	if (!d->n)
		return mmctl_error(MM_EXIT_FAILED, "%s%s%s", *err ? err : "no devices here",
				   *nvml_err ? "; NVML: " : "", nvml_err);
	devices_number_by_cuda(d, count);
	return MM_EXIT_DONE;
}

/* ---- who manages a device ---- */

static const json_t *status_find_device(const json_t *status, const char *hex)
{
	const json_t *one;
	size_t i;

	json_array_foreach(json_object_get(status, "devices"), i, one)
		if (strcmp(mm_json_text(json_object_get(one, "device"), "uuid"), hex) == 0)
			return one;
	return NULL;
}

/* The lock of a device is an abstract socket with the device's UUID in its name. */
static bool device_is_locked(const char *hex)
{
	char name[64 + HEX_BYTES], line[256];
	mm_cleanup(mm_close_file) FILE *sockets = fopen("/proc/net/unix", "re");
	bool found = false;

	snprintf(name, sizeof(name), "@mmd/device/%s", hex);
	while (sockets && !found && fgets(line, sizeof(line), sockets))
		found = strstr(line, name) != NULL;
	return found;
}

const char *mmctl_device_manager(const json_t *status, const char *uuid)
{
	char hex[HEX_BYTES];

	uuid_hex(uuid, hex);
	if (status_find_device(status, hex))
		return "mmd";
	return device_is_locked(hex) ? "another mmd" : "nobody";
}

static const char *device_manager(const struct devices *d, int i)
{
	return mmctl_device_manager(d->status, d->list[i].uuid);
}

/* ---- printing ---- */

static json_t *devices_device_json(const struct devices *d, int i)
{
	const struct mm_nvml_facts *f = &d->list[i];
	json_t *json =
		json_pack("{s:s, s:s, s:i, s:b, s:s}", "uuid", f->uuid, "name", f->name, "gpu",
			  f->gpu, "mig_mode", f->mig, "managed_by", device_manager(d, i));

	mm_json_put_known(json, "ordinal", d->ordinal[i] >= 0, (uint64_t)d->ordinal[i]);
	mm_json_put_known(json, "mig_instance", f->instance >= 0, (uint64_t)f->instance);
	mm_json_put_u64(json, "total_bytes", f->total_bytes);
	mm_json_put_known(json, "free_bytes", f->has_memory, f->free_bytes);
	return json;
}

static int devices_print_json(const struct devices *d)
{
	mm_cleanup(mm_json_done) json_t *result = json_object();
	json_t *list = json_array();

	for (int i = 0; i < d->n; i++)
		json_array_append_new(list, devices_device_json(d, i));
	mm_json_put_u64(result, "schema", 1);
	mm_json_put(result, "devices", list);
	return mmctl_print_json(result);
}

static void devices_print_text(const struct devices *d)
{
	char total[MM_SIZE_TEXT_BYTES], unused[MM_SIZE_TEXT_BYTES], ordinal[16];

	printf("%-7s %-40s %-28s %10s %10s  %s\n", "ORDINAL", "UUID", "NAME", "MEMORY", "FREE",
	       "MANAGED BY");
	for (int i = 0; i < d->n; i++) {
		const struct mm_nvml_facts *f = &d->list[i];

		snprintf(ordinal, sizeof(ordinal), d->ordinal[i] < 0 ? "-" : "%d", d->ordinal[i]);
		printf("%-7s %-40s %-28s %10s %10s  %s\n", ordinal, f->uuid, f->name,
		       mm_size_print(f->total_bytes, total),
		       f->has_memory ? mm_size_print(f->free_bytes, unused) : "?",
		       f->mig ? "(in MIG mode: its instances)" : device_manager(d, i));
	}
}

int mmctl_devices_run(const struct mmctl *ctl, int argc, char **argv)
{
	mm_cleanup(devices_done) struct devices d = { .n = 0 };
	struct mmctl quiet = *ctl;
	int r;

	(void)argc;
	(void)argv;
	quiet.quiet = true;
	(void)mmctl_request(&quiet, "status", NULL, &d.status);
	r = devices_find(&d);
	if (r != MM_EXIT_DONE)
		return r;
	if (ctl->json)
		return devices_print_json(&d);
	devices_print_text(&d);
	return MM_EXIT_DONE;
}
