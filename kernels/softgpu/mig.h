/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sg_mig - which MIG instances the first device has
 *
 * Concept:   the file "mig" in the device's directory has a character for each place of an
 *            instance. Until somebody makes or removes one there is no file, and there are as many
 *            instances as MM_SOFTGPU_MIG says; from then on the file is right. As with a driver, a
 *            GPU instance is no device before it has its compute instance, of which there is one.
 * Threading: safe from any thread and process: changes are made under a flock of the file.
 */
#pragma once

#include "kernels/softgpu/device.h"

enum sg_mig_place {
	SG_MIG_NONE = '0',
	SG_MIG_EMPTY = 'g',  /* a GPU instance without its compute instance */
	SG_MIG_DEVICE = '1', /* both: processes can use it */
};

struct sg_mig {
	char place[SG_MIG_MAX]; /* enum sg_mig_place */
};

/* Reads what there is. @first: MM_SOFTGPU_MIG; 0: there is none, whatever the file says. */
void sg_mig_read(unsigned int first, struct sg_mig *ret);

/**
 * sg_mig_change() - make an instance, or remove it
 * @first: MM_SOFTGPU_MIG
 * @place: 0 to SG_MIG_MAX - 1
 * @from:  what must be there
 * @to:    what is there afterwards; a device that ends loses its memory and its directory's files
 *
 * Return: 0; -EEXIST: something else than @from is there; -EBUSY: it is a device that a process
 * uses; another negative errno.
 */
int sg_mig_change(unsigned int first, unsigned int place, enum sg_mig_place from,
		  enum sg_mig_place to);
