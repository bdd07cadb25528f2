/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sg_snapshot - a device as NVML reports it, taken without opening the device
 *
 * Concept:   the file "state" of a device is copied once. A device that no process has made yet is
 *            described as it would be made now.
 * Ownership: a snapshot is a plain value.
 * Threading: safe from any thread.
 */
#pragma once

#include "kernels/softgpu/device.h"

struct sg_settings;

struct sg_snapshot {
	unsigned int number; /* of a GPU, or of a MIG instance where it is at least SG_MIG_FIRST */
	struct sg_device_info info;
	uint64_t used_bytes;
	bool mig;        /* a GPU: it is in MIG mode */
	char path[4096]; /* the device's directory */
};

/*
 * Takes snapshots of all GPUs that the environment names, then of the MIG instances of the first.
 * Return: how many.
 */
unsigned int sg_snapshots_take(struct sg_snapshot *ret, unsigned int max,
			       unsigned int *ret_instances);

/* Writes "GPU-…" or "MIG-…" into SG_UUID_TEXT bytes. */
void sg_uuid_text(const struct sg_snapshot *snapshot, char *ret_text);

/* Applies the UUIDs of CUDA_VISIBLE_DEVICES, and MIG mode, to the choice of devices in @w. */
void sg_settings_select_visible(struct sg_settings *w);
